"""Lines over TCP: of a server that is connected to, or of whoever connects."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

from streaming.base import LOOPBACK, Access, AccessError, DeclarationError, ReceiverError, check_type, interval, is_told
from streaming.sources.receivers.connector import IDLE, Connector, LandingGuarantee, Received, Reception

_AT_ONCE = 65_536
# More than a record of TLS holds: what is left of one would not be told by the selector.
_TOKEN_WITHIN = 10.0
_LONGEST_TOKEN = 1_000


class LineCutter:
    """Keeps the line that is not complete yet; one that grows beyond `longest` bytes is refused, whole, and counted."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._unfinished = b""
        self._skipping = False

    def take(self, chunk: bytes) -> Received:
        """The lines that are complete now, without their ends (LF or CR LF); a CR within one is a space."""
        *complete, self._unfinished = (self._unfinished + chunk).split(b"\n")
        refused = 0
        if complete and self._skipping:
            # The end of a line that was refused when it grew too long.
            complete, self._skipping = complete[1:], False
        # Files have line ends at each CR, too.
        rows = [line.removesuffix(b"\r").replace(b"\r", b" ") for line in complete]
        taken = tuple(row for row in rows if len(row) <= self._longest)
        refused += len(rows) - len(taken)
        if self._skipping:
            self._unfinished = b""
        elif len(self._unfinished.removesuffix(b"\r")) > self._longest:
            self._unfinished, self._skipping = b"", True
            refused += 1
        return Received(taken, refused=refused)

    def end(self) -> Received:
        """The rest behind the last line end: the other side may have ended without one."""
        rest, self._unfinished, self._skipping = self._unfinished.removesuffix(b"\r"), b"", False
        return Received((rest.replace(b"\r", b" "),) if rest else ())

    def broken_off(self) -> Received:
        """No row: nobody knows how much of the line that has begun is missing, so it is refused and counted."""
        begun = bool(self._unfinished)
        self._unfinished, self._skipping = b"", False
        return Received(refused=int(begun))


@dataclass(frozen=True)
class TcpSocket(Connector):
    """Connects to a server that sends text; each line is a row, also an empty one.

    What the server sends while nobody is connected, or keeps in its buffers when the connection ends, never comes: at
    most once up to landing. Where rows cannot be written as fast as they come, the server is held up. What follows the
    last line end when the server ends the connection is a row; where the connection breaks off, that and a line that is
    longer than `longest_line` bytes are refused and counted. A server without a sign of life is found out by TCP's own
    keep-alive.

    `ssl`: the connection is encrypted, and the server must show a certificate for `host`, signed by somebody whom this
    machine trusts, or by who is in the PEM file `ca`.

    Raises:
        DeclarationError: the port or a length cannot be, or `ca` is given without `ssl`.
    """

    host: str
    port: int
    longest_line: int = 1_000_000
    connects_within: str = "10 seconds"
    ssl: bool = False
    ca: str | None = None

    guarantee: ClassVar[LandingGuarantee] = "at most once"

    def __post_init__(self) -> None:
        check_type("host of TcpSocket", self.host, str, "a name or an address, such as '127.0.0.1'")
        if not isinstance(self.port, int) or not 0 < self.port < 65_536:
            raise DeclarationError(f"port={self.port!r} of TcpSocket is no port; write a number from 1 to 65535.")
        if self.longest_line < 1:
            raise DeclarationError(f"longest_line={self.longest_line!r} takes no line; use 1 or more bytes.")
        interval(self.connects_within)
        if self.ca is not None and not self.ssl:
            raise DeclarationError(
                f"ca={self.ca!r} of TcpSocket checks nothing without ssl=True; add that, or leave ca out."
            )

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{'tls' if self.ssl else 'tcp'}://{self.host}:{self.port}"

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The lines as they come.

        Raises:
            ReceiverError: the server cannot be reached, or the connection has ended.
        """
        with self._connected() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.settimeout(IDLE)
            cutter = LineCutter(self.longest_line)
            yield Received()
            while True:
                try:
                    chunk = connection.recv(_AT_ONCE)
                except TimeoutError:
                    yield Received()
                    continue
                except OSError as error:
                    yield cutter.broken_off()
                    raise ReceiverError(f"{self.address} broke the connection off ({error}).") from error
                if not chunk:
                    yield cutter.end()
                    raise ReceiverError(f"{self.address} has ended the connection.")
                yield cutter.take(chunk)

    def _connected(self) -> socket.socket:
        within = interval(self.connects_within).total_seconds()
        try:
            connection = socket.create_connection((self.host, self.port), within)
            return self._encrypted(connection) if self.ssl else connection
        except ssl.SSLCertVerificationError as error:
            raise ReceiverError(
                f"{self.address} cannot be reached: its certificate is not to be trusted ({error.verify_message}). "
                "Correct host, or name the PEM file of who signed it: TcpSocket(..., ssl=True, ca='ca.pem')."
            ) from error
        except OSError as error:
            raise ReceiverError(
                f"{self.address} cannot be reached ({error}); start the server, or correct it."
            ) from error

    def _encrypted(self, connection: socket.socket) -> socket.socket:
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            connection.close()
            raise ReceiverError(
                f"ca={self.ca!r} of {self.address} cannot be read ({error}); name a PEM file."
            ) from error
        # Closes the connection where the handshake fails.
        return context.wrap_socket(connection, server_hostname=self.host)


@dataclass(frozen=True)
class TcpListener(Connector):
    """Listens on a port of this machine, and takes lines from those who connect, each a row, also an empty one.

    Up to `clients` are connected at a time, others wait. Rows of one client come in their order. What follows its last
    line end when a client ends the connection is a row; where the connection breaks off, that and a line that is longer
    than `longest_line` bytes are refused and counted.
    Where rows cannot be written as fast as they come, clients are held up. A client hears no word, so what is in
    buffers when the receiver ends never comes: at most once up to landing.

    `token` names a variable of the environment. A client must then send its value as the first line, and at once;
    whoever does not is disconnected and counted as refused. `host` other than a loopback address needs a token.

    `certificate` is a PEM file, with the key in it or in the file `key`: clients must then speak TLS. Without it
    nothing is encrypted, the token neither.

    Raises:
        DeclarationError: the port or a number cannot be, or anybody of the network could send rows.
    """

    port: int
    host: str = LOOPBACK
    token: str | None = None
    clients: int = 100
    longest_line: int = 1_000_000
    certificate: str | None = None
    key: str | None = None

    guarantee: ClassVar[LandingGuarantee] = "at most once"

    def __post_init__(self) -> None:
        if not isinstance(self.port, int) or not 0 < self.port < 65_536:
            raise DeclarationError(f"port={self.port!r} of TcpListener is no port; write a number from 1 to 65535.")
        for name in ("clients", "longest_line"):
            if getattr(self, name) < 1:
                raise DeclarationError(f"{name}={getattr(self, name)!r} of TcpListener takes no line; use 1 or more.")
        # Built to be checked.
        _ = self._access

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{'tcp' if self.certificate is None else 'tls'}://{self.host}:{self.port}, where clients connect"

    @property
    def _access(self) -> Access:
        return Access("TcpListener", self.host, self.token, self.certificate, self.key)

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The lines as they come.

        Raises:
            ReceiverError: the port is taken, the address is none of this machine, the variable is not set, or the
                certificate cannot be used.
        """
        access = self._access
        try:
            token, encryption = access.secret(), access.encryption()
        except AccessError as error:
            raise ReceiverError(f"{self.address}: {error}") from error
        try:
            listening = socket.create_server((self.host, self.port), family=access.family)
        except OSError as error:
            raise ReceiverError(
                f"{self.address}, cannot be listened on ({error}); end what has the port, or correct it."
            ) from error
        with closing(_Clients(listening, self.clients, self.longest_line, token, encryption)) as clients:
            yield Received()
            while True:
                yield from clients.heard()


class _Client:
    """One connection; until it has said the token its bytes are kept as they come."""

    def __init__(self, connection: socket.socket, longest_line: int, token: bytes | None) -> None:
        self.connection = connection
        self.silent_since: float | None = None if token is None else time.monotonic()
        self._cutter = LineCutter(longest_line)
        self._token = token
        self._said = b""

    def take(self, chunk: bytes) -> Received | None:
        """The rows of what came; None where it is not the token."""
        if self.silent_since is None or self._token is None:
            return self._cutter.take(chunk)
        self._said += chunk
        line, line_end, rest = self._said.partition(b"\n")
        if not line_end:
            return None if len(line) > _LONGEST_TOKEN else Received()
        if not is_told(line.removesuffix(b"\r"), self._token):
            return None
        self.silent_since, self._said = None, b""
        return self._cutter.take(rest)

    def end(self, *, broken_off: bool) -> Received:
        """The rest behind the last line end, if nothing broke off; whoever never said the token is refused."""
        if self.silent_since is not None:
            return Received(refused=1)
        return self._cutter.broken_off() if broken_off else self._cutter.end()


class _Clients:
    """All connections, heard in turn by one thread."""

    def __init__(
        self,
        listening: socket.socket,
        most: int,
        longest_line: int,
        token: bytes | None,
        encryption: ssl.SSLContext | None,
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._most = most
        self._longest_line = longest_line
        self._token = token
        self._encryption = encryption
        self._clients: dict[socket.socket, _Client] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)

    def heard(self) -> Iterator[Received]:
        """The portions that came within a moment, at most one from each client; at least one value."""
        ready = [key.fileobj for key, _ in self._selector.select(IDLE)]
        for one in ready:
            if one is self._listening:
                self._accept()
            elif isinstance(one, socket.socket):
                yield self._read(self._clients[one])
        late = time.monotonic() - _TOKEN_WITHIN
        for client in list(self._clients.values()):
            if client.silent_since is not None and client.silent_since < late:
                yield self._drop(client)
        yield Received()

    def close(self) -> None:
        """End all connections."""
        self._selector.close()
        for connection in (self._listening, *self._clients):
            connection.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
            connection.setblocking(False)
            if self._encryption is not None:
                # Greeted with the first bytes that are read: one that says nothing must not hold up the others.
                connection = self._encryption.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except OSError:
            # It was gone again before it was taken.
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._clients[connection] = _Client(connection, self._longest_line, self._token)
        self._selector.register(connection, selectors.EVENT_READ)
        if len(self._clients) == self._most:
            self._selector.unregister(self._listening)

    def _read(self, client: _Client) -> Received:
        try:
            chunk = client.connection.recv(_AT_ONCE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return Received()
        except OSError:
            return self._drop(client, broken_off=True)
        if not chunk:
            return self._drop(client)
        taken = client.take(chunk)
        return self._drop(client) if taken is None else taken

    def _drop(self, client: _Client, *, broken_off: bool = False) -> Received:
        if len(self._clients) == self._most:
            self._selector.register(self._listening, selectors.EVENT_READ)
        del self._clients[client.connection]
        self._selector.unregister(client.connection)
        client.connection.close()
        return client.end(broken_off=broken_off)
