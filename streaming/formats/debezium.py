"""Debezium: the changes of a database's rows, in the envelopes that its connectors write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import DeclarationError, check_type, sql
from streaming.formats.avro import Avro
from streaming.formats.debezium_avro import OfAvro
from streaming.formats.debezium_envelopes import AFTER, AT, BEFORE, OP, SOURCE, Envelope
from streaming.formats.debezium_json import OfJson
from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG, Format
from streaming.formats.json import Json

CHANGE_OP, CHANGE_AT, CHANGE_SOURCE = "change_op", "change_at", "change_source"
"""What a change is, when it was committed, and where the database has it, as columns beside those of the row."""

_OPERATIONS = {"c": "created", "r": "read by a snapshot", "u": "updated", "d": "deleted"}
_FIRST_MILLI, _LAST_MILLI = -62_135_596_800_000, 253_402_300_799_999

_ADDED = (
    sql.Column(CHANGE_OP, "string", required=True, comment="c, r (snapshot), u or d"),
    sql.Column(CHANGE_AT, "timestamp", required=False, comment="When the database committed it."),
    sql.Column(CHANGE_SOURCE, "string", required=False, comment="Where the database has it, the JSON of `source`."),
)


@dataclass(frozen=True)
class Debezium(Format):
    """One envelope per payload, with `before`, `after`, `op`, `source` and `ts_ms`; its row becomes the columns.

    `of`: `Json` with the columns of the row, for envelopes in JSON, also inside `payload` beside a `schema`; or `Avro`
    with the schema of the whole envelope, as the registry has it.

    The row is `after`, of a delete `before`, of which many databases tell no more than the key: a missing value is no
    defect there. Beside it are `change_op` (`c`, `r` of a snapshot, `u`, `d`), `change_at` (`source.ts_ms`, or else
    `ts_ms`) and `change_source`, the JSON of the envelope's `source`, with its position (`lsn`, or `file` and `pos`).
    Values are as Debezium writes them: an instant is a number, for instance, unless its connector says otherwise.

    Truncations and messages (`t`, `m`) concern no row, and are rejected with their payload. A tombstone, a record
    without payload, is a row whose columns are null; give its event time by `coalesce(change_at, _origin.timestamp)`.

    Raises:
        DeclarationError: the envelope has no row, or the row a column of a name that is added.
    """

    of: Json | Avro

    def __post_init__(self) -> None:
        check_type("`of` of Debezium", self.of, (Json, Avro), "Json with the row's columns, or Avro with the envelope")
        names = [column.name.lower() for column in self.columns]
        for added in _ADDED:
            if names.count(added.name) > 1:
                raise DeclarationError(f"column {added.name!r} of the row is one that Debezium adds; rename it.")

    @cached_property
    def _envelope(self) -> Envelope:
        return OfJson(self.of) if isinstance(self.of, Json) else OfAvro(self.of)

    @property
    def columns(self) -> tuple[sql.Column, ...]:
        """The columns of the row, then what is told of the change."""
        return (*self._envelope.row, *_ADDED)

    def parse(self, raw: DataFrame) -> DataFrame:
        """As the contract says."""
        opened = self._envelope.opened(raw)
        operation = F.col(OP)
        deleted = operation == "d"
        is_change = F.coalesce(operation.isin(*_OPERATIONS), F.lit(False))
        unreadable = (
            F.when(F.col("_raw").isNull(), F.lit(None))
            .when(F.col(UNREADABLE).isNotNull(), F.col(UNREADABLE))
            .when(operation.isNull(), F.lit("debezium: the payload is no envelope, it has no op"))
            .when(
                ~is_change,
                F.concat(
                    F.lit("debezium: op "), operation, F.lit(f" is no change of a row ({', '.join(_OPERATIONS)})")
                ),
            )
            .when(
                F.when(deleted, F.col(BEFORE).isNull()).otherwise(F.col(AFTER).isNull()),
                F.concat(F.lit("debezium: a change "), operation, F.lit(" without its row")),
            )
        )
        judged = opened.withColumn(UNREADABLE, unreadable.cast("string"))
        row = self._envelope.parsed(judged.withColumn("_deleted", F.coalesce(deleted, F.lit(False))))
        readable = F.col(UNREADABLE).isNull()

        def kept(value: Column) -> Column:
            return F.when(readable, value)

        wrong = (self._reason(column).alias(column.name) for column in self._envelope.row)
        time, milliseconds = _time(F.col(AT)), F.col(AT)
        added = {
            CHANGE_AT: F.when(
                milliseconds.isNotNull() & time.isNull(),
                F.concat(
                    F.lit(f"type: {CHANGE_AT} is no number of milliseconds of the years 1 to 9999, got "), milliseconds
                ),
            )
        }
        reasons = (added.get(column.name, F.lit(None)).cast("string").alias(column.name) for column in _ADDED)
        return row.select(
            *raw.columns,
            *(kept(F.col(f"_row.`{column.name}`")).alias(column.name) for column in self._envelope.row),
            kept(operation).alias(CHANGE_OP),
            kept(time).alias(CHANGE_AT),
            kept(F.col(SOURCE)).alias(CHANGE_SOURCE),
            UNREADABLE,
            F.when(readable, F.struct(*wrong, *reasons)).alias(WRONG),
            kept(F.col(UNKNOWN)).alias(UNKNOWN),
        )

    def _reason(self, column: sql.Column) -> Column:
        """Why the value of a column cannot be read; a delete need not have one."""
        reason = F.col(f"_row_wrong.`{column.name}`")
        if not column.required:
            return reason
        missing = F.col(OP).isNotNull() & ~F.col("_deleted") & F.col(f"_row.`{column.name}`").isNull()
        return F.coalesce(reason, F.when(missing, F.lit(f"required: {column.name} is missing")))


def _time(text: Column) -> Column:
    """The instant of a number of milliseconds since the epoch, as text; null where it is none that Python knows."""
    millis = text.try_cast("bigint")
    return F.when(millis.between(_FIRST_MILLI, _LAST_MILLI), F.timestamp_millis(millis))
