"""Connections to Postgres that lookups keep, each made when it is needed, and anew where the server has ended it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import dict_row


class Connection:
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


class Connections:
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
