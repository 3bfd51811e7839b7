"""CSV: one record a payload, typed columns and reasons; never a silent null, never a value that was not written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import DeclarationError, check_column_name, check_type, sql
from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG, Format

_INTEGERS = ("tinyint", "smallint", "int", "integer", "bigint", "long", "short", "byte")
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_SHAPES = {
    **dict.fromkeys(_INTEGERS, r"^[+-]?[0-9]+$"),
    "double": _NUMBER,
    "float": _NUMBER,
    "boolean": "^(?i:true|false)$",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]+(Z|[+-][0-9]{2}:?[0-9]{2})$",
}
_WORDS = {
    **{name: f"a whole number within {name}" for name in _INTEGERS},
    "double": "a number within double",
    "float": "a number within float",
    "boolean": "true or false",
    "date": "text such as 2026-01-01",
    "timestamp": "ISO-8601 text with an offset, such as 2026-01-01T00:00:00Z",
}
# More than any decimal has behind its point, so that a value is compared as it was written.
_EXACT = "decimal(38, 18)"

_EMPTY = "\u0001 empty \u0001"
"""Stands for a field of nothing but two quotes, which Spark would otherwise take for null."""


@dataclass(frozen=True)
class Csv(Format):
    """One record of fields per payload, in the order of a schema in Spark DDL; `not null` marks a required field.

    Types: string, boolean, integers, float, double, decimal(p, s), date, and timestamp (ISO-8601 text *with* an
    offset). A field may stand in quotes, where two quotes are one. An empty field that is not in quotes is null, and a
    record with fewer or more fields than columns cannot be read.

    Raises:
        DeclarationError: the schema cannot be read or has a type that is not allowed, or a sign is not one character.
    """

    schema: str
    separator: str = ","
    quote: str = '"'

    def __post_init__(self) -> None:
        for name in ("separator", "quote"):
            check_type(f"{name} of Csv", getattr(self, name), str, "one character")
            if len(getattr(self, name)) != 1:
                raise DeclarationError(f"{name}={getattr(self, name)!r} of Csv is not one character; write one.")
        for column in self.columns:
            check_column_name(column.name)
            if column.type != "string" and column.type not in _SHAPES and not column.type.startswith("decimal"):
                raise DeclarationError(
                    f"column {column.name!r} has type {column.type!r}, which a field cannot carry here; use string, "
                    "boolean, int, bigint, double, decimal(p, s), date or timestamp."
                )

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The declared columns, in order."""
        return sql.columns_of(self.schema)

    def parse(self, raw: DataFrame) -> DataFrame:
        """As the contract says."""
        text = F.regexp_replace(F.try_validate_utf8(F.col("_raw").cast("string")), "\r?\n$", "")
        names = [f"_{number}" for number in range(len(self.columns))]
        schema = ", ".join([*(f"{name} string" for name in names), "_corrupt string"])
        options = {
            "sep": self.separator,
            "quote": self.quote,
            "escape": self.quote,
            "columnNameOfCorruptRecord": "_corrupt",
            "emptyValue": _EMPTY,
            # What follows the end of a line would be left out in silence.
            "lineSep": "\u0001",
            "maxCharsPerColumn": "-1",
        }
        fields = F.from_csv(text, schema, options)
        there = F.col("_raw").isNotNull()
        unreadable = F.when(there & text.isNull(), F.lit("csv: the payload is not UTF-8")).when(
            there & ((F.octet_length(text) == 0) | F.col("_fields._corrupt").isNotNull()),
            F.lit(f"csv: the payload is not one record of {len(self.columns)} fields"),
        )
        readable = there & F.col(UNREADABLE).isNull()
        written = {
            column.name: F.when(readable, F.replace(F.col(f"_fields.{name}"), F.lit(_EMPTY), F.lit("")))
            for name, column in zip(names, self.columns, strict=True)
        }
        staged = raw.withColumn("_fields", fields).withColumn(UNREADABLE, unreadable)
        reasons = (_reason(column, written[column.name], readable).alias(column.name) for column in self.columns)
        return staged.select(
            *raw.columns,
            *(_typed(column, written[column.name]).alias(column.name) for column in self.columns),
            UNREADABLE,
            F.struct(*reasons).alias(WRONG),
            F.lit(None).cast("array<string>").alias(UNKNOWN),
        )


def _typed(column: sql.Column, written: Column) -> Column:
    """The value; null where what is written is none of the type, or more than it can keep."""
    if column.type == "string":
        return written
    value = written.try_cast(column.type)
    if column.type.startswith("decimal"):
        return F.when(written.rlike(_NUMBER) & (value.cast(_EXACT) == written.try_cast(_EXACT)), value)
    return F.when(written.rlike(_SHAPES[column.type]) & F.coalesce(_is_finite(column, value), F.lit(False)), value)


def _is_finite(column: sql.Column, value: Column) -> Column:
    if column.type in ("double", "float"):
        return F.abs(value.cast("double")) < F.lit(float("inf"))
    return value.isNotNull()


def _reason(column: sql.Column, written: Column, readable: Column) -> Column:
    words = _WORDS.get(column.type, f"a number within {column.type}")
    got = F.concat(F.lit(f"type: {column.name} is not {words}, got "), F.substring(written, 1, 50))
    mistyped = F.when(written.isNotNull() & _typed(column, written).isNull(), got)
    if not column.required:
        return mistyped
    return mistyped.when(readable & written.isNull(), F.lit(f"required: {column.name} is missing"))
