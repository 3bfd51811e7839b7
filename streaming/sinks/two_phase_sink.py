"""A commit in two phases over several databases: what `TwoPhase` declares, carried out."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import pyarrow as pa
from psycopg import sql

from streaming.base import ProgressError
from streaming.sinks.comparison import Comparison
from streaming.sinks.postgres_sink import Cursor
from streaming.sinks.prepared_postgres import PreparedPostgres, names_begin_with
from streaming.sinks.sink import Delivered, NumberedBatch, PutAside, RefusedRow, Sink

_NAMED = 5
_UNWRITTEN = sql.SQL("savepoint tidemark_unwritten")
_BACK = sql.SQL("rollback to savepoint tidemark_unwritten")


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
