"""Envelopes of Debezium in Avro."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import DeclarationError, check_column_name, sql
from streaming.formats.avro import Avro
from streaming.formats.avro_types import Schema, columns_of, members_of, named_in, parsed
from streaming.formats.debezium_envelopes import AFTER, AT, BEFORE, OP, SOURCE, Envelope
from streaming.formats.decoder import decoded
from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG

_CHANGE, _HAS_ROW = "_change", "_has_row"


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
                f"the Avro schema of Debezium has no field {', '.join(sorted(missing))}",
                "give the schema of the whole envelope, as the registry has it for the topic.",
            )
        columns = columns_of(_record(schema, "after"))
        _record(schema, "before")
        for column in columns:
            check_column_name(column.name)
        return columns

    @cached_property
    def _change(self) -> Schema:
        """The envelope without its rows: what is told of a change."""
        schema = parsed(self._form.schema)
        return {**schema, "fields": [each for each in schema["fields"] if each["name"] not in ("before", "after")]}

    def opened(self, raw: DataFrame) -> DataFrame:
        """The row of the change is decoded to columns of its own, with a reason against each that is wrong."""
        from streaming.formats.debezium_avro_decoder import EnvelopeDecoder

        schema, names = parsed(self._form.schema), tuple(column.name for column in self.row)
        registry, change, of = self._form.registry, self._change, _record(schema, "after")
        fields = ",".join(f"`{column.name}`:{column.type}" for column in columns_of(change))
        added = (
            sql.Column(_CHANGE, f"struct<{fields}>", required=False),
            sql.Column(_HAS_ROW, "boolean", required=False),
        )
        read = decoded(
            raw,
            (*added, *self.row),
            lambda types: EnvelopeDecoder((_CHANGE, _HAS_ROW, *names), types, registry, schema, change, of),
        )
        row = F.struct(*(F.col(f"`{name}`") for name in names))
        deleted = F.coalesce(F.col(f"{_CHANGE}.op") == "d", F.lit(False))
        nothing, told = F.lit(None), {column.name: column.type for column in columns_of(change)}
        # A snapshot of some connectors has no time of its own, and says 0.
        at = [F.nullif(F.col(f"{_CHANGE}.source.ts_ms"), F.lit(0))] if self._has_time("source") else []
        at += [F.nullif(F.col(f"{_CHANGE}.ts_ms"), F.lit(0))] if told.get("ts_ms") == "bigint" else []
        return read.select(
            *raw.columns,
            F.col(f"{_CHANGE}.op").alias(OP),
            F.coalesce(*at, nothing).cast("string").alias(AT),
            (F.to_json(f"{_CHANGE}.source") if "source" in told else nothing).cast("string").alias(SOURCE),
            F.when(F.col(_HAS_ROW) & deleted, row).alias(BEFORE),
            F.when(F.col(_HAS_ROW) & ~deleted, row).alias(AFTER),
            F.col(WRONG).alias("_row_wrong"),
            UNREADABLE,
            UNKNOWN,
        )

    def parsed(self, judged: DataFrame) -> DataFrame:
        """Values and reasons are those of the row that the operation is about."""
        return judged.withColumn("_row", F.when(F.col("_deleted"), F.col(BEFORE)).otherwise(F.col(AFTER)))

    def _has_time(self, name: str) -> bool:
        """True for a field that is a record with the time of the change, a number."""
        named = named_in(self._change)
        for field in self._change["fields"]:
            if field["name"] == name:
                (kind,) = members_of(field["type"], named)[1]
                types = {each.name: each.type for each in columns_of({**kind, "__named_schemas": named})}
                return types.get("ts_ms") == "bigint"
        return False


def _record(schema: Schema, name: str) -> Schema:
    """The record in a field of the envelope, which is null or that record."""
    (field,) = (field for field in schema["fields"] if field["name"] == name)
    named = named_in(schema)
    for kind in members_of(field["type"], named)[1]:
        if kind["type"] == "record":
            return {**kind, "__named_schemas": named}
    raise DeclarationError(
        f"the field {name!r} of the Avro schema of Debezium is no record", "give that of an envelope."
    )
