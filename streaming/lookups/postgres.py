"""Lookups in Postgres: a query with bound parameters, over connections that are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streaming.base import as_dict, check_connection
from streaming.declare import LookupRequest

if TYPE_CHECKING:
    from streaming.lookups.postgres_connections import Connection, Connections


@dataclass(frozen=True)
class _Query:
    """`connection` is a libpq connection string or URI without a password, which libpq finds where it always does.

    `query` gives at most one row, whose columns are those of the result; parameters such as `%(sensor)s` are columns
    of the row that is asked for, times as whole microseconds. Where it gives no row nothing was found.

    Raises:
        DeclarationError: the connection string cannot be read or has a password.
    """

    connection: str
    query: str

    def __post_init__(self) -> None:
        check_connection("a Postgres lookup", self.connection)

    def only(self, rows: list[dict[str, Any]]) -> Mapping[str, Any] | None:
        """The row that was found; None where none was.

        Raises:
            ValueError: several were.
        """
        if len(rows) > 1:
            raise ValueError(f"the query {self.query!r} gives several rows for one; let it give the one that is meant")
        return rows[0] if rows else None


class PostgresLookup(_Query):
    """A call for `Enriched` that asks Postgres, with as many connections as there are calls in flight."""

    async def __call__(self, row: Any, request: LookupRequest) -> Mapping[str, Any] | None:
        """The answer for a row."""
        pool: Connections = request.opened
        return self.only(await pool.fetch(self.query, as_dict(row)))

    @asynccontextmanager
    async def opens(self) -> AsyncIterator[Connections]:
        """Connections, which are made when they are needed."""
        # Only who asks Postgres loads the client.
        from streaming.lookups.postgres_connections import Connections

        pool = Connections(self.connection)
        try:
            yield pool
        finally:
            await pool.close()


class BlockingPostgresLookup(_Query):
    """A call for `Enriched` that asks Postgres in processes that can be killed, each with a connection of its own."""

    def __call__(self, row: Any, request: LookupRequest) -> Mapping[str, Any] | None:
        """The answer for a row."""
        held: Connection = request.opened
        return self.only(held.fetch(self.query, as_dict(row)))

    @contextmanager
    def opens(self) -> Iterator[Connection]:
        """A connection, which is made when it is needed."""
        from streaming.lookups.postgres_connections import Connection

        held = Connection(self.connection)
        try:
            yield held
        finally:
            held.close()
