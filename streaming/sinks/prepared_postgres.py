"""One Postgres database of several that get the same batches: transactions are prepared in it, and ended later."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import sql

from streaming.sinks import postgres_tables as tables
from streaming.sinks.postgres_sink import Cursor, PostgresSink
from streaming.sinks.sink import Delivered, NumberedBatch


def names_begin_with(delivered: Delivered) -> str:
    """The beginning of the names of all prepared transactions of a delivery."""
    of = hashlib.sha256(f"{delivered.name} {delivered.identity}".encode()).hexdigest()[:16]
    return f"tidemark:{of}:"


class PreparedPostgres(PostgresSink):
    """One database of several; `place` is its number: names of transactions are for a whole server, not a database."""

    def __init__(self, connection: str, table: Sequence[str], address: str, delivered: Delivered, place: int) -> None:
        super().__init__(connection, table, address, delivered)
        self._ends = f":{place}"
        self._staged = tables.Staged(f"tidemark_staged_{secrets.token_hex(8)}", temporary=False)

    @contextmanager
    def preparing(self, batch: NumberedBatch, name: str) -> Iterator[Cursor]:
        """A transaction for the batch, prepared under the name at its end.

        Raises:
            SinkError: the server is away, or refuses what is done in the transaction; nothing of it is left.
            FencedError: it is not the batch that follows.
        """
        with self._transaction(name + self._ends) as cursor:
            self._lock(cursor)
            self._fence(cursor, batch, self._newest(cursor, batch.generation))
            yield cursor
            cursor.execute(sql.SQL("drop table if exists {}").format(self._staged.name))

    def prepared(self) -> set[str]:
        """The names of what is prepared for the delivery."""
        query = (
            "select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, %s) "
            "and right(gid, %s) = %s"
        )
        given = (names_begin_with(self._delivered), len(self._ends), self._ends)
        with self._transaction() as cursor:
            return {str(gid).removesuffix(self._ends) for (gid,) in cursor.execute(query, given)}

    def end(self, name: str, *, commit: bool) -> None:
        """Commit what is prepared under the name, or roll it back.

        Raises:
            SinkError: the server is away, or another process has ended it.
        """
        ends = sql.SQL("commit prepared {}" if commit else "rollback prepared {}")
        with self._connected() as cursor:
            cursor.execute(ends.format(name + self._ends))

    @contextmanager
    def alone(self, generation: int) -> Iterator[int]:
        """The newest batch that is there, while no process has a transaction for the delivery."""
        with self._transaction() as cursor:
            self._create_progress(cursor)
            self._lock(cursor)
            yield self._newest(cursor, generation)

    def _lock(self, cursor: Cursor) -> None:
        # The row of the progress, which is locked elsewhere, is not there before the first batch.
        key = names_begin_with(self._delivered) + self._ends
        cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (key,))
