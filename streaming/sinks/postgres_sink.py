"""One batch into Postgres: staged by COPY, applied in one statement, committed together with its number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import errors, sql

from streaming.base import FencedError, SinkError
from streaming.sinks import postgres_tables as tables
from streaming.sinks.postgres_comparison import TableComparison
from streaming.sinks.postgres_tables import Conversion, stage
from streaming.sinks.sink import (
    CHANGE,
    Comparison,
    Delivered,
    NumberedBatch,
    PutAside,
    RefusedRow,
    Sink,
    check_follows,
    check_own,
)

Cursor = psycopg.Cursor[tuple[Any, ...]]

_PROGRESS = "tidemark_progress"
_CONNECTS_WITHIN = 10
_WAITS_FOR_LOCKS = "30s"
_SESSION = sql.SQL(
    "set lock_timeout = {}; set timezone = 'UTC'; set datestyle = 'ISO, YMD'; set intervalstyle = 'postgres'; "
    "set extra_float_digits = 1; set bytea_output = 'hex'"
)
"""The settings of a session: the form of values must not depend on how server, database or account are set up."""
_AWAY = ("08", "25", "28", "3D", "40", "53", "57", "58", "F0", "55P03", "55006", "XX001", "XX002", "HV00N")
"""Beginnings of the codes that are about the connection, the server or the transaction (PostgreSQL: Error Codes).

Everything else may be about a row: values and constraints, but also what a trigger raises, the limits of an index, and
the policies of a table.
"""
_OF_A_STATEMENT = ("42", "3F")


class PostgresSink(Sink):
    """A connection; after an error a new one is made."""

    _staged = tables.Staged()

    def __init__(self, connection: str, table: Sequence[str], address: str, delivered: Delivered) -> None:
        self._conninfo = connection
        self._table = sql.Identifier(*table)
        self._place = ".".join(table)
        self._progress = sql.Identifier(*table[:-1], _PROGRESS)
        self.address = address
        self._delivered = delivered
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def delivered_through(self, generation: int) -> int:
        with self._transaction() as cursor:
            self._create_progress(cursor)
            return self._newest(cursor, generation)

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        with self.following(batch) as cursor:
            if cursor is not None:
                put_aside(self.write(cursor, batch))
                self.advance(cursor, batch)

    @contextmanager
    def following(self, batch: NumberedBatch) -> Iterator[Cursor | None]:
        """A transaction that holds the progress and commits with it; None where the batch is there already.

        Raises:
            SinkError: the server is away, or refuses what is done in the transaction; nothing of it is left.
            FencedError: it is not the batch that follows.
        """
        with self._transaction() as cursor:
            self._create_progress(cursor)
            newest = self._newest(cursor, batch.generation, locked=True)
            if newest >= batch.number:
                yield None
                return
            self._fence(cursor, batch, newest)
            yield cursor

    def whole(self, cursor: Cursor) -> tuple[int, int]:
        """Generation and number of the newest batch that is there; -1 for none."""
        query = sql.SQL("select generation, batch from {} where delivery = %s order by generation desc limit 1")
        row = cursor.execute(query.format(self._progress), (self._delivered.name,)).fetchone()
        return (-1, -1) if row is None else (int(row[0]), int(row[1]))

    def write(self, cursor: Cursor, batch: NumberedBatch) -> list[RefusedRow]:
        """Write the rows of a batch; returns those that the table does not take."""
        columns, key = batch.selected.schema, self._delivered.key
        # Later, a table that is not there was dropped with the rows of the batches before.
        written = tables.prepare(
            cursor, self._table, self._place, columns, key, self._staged, may_create=batch.number == 0
        )
        refused = self._without_key(cursor, batch)
        tried, positions = batch.without(refused)
        failed = self._apply(cursor, tried, written)
        if failed and len(failed) == batch.rows.num_rows and all(map(_is_of_statement, failed.values())):
            # No row can be written before that is mended, so none of them is to blame.
            raise next(error for error in failed.values() if isinstance(error, psycopg.Error))
        refused |= {positions[position]: _told(error) for position, error in failed.items()}
        return [RefusedRow(position, refused[position]) for position in sorted(refused)]

    def values(self, column: str) -> set[str]:
        """The values that the table holds in a column of text, but for nulls."""
        query = sql.SQL("select {0} from {1} where {0} is not null").format(sql.Identifier(column), self._table)
        with self._transaction() as cursor:
            return {row[0] for row in cursor.execute(query)}

    def count(self) -> int | None:
        with self._transaction() as cursor:
            row = cursor.execute(sql.SQL("select count(*) from {}").format(self._table)).fetchone()
        assert row is not None
        return int(row[0])

    def compare(self, generation: int, expected: Iterable[pa.Table]) -> Comparison | None:
        """By the table's own types: what should be there is sent once more, into a temporary table."""
        with self.comparing(generation) as comparing:
            if comparing is None:
                return None
            for rows in expected:
                comparing.expect(rows)
            return comparing.compared()

    @contextmanager
    def comparing(self, generation: int) -> Iterator[TableComparison | None]:
        """A transaction in which rows are held against those that are there; None where that cannot be done."""
        if generation and not self._delivered.key:
            # Rows of the generations before lie among them.
            yield None
            return
        with self._transaction() as cursor:
            yield TableComparison(cursor, self._table, self._place, self._delivered, generation)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self, prepared_as: str | None = None) -> Iterator[Cursor]:
        """One transaction; where it fails nothing of it is left.

        It ends with its commit, or is prepared under a name, for a later one to commit.
        """
        with self._connected() as cursor:
            if prepared_as is None:
                with cursor.connection.transaction():
                    yield cursor
            else:
                cursor.execute("begin")
                yield cursor
                self._prepare(cursor, prepared_as)

    def _prepare(self, cursor: Cursor, name: str) -> None:
        cursor.execute(sql.SQL("prepare transaction {}").format(name))

    @contextmanager
    def _connected(self) -> Iterator[Cursor]:
        """The connection, outside of any transaction; after a failure it is closed.

        Raises:
            SinkError: with what the server says, which never has a password in it.
        """
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(
                    self._conninfo, connect_timeout=_CONNECTS_WITHIN, autocommit=True, client_encoding="UTF8"
                )
                # A process that was stopped in a transaction may hold the progress for as long as it likes.
                self._connection.execute(_SESSION.format(_WAITS_FOR_LOCKS))
            with self._connection.cursor() as cursor:
                yield cursor
        except psycopg.Error as error:
            self.close()
            raise SinkError(f"{self.address}: {_first_line(error)} {_advice(error)}") from error
        except BaseException:
            # A transaction that somebody broke off may be in any state.
            self.close()
            raise

    def _create_progress(self, cursor: Cursor) -> None:
        # Looked for before: creating needs a right that only the first batch should need.
        if not tables.is_there(cursor, self._progress):
            cursor.execute(
                sql.SQL(
                    "create table if not exists {} (delivery text, generation bigint, identity text not null, "
                    "batch bigint not null, rows bigint not null, delivered_at timestamptz not null default now(), "
                    "primary key (delivery, generation))"
                ).format(self._progress)
            )

    def _newest(self, cursor: Cursor, generation: int, *, locked: bool = False) -> int:
        query = sql.SQL("select batch, identity from {} where delivery = %s and generation = %s {}").format(
            self._progress, sql.SQL("for update" if locked else "")
        )
        row = cursor.execute(query, (self._delivered.name, generation)).fetchone()
        if row is not None:
            check_own(self._delivered, row[1], self.address, _PROGRESS)
        return -1 if row is None else int(row[0])

    def _fence(self, cursor: Cursor, batch: NumberedBatch, newest: int) -> None:
        later = cursor.execute(
            sql.SQL("select max(generation) from {} where delivery = %s and generation > %s").format(self._progress),
            (self._delivered.name, batch.generation),
        ).fetchone()
        newest_generation = batch.generation if later is None or later[0] is None else int(later[0])
        check_follows(batch, newest, newest_generation, self.address)

    def advance(self, cursor: Cursor, batch: NumberedBatch) -> None:
        """Count the batch as delivered, once the transaction is committed."""
        cursor.execute(
            sql.SQL(
                "insert into {0} as p (delivery, generation, identity, batch, rows) values (%s, %s, %s, %s, %s) "
                "on conflict (delivery, generation) do update set batch = excluded.batch, "
                "rows = p.rows + excluded.rows, delivered_at = now() where p.batch = excluded.batch - 1"
            ).format(self._progress),
            (self._delivered.name, batch.generation, self._delivered.identity, batch.number, batch.rows.num_rows),
        )
        if cursor.rowcount != 1:
            raise FencedError(f"batch {batch.key} was delivered to {self.address} by another process meanwhile.")

    def _without_key(self, cursor: Cursor, batch: NumberedBatch) -> dict[int, str]:
        """The rows with a null in the key, where the table would keep each of them beside the others."""
        key = self._delivered.key
        if not any(batch.rows[name].null_count for name in key) or tables.takes_null_keys(cursor, self._table, key):
            return {}
        nulls = {
            position: name
            for name in reversed(key)
            for position, is_null in enumerate(batch.rows[name].is_null().to_pylist())
            if is_null
        }
        columns = ", ".join(key)
        return {
            position: f"the key column {name!r} is null, and no unique index of {self._place} on ({columns}) takes two "
            f"nulls for the same key. Create one (`create unique index on {self._place} ({columns}) nulls not "
            "distinct`, from Postgres 15 on), or leave such rows out with `where`."
            for position, name in nulls.items()
        }

    def _apply(
        self, cursor: Cursor, batch: NumberedBatch, written: Sequence[Conversion]
    ) -> dict[int, psycopg.Error | str]:
        """Write the rows of a batch, in halves where one is refused; gives the refused ones."""
        failed = self._halved(cursor, batch, 0, batch.rows.num_rows, written)
        lacking = [position for position, error in failed.items() if isinstance(error, errors.ForeignKeyViolation)]
        # A row may refer to another one of its batch that came after it.
        if lacking and len(lacking) < batch.rows.num_rows:
            again = self._apply(cursor, batch.at(lacking), written)
            failed = {position: error for position, error in failed.items() if position not in lacking}
            failed |= {lacking[place]: error for place, error in again.items()}
        return failed

    def _halved(
        self, cursor: Cursor, batch: NumberedBatch, first: int, rows: int, written: Sequence[Conversion]
    ) -> dict[int, psycopg.Error | str]:
        if not rows:
            return {}
        try:
            with cursor.connection.transaction():
                refused = self._write(cursor, batch.part(first, rows), written)
                return {first + position: why for position, why in refused.items()}
        except psycopg.Error as error:
            is_whole = rows == batch.rows.num_rows
            if is_of_server(error) or (is_whole and not self._can_write(cursor, batch, written)):
                raise
            if rows == 1:
                return {first: error}
            half = rows // 2
            halves = ((first, half), (first + half, rows - half))
            tried = [self._halved(cursor, batch, *each, written) for each in halves]
            return tried[0] | tried[1]

    def _can_write(self, cursor: Cursor, batch: NumberedBatch, written: Sequence[Conversion]) -> bool:
        """True if the statements themselves can be carried out, without any row."""
        try:
            with cursor.connection.transaction(force_rollback=True):
                self._write(cursor, batch.part(0, 0), written)
        except psycopg.Error:
            return False
        return True

    def _write(self, cursor: Cursor, batch: NumberedBatch, written: Sequence[Conversion]) -> dict[int, str]:
        """Write the rows, but for those with a value that its column would make another of; gives these."""
        key = self._delivered.key
        stage(cursor, batch, self._staged, {each.name for each in written if each.is_array})
        refused = self._remove_inexact(cursor, written)
        if not key:
            cursor.execute(tables.insert(self._table, written, self._staged))
        else:
            if CHANGE in batch.rows.column_names:
                nulls = any(batch.rows[name].null_count for name in key)
                cursor.execute(tables.delete(self._table, written, key, self._staged, nulls=nulls))
            cursor.execute(tables.upsert(self._table, written, key, self._staged))
        # What is deferred would fail with the whole transaction, at its end.
        cursor.execute("set constraints all immediate")
        return refused

    def _remove_inexact(self, cursor: Cursor, written: Sequence[Conversion]) -> dict[int, str]:
        query = tables.inexact(written, self._staged)
        if query is None:
            return {}
        refused: dict[int, str] = {}
        for position, column, value, type_ in cursor.execute(query).fetchall():
            refused.setdefault(
                position,
                f"column {column!r}: {value} would not be the same value in {type_}; round or cut it in what is "
                "selected, or give the column a type that holds it.",
            )
        if refused:
            delete = sql.SQL("delete from {} where {} = any(%s)").format(self._staged.name, tables.PLACE)
            cursor.execute(delete, ([*refused],))
        return refused


def _is_of_statement(error: psycopg.Error | str) -> bool:
    return isinstance(error, psycopg.Error) and is_of_statement(error)


def _told(error: psycopg.Error | str) -> str:
    return error if isinstance(error, str) else f"{type(error).__name__}: {_first_line(error)}"


def is_of_server(error: psycopg.Error) -> bool:
    """True if the batch failed for what the server is or does, and not for its rows."""
    return error.sqlstate is None or error.sqlstate.startswith(_AWAY)


def is_of_statement(error: psycopg.Error) -> bool:
    """True if a statement within a function of the server's, such as a trigger's, cannot be carried out at all.

    What a function raises itself is about the row that it was called for.
    """
    within = error.diag.context is not None and error.diag.source_function != "exec_stmt_raise"
    return within and (error.sqlstate or "").startswith(_OF_A_STATEMENT)


def _first_line(error: psycopg.Error) -> str:
    """The message of the server, in one sentence."""
    text = str(error.diag.message_primary or error).strip()
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".") + "."


def _advice(error: psycopg.Error) -> str:
    """Advice on what to do next."""
    match error:
        case errors.InsufficientPrivilege():
            return "Grant the right; the batch is sent again by itself."
        case errors.ObjectNotInPrerequisiteState() | errors.OutOfMemory() if "prepared transactions" in str(error):
            return (
                "Set max_prepared_transactions of the server to at least the number of deliveries that commit in two "
                "phases there, and start it again; the batch is sent again by itself."
            )
        case errors.DiskFull() | errors.OutOfMemory():
            return "Make room on the server; the batch is sent again by itself."
        case _ if is_of_statement(error):
            return "Correct the function or trigger of the table that says so; the batch is sent again by itself."
        case errors.UndefinedColumn() | errors.UndefinedTable() | errors.DatatypeMismatch():
            return "Give the table the columns and types that are delivered; the batch is sent again by itself."
        case errors.InvalidColumnReference():
            return "Give the table a unique index on the key; the batch is sent again by itself."
    return "The batch is sent again by itself."
