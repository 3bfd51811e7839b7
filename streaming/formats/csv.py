"""CSV: one record a payload, typed columns and reasons; never a silent null, never a value that was not written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import DataFrame

from streaming.base import DeclarationError, check_column_name, check_type, sql
from streaming.formats.csv_decoder import CsvDecoder, Signs
from streaming.formats.decoder import decoded
from streaming.formats.format import Format, checked_fields
from streaming.formats.leaves import leaf_of
from streaming.formats.nested import kind_of

_LINE_ENDS = "\r\n"


@dataclass(frozen=True)
class Csv(Format):
    """One record of fields per payload, in the order of a schema in Spark DDL; `not null` marks a required field.

    Types: string, boolean, integers, float, double, decimal(p, s), date, and timestamp (ISO-8601 text *with* an
    offset, behind a `T` or a space). Nothing is rounded or cut: what does not fit into its type rejects the row.

    A field may stand in quotes, where two quotes are one and a line may end. An empty field that is not in quotes is
    null, and so is one that is `null`, such as `"NA"`, where that is declared. `escape`: the sign that makes the next
    one stand for itself, in quotes or not. A record with fewer or more fields than columns, a quote that is not closed,
    text behind a closing quote and a second record cannot be read.

    `encoding`: that of the payload, by its name in Python, such as `"latin-1"`. A byte order mark in front is skipped.

    `header`: each payload begins with a record of names, which says for this payload in which order its fields stand; a
    column that it does not name is null, and fields of other names are counted as unknown. `fields` has the names of
    columns that are called otherwise there, such as `{"id": "Order No."}`. A payload is read by itself, so the header
    of a file has to come along with each of its records, as `Files(..., payloads=CsvRecords(header=True))` sees to.

    Raises:
        DeclarationError: the schema cannot be read or has a type that is not allowed; a sign is not one character, or
            stands for two things; there is no such encoding; `fields` are named without a header, or are no columns.
    """

    schema: str
    separator: str = ","
    quote: str = '"'
    escape: str | None = None
    null: str | None = None
    encoding: str = "utf-8"
    header: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_signs()
        check_type("null of Csv", self.null, (str, type(None)), "the text that means null, such as 'NA'")
        check_type("header of Csv", self.header, bool, "True or False")
        _check_encoding(self.encoding)
        for column in self.columns:
            check_column_name(column.name)
            if leaf_of(kind_of(column)) is None:
                raise DeclarationError(
                    f"column {column.name!r} has type {column.type!r}, which a field cannot carry here; use string, "
                    "boolean, int, bigint, float, double, decimal(p, s), date or timestamp."
                )
        object.__setattr__(self, "fields", checked_fields("Csv", self.columns, self.fields))
        if self.fields and not self.header:
            raise DeclarationError(
                "fields of Csv are names in a header, and header=False: fields are told by their place. Leave them "
                "out, or declare header=True where each payload begins with a record of names."
            )

    def _check_signs(self) -> None:
        signs = {"separator": self.separator, "quote": self.quote}
        if self.escape is not None:
            signs["escape"] = self.escape
        for name, sign in signs.items():
            check_type(f"{name} of Csv", sign, str, "one character")
            if len(sign) != 1 or sign in _LINE_ENDS:
                raise DeclarationError(f"{name}={sign!r} of Csv is not one character of a line; write one.")
        if len({*signs.values()}) < len(signs):
            raise DeclarationError(
                f"the signs of Csv are {', '.join(f'{name}={sign!r}' for name, sign in signs.items())}, and one stands "
                "for two things; choose others. Two quotes in a quoted field are one without any escape."
            )

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The declared columns, in order."""
        return sql.columns_of(self.schema)

    def parse(self, raw: DataFrame) -> DataFrame:
        """As the contract says; in Python workers, as Spark's own parser takes half a record for a whole one."""
        names = tuple(column.name for column in self.columns)
        columns, signs = self.columns, Signs(self.separator, self.quote, self.escape, self.null)
        encoding, header, fields = self.encoding, self.header, self.fields
        return decoded(
            raw, columns, lambda types: CsvDecoder(names, types, None, columns, signs, encoding, header, fields)
        )


def _check_encoding(encoding: object) -> None:
    check_type("encoding of Csv", encoding, str, "its name in Python, such as 'utf-8' or 'latin-1'")
    try:
        "".encode(str(encoding))
    except (ValueError, LookupError) as error:
        raise DeclarationError(
            f"encoding={encoding!r} of Csv is no encoding of text; write its name in Python, such as 'utf-8' or "
            "'latin-1'."
        ) from error
