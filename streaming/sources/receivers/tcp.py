"""Lines from a TCP server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from streaming.base import DeclarationError, ReceiverError, check_type, interval
from streaming.sources.receivers.connector import IDLE, Connector, LandingGuarantee, Received, Reception
from streaming.sources.receivers.lines import LineCutter

_AT_ONCE = 65_536


@dataclass(frozen=True)
class TcpSocket(Connector):
    """Connects to a server that sends text; each line is a row, also an empty one.

    What the server sends while nobody is connected, or keeps in its buffers when the connection ends, never comes: at
    most once up to landing. Where rows cannot be written as fast as they come, the server is held up. What follows the
    last line end when the server ends the connection is a row; a line that is longer than `longest_line` bytes is
    refused and counted. A server without a sign of life is found out by TCP's own keep-alive.

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
                    yield cutter.end()
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
