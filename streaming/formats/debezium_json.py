"""Envelopes of Debezium in JSON."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import sql
from streaming.formats.debezium_envelopes import AFTER, AT, BEFORE, OP, SOURCE, Envelope
from streaming.formats.format import UNREADABLE, WRONG
from streaming.formats.json import Json

_FIELDS = "op string, ts_ms string, source string, before string, after string"


class OfJson(Envelope):
    """Envelopes in JSON; `form` is that of the row."""

    def __init__(self, form: Json) -> None:
        self._form = form
        # What is required depends on the operation.
        self._lenient = Json(", ".join(f"`{column.name}` {column.type}" for column in form.columns), form.fields)

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
