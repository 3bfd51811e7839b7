"""Rows into tables of several Postgres databases: in all of them, or in none."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from psycopg import sql

from streaming.base import DeclarationError, ProgressError, check_type
from streaming.lake import Lake
from streaming.sinks.comparison import Comparison
from streaming.sinks.postgres import Postgres
from streaming.sinks.postgres_sink import Cursor
from streaming.sinks.prepared_postgres import PreparedPostgres, names_begin_with
from streaming.sinks.sink import Delivered, Guarantee, NumberedBatch, PutAside, RefusedRow, Sink, Target

_NAMED = 5
_UNWRITTEN = sql.SQL("savepoint tidemark_unwritten")
_BACK = sql.SQL("rollback to savepoint tidemark_unwritten")


@dataclass(frozen=True)
class TwoPhase(Target):
    """Each row goes into the table of every one of `databases`, by a commit in two phases.

    A batch is written into each, and each promises to commit it (`prepare transaction`), before the first one does. A
    process that dies in between is followed by one that finds what was prepared, and commits it everywhere, or nowhere.
    For the instant between two commits a reader may see the rows in one database and not yet in the next; while a
    database is away that has promised, it gets them when it is back.

    A row that one of them refuses is in none, and becomes a dead letter; while one is away all wait. Keys, revisions
    and tables are as `Postgres` says. Each server needs `max_prepared_transactions` of one or more per delivery, and
    the account the right to create tables in the schema, in which rows are staged.

    Raises:
        DeclarationError: fewer than two databases, one of them twice, or keys that differ.
    """

    databases: tuple[Postgres, ...]
    batch: int = 10_000

    kind: ClassVar[str] = "postgres"
    guarantee: ClassVar[Guarantee] = "exactly once"
    keeps_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_type("databases of TwoPhase", self.databases, tuple, "a tuple, such as (Postgres('a'), Postgres('b'))")
        for database in self.databases:
            check_type("each of databases of TwoPhase", database, Postgres, "a table, such as Postgres('orders')")
        connections = [database.connection for database in self.databases]
        if len(connections) < 2 or len({*connections}) < len(connections):
            raise DeclarationError(
                f"the databases of TwoPhase are {connections}; give two or more, each with a connection of its own: "
                "tables of one database are written together by a delivery to one of them and a trigger, or a view."
            )
        keys = {database.key for database in self.databases}
        if len(keys) > 1:
            raise DeclarationError(
                f"the tables of TwoPhase have different keys: {sorted(keys)}; give each the same, or none."
            )

    @property
    def key(self) -> tuple[str, ...]:  # type: ignore[override]
        """That of every table."""
        return self.databases[0].key

    @property
    def address(self) -> str:
        """All of them."""
        return " and ".join(database.address for database in self.databases)

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Connects to each when it is used first."""
        return _TwoPhaseSink(
            [
                PreparedPostgres(database.connection, database.table.split("."), database.address, delivered, place)
                for place, database in enumerate(self.databases)
            ],
            delivered,
        )


def _transaction_name(delivered: Delivered, batch: NumberedBatch) -> str:
    """The name under which an attempt at a batch is prepared, without the place of the database; no other has it."""
    return f"{names_begin_with(delivered)}{batch.generation}:{batch.number}:{secrets.token_hex(4)}"


class _TwoPhaseSink(Sink):
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
