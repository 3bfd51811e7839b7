"""Avro: records of a schema, plain or with the id of the schema that they were written with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streaming.base import DeclarationError, check_column_name, sql
from streaming.formats.avro_types import columns_of, parsed
from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG, Format


@dataclass(frozen=True)
class Avro(Format):
    """One record per payload, read as `schema` says, which is the schema of a record in JSON.

    Without `registry` a payload is the record alone, written with that schema. With the URL of a schema registry it
    begins with a zero byte and the id of the schema that it was written with, four bytes; what was written with another
    one is read by Avro's rules of evolution. An id that the registry does not know, bytes that are none of the schema
    and bytes behind the record reject the row. A registry that does not answer is waited for, and rejects none.

    A field that may be null is a column that may be. Of a union there may be null and one other type.

    Raises:
        DeclarationError: the schema cannot be read, or has a type that no column has.
    """

    schema: str
    registry: str | None = None

    def __post_init__(self) -> None:
        if self.registry is not None and not self.registry.startswith(("http://", "https://")):
            raise DeclarationError(
                f"registry={self.registry!r} of Avro is no URL; write one, such as 'http://localhost:8081'."
            )
        for column in self.columns:
            check_column_name(column.name)

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The fields of the schema, in order."""
        return columns_of(parsed(self.schema))

    def parse(self, raw: DataFrame) -> DataFrame:
        """As the contract says; in Python workers, as Spark's own decoder takes bytes that are none of the schema."""
        from streaming.formats.avro_decoder import AvroDecoder

        declared = ", ".join(f"`{column.name}` {column.type}" for column in self.columns)
        added = StructType.fromDDL(f"{declared}, {UNREADABLE} string, {UNKNOWN} array<string>")
        assert isinstance(added, StructType)
        decoder = AvroDecoder(
            parsed(self.schema),
            None if self.registry is None else {"url": self.registry},
            to_arrow_schema(added, timezone="UTC"),
            tuple(column.name for column in self.columns),
        )
        decoded = raw.mapInArrow(decoder.batches, StructType([*raw.schema.fields, *added.fields]))
        names = [column.name for column in self.columns]
        nothing = F.struct(*(F.lit(None).cast("string").alias(name) for name in names)).alias(WRONG)
        return decoded.select(*raw.columns, *(F.col(f"`{name}`") for name in names), UNREADABLE, nothing, UNKNOWN)
