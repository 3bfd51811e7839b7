"""Source to event log: judge, stamp and append one batch in one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming import delta, log, storage, table_history
from streaming.clock import BatchSummary, ClockState
from streaming.constants import constant
from streaming.errors import CheckpointError
from streaming.intervals import EPOCH, from_micros, literal
from streaming.judge import Judge
from streaming.lake import Lake
from streaming.log import Batch
from streaming.pipeline import Pipeline
from streaming.stream import INGESTED_AT, Stream

QUERY = "log"
SHARES_BEFORE = (0.5, 0.05, 0.01)
"""Of a batch, the share of rows that the source had before each of `Batch.source_times`.

Less the instant of the commit, these are the median, 95th and 99th percentile of latency: what came first waited
longest.
"""
_PARTITION = ""


def stamp(rows: DataFrame, declared: Sequence[str], number: int, watermark: datetime | None) -> DataFrame:
    """`rows` with batch number and stamp, in the log's column order; `declared` are the stream's columns."""
    batch = constant(number).alias("_batch")
    stamped = constant(watermark).alias("_watermark")
    return rows.select(*declared, "_rejected", "_raw", "_origin", batch, INGESTED_AT, stamped, "_day")


class Ingest:
    """Appends the batches of a pipeline's source to its log; `now` gives the processing time."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipeline: Pipeline,
        now: Callable[[], datetime],
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._pipeline = pipeline
        self._now = now
        self._judge = Judge(pipeline.stream)
        self._counts = summary_columns(pipeline)
        self._repeats = True

    def __call__(self, parsed: DataFrame, query_batch: int, head: Batch | None) -> Batch | None:
        """Append the rows that the format has `parsed` as the batch after `head`; None where the log holds them."""
        stream = self._pipeline.stream
        checkpoint = self._lake.checkpoint(stream, QUERY)
        query = query_id(checkpoint)
        if query is None:
            raise CheckpointError(f"the checkpoint of {stream.name!r} vanished while its query runs; stop and restart.")
        txn = delta.Txn(query, query_batch)
        # Batches that the log holds already come first after a start, if at all.
        self._repeats = self._repeats and delta.has_written(self._lake.log(stream), txn)
        if self._repeats:
            return None
        stream.source.check(self._spark, checkpoint, query_batch)
        processed_at = self._now()
        judged = self._judge(stream.source.located(parsed), processed_at)
        return append_judged(judged, self._lake, self._pipeline, head, processed_at, self._counts, txn)


def append_judged(
    judged: DataFrame,
    lake: Lake,
    pipeline: Pipeline,
    head: Batch | None,
    processed_at: datetime,
    counts: Sequence[Column],
    txn: delta.Txn | None,
) -> Batch:
    """Stamp `judged` rows with the clock as it is after `head` and append them as the next batch, in one commit.

    `counts` are the `summary_columns` of the pipeline; `txn` names the Spark batch that the rows come from, if any.
    """
    stream = pipeline.stream
    state = next_state(head, stream)
    number = 0 if head is None else head.number + 1
    observed = Observation()
    rows = stamp(judged, stream.columns, number, stream.clock.watermark(state))
    partitioned = stream.source.partition is not None

    def describe() -> Batch:
        found = observed.get
        one = {} if found["rows"] == found["rejected"] else {_PARTITION: _instant(found["greatest"])}
        greatest = _greatest_by_partition(rows, stream) if partitioned else one
        return Batch(
            number=number,
            query=None if txn is None else txn.app_id,
            query_batch=None if txn is None else txn.version,
            state=state,
            summary=BatchSummary(greatest, found["rows"], processed_at),
            clock=stream.clock,
            rejected=found["rejected"],
            late={view.name: found[f"late_{view.name}"] for view in pipeline.views},
            unassigned={view.name: found[f"unassigned_{view.name}"] for view in pipeline.views},
            source_times=_instants(found["source_times"]) if txn is not None else None,
        )

    # Rows are read twice where each partition has its own greatest time; once is what a batch may cost.
    if partitioned:
        rows.persist()
    try:
        return log.append(rows.observe(observed, *counts), lake, stream, txn, describe)
    finally:
        if partitioned:
            rows.unpersist()


def next_state(head: Batch | None, stream: Stream) -> ClockState:
    """The clock after everything that is in the log; it stamps the batch that comes next."""
    return ClockState() if head is None else stream.clock.advance(head.state, head.summary)


def query_id(checkpoint: str) -> str | None:
    """The id of the query that owns a checkpoint, or None where the checkpoint is new."""
    metadata = storage.read_text(f"{checkpoint}/metadata")
    return None if metadata is None else json.loads(metadata)["id"]


def declared_schema(spark: SparkSession, stream: Stream) -> StructType:
    """The columns that the next batch of the log will have."""
    nothing = spark.createDataFrame([], f"_raw binary, _origin {stream.source.origin}")
    return stamp(Judge(stream)(stream.format.parse(nothing), EPOCH), stream.columns, 0, None).schema


def check_checkpoint(table: str, checkpoint: str, way_out: str) -> None:
    """Refuse a checkpoint that is not the one `table` was written with: it would lose or repeat rows (fact B6).

    Raises:
        CheckpointError: with `way_out` as the advice.
    """
    opened, found = delta.open_table(table), query_id(checkpoint)
    if opened is None:
        if any(storage.listed(f"{checkpoint}/commits")):
            raise CheckpointError(
                f"the table {table!r} is gone, but its checkpoint {checkpoint!r} holds batches that were in it; going "
                f"on would lose them. {way_out}"
            )
        return
    if found is not None and opened.transaction_version(found) is not None:
        return
    writer = _writer(opened)
    if writer is not None:
        raise CheckpointError(
            f"the table {table!r} was written with query {writer}, but its checkpoint {checkpoint!r} "
            f"{'is gone' if found is None else f'belongs to query {found}'}; going on would repeat or lose rows. "
            f"{way_out}"
        )


def _writer(table: DeltaTable) -> str | None:
    """The query that wrote the table, None where none did; of a history that was cleaned, only that there was one."""
    history = table_history.commits(table)
    for commit in history:
        if isinstance(commit["userMetadata"], dict) and commit["userMetadata"].get("query"):
            return str(commit["userMetadata"]["query"])
    return None if history and history[-1]["version"] == 0 else "of which its history tells no more"


def heartbeat(
    spark: SparkSession,
    lake: Lake,
    stream: Stream,
    state: ClockState,
    number: int,
    now: datetime,
    *,
    end_of_input: bool = False,
) -> Batch:
    """Append a row that has only a stamp: it tells the views how far the clock is."""
    origin = f"cast(null as {stream.source.origin})"
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
    batch = Batch(number, None, None, state, BatchSummary({}, 0, now), stream.clock, end_of_input=end_of_input)
    stamped = stamp(row, declared, number, stream.clock.watermark(state))
    return log.append(stamped, lake, stream, None, lambda: batch)


def _number_of(condition: Column) -> Column:
    # `count_if` makes Spark write every row twice more, as it names what it counts.
    return F.count(F.when(condition, F.lit(1)))


def _greatest(stream: Stream) -> Column:
    """The greatest event time of the valid rows that move the clock, in microseconds; null where there is none."""
    valid, moved_by = F.col("_day").isNotNull(), stream.clock.moved_by
    moves = valid if moved_by is None else valid & F.expr(moved_by)
    return F.max(F.when(moves, F.unix_micros(stream.event_time))).alias("greatest")


def _greatest_by_partition(rows: DataFrame, stream: Stream) -> dict[str, datetime | None]:
    partition = stream.source.partition_of(F.col("_origin")).alias("partition")
    found = log.valid(rows).groupBy(partition).agg(_greatest(stream)).collect()
    return {row["partition"]: _instant(row["greatest"]) for row in found}


def _instants(micros: Sequence[float] | None) -> tuple[datetime, ...] | None:
    return None if micros is None else tuple(from_micros(round(entry)) for entry in micros)


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def summary_columns(pipeline: Pipeline) -> list[Column]:
    """What a commit says of its stamped rows, as aggregates.

    `rows`, `rejected`, `greatest`, `source_times` (see `SHARES_BEFORE`), and per view `late_<view>` and
    `unassigned_<view>`.
    """
    stream = pipeline.stream
    valid = F.col("_day").isNotNull()
    time, stamped = F.col(stream.event_time), F.col("_watermark")
    return [
        F.count(F.lit(1)).alias("rows"),
        _number_of(~valid).alias("rejected"),
        _greatest(stream),
        F.percentile(
            F.unix_micros(stream.source.time_of(F.col("_origin"))), F.array(*(F.lit(share) for share in SHARES_BEFORE))
        ).alias("source_times"),
        *(
            F.coalesce(F.sum(F.when(view.condition(), view.window.late_windows(time, stamped))), F.lit(0)).alias(
                f"late_{view.name}"
            )
            for view in pipeline.views
        ),
        *(
            _number_of(F.when(view.condition(), view.window.in_none(time))).alias(f"unassigned_{view.name}")
            for view in pipeline.views
        ),
    ]
