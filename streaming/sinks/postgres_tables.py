"""The tables of a Postgres target: created or checked, and the statements on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import Cursor, sql

from streaming.base import SinkError
from streaming.sinks.postgres_columns import Conversion, column_type, columns_of, conversions
from streaming.sinks.sink import REASON, REVISION

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


def prepare(
    cursor: Cursor[tuple[object, ...]],
    table: sql.Composable,
    place: str,
    columns: pa.Schema,
    key: Sequence[str],
    staged_in: Staged,
    *,
    may_create: bool,
) -> Sequence[Conversion]:
    """Make the table for what is staged, and the table itself if it is not there and `may_create`.

    Returns what becomes of each column that is written: of keys also the revision, and the reason where there is a
    column for it.

    Raises:
        SinkError: the table is not there, or lacks a column or a unique index on the key.
    """
    written = table_columns(cursor, table, place, columns, key, may_create=may_create)
    staged = [sql.SQL("{} {}").format(sql.Identifier(each.name), sql.SQL(each.staged)) for each in written]
    there = {each.name for each in written}
    others = {REVISION: "bigint", "_change": "text", REASON: "text", "_place": "bigint"}
    staged += [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_))
        for name, type_ in others.items()
        if name not in there
    ]
    cursor.execute(staged_in.create(sql.SQL(", ").join(staged)))
    return written


def table_columns(
    cursor: Cursor[tuple[object, ...]],
    table: sql.Composable,
    place: str,
    columns: pa.Schema,
    key: Sequence[str],
    *,
    may_create: bool = False,
) -> Sequence[Conversion]:
    """The conversion of each column for the table, which nobody can alter from here on until the transaction ends.

    Raises:
        SinkError: as `prepare`.
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
    # Not as a prepared statement: one that was prepared before the table was altered fails.
    cursor.execute(sql.SQL("select * from {} limit 0").format(table), prepare=False)
    there = columns_of(cursor, table)
    # The reason is for people; a table of one's own need not have it.
    for field in own:
        if field.name not in there and field.name != REASON:
            raise SinkError(
                f"table {place!r} has no column {field.name!r}; add it with `alter table {place} add column "
                f'"{field.name}" {column_type(field.type)}`, or leave it out of what is selected.'
            )
    return conversions(pa.schema(own), there)


def is_there(cursor: Cursor[tuple[object, ...]], table: sql.Composable) -> bool:
    """True if there is a table of that name where the connection looks for it."""
    row = cursor.execute("select to_regclass(%s)", (table.as_string(cursor),)).fetchone()
    return row is not None and row[0] is not None


def takes_null_keys(cursor: Cursor[tuple[object, ...]], table: sql.Composable, key: Sequence[str]) -> bool:
    """True if a unique index on the key takes two nulls for the same value."""
    row = cursor.execute(
        # Through JSON, as servers before version 15 have no such column.
        "select bool_or(coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false)) from pg_index i "
        "where indrelid = to_regclass(%s) and indisunique and indpred is null and "
        "(select array_agg(attname::text order by attname::text) from pg_attribute "
        "where attrelid = indrelid and attnum = any(indkey)) = %s::text[]",
        (table.as_string(cursor), sorted(key)),
    ).fetchone()
    return row is not None and row[0] is True


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


def inexact(columns: Sequence[Conversion], staged: Staged) -> sql.Composed | None:
    """The staged values that their columns would make others of: the place of the row, column, value and type.

    None where no column can.
    """
    queries = [
        sql.SQL("select {place}, {name}, left({column}::text, 100), {type} from {staged} where not ({exact})").format(
            place=PLACE,
            name=sql.Literal(each.name),
            column=sql.Identifier(each.name),
            type=sql.Literal(each.column.type),
            staged=staged.name,
            exact=each.is_exact,
        )
        for each in columns
        if each.is_exact is not None
    ]
    return sql.SQL(" union all ").join(queries) if queries else None


def insert(table: sql.Composable, columns: Sequence[Conversion], staged: Staged) -> sql.Composed:
    """Every staged row, in order."""
    return sql.SQL("insert into {} ({}) select {} from {} order by {}").format(
        table, names(_names(columns)), sql.SQL(", ").join(each.value for each in columns), staged.name, PLACE
    )


def upsert(table: sql.Composable, columns: Sequence[Conversion], key: Sequence[str], staged: Staged) -> sql.Composed:
    """The newest staged row of each key that is not to be deleted, where the table has no newer one."""
    values = sql.SQL(", ").join(
        sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in _names(columns) if name not in key
    )
    return sql.SQL(
        "insert into {table} as t ({columns}) select {columns} from ({newest}) s where s.{change} <> 'delete' "
        "on conflict ({key}) do update set {values} where coalesce(t.{revision} <= excluded.{revision}, true)"
    ).format(
        table=table,
        columns=names(_names(columns)),
        newest=_newest(columns, key, staged),
        change=CHANGED,
        key=names(key),
        values=values,
        revision=sql.Identifier(REVISION),
    )


def delete(
    table: sql.Composable, columns: Sequence[Conversion], key: Sequence[str], staged: Staged, *, nulls: bool
) -> sql.Composed:
    """The rows of keys whose newest staged row says so, where the table has no newer one.

    `nulls`: whether a key may be null, which no index helps to find.
    """
    same = "t.{0} is not distinct from s.{0}" if nulls else "t.{0} = s.{0}"
    return sql.SQL(
        "delete from {table} t using ({newest}) s where s.{change} = 'delete' and {same} "
        "and coalesce(t.{revision} <= s.{revision}, true)"
    ).format(
        table=table,
        newest=_newest(columns, key, staged),
        change=CHANGED,
        same=sql.SQL(" and ").join(sql.SQL(same).format(sql.Identifier(name)) for name in key),
        revision=sql.Identifier(REVISION),
    )


def names(columns: Sequence[str]) -> sql.Composed:
    """The columns, quoted, with commas."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _names(columns: Sequence[Conversion]) -> Sequence[str]:
    return [each.name for each in columns]


def _newest(columns: Sequence[Conversion], key: Sequence[str], staged: Staged) -> sql.Composed:
    values = [sql.SQL("{} as {}").format(each.value, sql.Identifier(each.name)) for each in columns]
    return sql.SQL(
        "select distinct on ({key}) * from (select {values}, {change}, {place} from {staged}) v "
        "order by {key}, {revision} desc, {place} desc"
    ).format(
        key=names(key),
        values=sql.SQL(", ").join(values),
        change=CHANGED,
        place=PLACE,
        staged=staged.name,
        revision=sql.Identifier(REVISION),
    )


def _definition(field: pa.Field) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(column_type(field.type)))
