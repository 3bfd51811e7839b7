"""The tables of a Postgres target: their columns from Arrow's, created or checked, and the statements on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import Cursor, sql

from streaming.base import SinkError
from streaming.sinks.sink import REASON, REVISION

_TYPES = (
    (pa.types.is_boolean, "boolean"),
    (lambda type_: pa.types.is_int8(type_) or pa.types.is_int16(type_), "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_floating, "double precision"),
    (lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_), "text"),
    (lambda type_: pa.types.is_binary(type_) or pa.types.is_large_binary(type_), "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_nested, "jsonb"),
)

_NULLS_AS_KEYS = 150_000

PLACE, CHANGED = sql.Identifier("_place"), sql.Identifier("_change")


@dataclass(frozen=True)
class Staged:
    """The table from which the rows of a batch are applied: temporary, and gone with the transaction.

    One that is not `temporary` is dropped by whoever made it, and needs a name that nobody else takes: a transaction
    that is to be prepared must not touch temporary tables.
    """

    table: str = "tidemark_staged"
    temporary: bool = True

    @property
    def name(self) -> sql.Identifier:
        """Quoted."""
        return sql.Identifier(self.table)

    def create(self, columns: sql.Composable) -> sql.Composed:
        """The statement that makes it."""
        # Not an unlogged one: a server that crashes after its creation was rolled back may not start again.
        text = (
            "create temporary table if not exists {} ({}) on commit drop" if self.temporary else "create table {} ({})"
        )
        return sql.SQL(text).format(self.name, columns)


def column_type(type_: pa.DataType) -> str:
    """The type of Postgres that holds every value of an Arrow type; lists, structs and maps are `jsonb`."""
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz is None else "timestamptz"
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})"
    return next((name for matches, name in _TYPES if matches(type_)), "text")


def prepare(
    cursor: Cursor[tuple[object, ...]],
    table: sql.Composable,
    place: str,
    columns: pa.Schema,
    key: Sequence[str],
    staged_in: Staged,
    *,
    may_create: bool,
) -> None:
    """Make the table for what is staged, and the table itself if it is not there and `may_create`.

    Raises:
        SinkError: the table is not there, or lacks a column or a unique index on the key.
    """
    own = [*columns, *([pa.field(REVISION, pa.int64()), pa.field(REASON, pa.string())] if key else [])]
    missing = [name for name in key if name not in columns.names]
    if missing:
        raise SinkError(
            f"the key column {missing[0]!r} of table {place!r} is not delivered; columns are: "
            f"{', '.join(columns.names)}. Select it, or correct the key."
        )
    if not is_there(cursor, table):
        if not may_create:
            raise SinkError(
                f"table {place!r} is not there any more, and rows were delivered to it. Restore it with them, and the "
                "batch is sent again by itself; or `tidemark redeliver` with `--all` delivers everything into a new "
                "one, in a new generation."
            )
        _create(cursor, table, own, key)
    there = set(columns_there(cursor, table))
    # The reason is for people; a table of one's own need not have it.
    for field in own:
        if field.name not in there and field.name != REASON:
            raise SinkError(
                f"table {place!r} has no column {field.name!r}; add it with `alter table {place} add column "
                f'"{field.name}" {column_type(field.type)}`, or leave it out of what is selected.'
            )
    staged = [*columns, pa.field(REVISION, pa.int64()), pa.field("_change", pa.string()), pa.field(REASON, pa.string())]
    defined = [*(_definition(field) for field in staged), sql.SQL("{} bigint").format(PLACE)]
    cursor.execute(staged_in.create(sql.SQL(", ").join(defined)))


def is_there(cursor: Cursor[tuple[object, ...]], table: sql.Composable) -> bool:
    """Whether there is a table of that name where the connection looks for it."""
    row = cursor.execute("select to_regclass(%s)", (table.as_string(cursor),)).fetchone()
    return row is not None and row[0] is not None


def columns_there(cursor: Cursor[tuple[object, ...]], table: sql.Composable) -> list[str]:
    """The columns of a table, which nobody can alter from here on until the transaction ends."""
    # Not as a prepared statement: one that was prepared before the table was altered fails.
    cursor.execute(sql.SQL("select * from {} limit 0").format(table), prepare=False)
    return [column.name for column in cursor.description or ()]


def _create(
    cursor: Cursor[tuple[object, ...]], table: sql.Composable, columns: Sequence[pa.Field], key: Sequence[str]
) -> None:
    # Keys may be null, which no primary key takes; before version 15 every null was a key of its own.
    kind = "unique nulls not distinct" if cursor.connection.info.server_version >= _NULLS_AS_KEYS else "primary key"
    constraint = [sql.SQL("{} ({})").format(sql.SQL(kind), names(key))] if key else []
    cursor.execute(
        sql.SQL("create table if not exists {} ({})").format(
            table, sql.SQL(", ").join([*(_definition(field) for field in columns), *constraint])
        )
    )


def insert(table: sql.Composable, columns: Sequence[str], staged: Staged) -> sql.Composed:
    """Every staged row, in order."""
    return sql.SQL("insert into {0} ({1}) select {1} from {2} order by {3}").format(
        table, names(columns), staged.name, PLACE
    )


def upsert(table: sql.Composable, columns: Sequence[str], key: Sequence[str], staged: Staged) -> sql.Composed:
    """The newest staged row of each key that is not to be deleted, where the table has no newer one."""
    values = sql.SQL(", ").join(
        sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in columns if name not in key
    )
    return sql.SQL(
        "insert into {table} as t ({columns}) select {columns} from ({newest}) s where s.{change} <> 'delete' "
        "on conflict ({key}) do update set {values} where coalesce(t.{revision} <= excluded.{revision}, true)"
    ).format(
        table=table,
        columns=names(columns),
        newest=_newest(key, staged),
        change=CHANGED,
        key=names(key),
        values=values,
        revision=sql.Identifier(REVISION),
    )


def delete(table: sql.Composable, key: Sequence[str], staged: Staged, *, nulls: bool) -> sql.Composed:
    """The rows of keys whose newest staged row says so, where the table has no newer one.

    `nulls`: whether a key may be null, which no index helps to find.
    """
    same = "t.{0} is not distinct from s.{0}" if nulls else "t.{0} = s.{0}"
    return sql.SQL(
        "delete from {table} t using ({newest}) s where s.{change} = 'delete' and {same} "
        "and coalesce(t.{revision} <= s.{revision}, true)"
    ).format(
        table=table,
        newest=_newest(key, staged),
        change=CHANGED,
        same=sql.SQL(" and ").join(sql.SQL(same).format(sql.Identifier(name)) for name in key),
        revision=sql.Identifier(REVISION),
    )


def names(columns: Sequence[str]) -> sql.Composed:
    """The columns, quoted, with commas."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _newest(key: Sequence[str], staged: Staged) -> sql.Composed:
    return sql.SQL("select distinct on ({key}) * from {staged} order by {key}, {revision} desc, {place} desc").format(
        key=names(key), staged=staged.name, revision=sql.Identifier(REVISION), place=PLACE
    )


def _definition(field: pa.Field) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(column_type(field.type)))
