"""Servers of one's own on free ports, in threads of this process: lines over TCP, a websocket, and polled HTTP."""

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
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.support.waiting import until


@dataclass
class LineServer:
    """Sends what it is told to whoever connected last; `connected` counts the connections so far."""

    port: int
    connected: int = 0
    _newest: socket.socket | None = None

    def send(self, content: bytes) -> None:
        """Send, once somebody is connected."""
        until(lambda: self._newest is not None, "connected to")
        assert self._newest is not None
        self._newest.sendall(content)

    def drop(self) -> None:
        """End the connection."""
        assert self._newest is not None
        self._newest.close()
        self._newest = None

    def break_off(self) -> None:
        """Reset the connection, as where the server dies without a word."""
        assert self._newest is not None
        self._newest.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.drop()


@contextmanager
def line_server(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[LineServer]:
    """A TCP server, which may speak `tls`; a later one may take the port of an earlier one."""
    listening = socket.create_server(("127.0.0.1", port))
    listening.settimeout(0.05)
    server, over = LineServer(listening.getsockname()[1]), threading.Event()

    def accept() -> None:
        while not over.is_set():
            # A client that does not trust the certificate breaks the handshake off.
            with suppress(TimeoutError, ssl.SSLError, ConnectionError):
                accepted = listening.accept()[0]
                server._newest = accepted if tls is None else tls.wrap_socket(accepted, server_side=True)
                server.connected += 1

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        over.set()
        thread.join()
        if server._newest is not None:
            server._newest.close()
        listening.close()


@dataclass
class CityServer:
    """Pushes the temperatures of cities that are asked for; `requests` are those of each connection."""

    url: str
    temperatures: dict[str, list[str]]
    requests: list[list[str]] = field(default_factory=list)
    _newest: ServerConnection | None = None

    def serve(self, connection: ServerConnection) -> None:
        """Answer each request with what there is of the city."""
        asked: list[str] = []
        self.requests.append(asked)
        self._newest = connection
        with suppress(ConnectionClosed):
            for message in connection:
                city = json.loads(message)["city"]
                for reading in self.temperatures.get(city, ()):
                    connection.send(reading)
                asked.append(city)

    def push(self, message: str) -> None:
        """Send to the newest connection."""
        assert self._newest is not None
        self._newest.send(message)

    def drop(self) -> None:
        """Lose the newest connection."""
        assert self._newest is not None
        self._newest.socket.shutdown(socket.SHUT_RDWR)


@contextmanager
def city_server(temperatures: dict[str, list[str]]) -> Iterator[CityServer]:
    """A websocket server."""
    server = CityServer("", temperatures)
    with serve(server.serve, "127.0.0.1", 0) as listening:
        server.url = f"ws://127.0.0.1:{listening.socket.getsockname()[1]}/temperatures"
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()


@dataclass(frozen=True)
class Asked:
    """A GET: the values of its query, and its headers."""

    query: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True)
class Answer:
    """What a GET is answered with."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class PolledServer:
    """`answer` is asked for each GET; `asked` are all of them."""

    url: str
    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def polled_server(answer: Callable[[Asked], Answer]) -> Iterator[PolledServer]:
    """An HTTP server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            asked = Asked(query, dict(self.headers))
            server.asked.append(asked)
            answer = server.answer(asked)
            self.send_response(answer.status)
            for name, value in (*answer.headers, ("Content-Length", str(len(answer.body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Silence."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server = PolledServer(f"http://127.0.0.1:{listening.server_address[1]}/events", answer)
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


@dataclass
class Relay:
    """A port that leads to another one; once `cut` is set nothing comes through, and nobody is told."""

    port: int
    cut: threading.Event = field(default_factory=threading.Event)


@contextmanager
def relay(port: int) -> Iterator[Relay]:
    """A relay to `port` of this machine, for one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as server:
        between = Relay(listening.getsockname()[1])

        def carry(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while content := source.recv(65_536):
                    if not between.cut.is_set():
                        target.sendall(content)

        def accept() -> None:
            client = listening.accept()[0]
            server.connect(("127.0.0.1", port))
            back = threading.Thread(target=carry, args=(server, client), daemon=True)
            back.start()
            with client:
                carry(client, server)
                server.shutdown(socket.SHUT_RDWR)
                back.join()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield between
        thread.join(20)
