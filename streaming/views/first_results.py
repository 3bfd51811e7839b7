"""Views: first results as a stream, corrections overlaid on them as a read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import MICROSECOND, WINDOW, CheckpointError, ViewError, constant, literal
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.operators import create_table
from streaming.spark import native_drops, query_id
from streaming.tables import delta
from streaming.views.bootstrap import Bootstrap
from streaming.views.kinds import kind_of
from streaming.views.results import assign, counted_rows, finish, group

# Spark's watermark begins at the epoch. Seen from two days before year 1, no instant lies before that.
_SHIFT = 62_135_596_800_000_000 + 2 * 86_400_000_000
_DROPPED = "native drops"
_BYTES_PER_CORE = 32 * 2**20


def first_results(spark: SparkSession, lake: Lake, view: Windowed) -> DataFrame:
    """The streaming frame of a view's first results before `finish`: one row per window, once it is closed.

    Spark's own window operator runs on the stamped clock and by itself drops nothing (see spark/FACTS.md,
    The stamped watermark). A view with a
    `Bootstrap` begins with the log as it is, any other with the log's first version.
    """
    since = Bootstrap.of(lake, view)
    reader = spark.readStream.format("delta").option("maxBytesPerTrigger", _bytes_per_batch(spark))
    if since is None:
        # A stream on the table as it is reads files in any order, and stamps must come in that of the batches.
        reader = reader.option("startingVersion", 0)
    stamp = _shifted(F.col("_watermark"), _SHIFT)
    log = (
        reader.load(lake.log(view.of))
        # In file order stamps may fall: those of the snapshot move no clock.
        .withColumn("_clock", stamp if since is None else F.when(F.col("_batch") > since.batch, stamp))
        .withWatermark("_clock", "0 seconds")
    )
    assigned = assign(log, view)
    # Spark closes a window when the watermark reaches its end; moved on by its grace, that is when it may close.
    shift = _SHIFT + view.window.grace // MICROSECOND
    others = [name for name in assigned.columns if name not in ("_clock", WINDOW)]
    clock = F.coalesce("_clock", stamp, F.timestamp_micros(F.lit(0)))
    on_time = assigned.select(*others, _shifted_window(shift), F.col("_clock").alias("_clock", metadata={})).where(
        # One predicate that mentions the clock: Spark pushes any other below the watermark node, where it would swallow
        # the rows that carry the clock.
        F.when(counted_rows(view), view.window.on_time(F.col(WINDOW), _not_before(clock, since)))
    )
    groups = group(on_time, view, clocked=True)
    results = groups.select(*(name for name in groups.columns if name != WINDOW), _shifted_window(-shift))
    written = None if since is None or since.watermark is None else view.window.closed_by(since.watermark)
    return kind_of(view).past(results, written)


def _bytes_per_batch(spark: SparkSession) -> int:
    """How much of the log a batch takes, in whole files: by default a thousand, with all their windows open at once."""
    return _BYTES_PER_CORE * spark.sparkContext.defaultParallelism


def _not_before(clock: Column, since: Bootstrap | None) -> Column:
    """The clock, but for the snapshot the floor; later stamps are past it anyway."""
    if since is None or since.floor is None:
        return clock
    return F.greatest(clock, _shifted(literal(since.floor), _SHIFT))


def _shifted(instant: Column, micros: int) -> Column:
    return F.timestamp_micros(F.unix_micros(instant) + F.lit(micros))


def _shifted_window(micros: int) -> Column:
    bounds = (_shifted(F.col(f"{WINDOW}.{bound}"), micros).alias(bound) for bound in ("start", "end"))
    return F.when(F.col(WINDOW).isNotNull(), F.struct(*bounds)).alias(WINDOW)


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
        self._repeats = True

    def __call__(self, results: DataFrame, query_batch: int) -> None:
        query = query_id(self._lake.operator_checkpoint(self._view))
        if query is None:
            raise CheckpointError(f"the checkpoint of view {self._view.name!r} vanished while its query runs; restart.")
        uri = self._lake.first(self._view)
        txn = delta.Txn(query, query_batch)
        # Batches that the table holds already come first after a start, if at all.
        self._repeats = self._repeats and delta.has_written(uri, txn)
        if self._repeats:
            # Spark commits a stateful batch only once its state was consumed, also where nothing is left to write.
            results.write.format("noop").mode("overwrite").save()
            return
        written = finish(results, self._view).withColumn("_written_at", constant(self._now(), "window_start"))
        create_table(self._lake, self._view, "", written.schema)
        rows = delta.append(
            written,
            uri,
            txn=txn,
            metadata=lambda: {"query": query, "query_batch": query_batch},
            statistics=("window_start", "window_end"),
            numbers=lambda: self._dropped_so_far(query),
        )
        self._on_batch(rows)

    def _dropped_so_far(self, query: str) -> dict[str, int]:
        """What Spark has dropped ever, as far as it is known, where it is more than the table tells."""
        running = self._spark.streams.get(query)
        if running is None:
            return {}
        before, self._dropped = self._dropped, max(self._dropped, native_drops(running))
        newly = self._dropped - before
        return {_DROPPED: dropped_ever(self._lake, self._view) + newly} if newly else {}


def dropped_ever(lake: Lake, view: Windowed) -> int:
    """Groups that Spark itself dropped from a view since its table began: the table keeps their number."""
    table = delta.open_table(lake.first(view))
    return (table and table.transaction_version(_DROPPED)) or 0


def read_first(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame:
    """The first results as a batch frame, at one Delta `version` or the newest.

    Raises:
        ViewError: the view has not been built yet.
    """
    uri = lake.first(view)
    if delta.open_table(uri, version) is None:
        raise ViewError(
            f"view {view.name!r} is not built yet at {uri!r}; run `tidemark run {view.of.name}` first, or point "
            "TIDEMARK_HOME to the lake that has it."
        )
    return delta.read(spark, uri, version)
