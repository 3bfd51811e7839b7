"""A store of one's own that speaks S3, for a test session, and a front of it that refuses what a test says."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import httpx
import pytest
from botocore.config import Config

from platform_assets.demo.feeds import free_port
from streaming.sinks.objects import Objects
from tests.support.services import starting

_STARTS_WITHIN = 60.0
KEY, SECRET = "TEST_S3_KEY", "TEST_S3_SECRET"
SECRET_OF_LAKES = "hunter2-of-the-store"
CREDENTIALS = {"access_key_id": KEY, "secret_access_key": SECRET}


@dataclass
class Bucket:
    """A bucket, and a client of it that has nothing to do with the one under test."""

    endpoint: str
    name: str

    def objects(self, **given: Any) -> Objects:
        """A target below `out`."""
        return Objects(f"s3://{self.name}/out", endpoint=self.endpoint, secret_options=CREDENTIALS, **given)

    def names(self, prefix: str = "out/") -> list[str]:
        """The keys below a prefix, relative to it, in order; none that begins with `_`."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        keys = [each["Key"].removeprefix(prefix) for page in pages for each in page.get("Contents", [])]
        return sorted(key for key in keys if not key.startswith("_"))

    def content(self, key: str, prefix: str = "out/") -> bytes:
        """What is in an object."""
        return bytes(self._client.get_object(Bucket=self.name, Key=prefix + key)["Body"].read())

    def put(self, key: str, content: bytes, prefix: str = "out/") -> None:
        """Put an object, as somebody else would."""
        self._client.put_object(Bucket=self.name, Key=prefix + key, Body=content)

    def create(self) -> Bucket:
        """Make the bucket."""
        self._client.create_bucket(Bucket=self.name)
        return self

    @property
    def _client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="reader",
            aws_secret_access_key="reader",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )


@contextmanager
def server() -> Iterator[str]:
    """A running store; its endpoint."""
    with logged_server() as (endpoint, _):
        yield endpoint


@contextmanager
def logged_server() -> Iterator[tuple[str, Path]]:
    """A running store: its endpoint, and the file in which it notes each request on a line of its own."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="tidemark-s3-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as written:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            process = subprocess.Popen(command, stdout=written, stderr=written, cwd=folder, start_new_session=True)
        try:
            with starting("S3 store"):
                _wait_for(endpoint, process, log)
            yield endpoint, log
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def store_of_lakes() -> Iterator[tuple[str, Path]]:
    """The same; this process, and those that it starts, know it by their environment as the store for lakes."""
    with logged_server() as (endpoint, log), pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIA-OF-THE-LAKE",
            "AWS_SECRET_ACCESS_KEY": SECRET_OF_LAKES,
        }.items():
            environment.setenv(name, value)
        yield endpoint, log


def _wait_for(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        with suppress(httpx.TransportError):
            httpx.get(endpoint, timeout=5)
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the store does not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


def new_bucket(endpoint: str) -> Bucket:
    """An empty bucket of its own."""
    return Bucket(endpoint, f"test-{uuid4().hex[:12]}").create()


def credentials() -> dict[str, str]:
    """The environment of a process that may use the store."""
    return {KEY: "AKIA-WRITER", SECRET: "hunter2"}


@dataclass
class Request:
    """What came to the front."""

    method: str
    path: str
    body: bytes


@dataclass
class Front:
    """`answer` gives a status and the body of an error for a request, or None to let the store behind it answer.

    What the store answers to a request that is `lost`, its client never hears: the connection is cut instead.
    """

    endpoint: str
    answer: Callable[[Request], tuple[int, str, str] | None] = lambda request: None
    lost: Callable[[Request], bool] = lambda request: False
    requests: list[Request] = field(default_factory=list)


@contextmanager
def front(behind: str) -> Iterator[Front]:
    """A store that refuses some requests as stores do: with a status, a code and a message."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self._body()
            request = Request(self.command, self.path, body)
            standing.requests.append(request)
            refused = standing.answer(request)
            if refused is not None:
                status, code, message = refused
                error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
                self._send(status, {"Content-Type": "application/xml"}, error)
                return
            store = http.client.HTTPConnection(behind.removeprefix("http://"), timeout=30)
            sent = {name: value for name, value in self.headers.items() if name.lower() not in _OF_THE_CONNECTION}
            store.request(self.command, self.path, body, sent)
            answer = store.getresponse()
            if standing.lost(request):
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_THE_CONNECTION}
            if self.command == "HEAD":
                kept["Content-Length"] = answer.getheader("Content-Length", "0")
            self._send(answer.status, kept, answer.read())
            store.close()

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

        def log_message(self, *_: object) -> None:
            """Silence."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    standing = Front(f"http://127.0.0.1:{listening.server_address[1]}")
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield standing
    finally:
        listening.shutdown()
        listening.server_close()


_OF_THE_CONNECTION = ("connection", "content-length", "date", "expect", "keep-alive", "server", "transfer-encoding")
