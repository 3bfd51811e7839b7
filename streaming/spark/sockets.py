"""Sockets between Python, the JVM and Python workers on one machine, which would wait for each other by default.

A kernel delays the acknowledgement of a packet by 40 milliseconds where it expects an answer to send along with it, and
the other end sends no further part of a long message before it has come.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from py4j.clientserver import ClientServerConnection

ENABLED, FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
_LONGEST = 60
"""Characters of a folder for sockets: a socket has a name of some 40 in it, and no path of more than 107."""
_STREAM = "_tidemark_stream"


def worker_sockets(scratch: Path | None) -> dict[str, str]:
    """Settings by which Spark and its Python workers on this machine talk through sockets of the file system.

    They lie in a folder of their own that only this user can enter, below `scratch` where that is short enough; it is
    removed as the process ends. None where the system has no such sockets.
    """
    if not hasattr(socket, "AF_UNIX"):
        return {}
    parent = str(scratch) if scratch is not None and scratch.is_dir() else tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="tidemark-", dir=parent if len(parent) <= _LONGEST - 20 else "/tmp")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {ENABLED: "true", FOLDER: folder}


class _Answers:
    """The stream of answers on a connection, each packet of which is acknowledged at once."""

    def __init__(self, stream: Any, connection: socket.socket) -> None:
        self._stream = stream
        self._connection = connection

    def readline(self) -> bytes:
        """The next line."""
        # The kernel goes back to its default whenever it sees fit.
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        line: bytes = self._stream.readline()
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def acknowledge_at_once() -> None:
    """Let this process acknowledge what the JVM answers at once, where the system can be asked to."""
    if not hasattr(socket, "TCP_QUICKACK") or isinstance(vars(ClientServerConnection).get("stream"), property):
        return

    def stream_of(connection: Any) -> Any:
        return vars(connection).get(_STREAM)

    def keep(connection: Any, stream: Any) -> None:
        answers = stream if stream is None else _Answers(stream, connection.socket)
        vars(connection)[_STREAM] = answers

    ClientServerConnection.stream = property(stream_of, keep)
