"""Values on their way into the columns of a Postgres table: cast by the column's own type, or refused.

A cast of Postgres may round a number, cut a text or a fraction of a second. So each value is held against what the
column makes of it, where the types do not say that nothing is lost; a value that would be another one is no value of
the column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from psycopg import Cursor, sql

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
        type_ = self.field.type
        return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))

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
        is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
        return (element if is_number else "text") + ("[]" if self.is_array else "")

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
