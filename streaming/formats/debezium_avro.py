"""Envelopes of Debezium in Avro."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import DeclarationError, sql
from streaming.formats.avro import Avro
from streaming.formats.avro_types import Parsed, columns_of, parsed
from streaming.formats.debezium_envelopes import AFTER, AT, BEFORE, OP, SOURCE, Envelope
from streaming.formats.format import UNKNOWN, UNREADABLE


class OfAvro(Envelope):
    """Envelopes in Avro; `form` has their schema."""

    def __init__(self, form: Avro) -> None:
        self._form = form

    @cached_property
    def row(self) -> tuple[sql.Column, ...]:
        """The fields of the record in `after`, or where that is named only, in `before`.

        Raises:
            DeclarationError: the schema is not that of an envelope.
        """
        schema = parsed(self._form.schema)
        missing = {"op", "before", "after"} - {field["name"] for field in schema["fields"]}
        if missing:
            raise DeclarationError(
                f"the Avro schema of Debezium has no field {', '.join(sorted(missing))}; give the schema of the whole "
                "envelope, as the registry has it for the topic."
            )
        return columns_of(_record(schema, "after"))

    def opened(self, raw: DataFrame) -> DataFrame:
        """The fields of the envelope are columns of the decoded frame."""
        decoded = self._form.parse(raw)
        fields = {column.name: column.type for column in self._form.columns}
        nothing = F.lit(None)
        at = [F.nullif("source.ts_ms", F.lit(0))] if "ts_ms:bigint" in fields.get("source", "") else []
        at += [F.nullif("ts_ms", F.lit(0))] if fields.get("ts_ms") == "bigint" else []
        return decoded.select(
            *raw.columns,
            F.col("op").alias(OP),
            F.coalesce(*at, nothing).cast("string").alias(AT),
            (F.to_json("source") if "source" in fields else nothing).cast("string").alias(SOURCE),
            F.col("before").alias(BEFORE),
            F.col("after").alias(AFTER),
            UNREADABLE,
            UNKNOWN,
        )

    def parsed(self, judged: DataFrame) -> DataFrame:
        """Values have the types of the schema, or the payload could not be read."""
        none = F.struct(*(F.lit(None).cast("string").alias(column.name) for column in self.row))
        return judged.withColumns(
            {"_row": F.when(F.col("_deleted"), F.col(BEFORE)).otherwise(F.col(AFTER)), "_row_wrong": none}
        )


def _record(schema: Parsed, name: str) -> Parsed:
    """The record in a field of the envelope, which is null or that record."""
    (field,) = (field for field in schema["fields"] if field["name"] == name)
    members = field["type"] if isinstance(field["type"], list) else [field["type"]]
    for member in members:
        definition = schema.get("__named_schemas", {}).get(member, member) if isinstance(member, str) else member
        if isinstance(definition, dict) and definition.get("type") == "record":
            return {**definition, "__named_schemas": schema.get("__named_schemas", {})}
    raise DeclarationError(f"the field {name!r} of the Avro schema of Debezium is no record; give that of an envelope.")
