"""JSON: one object a payload, typed columns and reasons; never a silent null, never a value that was not written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import DataFrame

from streaming.base import DeclarationError, check_column_name, sql
from streaming.formats.decoder import decoded
from streaming.formats.format import Format, checked_fields
from streaming.formats.json_decoder import JsonDecoder
from streaming.formats.nested import reader_of


@dataclass(frozen=True)
class Json(Format):
    """One JSON object per payload, against a schema in Spark DDL; `not null` marks a required field.

    Types: string, boolean, integers, float, double, decimal(p, s), date, timestamp (ISO-8601 text *with* an offset),
    and array, struct or map (of texts to anything) of these. Each value is judged by itself, however deep it lies: a
    number in a text column, a fraction in an integer, more digits than a decimal or a microsecond has and a missing
    field of a struct that is `not null` reject the row, and the reason has the path and the value. Nothing is rounded
    or cut; a double is the nearest one, and has one zero. Rows of a `Table` alone may have NaN, infinities and -0.0.

    JSON `null` and a missing field are both null. Fields that are not declared are named, those within a struct by
    their path, and their values ignored; names are told apart by their case. An object that has a name twice cannot be
    read, since nobody can tell which value is meant.

    `fields`: the names of the fields of columns that cannot be called so, such as `{"id": "_id"}`.

    Raises:
        DeclarationError: the schema cannot be read, or has a name or type that is not allowed; `fields` names no
            column, or a field that another column has.
    """

    schema: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for column in self.columns:
            check_column_name(column.name)
            try:
                reader_of([column])
            except ValueError as error:
                raise DeclarationError(
                    f"column {column.name!r} has type {column.type!r}, and JSON cannot carry {str(error)!r} here; use "
                    "string, boolean, int, bigint, float, double, decimal(p, s), date, timestamp, and array<>, "
                    "struct<> or map<string, > of these."
                ) from error
        object.__setattr__(self, "fields", checked_fields("Json", self.columns, self.fields))

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The declared columns, in order."""
        return sql.columns_of(self.schema)

    def parse(self, raw: DataFrame) -> DataFrame:
        """As the contract says; in Python workers, as Spark's own parser casts what stands within other values."""
        names = tuple(column.name for column in self.columns)
        columns, fields = self.columns, self.fields
        return decoded(raw, columns, lambda types: JsonDecoder(names, types, None, columns, fields))
