"""Over HTTP, read-only: metrics for Prometheus, and the latest values of each key as JSON."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from streaming.base import Access, NotThere, QueryError, StreamingError, is_loopback, is_told
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.queryable import latest_of, plain

LATEST = "latest"
"""The first part of the path of every question for latest values."""

_STATUS = {NotThere: HTTPStatus.NOT_FOUND, QueryError: HTTPStatus.BAD_REQUEST}
"""The status of an answer by the error that is told instead of rows."""
_UNREADABLE = HTTPStatus.SERVICE_UNAVAILABLE

_LIMIT = "_limit"
_MOST_ROWS = 1_000

_log = logging.getLogger("tidemark")
_Start = Callable[..., Any]
_Application = Callable[[dict[str, Any], _Start], Iterable[bytes]]

_SILENT_AFTER = 30.0


def _answer_json(
    environ: Mapping[str, Any],
    start: _Start,
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


def _guarded(application: _Application, secret: bytes | None) -> _Application:
    """The application for those who say the `secret` as `Authorization: Bearer ...`; for this machine without one."""

    def admit(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        if secret is not None:
            scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
            # Headers come as Latin-1, whatever was sent.
            if scheme.lower() == "bearer" and is_told(token.strip().encode("latin-1"), secret):
                return application(environ, start)
            error = {"error": "this takes a token: send the header Authorization: Bearer TOKEN."}
            asked = [("WWW-Authenticate", "Bearer")]
            return _answer_json(environ, start, HTTPStatus.UNAUTHORIZED, error, asked)
        # A page of the web could otherwise let a name of its own point here, and read along.
        if not is_loopback(_host(environ.get("HTTP_HOST", ""))):
            error = {"error": "this is for this machine alone; ask for 127.0.0.1 or localhost."}
            return _answer_json(environ, start, HTTPStatus.BAD_REQUEST, error)
        return application(environ, start)

    return admit


def _server(port: int, application: _Application, access: Access) -> WSGIServer:
    """A server of the application for those who have `access`; `serve_forever` runs it. Port 0 is any that is free.

    Raises:
        OSError: the port cannot be had.
        AccessError: the token is not set, or the certificate cannot be used.
    """
    secret = access.secret()
    listening = _Server(access, port)
    listening.set_app(_guarded(application, secret))
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


class LatestValues:
    """A WSGI application that answers `/latest/PIPELINE/OPERATOR?column=value`, and tells at `/latest` what there is.

    Names of the path are looked up among those declared, and values are compared with those of the key's columns. An
    answer names the step that all its rows are of: `batch`, `watermark`, `written_at` and `age_seconds`.
    """

    def __init__(
        self, lake: Lake, pipelines: Callable[[], Mapping[str, Pipeline]], now: Callable[[], datetime]
    ) -> None:
        self._lake = lake
        self._pipelines = pipelines
        self._now = now

    def __call__(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        """One answer, always a JSON object; with `error`, its code and its facts where there is none."""
        try:
            status, document = HTTPStatus.OK, self._answer(environ)
        except StreamingError as error:
            status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), _UNREADABLE)
            document = {"error": str(error), **error.to_json()}
        # One question that fails, whatever the reason, must not end the answers to all others.
        except Exception:
            _log.exception("a question for latest values could not be answered: %s", environ.get("PATH_INFO"))
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            document = {"error": "this could not be read; the log of `tidemark metrics` says why."}
        return _answer_json(environ, start, status, document)

    def _answer(self, environ: Mapping[str, Any]) -> dict[str, Any]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            raise QueryError("latest values are only read; ask with GET.")
        _, _, *names = environ["PATH_INFO"].rstrip("/").split("/")
        if len(names) < 2:
            tables = [table for table in self._tables() if not names or table["pipeline"] == names[0]]
            if names and not tables:
                raise self._nothing_at(names)
            return {"tables": tables}
        return self._latest(names, dict(_asked(environ.get("QUERY_STRING", ""))))

    def _latest(self, names: list[str], asked: dict[str, str]) -> dict[str, Any]:
        pipeline = self._pipelines().get(names[0])
        operators = {} if pipeline is None else {operator.name: operator for operator in pipeline.operators}
        latest = latest_of(operators[names[1]], self._lake) if names[1] in operators else None
        if latest is None or len(names) > 2:
            raise self._nothing_at(names)
        limit = _limit(asked.pop(_LIMIT, None))
        answer = latest.read(asked, limit)
        if not answer.rows and asked.keys() == {*latest.keys} and asked:
            wanted = ", ".join(f"{name}={value!r}" for name, value in asked.items())
            raise NotThere(f"{names[1]!r} has no value for {wanted} at {_named(answer.batch)}.")
        return {
            "pipeline": names[0],
            "operator": names[1],
            "batch": plain(answer.batch),
            "watermark": plain(answer.watermark),
            "written_at": plain(answer.written_at),
            "age_seconds": max(0.0, (self._now() - answer.written_at).total_seconds()),
            "rows": plain(answer.rows),
            "more": answer.more,
        }

    def _nothing_at(self, names: list[str]) -> NotThere:
        there = ", ".join(table["path"] for table in self._tables()) or "none"
        return NotThere(f"there is nothing at /{'/'.join((LATEST, *names))}; there are: {there}.")

    def _tables(self) -> list[dict[str, Any]]:
        operators = [
            (name, operator.name, latest_of(operator, self._lake))
            for name, pipeline in self._pipelines().items()
            for operator in pipeline.operators
        ]
        return [
            {"pipeline": name, "operator": operator, "path": f"/{LATEST}/{name}/{operator}", "keys": list(latest.keys)}
            for name, operator, latest in operators
            if latest is not None
        ]


def _named(batch: int | Mapping[str, int]) -> str:
    if isinstance(batch, int):
        return f"batch {batch}"
    return " and ".join(f"batch {number} of {stream}" for stream, number in batch.items())


def _asked(query: str) -> Iterable[tuple[str, str]]:
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise QueryError(f"{name!r} is asked for more than once; ask for one value.")
    return pairs


def _limit(text: str | None) -> int:
    if text is None:
        return _MOST_ROWS
    if not text.isdecimal() or not text.isascii() or not 1 <= int(text) <= _MOST_ROWS:
        raise QueryError(f"{_LIMIT}={text!r} is no number of rows; use 1 to {_MOST_ROWS}.")
    return int(text)


def serve(port: int, registry: CollectorRegistry, latest: LatestValues, access: Access) -> WSGIServer:
    """A server of both for those who have `access`; `serve_forever` runs it. Port 0 is any that is free.

    Raises:
        OSError: the port cannot be had.
        AccessError: the token is not set, or the certificate cannot be used.
    """
    metrics: _Application = make_wsgi_app(registry)

    def application(environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        first = environ["PATH_INFO"].lstrip("/").partition("/")[0]
        return latest(environ, start) if first == LATEST else metrics(environ, start)

    return _server(port, application, access)
