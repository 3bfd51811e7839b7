"""An HTTP server of one's own that remembers what it got, and answers as a test says."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Posted:
    """A request: its idempotency key, headers and rows."""

    key: str
    headers: dict[str, str]
    rows: list[dict[str, Any]]


Answer = int | tuple[int, dict[str, str]] | tuple[int, dict[str, str], str]
"""A status, or a status with headers, or also with a body."""

RESET = 0
"""In place of a status: the connection is reset, and nothing is answered."""


@dataclass
class HttpServer:
    """`answer` is asked for each request; `taken` are those that were answered with 2xx, `posted` all of them."""

    url: str
    answer: Callable[[Posted], Answer] = lambda posted: 200
    posted: list[Posted] = field(default_factory=list)
    taken: list[Posted] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """The rows that a server which honours idempotency keys has."""
        once = {posted.key: posted for posted in self.taken}
        return [row for posted in once.values() for row in posted.rows]


@contextmanager
def http_server(tls: ssl.SSLContext | None = None) -> Iterator[HttpServer]:
    """A server on a free port, in threads of this process, which may speak `tls`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted = Posted(self.headers["Idempotency-Key"], dict(self.headers), json.loads(body))
            server.posted.append(posted)
            answer = server.answer(posted)
            answered: tuple[Any, ...] = answer if isinstance(answer, tuple) else (answer, {})
            status, headers, *said = answered
            if status == RESET:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            if 200 <= status < 300:
                server.taken.append(posted)
            text = str(said[0] if said else f"answer {status}").encode()
            # Whoever asked may be gone by now.
            with suppress(ConnectionError):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Silence."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    if tls is not None:
        listening.socket = tls.wrap_socket(listening.socket, server_side=True)
    server = HttpServer(f"{'http' if tls is None else 'https'}://127.0.0.1:{listening.server_address[1]}/rows")
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
