"""The tables of a Postgres target: created or checked, the statements on them, and values on their way into columns.

A cast of Postgres may round a number, cut a text or a fraction of a second. So each value is held against what the
column makes of it, where the types do not say that nothing is lost; a value that would be another one is no value of
the column. Rows come into the table from which they are applied by COPY of text that Arrow makes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import Cursor, sql

from streaming.base import REASON, REVISION, SinkError, is_number_type
from streaming.sinks.encoding import json_text, json_texts, json_values, plain_texts
from streaming.sinks.sink import CHANGE, NumberedBatch

_WHOLE = {"int2": 1, "int4": 2, "int8": 3}
"""Types of whole numbers, each with its rank."""
_FLOATS = {"float4": 1, "float8": 2}
_NUMBERS = {*_WHOLE, *_FLOATS, "numeric", "money"}
_INSTANTS = {"timestamp", "timestamptz"}
_DECLARED = {*_NUMBERS, *_INSTANTS, "bool", "date", "bytea"}
"""Types that a text is no value of: such a column is declared by its type in the stream, and read as that."""
_TEXT, _ARRAY, _COMPOSITE = "S", "A", "C"
"""Categories of types (PostgreSQL: pg_type)."""

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
    (pa.types.is_time, "time"),
    (pa.types.is_duration, "interval"),
    (pa.types.is_nested, "jsonb"),
)
_INTERNAL = {
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
}
_NULLS_AS_KEYS = 150_000

PLACE, CHANGED = sql.Identifier("_place"), sql.Identifier("_change")
_LARGE_TEXT = pa.large_string()
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
"""The signs with a meaning in COPY's text format, the first one first (PostgreSQL: COPY, File Formats, Text Format)."""


def column_type(type_: pa.DataType) -> str:
    """The type of Postgres that holds every value of an Arrow type; lists, structs and maps are `jsonb`."""
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz is None else "timestamptz"
    if pa.types.is_decimal(type_):
        return f"numeric({type_.precision},{type_.scale})"
    return next((name for matches, name in _TYPES if matches(type_)), "text")


@dataclass(frozen=True)
class TableColumn:
    """A column of a table as the catalog has it, a domain as the type that it is made of.

    `type` is how it is declared, with its limits, and `unlimited` without; `internal` is its name in the catalog,
    `category` and `kind` are those of `pg_type`. `limit` is the type modifier, -1 for none.
    """

    name: str
    type: str
    unlimited: str
    internal: str
    category: str
    kind: str
    limit: int

    @property
    def digits_after_point(self) -> int | None:
        """The number of digits after the point of a `numeric` column with limits; None where it keeps every digit."""
        if self.internal != "numeric" or self.limit < 0:
            return None
        # The lower eleven bits, signed (PostgreSQL: numeric.c, numeric_typmod_scale), above a header of four bytes.
        return (((self.limit - 4) & 0x7FF) ^ 1024) - 1024


_CATALOG = sql.SQL(
    "with recursive c (place, name, declared, type, modifier) as ("
    "select attnum, attname, format_type(atttypid, atttypmod), atttypid, atttypmod from pg_attribute "
    "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped "
    "union all select place, name, declared, typbasetype, greatest(modifier, typtypmod) "
    "from c join pg_type t on t.oid = c.type where typtype = 'd') "
    "select name, declared, format_type(type, -1), typname, typcategory, typtype, modifier "
    "from c join pg_type t on t.oid = c.type where typtype <> 'd' order by place"
)


def columns_of(cursor: Cursor[tuple[Any, ...]], table: sql.Composable) -> Mapping[str, TableColumn]:
    """The columns of a table, by name, in their order."""
    rows = cursor.execute(_CATALOG, (table.as_string(cursor),))
    return {row[0]: TableColumn(*row) for row in rows}


@dataclass(frozen=True)
class Conversion:
    """The conversion of an Arrow type's values for a column, as SQL over the staged column, which has the same name."""

    field: pa.Field
    column: TableColumn

    @property
    def name(self) -> str:
        """That of both columns."""
        return self.column.name

    @cached_property
    def source(self) -> str:
        """The type of Postgres that the values come as."""
        return column_type(self.field.type)

    @property
    def is_array(self) -> bool:
        """True if a list goes into a column of an array type."""
        is_list = pa.types.is_list(self.field.type) or pa.types.is_large_list(self.field.type)
        return is_list and self.column.category == _ARRAY

    @property
    def staged(self) -> str:
        """The type of the staged column: what is nested waits as text until it is known what it becomes."""
        return "text" if self.source == "jsonb" else self.source

    @property
    def value(self) -> sql.Composed:
        """The value for the column; the value as it is where the types do not fit, which Postgres then says."""
        return self.of(sql.Identifier(self.name))

    def of(self, staged: sql.Composable) -> sql.Composed:
        """The value for the column of a `staged` expression."""
        text = "{0}"
        if self.source == "jsonb":
            fits = self.is_array or self.column.internal in ("json", "jsonb") or self.column.category == _TEXT
            text = "{0}::{1}" if fits else "{0}::jsonb"
        elif self.is_number and self.column.internal in _NUMBERS and not self._is_float_for_money:
            # Postgres makes a number of 15 digits of a float, where its text has all that it takes.
            text = "{0}::text::{1}" if self._is_float and self.column.internal == "numeric" else "{0}::{1}"
        elif self.column.category == _TEXT and self.source != "bytea":
            # A text that is too long is an error where it is assigned, and is cut where it is cast.
            text = "{0}" if self.column.limit >= 0 else "{0}::{1}"
        elif self.source == "text":
            text = "{0}" if self._takes_no_text else "{0}::{1}"
        elif self._is_time_of(self.column.internal):
            text = "{0}::{1}"
        return sql.SQL(text).format(staged, sql.SQL(self.column.type))

    @property
    def is_exact(self) -> sql.Composed | None:
        """The condition that the column's value is that which came; null for null, None where it cannot be another."""
        text = self._exactness()
        if text is None:
            return None
        staged = sql.Identifier(self.name)
        return sql.SQL(text).format(
            value=self.of(staged),
            staged=staged,
            back=sql.SQL(self._back),
            type=sql.SQL(self.column.type),
            free=sql.SQL(self.column.unlimited),
        )

    @property
    def is_number(self) -> bool:
        """True if the values are numbers."""
        return is_number_type(self.field.type)

    @property
    def _is_float(self) -> bool:
        return bool(pa.types.is_floating(self.field.type))

    @property
    def _is_float_for_money(self) -> bool:
        """Which Postgres has no cast for."""
        return self._is_float and self.column.internal == "money"

    def _is_time_of(self, internal: str) -> bool:
        """True if the values are times that a column of the type takes."""
        if self.source == "interval":
            return internal == "interval"
        return bool(pa.types.is_temporal(self.field.type)) and internal in (*_INSTANTS, "date", "time")

    @property
    def _takes_no_text(self) -> bool:
        column = self.column
        return column.internal in _DECLARED or column.category in (_ARRAY, _COMPOSITE) or column.kind == "c"

    @property
    def _back(self) -> str:
        """The type in which a number is compared with what became of it."""
        type_ = self.field.type
        while pa.types.is_list(type_) or pa.types.is_large_list(type_):
            type_ = type_.value_type
        element = column_type(type_) if pa.types.is_floating(type_) else "numeric"
        return (element if is_number_type(type_) else "text") + ("[]" if self.is_array else "")

    def _exactness(self) -> str | None:
        column = self.column
        if self.is_array:
            return self._exactness_of_array()
        if self.source == "jsonb":
            return None
        if self._is_float_for_money:
            return None
        if self.is_number and column.internal in _NUMBERS:
            if self._holds_every_number():
                return None
            seen = "{value}::numeric" if column.internal == "money" else "{value}::text"
            return f"{seen}::{{back}} = {{staged}}::{{back}}"
        if column.limit < 0 and column.internal != "name":
            return None
        if column.category == _TEXT and self.source != "bytea":
            # Without a word only spaces at the end are cut, and names.
            cut = '{staged}::{type}::text collate "C"'
            only_spaces = f"rtrim({{staged}}::text) <> rtrim({cut})" if column.limit >= 0 else "false"
            return f'{cut} = {{staged}}::text collate "C" or {only_spaces}'
        if self.source == "text":
            return None if self._takes_no_text else "{value}::text = {staged}::{free}::text"
        if self.source in (*_INSTANTS, "time", "interval") and column.internal in (*_INSTANTS, "time", "interval"):
            return "{value}::{free} = {staged}::{free}"
        return None

    def _exactness_of_array(self) -> str | None:
        elements = self.field.type.value_type
        conditions = []
        if self._back != "text[]":
            conditions.append("{value}::text::{back} = {staged}::{back}")
        elif self.column.limit >= 0:
            conditions.append("{value}::{free} = {staged}::{free}")
        if pa.types.is_list(elements) or pa.types.is_large_list(elements):
            # Postgres has one array without elements, however many empty lists it came as.
            conditions.append("({value}::text <> '{{}}' or {staged} = '{{}}')")
        return " and ".join(conditions) or None

    def _holds_every_number(self) -> bool:
        """True if a number is either refused by the column itself or kept with every digit."""
        type_, column = self.field.type, self.column
        own = _INTERNAL.get(self.source, "numeric")
        if column.internal == "numeric":
            digits = column.digits_after_point
            if digits is None:
                return True
            scale = type_.scale if pa.types.is_decimal(type_) else 0
            return not self._is_float and digits >= scale
        if column.internal in _WHOLE:
            return own in _WHOLE or (own == "numeric" and type_.scale <= 0)
        if column.internal in _FLOATS:
            if own in _FLOATS:
                return _FLOATS[own] <= _FLOATS[column.internal]
            return column.internal == "float8" and own in ("int2", "int4")
        return False


def conversions(schema: pa.Schema, there: Mapping[str, TableColumn]) -> Sequence[Conversion]:
    """That of each column of `schema` which is `there`, in its order."""
    return [Conversion(field, there[field.name]) for field in schema if field.name in there]


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


def stage(
    cursor: Cursor[tuple[Any, ...]], batch: NumberedBatch, staged_in: Staged, arrays: Collection[str] = ()
) -> None:
    """The rows, in place of what was staged before; `arrays` are the columns whose lists become arrays of Postgres."""
    cursor.execute(sql.SQL("truncate {}").format(staged_in.name))
    selected, count = batch.selected, batch.rows.num_rows
    if not count:
        return
    columns = [
        *(
            _escaped(array_texts(column)) if name in arrays else _text(column)
            for name, column in zip(selected.column_names, selected.columns, strict=True)
        ),
        _told(batch, REVISION, None),
        _told(batch, CHANGE, "upsert"),
        _told(batch, REASON, None),
        pc.cast(pa.chunked_array([pa.array(range(count))]), _LARGE_TEXT),
    ]
    copied = [*selected.column_names, REVISION, CHANGE, REASON]
    copy = sql.SQL("copy {} ({}, {}) from stdin").format(staged_in.name, names(copied), PLACE)
    with cursor.copy(copy) as staged:
        staged.write(_lines(columns, count))


def array_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Lists as Postgres writes arrays, elements that are structs or maps as JSON."""
    type_ = column.type
    while pa.types.is_list(type_) or pa.types.is_large_list(type_):
        type_ = type_.value_type
    # Bytes have a text of their own there.
    of_bytes = pa.types.is_binary(type_) or pa.types.is_large_binary(type_)
    values = column.to_pylist() if of_bytes else json_values(column)
    return [None if value is None else _array(value) for value in values]


def _array(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case list():
            return f"{{{','.join(map(_array, value))}}}"
        case bool() | int() | float():
            return str(value)
        case bytes():
            text = f"\\x{value.hex()}"
        case dict():
            text = json_text(value)
        case _:
            text = value
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _told(batch: NumberedBatch, name: str, otherwise: str | None) -> pa.ChunkedArray:
    if name in batch.rows.column_names:
        return _text(batch.rows[name])
    return pa.chunked_array([pa.array([otherwise] * batch.rows.num_rows, _LARGE_TEXT)])


def _lines(columns: Sequence[pa.ChunkedArray], count: int) -> memoryview:
    """One line for each row."""
    fields = pc.binary_join_element_wise(
        *columns, pa.scalar("\t", _LARGE_TEXT), null_handling="replace", null_replacement="\\N"
    )
    lines = pa.LargeListArray.from_arrays(pa.array([0, count], pa.int64()), fields.combine_chunks())
    return memoryview(pc.binary_join(lines, pa.scalar("\n", _LARGE_TEXT))[0].as_buffer())


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values as COPY reads them for the type that `column_type` says."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column_type(column.type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _escaped(column)
    if kind == "jsonb":
        return _escaped(json_texts(column))
    if kind == "bytea":
        values = column.to_pylist()
        return _escaped([None if value is None else f"\\x{value.hex()}" for value in values])
    if kind in ("text", "time", "interval"):
        return _escaped(plain_texts(column))
    # Numbers, booleans, dates and timestamps have nothing to escape.
    return column.cast(_LARGE_TEXT)


def _escaped(texts: pa.ChunkedArray | list[str | None]) -> pa.ChunkedArray:
    text = pa.chunked_array([pa.array(texts, _LARGE_TEXT)]) if isinstance(texts, list) else texts.cast(_LARGE_TEXT)
    for plain, escaped in _ESCAPES:
        text = pc.replace_substring(text, plain, escaped)
    return text
