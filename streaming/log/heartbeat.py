"""A batch without rows: it carries a stamp, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.base import INGESTED_AT, literal
from streaming.clocks import BatchSummary, ClockState
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log.append import append_batch
from streaming.log.batch import Batch
from streaming.log.ingest import stamp
from streaming.log.origin import origin_type
from streaming.log.pins import NOTHING_PINNED, next_pins
from streaming.log.retention import kept_from
from streaming.sources import Memory
from streaming.tables import delta


def append_heartbeat(
    spark: SparkSession,
    lake: Lake,
    stream: Stream,
    state: ClockState,
    head: Batch,
    now: datetime,
    *,
    end_of_input: bool = False,
    next_memory: Memory | None = None,
    pinned: Mapping[str, int] = NOTHING_PINNED,
) -> Batch:
    """Append a row that has only a stamp, as the batch after `head`: it tells the views how far the clock is.

    `next_memory` is what the source remembers from here on, where this is the end of a part of it (see
    `Source.after_end`); `pinned` is the newest batch of each control stream that the stream pins.
    """
    origin = f"cast(null as {origin_type(stream.source)})"
    types = delta.schema_of(lake.log(stream))
    # The table lacks those declared since its last row came.
    declared = [name for name in stream.columns if name in types.names]
    row = spark.range(1).select(
        *(F.lit(None).cast(types[name].dataType).alias(name) for name in declared),
        F.lit(None).cast("array<string>").alias("_rejected"),
        F.lit(None).cast("binary").alias("_raw"),
        F.expr(origin).alias("_origin"),
        literal(now).alias(INGESTED_AT),
        F.lit(None).cast("date").alias("_day"),
    )
    number, nothing = head.number + 1, BatchSummary({}, 0, now, partitions_end=next_memory is not None)
    batch = Batch(
        number,
        None,
        None,
        state,
        nothing,
        stream.clock,
        end_of_input=end_of_input,
        source=head.source if next_memory is None else next_memory,
        pins=next_pins(head.pins, pinned),
        kept_from=kept_from(head, stream, stream.clock.watermark(state)),
    )
    stamped = stamp(row, declared, number, stream.clock.watermark(state))
    return append_batch(stamped, lake, stream, None, lambda written: batch)
