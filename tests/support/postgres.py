"""A Postgres of one's own for a test session, on a free port, in a folder that goes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from platform_assets.demo.feeds.local_postgres import LocalPostgres, binaries
from tests.support.services import starting


class Server(LocalPostgres):
    """One that tests share, each with a database of its own."""

    @property
    def binaries(self) -> Path:
        """The folder with `psql`."""
        return binaries()

    def database(self) -> str:
        """A new database, empty; returns the connection string."""
        name = f"test_{uuid4().hex[:12]}"
        with psycopg.connect(self.connection(), autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
        return self.connection(name)


@contextmanager
def server() -> Iterator[Server]:
    """A running server, stopped and removed at the end."""
    # In a folder that the account may enter.
    folder = Path(tempfile.mkdtemp(prefix="tidemark-postgres-"))
    folder.chmod(0o755)
    # Its log tells every change of a table to those who ask for it.
    started = Server(folder, {"wal_level": "logical"})
    try:
        with starting("Postgres"):
            started.start()
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder, ignore_errors=True)


def rows(conninfo: str, query: str) -> list[tuple[Any, ...]]:
    """What a query gives, on a connection of its own."""
    with psycopg.connect(conninfo) as connection:
        return connection.execute(query).fetchall()


def run(conninfo: str, *statements: str) -> None:
    """Carry out statements, in one transaction."""
    with psycopg.connect(conninfo) as connection:
        for statement in statements:
            connection.execute(statement)
