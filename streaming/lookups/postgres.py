"""Lookups in Postgres: a query with bound parameters, over connections that are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from streaming.declare import LookupRequest
from streaming.keyed import as_dict
from streaming.sinks import check_connection


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
        pool: _Connections = request.opened
        return self.only(await pool.fetch(self.query, as_dict(row)))

    @asynccontextmanager
    async def opens(self) -> AsyncIterator[_Connections]:
        """Connections, which are made when they are needed."""
        pool = _Connections(self.connection)
        try:
            yield pool
        finally:
            await pool.close()


class BlockingPostgresLookup(_Query):
    """A call for `Enriched` that asks Postgres in processes that can be killed, each with a connection of its own."""

    def __call__(self, row: Any, request: LookupRequest) -> Mapping[str, Any] | None:
        """The answer for a row."""
        held: _Connection = request.opened
        return self.only(held.fetch(self.query, as_dict(row)))

    @contextmanager
    def opens(self) -> Iterator[_Connection]:
        """A connection, which is made when it is needed."""
        held = _Connection(self.connection)
        try:
            yield held
        finally:
            held.close()


class _Connection:
    """One connection, made anew where the server has ended it."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self._open: psycopg.Connection[dict[str, Any]] | None = None

    def fetch(self, query: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """At most two rows of what the query gives."""
        if self._open is not None:
            try:
                return self._open.execute(query, parameters).fetchmany(2)
            except psycopg.OperationalError:
                # The server may have ended it while it was idle, which says nothing of the query.
                if not self._open.closed:
                    raise
        self._open = psycopg.connect(self._connection, autocommit=True, row_factory=dict_row)
        return self._open.execute(query, parameters).fetchmany(2)

    def close(self) -> None:
        """End it, if there is one."""
        if self._open is not None:
            self._open.close()


class _Connections:
    """Connections that wait for their next query; there are never more than queries at once."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self._idle: list[psycopg.AsyncConnection[dict[str, Any]]] = []

    async def fetch(self, query: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """At most two rows of what the query gives."""
        while self._idle:
            connection = self._idle.pop()
            try:
                return await self._fetch(connection, query, parameters)
            except psycopg.OperationalError:
                # The server may have ended it while it was idle, which says nothing of the query.
                if not connection.broken:
                    raise
        connection = await psycopg.AsyncConnection.connect(self._connection, autocommit=True, row_factory=dict_row)
        return await self._fetch(connection, query, parameters)

    async def close(self) -> None:
        """End those that wait."""
        for connection in self._idle:
            await connection.close()

    async def _fetch(
        self, connection: psycopg.AsyncConnection[dict[str, Any]], query: str, parameters: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        try:
            cursor = await connection.execute(query, parameters)
            rows: list[dict[str, Any]] = await cursor.fetchmany(2)
        except BaseException as error:
            if isinstance(error, psycopg.Error) and not connection.broken:
                self._idle.append(connection)
            else:
                # It was given up in the midst of a query, or has ended.
                await connection.close()
            raise
        self._idle.append(connection)
        return rows
