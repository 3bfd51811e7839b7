"""Avro: records of a schema, plain or with the id of the schema that they were written with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streaming.base import check_column_name, needs, sql
from streaming.formats.avro_types import columns_of, parsed
from streaming.formats.decoder import Decoder, arrow_types, check_registry
from streaming.formats.format import Format


@dataclass(frozen=True)
class Avro(Format):
    """One record per payload, read as `schema` says, which is the schema of a record in JSON.

    Without `registry` a payload is the record alone, written with that schema. With the URL of a schema registry it
    begins with a zero byte and the id of the schema that it was written with, four bytes; what was written with another
    one is read by Avro's rules of evolution. An id that the registry does not know, bytes that are none of the schema
    and bytes behind the record reject the row. A registry that does not answer is waited for, and rejects none.

    A field that may be null is a column that may be. Of a union there may be null and one other type. A value that its
    column cannot keep, at any depth, is a reason with its path against the column; so is a field without default that
    was not written, and a key that stands in a map twice. Where the rules would change a number it is refused: a `long`
    of more digits than its `double` has, a decimal of more digits behind the point. A logical type of the schema counts
    for plain numbers that were written; a unit that was written counts before it. An instant is a timestamp, a local
    one a timestamp without time zone, a UUID text. Times of a day and instants in nanoseconds, of which no table has a
    column, stay the numbers they are.

    Raises:
        DeclarationError: the schema cannot be read, or has a type that no column has or a default that is none.
    """

    schema: str
    registry: str | None = None

    def __post_init__(self) -> None:
        needs("fastavro", "Avro")
        check_registry("Avro", self.registry)
        for column in self.columns:
            check_column_name(column.name)
        # Only who reads Avro loads Arrow, which the resolution needs.
        from streaming.formats.avro_resolution import check_defaults

        check_defaults(parsed(self.schema))

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The fields of the schema, in order."""
        return columns_of(parsed(self.schema))

    @property
    def decoder(self) -> Decoder:
        """The reader of its records; Spark's own decoder takes bytes that are none of the schema."""
        from streaming.formats.avro_decoder import AvroDecoder

        names = tuple(column.name for column in self.columns)
        return AvroDecoder(names, arrow_types(self.columns), self.registry, parsed(self.schema))
