"""A small server of HTTP for those who may ask: whoever has the token, or this machine alone; with TLS or without."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client.exposition import ThreadingWSGIServer

from streaming.base import Access, is_loopback, is_told

Start = Callable[..., Any]
Application = Callable[[dict[str, Any], Start], Iterable[bytes]]

_SILENT_AFTER = 30.0


def answer_json(
    environ: Mapping[str, Any],
    start: Start,
    status: HTTPStatus,
    document: Mapping[str, Any],
    headers: Iterable[tuple[str, str]] = (),
) -> list[bytes]:
    """Answer with a JSON object, which nobody may keep."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    start(
        f"{status.value} {status.phrase}",
        [
            ("Content-Type", "application/json; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            *headers,
        ],
    )
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def guarded(application: Application, secret: bytes | None) -> Application:
    """The application for those who say the `secret` as `Authorization: Bearer ...`; for this machine without one."""

    def admit(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if secret is not None:
            scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
            # Headers come as Latin-1, whatever was sent.
            if scheme.lower() == "bearer" and is_told(token.strip().encode("latin-1"), secret):
                return application(environ, start)
            error = {"error": "this takes a token: send the header Authorization: Bearer TOKEN."}
            asked = [("WWW-Authenticate", "Bearer")]
            return answer_json(environ, start, HTTPStatus.UNAUTHORIZED, error, asked)
        # A page of the web could otherwise let a name of its own point here, and read along.
        if not is_loopback(_host(environ.get("HTTP_HOST", ""))):
            error = {"error": "this is for this machine alone; ask for 127.0.0.1 or localhost."}
            return answer_json(environ, start, HTTPStatus.BAD_REQUEST, error)
        return application(environ, start)

    return admit


def server(port: int, application: Application, access: Access) -> WSGIServer:
    """A server of the application for those who have `access`; `serve_forever` runs it. Port 0 is any that is free.

    Raises:
        OSError: the port cannot be had.
        AccessError: the token is not set, or the certificate cannot be used.
    """
    secret = access.secret()
    listening = _Server(access, port)
    listening.set_app(guarded(application, secret))
    return listening


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_AFTER

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each request."""


class _Server(ThreadingWSGIServer):
    """Every connection has a thread, in which it is also greeted: one that says nothing holds up no other."""

    def __init__(self, access: Access, port: int) -> None:
        self._encryption = access.encryption()
        self.address_family = access.family
        super().__init__((access.host, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._encryption is None:
            return connection, address
        return self._encryption.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break, or speak no TLS, are the client's own; their trace would fill the terminal."""
