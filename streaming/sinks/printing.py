"""Rows to a terminal or a socket, a line each: for demonstrations, and for programs that listen."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from typing import ClassVar

from streaming.base import DeclarationError, SinkError, check_type
from streaming.lake import Lake
from streaming.sinks.encoding import json_objects
from streaming.sinks.sink import Delivered, Guarantee, NumberedBatch, PutAside, Sink, Target

_WITHIN_SECONDS = 10


@dataclass(frozen=True)
class Console(Target):
    """A line per row on standard output, after the name of the delivery and the number of the batch; for demos."""

    kind: ClassVar[str] = "console"
    guarantee: ClassVar[Guarantee] = "at least once"

    @property
    def address(self) -> str:
        """Standard output."""
        return "standard output"

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Nothing to connect to."""
        return _ConsoleSink()


class _ConsoleSink(Sink):
    def delivered_through(self, generation: int) -> None:
        return None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        put_aside([])
        name = batch.delivery.rpartition("/")[2]
        lines = (f"{name} {batch.number}> {line.decode()}\n" for line in json_objects(batch.messages))
        sys.stdout.write("".join(lines))
        sys.stdout.flush()


@dataclass(frozen=True)
class Socket(Target):
    """A JSON object a line to a TCP server; a batch counts once the system has taken all of it.

    What lies in buffers when the server dies is lost, so it is at least once only as far as the server reads.

    Raises:
        DeclarationError: the port is none.
    """

    host: str
    port: int

    kind: ClassVar[str] = "socket"
    guarantee: ClassVar[Guarantee] = "at least once"

    def __post_init__(self) -> None:
        check_type("host of Socket", self.host, str, "the name of a machine, such as 'localhost'")
        if not isinstance(self.port, int) or not 0 < self.port < 65_536:
            raise DeclarationError(f"port={self.port!r} of Socket is no port; use 1 to 65535.")

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Connects when it is used first."""
        return _SocketSink(self)


class _SocketSink(Sink):
    def __init__(self, target: Socket) -> None:
        self._target = target
        self._connection: socket.socket | None = None

    def delivered_through(self, generation: int) -> None:
        return None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        put_aside([])
        try:
            if self._connection is None:
                address = (self._target.host, self._target.port)
                self._connection = socket.create_connection(address, timeout=_WITHIN_SECONDS)
            self._connection.sendall(b"".join(line + b"\n" for line in json_objects(batch.messages)))
        except OSError as error:
            self.close()
            raise SinkError(
                f"nobody listens at {self._target.address} ({error}); start the server, and the batch is sent again."
            ) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
