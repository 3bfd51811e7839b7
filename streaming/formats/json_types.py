"""What each declared type is in JSON: how Spark's parser reads it, and whether the value is what was written."""

from __future__ import annotations

import operator
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import sql

_INTEGERS = {"tinyint", "smallint", "int", "integer", "bigint", "long", "short", "byte"}
_FRACTIONS = {"double", "float"}
_NESTED = ("array<", "struct<", "map<")
QUICK = frozenset({*_INTEGERS, "string", "boolean", "double"})
"""Types whose values Spark's parser yields as they are, or leaves out with the whole payload called corrupt."""

_COERCED_BEGIN, _COERCED_WORDS = '-+"[{', ("true", "false", "NaN", "Infinity", "INF")
"""How texts look that the parser makes of other values, besides digits in front."""

_OFFSET = r"[0-9]T[0-9:.,]+(Z|[+-][0-9]{2}:?[0-9]{2})$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_SHAPES = {"timestamp": _OFFSET, "date": _DATE}


def parsed_as(column: sql.Column) -> str:
    """The type that the first reading asks the parser for."""
    if column.type in _SHAPES:
        return "string"
    return column.type if column.type in QUICK else "variant"


def written_in_quotes(column: sql.Column) -> bool:
    """Whether its values are JSON texts."""
    return column.type == "string" or column.type in _SHAPES


def parsed(column: sql.Column) -> Column:
    """What the first reading yielded, null where there was nothing."""
    return F.col(f"_parsed.`{column.name}`")


def quick_name(column: sql.Column) -> str:
    """The helper column of `converted`."""
    return f"_quick_{column.name}"


def converted(column: sql.Column) -> Column:
    """The value of a column whose type the parser does not yield, null where what was written is of another."""
    first = parsed(column)
    if column.type in _SHAPES:
        return _shaped(first, column.type)
    return typed(column, first, F.schema_of_variant(first))


def typed(column: sql.Column, variant: Column, kind: Column) -> Column:
    """The `variant` as it is declared, null where its `kind` is another."""
    if column.type in _SHAPES:
        cast = _shaped(F.try_variant_get(variant, "$", "string"), column.type)
    else:
        cast = F.try_variant_get(variant, "$", column.type)
    if column.type in _FRACTIONS:
        # A number that is too large for the type becomes infinity, and with it every sum that it is in.
        cast = F.when(F.abs(cast) < F.lit(float("inf")), cast)
    return F.when(_written_as(column, kind), cast)


def _shaped(text: Column, type_: str) -> Column:
    return F.when(text.rlike(_SHAPES[type_]), text.try_cast(type_))


def undoubted(column: sql.Column) -> Column:
    """Whether the first reading's value can only be what was written; null where nothing was."""
    first = parsed(column)
    if column.type not in QUICK:
        return F.when(first.isNotNull(), F.col(f"`{quick_name(column)}`").isNotNull())
    if column.type == "string":
        return ~_may_be_coerced(first)
    if column.type == "double":
        # Text such as "NaN" is taken for a number.
        return F.abs(first) < F.lit(float("inf"))
    return F.when(first.isNotNull(), F.lit(True))


def _may_be_coerced(value: Column) -> Column:
    """Whether it looks like what the parser makes of anything but a string, where a string is asked for; few do."""
    # A regular expression would search every text to its end.
    digit = (value >= "0") & (value < ":")
    return reduce(operator.or_, map(value.startswith, _COERCED_BEGIN), digit | value.isin(*_COERCED_WORDS))


def value(column: sql.Column) -> Column:
    """The value, of the careful reading where there was one."""
    quick = F.col(f"`{quick_name(column)}`") if column.type not in QUICK else parsed(column)
    # A variant knows no negative zero.
    quick = quick + F.lit(0.0) if column.type == "double" else quick
    return F.when(F.col("_careful").isNull(), quick).otherwise(F.col(f"_careful.declared.`{column.name}`"))


def _written_as(column: sql.Column, kind: Column) -> Column:
    number = kind.rlike("^(BIGINT|DOUBLE|FLOAT|DECIMAL)")
    if column.type in _INTEGERS:
        return kind == "BIGINT"
    if column.type in _FRACTIONS or column.type.startswith("decimal"):
        return number
    if column.type == "boolean":
        return kind == "BOOLEAN"
    if column.type.startswith("array<"):
        return kind.startswith("ARRAY")
    if column.type.startswith(_NESTED):
        return kind.startswith("OBJECT")
    return kind == "STRING"


def expected(type_: str) -> str | None:
    """What must be written for a type, in words; None for a type that JSON cannot carry."""
    if type_ in ("string", "boolean"):
        return f"a JSON {type_}"
    if type_ in _INTEGERS:
        return f"a whole number within {type_}"
    if type_ in _FRACTIONS or type_.startswith("decimal"):
        return f"a number within {type_}"
    if type_ == "timestamp":
        return "ISO-8601 text with an offset, such as 2026-01-01T00:00:00Z"
    if type_ == "date":
        return "text such as 2026-01-01"
    return f"a value of {type_}" if type_.startswith(_NESTED) else None


def reason(column: sql.Column, kinds: Column, fields: Column) -> Column:
    """What is wrong with the value of a column; null where nothing is."""
    kind = kinds[column.name]
    written = F.coalesce(kind != "VOID", F.lit(False))
    mistyped = F.when(
        written & fields[column.name].isNull(),
        F.concat(F.lit(f"type: {column.name} is not {expected(column.type)}, got "), F.lower(kind)),
    )
    return mistyped.when(~written, F.lit(f"required: {column.name} is missing")) if column.required else mistyped
