"""How Debezium's envelopes are opened, in JSON and in Avro: the same columns of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import DeclarationError, sql
from streaming.formats.avro import Avro
from streaming.formats.avro_types import Parsed, columns_of, parsed
from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG
from streaming.formats.json import Json

OP, AT, SOURCE, BEFORE, AFTER = "_op", "_at", "_source", "_before", "_after"
"""Columns of an opened envelope: the operation, a time as text, the source in JSON, and the rows as they came."""

_FIELDS = "op string, ts_ms string, source string, before string, after string"


class Envelope(ABC):
    """How the envelopes of one encoding are read."""

    @property
    @abstractmethod
    def row(self) -> tuple[sql.Column, ...]:
        """The columns of the row inside."""

    @abstractmethod
    def opened(self, raw: DataFrame) -> DataFrame:
        """`raw` with the columns of an opened envelope and `_unreadable`; these are null where there is no payload."""

    @abstractmethod
    def parsed(self, judged: DataFrame) -> DataFrame:
        """With `_row`, the values of `_before` where `_deleted` and of `_after` otherwise, `_row_wrong` and `_unknown`.

        No value is required there. `_unreadable` may have become a reason against the row as a whole.
        """


class OfJson(Envelope):
    """Envelopes in JSON; `form` is that of the row."""

    def __init__(self, form: Json) -> None:
        self._form = form
        # What is required depends on the operation.
        self._lenient = Json(", ".join(f"`{column.name}` {column.type}" for column in form.columns))

    @property
    def row(self) -> tuple[sql.Column, ...]:
        """Those declared."""
        return self._form.columns

    def opened(self, raw: DataFrame) -> DataFrame:
        """Fields that are objects are kept as the text that they were."""
        text = F.try_validate_utf8(F.col("_raw").cast("string"))
        # Converters that send the schema along put the envelope into a field beside it.
        inner = F.coalesce(F.from_json(text, "payload string")["payload"], text)
        envelope = F.from_json(inner, _FIELDS)
        # from_json takes what comes before a defect, and ignores what follows the object; the array length sees both.
        elements = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
        whole = F.coalesce(text.rlike(r"^\s*\{") & (elements == 1), F.lit(False))
        unreadable = F.when(
            F.col("_raw").isNotNull() & ~whole, F.lit("debezium: the payload is not one JSON object in UTF-8")
        )
        return raw.withColumn("_envelope", envelope).withColumns(
            {
                OP: F.col("_envelope.op"),
                AT: F.coalesce(
                    F.from_json(F.col("_envelope.source"), "ts_ms string")["ts_ms"], F.col("_envelope.ts_ms")
                ),
                SOURCE: F.col("_envelope.source"),
                BEFORE: F.col("_envelope.before"),
                AFTER: F.col("_envelope.after"),
                UNREADABLE: unreadable,
            }
        )

    def parsed(self, judged: DataFrame) -> DataFrame:
        """The row is a payload of its own."""
        text = F.when(F.col("_deleted"), F.col(BEFORE)).otherwise(F.col(AFTER))
        kept = judged.withColumnsRenamed({"_raw": "_payload", UNREADABLE: "_no_envelope"})
        inner = kept.withColumn("_raw", F.when(F.col("_no_envelope").isNull(), text))
        names = [column.name for column in self.row]
        read = self._lenient.parse(inner)
        return read.withColumns(
            {
                "_row": F.struct(*(F.col(f"`{name}`").alias(name) for name in names)),
                "_row_wrong": F.col(WRONG),
                UNREADABLE: F.coalesce(F.col("_no_envelope"), F.col(UNREADABLE)),
                "_raw": F.col("_payload"),
            }
        )


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
        at = [F.col("source.ts_ms")] if "ts_ms:bigint" in fields.get("source", "") else []
        at += [F.col("ts_ms")] if fields.get("ts_ms") == "bigint" else []
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
