"""Lines from whoever connects."""

from __future__ import annotations

import hmac
import os
import selectors
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from typing import ClassVar

from streaming.base import DeclarationError, ReceiverError, check_type
from streaming.sources.receivers.connector import IDLE, Connector, LandingGuarantee, Received, Reception
from streaming.sources.receivers.lines import LineCutter

_AT_ONCE = 65_536
_TOKEN_WITHIN = 10.0
_LONGEST_TOKEN = 1_000


@dataclass(frozen=True)
class TcpListener(Connector):
    """Listens on a port of this machine, and takes lines from those who connect, each a row, also an empty one.

    Up to `clients` are connected at a time, others wait. Rows of one client come in their order. What follows its last
    line end when a client ends the connection is a row; a line longer than `longest_line` bytes is refused and counted.
    Where rows cannot be written as fast as they come, clients are held up. A client hears no word, so what is in
    buffers when the receiver ends never comes: at most once up to landing.

    `token` names a variable of the environment. A client must then send its value as the first line, and at once;
    whoever does not is disconnected and counted as refused. Nothing is encrypted, so other machines than this one
    should come through a proxy that speaks TLS; `host` other than a loopback address needs a token.

    Raises:
        DeclarationError: the port or a number cannot be, or anybody of the network could send rows.
    """

    port: int
    host: str = "127.0.0.1"
    token: str | None = None
    clients: int = 100
    longest_line: int = 1_000_000

    guarantee: ClassVar[LandingGuarantee] = "at most once"

    def __post_init__(self) -> None:
        check_type("host of TcpListener", self.host, str, "an address of this machine, such as '127.0.0.1'")
        if not isinstance(self.port, int) or not 0 < self.port < 65_536:
            raise DeclarationError(f"port={self.port!r} of TcpListener is no port; write a number from 1 to 65535.")
        for name in ("clients", "longest_line"):
            if getattr(self, name) < 1:
                raise DeclarationError(f"{name}={getattr(self, name)!r} of TcpListener takes no line; use 1 or more.")
        if self.token is None and not _is_loopback(self.host):
            raise DeclarationError(
                f"host={self.host!r} of TcpListener takes rows from anybody who reaches this machine; name a variable "
                "that holds what clients must say first, token='NAME_OF_A_VARIABLE', or listen on '127.0.0.1'."
            )

    @property
    def address(self) -> str:
        """Host and port."""
        return f"tcp://{self.host}:{self.port}, where clients connect"

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The lines as they come.

        Raises:
            ReceiverError: the port is taken, the address is none of this machine, or the variable is not set.
        """
        token = self._token()
        try:
            listening = socket.create_server((self.host, self.port), family=_family(self.host))
        except OSError as error:
            raise ReceiverError(
                f"{self.address}, cannot be listened on ({error}); end what has the port, or correct it."
            ) from error
        with closing(_Clients(listening, self.clients, self.longest_line, token)) as clients:
            yield Received()
            while True:
                yield from clients.heard()

    def _token(self) -> bytes | None:
        if self.token is None:
            return None
        value = os.environ.get(self.token)
        if not value:
            raise ReceiverError(f"{self.address}, needs {self.token} in the environment, which is not set; set it.")
        return value.encode()


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
        said, line_end, rest = self._said.partition(b"\n")
        if not line_end:
            return None if len(said) > _LONGEST_TOKEN else Received()
        if not hmac.compare_digest(said.removesuffix(b"\r"), self._token):
            return None
        self.silent_since, self._said = None, b""
        return self._cutter.take(rest)

    def end(self) -> Received:
        """What came behind the last line end; whoever never said the token is refused."""
        return self._cutter.end() if self.silent_since is None else Received(refused=1)


class _Clients:
    """All connections, heard in turn by one thread."""

    def __init__(self, listening: socket.socket, most: int, longest_line: int, token: bytes | None) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._most = most
        self._longest_line = longest_line
        self._token = token
        self._clients: dict[socket.socket, _Client] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)

    def heard(self) -> Iterator[Received]:
        """What came within a moment, from each client at most one portion; at least one value."""
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
        except OSError:
            # It was gone again before it was taken.
            return
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._clients[connection] = _Client(connection, self._longest_line, self._token)
        self._selector.register(connection, selectors.EVENT_READ)
        if len(self._clients) == self._most:
            self._selector.unregister(self._listening)

    def _read(self, client: _Client) -> Received:
        try:
            chunk = client.connection.recv(_AT_ONCE)
        except BlockingIOError:
            return Received()
        except OSError:
            chunk = b""
        if not chunk:
            return self._drop(client)
        taken = client.take(chunk)
        return self._drop(client) if taken is None else taken

    def _drop(self, client: _Client) -> Received:
        if len(self._clients) == self._most:
            self._selector.register(self._listening, selectors.EVENT_READ)
        del self._clients[client.connection]
        self._selector.unregister(client.connection)
        client.connection.close()
        return client.end()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
