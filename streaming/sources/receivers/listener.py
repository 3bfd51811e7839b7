"""Lines from whoever connects."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

from streaming.base import LOOPBACK, Access, AccessError, DeclarationError, ReceiverError
from streaming.sources.receivers.connector import Connector, LandingGuarantee, Received, Reception
from streaming.sources.receivers.listener_clients import Clients


@dataclass(frozen=True)
class TcpListener(Connector):
    """Listens on a port of this machine, and takes lines from those who connect, each a row, also an empty one.

    Up to `clients` are connected at a time, others wait. Rows of one client come in their order. What follows its last
    line end when a client ends the connection is a row; a line longer than `longest_line` bytes is refused and counted.
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
        with closing(Clients(listening, self.clients, self.longest_line, token, encryption)) as clients:
            yield Received()
            while True:
                yield from clients.heard()
