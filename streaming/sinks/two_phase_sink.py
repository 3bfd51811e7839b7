"""A commit in two phases over several databases: what `TwoPhase` declares, carried out."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pyarrow as pa
from psycopg import sql

from streaming.base import ProgressError
from streaming.sinks import postgres_tables as tables
from streaming.sinks.postgres_sink import Cursor, PostgresSink
from streaming.sinks.sink import Comparison, Delivered, NumberedBatch, PutAside, RefusedRow, Sink

_NAMED = 5
_UNWRITTEN = sql.SQL("savepoint tidemark_unwritten")
_BACK = sql.SQL("rollback to savepoint tidemark_unwritten")


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


def _transaction_name(delivered: Delivered, batch: NumberedBatch) -> str:
    """The name under which an attempt at a batch is prepared, without the place of the database; no other has it."""
    return f"{names_begin_with(delivered)}{batch.generation}:{batch.number}:{secrets.token_hex(4)}"


class TwoPhaseSink(Sink):
    """The progress is that of each database, in the transaction of its rows."""

    def __init__(self, databases: Sequence[PreparedPostgres], delivered: Delivered) -> None:
        self._databases = databases
        self._delivered = delivered

    def delivered_through(self, generation: int) -> int:
        self._settle()
        with ExitStack() as held:
            # All at one time, so that no batch is half committed.
            newest = [held.enter_context(database.alone(generation)) for database in self._databases]
        if len({*newest}) > 1:
            batches = ", ".join(
                f"{database.address} has batch {number}"
                for database, number in zip(self._databases, newest, strict=True)
            )
            raise ProgressError(
                f"the databases of {self._delivered.name!r} do not have the same batches: {batches} (-1 for none). One "
                "of them was put back, or a prepared transaction was ended by hand. Bring it to where the others are; "
                "or `tidemark redeliver` with `--all` begins anew in each. Nothing was delivered."
            )
        return newest[0]

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        if self.delivered_through(batch.generation) >= batch.number:
            return
        name = _transaction_name(self._delivered, batch)
        with ExitStack() as transactions:
            # They are prepared in the order in which a stack ends them: the first database last.
            cursors = [transactions.enter_context(database.preparing(batch, name)) for database in self._databases]
            put_aside(self._write(cursors, batch))
            for database, cursor in zip(self._databases, cursors, strict=True):
                database.advance(cursor, batch)
        for database in self._databases:
            database.end(name, commit=True)

    def count(self) -> int | None:
        """The least, where they differ."""
        return min(database.count() or 0 for database in self._databases)

    def compare(self, generation: int, expected: Iterable[pa.Table]) -> Comparison | None:
        """Every table against the same rows."""
        with ExitStack() as transactions:
            compared = [transactions.enter_context(database.comparing(generation)) for database in self._databases]
            tried = [each for each in compared if each is not None]
            if len(tried) < len(compared):
                return None
            for rows in expected:
                for each in tried:
                    each.expect(rows)
            comparisons = [each.compared() for each in tried]
        return Comparison(
            comparisons[0].records,
            sum(each.differing for each in comparisons),
            comparisons[0].unit,
            tuple(
                f"{database.address}: {name}"
                for database, each in zip(self._databases, comparisons, strict=True)
                for name in each.named
            )[:_NAMED],
        )

    def close(self) -> None:
        for database in self._databases:
            database.close()

    def _write(self, cursors: Sequence[Cursor], batch: NumberedBatch) -> list[RefusedRow]:
        """Write the rows that every table takes; returns the others."""
        refused: dict[int, str] = {}
        for cursor in cursors:
            cursor.execute(_UNWRITTEN)
        while True:
            taken, kept = batch.without(refused)
            errors = {
                kept[row.position]: f"{database.address}: {row.error}"
                for database, cursor in zip(self._databases, cursors, strict=True)
                for row in database.write(cursor, taken)
            }
            if not errors:
                return [RefusedRow(position, refused[position]) for position in sorted(refused)]
            refused |= errors
            # A row is in none of them where one refuses it.
            for cursor in cursors:
                cursor.execute(_BACK)

    def _settle(self) -> None:
        """End what processes that died have left prepared."""
        prepared: dict[str, list[PreparedPostgres]] = {}
        for database in self._databases:
            for name in database.prepared():
                prepared.setdefault(name, []).append(database)
        first, *others = self._databases
        # Those in the first database come first: they hold the lock that deciding about the others needs.
        for name in sorted(prepared, key=lambda name: first not in prepared[name]):
            generation, number = map(int, name.split(":")[2:4])
            if first in prepared[name]:
                whole = all(name in database.prepared() for database in others)
                # If another process has ended it meanwhile, this fails, and what was found out is worth nothing.
                first.end(name, commit=whole)
                for database in others:
                    if name in database.prepared():
                        database.end(name, commit=whole)
            else:
                with first.alone(generation) as newest:
                    for database in prepared[name]:
                        database.end(name, commit=newest >= number)
