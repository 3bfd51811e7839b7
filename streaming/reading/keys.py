"""Rows of one key, whose values are given as texts, and the keys that come nearest where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from streaming.base import DAY, DECIMALS, ReadError
from streaming.reading.conditions import Value, column, quoted, resolved, text_literal
from streaming.reading.selection import Choice, new_database
from streaming.reading.stored import StoredRows

_NULL = "null"
_QUOTE = '"'
_NEAR = 5

Texts = Mapping[str, str | None]
"""A key by its columns, each value as a text that stands for it; None for a null."""


def rows_of_key(rows: StoredRows, key: Texts, day: date | None = None) -> pa.Table:
    """All columns of those rows of a table in which each column of the key has the value that its text stands for.

    An instant is of UTC where it names no zone. `day` is that of all these rows where it is known: days are partitions,
    so that files of others are left out.

    Raises:
        ReadError: a column is not there, or a text is no value of its type.
    """
    whole = StoredRows(rows.source, tuple(rows.source.schema.names), condition=rows.condition)
    conditions = [_is(name, text, whole.schema) for name, text in key.items()]
    if day is not None and DAY in whole.columns:
        conditions.append(f"(\"{DAY}\" = date '{day.isoformat()}')")
    return replace(Choice(whole), conditions=tuple(conditions)).table()


def near_keys(rows: StoredRows, key: Texts, columns: Sequence[str]) -> tuple[str, ...]:
    """The keys in these columns that come nearest to one of which there is no row, as they are typed; a few of them."""
    schema, named = rows.source.schema, [name for name in columns if name in rows.source.schema.names]
    if not named:
        return ()
    is_same = [f"coalesce(cast({_is(name, text, schema)} as int), 0)" for name, text in key.items() if name in named]
    apart = [
        f"levenshtein(coalesce(cast({quoted(name)} as varchar), ''), {text_literal(text or '')})"
        for name, text in key.items()
        if name in named
    ]
    order = [f"{' + '.join(is_same)} desc"] * bool(is_same) + [" + ".join(apart)] * bool(apart)
    names = ", ".join(map(quoted, named))
    with new_database() as database:
        database.register("rows", rows.source)
        query = f"select distinct {names} from rows where {rows.condition}"
        found = database.sql(f"select * from ({query}) order by {', '.join([*order, names])} limit {_NEAR}")
        return tuple(key_as_typed(row) for row in found.to_arrow_table().to_pylist())


def key_as_typed(key: Mapping[str, Any]) -> str:
    """A key as it is typed on the command line: `id=a window_start=2026-01-01T00:00:00`."""
    parts = (f"{name}={value_as_typed(value)}" for name, value in key.items())
    return " ".join(f"'{part}'" if any(each in part for each in " '\"$`\\&;|<>()*?!") else part for part in parts)


def value_as_typed(value: object) -> str:
    """A value as it is typed: an instant of UTC without its zone, a null as `null`, and the text null as `"null"`."""
    if value is None:
        return _NULL
    if isinstance(value, str) and (value == _NULL or _is_quoted(value)):
        return f"{_QUOTE}{value}{_QUOTE}"
    return value if isinstance(value, str) else text_of_value(value)


def value_of_typed(typed: str) -> str | None:
    """The text that stands for a value, of what was typed: None for `null`; quotes stand for what is between them."""
    if typed == _NULL:
        return None
    return typed[1:-1] if _is_quoted(typed) else typed


def text_of_value(value: object) -> str:
    """The text that stands for a value but a null: an instant of UTC is without its zone."""
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def key_as_texts(key: Mapping[str, object]) -> dict[str, str | None]:
    """A key with each of its values as the text that stands for it; texts stay as they are."""
    return {name: None if value is None else text_of_value(value) for name, value in key.items()}


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] == _QUOTE


def _is(name: str, text: str | None, schema: pa.Schema) -> str:
    """SQL of DuckDB: whether a column has the value of a text."""
    value = column(name, schema)
    return f"({value.sql} is null)" if text is None else f"({_equals(name, value, text, schema)})"


def _equals(name: str, value: Value, text: str, schema: pa.Schema) -> str:
    match value.kind:
        case "instant":
            return f"{value.sql} = timestamptz '{instant_of(name, text).isoformat()}'"
        case "local":
            return f"{value.sql} = timestamp '{instant_of(name, text).replace(tzinfo=None).isoformat()}'"
        case "double":
            # Of a float the shortest text may be that of another double.
            type_ = "float" if _type_of(name, schema) == pa.float32() else "double"
            return f"{value.sql} = try_cast({text_literal(text)} as {type_})"
        case "decimal":
            return _equals_decimal(value, text, _type_of(name, schema))
        case _:
            return f"cast({value.sql} as varchar) = {text_literal(text)}"


def _type_of(name: str, schema: pa.Schema) -> pa.DataType:
    return schema.field(name).type if name in schema.names else resolved(name.split("."), schema)[1]


def _equals_decimal(value: Value, text: str, type_: pa.DataType) -> str:
    """SQL of DuckDB: whether a decimal is the number of a text, to the last digit."""
    try:
        number = Decimal(text)
        digits = number.quantize(Decimal(1).scaleb(-type_.scale), context=DECIMALS)
    except InvalidOperation:
        return "false"
    if digits != number:
        return "false"
    written = text_literal(f"{digits:f}")
    return f"{value.sql} = try_cast({written} as decimal({type_.precision}, {type_.scale}))"


def instant_of(name: str, text: str) -> datetime:
    """The instant that the text of a column stands for, in UTC, of which it is where it names no zone.

    Raises:
        ReadError: it stands for none.
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ReadError(
            f"{name}={text!r} is no instant.", "Write it as 2026-03-02T09:00, which is of UTC.", field=name, value=text
        ) from None
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
