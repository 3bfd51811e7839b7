"""What a keyed function emits, as a delivery reads it, step by step."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, FIRST_INSTANT, WRITTEN_AT, to_micros
from streaming.declare import Delivery, Keyed
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.keyed import NEWEST_INSTANT
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.sinks import REVISION, TIME
from streaming.spark import exact_json
from streaming.tables import delta

_VALUES = "_values"


class KeyedOutbox(Outbox):
    """A unit is the instant of a step, in microseconds, which is later in each; within it rows come by their time."""

    begin = to_micros(FIRST_INSTANT)

    def __init__(self, lake: Lake, delivery: Delivery, keyed: Keyed) -> None:
        self._uri = lake.table(keyed, delivery.output)
        self._emitted = keyed.output_schemas[delivery.output].names
        # The text leaves out what is null, by which two rows may differ.
        self.order = (AT, *keyed.by, _VALUES, *self._emitted)

    def generation(self) -> int:
        return generation_of(delta.open_table(self._uri))

    def end(self, since: int) -> int:
        table = delta.open_table(self._uri)
        newest = None if table is None else table.transaction_version(NEWEST_INSTANT)
        return self.begin if newest is None else newest + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        instants = F.unix_micros(WRITTEN_AT)
        rows = delta.read(spark, self._uri).where((instants >= since) & (instants < until))
        values = exact_json(F.struct(*(f"`{name}`" for name in self._emitted)), nulls=False)
        return rows.withColumns({UNIT: instants, REVISION: F.unix_micros(AT), TIME: F.col(AT), _VALUES: values})
