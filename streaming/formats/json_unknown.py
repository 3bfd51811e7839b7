"""Fields of a JSON object that nobody declared, and those of objects within it."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from sqlglot import exp

from streaming.base import sql
from streaming.formats.json_types import parsed, value, written_in_quotes
from streaming.formats.once import once

_OBJECT, _LIST = "map<string, string>", "array<string>"
"""What objects and arrays are read as: by the parser that reads the values, and with any value as its text."""


def undeclared(text: Column, columns: Sequence[sql.Column]) -> Column:
    """The names of the object's fields that are none of `columns`, each once; null where there is none.

    Those of objects within it by their path, such as `address.zip`; the path of an array or a map is that of its
    values. Where no column has a struct in its type nothing is read for it.
    """
    nested = {column: kind for column in columns if _has_struct(kind := _kind_of(column))}
    names = [column.name for column in columns]

    def found(fields: Column) -> Column:
        # What is no such object is a reason against the column, and may well be a text that looks like one.
        within = (
            F.when(
                value(column).isNotNull() & ~_is_as_declared(column, kind),
                _within(F.try_element_at(fields, F.lit(column.name)), kind, column.name),
            )
            for column, kind in nested.items()
        )
        return F.array_distinct(F.concat(_others(fields, names), *map(_or_none, within)))

    fields = F.from_json(text, _OBJECT)
    others = once(fields, found) if nested else _others(fields, names)
    return once(others, lambda names: F.when(F.size(names) > 0, names))


def _kind_of(column: sql.Column) -> exp.DataType:
    return exp.DataType.build(column.type, dialect="spark")


def _has_struct(kind: exp.DataType) -> bool:
    return any(part.is_type(exp.DataType.Type.STRUCT) for part in kind.find_all(exp.DataType))


def _is_as_declared(column: sql.Column, kind: exp.DataType) -> Column:
    """Whether the value has no fields but those of its type for certain, which is told without reading it again."""
    shape = _shape(kind)
    if shape is None:
        return F.lit(False)
    return F.coalesce(F.schema_of_variant(parsed(column)).rlike(f"^{shape}$"), F.lit(False))


def _shape(kind: exp.DataType) -> str | None:
    """A pattern of the types that Spark tells of a variant that has only declared fields; null where there is none."""
    if kind.is_type(exp.DataType.Type.STRUCT):
        fields = [(field.name, _shape(field.args["kind"])) for field in kind.expressions]
        if any(shape is None for _, shape in fields):
            return None
        # A name that is no identifier stands in backticks.
        each = "|".join(f"`?{re.escape(name.replace('`', '``'))}`?: {shape}" for name, shape in fields)
        return f"(?:VOID|OBJECT<(?:(?:{each})(?:, )?+)*+>)"
    if kind.is_type(exp.DataType.Type.ARRAY):
        inner = _shape(kind.expressions[0])
        return None if inner is None else f"(?:VOID|ARRAY<{inner}>)"
    return None if kind.is_type(exp.DataType.Type.MAP) else r"[A-Z_]++(?:\([0-9, ]++\))?+"


def _within(text: Column, kind: exp.DataType, path: str) -> Column:
    """The paths of what nobody declared in a JSON value of a `kind` that has structs; null where it is another."""
    if kind.is_type(exp.DataType.Type.STRUCT):
        declared = {field.name: field.args["kind"] for field in kind.expressions}

        def found(fields: Column) -> Column:
            others = F.transform(_others(fields, [*declared]), lambda name: F.concat(F.lit(f"{path}."), name))
            within = (
                _within(F.try_element_at(fields, F.lit(name)), inner, f"{path}.{name}")
                for name, inner in declared.items()
                if _has_struct(inner)
            )
            return F.concat(others, *map(_or_none, within))

        return once(F.from_json(text, _OBJECT), found)
    values = (
        F.from_json(text, _LIST) if kind.is_type(exp.DataType.Type.ARRAY) else F.map_values(F.from_json(text, _OBJECT))
    )
    inner = kind.expressions[-1]
    return F.flatten(F.transform(values, lambda each: _or_none(_within(each, inner, path))))


def _others(fields: Column, names: Sequence[str]) -> Column:
    return F.array_except(F.map_keys(fields), F.array(*map(F.lit, names)))


def _or_none(names: Column) -> Column:
    return F.coalesce(names, F.array().cast(_LIST))


def may_hold_others(text: Column, columns: Sequence[sql.Column]) -> Column:
    """False only for a flat object that has no other fields than `columns`; asked of every row, hence cheap.

    The parsed values tell how many double quotes the object has at least: two around the name of a field, two around a
    text. With no more than that nothing else is there. The first reading takes no single quotes.
    """
    explained = reduce(operator.add, (_quotes_of(text, column) for column in columns))
    # All of the text where there is no further quote; counting would copy it piece by piece.
    before_another = F.call_function("substring_index", text, F.lit('"'), explained + 1)
    return F.octet_length(before_another) < F.octet_length(text)


def _quotes_of(text: Column, column: sql.Column) -> Column:
    """The double quotes that the field of a column has at least, where its value is as it was written."""
    name = json.dumps(column.name, ensure_ascii=False)
    # Inside a text these would have a backslash before the second quote.
    null = text.contains(f"{name}:null") | text.contains(f"{name}: null")
    present = F.lit(4 if written_in_quotes(column) else 2)
    return F.when(parsed(column).isNotNull(), present).when(null, F.lit(2)).otherwise(F.lit(0))
