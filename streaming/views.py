"""Views: first results as a stream, corrections overlaid on them as a read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streaming import delta
from streaming.errors import CheckpointError, ViewError
from streaming.ingest import query_id
from streaming.intervals import literal
from streaming.lake import Lake
from streaming.windowed import WINDOW, Windowed

_BEFORE_ALL = "timestamp'0001-01-01 00:00:00'"


def first_results(spark: SparkSession, lake: Lake, view: Windowed) -> DataFrame:
    """The streaming frame of a view's first results: one row per window, once the stamp has passed its end.

    Spark's own window operator runs on the stamped clock (facts S1-S7) and by itself drops nothing.
    """
    log = (
        spark.readStream.format("delta")
        # The snapshot of a table would come in file order, not in batch order (fact D7).
        .option("startingVersion", 0)
        .load(lake.log(view.of))
    )
    on_time = view.assign(_on_stamped_clock(log, view)).where(
        # ONE predicate that mentions the stamp: any other is pushed below the watermark node and would swallow
        # the rows that carry the clock (fact S4).
        F.when(view.condition(), F.col(f"{WINDOW}.end")) > F.coalesce(F.col("_watermark"), F.expr(_BEFORE_ALL))
    )
    return view.aggregate(on_time)


def _on_stamped_clock(log: DataFrame, view: Windowed) -> DataFrame:
    """The log with Spark's watermark taken from the stamp and its event time being the user's (fact S7).

    Heartbeats and rejected rows have no event time; Spark would filter them before they reach the clock (fact S5).
    """
    event_time = view.of.event_time
    others = [name for name in log.columns if name not in (event_time, "_watermark")]
    return log.withWatermark("_watermark", "0 seconds").select(
        *others,
        F.coalesce(F.col(event_time), F.timestamp_micros(F.lit(0))).alias(
            event_time, metadata={"spark.watermarkDelayMs": 0}
        ),
        F.col("_watermark").alias("_watermark", metadata={}),
    )


class FirstResults:
    """The `foreachBatch` function that appends a view's first results, each batch exactly once."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        view: Windowed,
        now: Callable[[], datetime],
        on_batch: Callable[[int], None],
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._view = view
        self._now = now
        self._on_batch = on_batch
        self._dropped = 0

    def __call__(self, results: DataFrame, query_batch: int) -> None:
        query = query_id(self._spark, self._lake.checkpoint(self._view.of, self._view.name))
        if query is None:
            raise CheckpointError(f"the checkpoint of view {self._view.name!r} vanished while its query runs; restart.")
        uri = self._lake.first(self._view)
        txn = delta.Txn(query, query_batch)
        if delta.has_written(uri, txn):
            # The state must be consumed all the same, or Spark can never commit this batch (fact B1).
            results.write.format("noop").mode("overwrite").save()
            return
        written = results.withColumn("_written_at", literal(self._now()))
        if delta.version_of(uri) is None:
            delta.create(uri, written.schema, append_only=True, description=_describe(self._view, "First results"))
        rows = delta.append(
            written,
            uri,
            txn=txn,
            metadata=lambda: {"query": query, "query_batch": query_batch, "dropped": self._newly_dropped(query)},
            statistics=("window_start", "window_end"),
        )
        self._on_batch(rows)

    def _newly_dropped(self, query: str) -> int:
        """What Spark dropped in the batches before this one and was not told yet."""
        running = self._spark.streams.get(query)
        if running is None:
            return 0
        before, self._dropped = self._dropped, max(self._dropped, native_drops(running))
        return self._dropped - before


def native_drops(query: StreamingQuery) -> int:
    """Groups that Spark itself dropped as late in the batches it remembers; the stamped clock keeps this at 0."""
    return sum(
        operator.numRowsDroppedByWatermark or 0
        for progress in query.recentProgress
        for operator in progress.stateOperators
    )


def read_first(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame:
    """The first results as a batch frame, at one Delta `version` or the newest.

    Raises:
        ViewError: the view has not been built yet.
    """
    uri = lake.first(view)
    if delta.version_of(uri) is None:
        raise ViewError(f"view {view.name!r} is not built yet; run `tidemark run {view.of.name}` first.")
    return delta.read(spark, uri, version)


def current(first: DataFrame, corrections: DataFrame | None, view: Windowed) -> DataFrame:
    """First results overlaid with corrections: the view's `columns`, `_day`, and `_corrected` (boolean)."""
    columns = [*view.columns, "_day"]
    original = first.select(*columns, F.lit(False).alias("_corrected"))
    if corrections is None:
        return original
    corrected = corrections.select(*columns, F.lit(True).alias("_corrected"))
    same = [original[name].eqNullSafe(corrected[name]) for name in view.identity]
    return original.join(corrected, same, "left_anti").unionByName(corrected)


def _describe(view: Windowed, what: str) -> str:
    return f"{what} of view {view.name}" + (f": {view.description}" if view.description else "")
