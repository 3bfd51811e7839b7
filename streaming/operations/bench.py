"""The cost of a batch of a pipeline on this machine, by stage: a sample of its log, replayed in a lake of its own."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streaming import log
from streaming.base import ORIGIN, LogError, names_in
from streaming.declare import Pipeline, Stream
from streaming.lake import Lake, Settings
from streaming.log import QUERY, Batch, RowValidator, places_of_ingest
from streaming.operators import Written
from streaming.service import Observer, Run, await_queries
from streaming.sources import Files, Reading
from streaming.spark import exact_json

PARSE, JUDGE, APPEND, PLAN = "read + parse", "rules", "write + commit", "plan + checkpoint"
TASKS = "tasks + commit"
_SAMPLE = 400_000
_BATCHES = 8
_COUNT_FROM = 3
_NEWEST = 100
_SMALLEST_SAMPLE = 1_000


@dataclass(frozen=True)
class Stage:
    """A part of a batch: `fixed` seconds however small the batch is, and seconds `a_row` on top."""

    name: str
    fixed: float
    a_row: float

    def seconds(self, rows: float) -> float:
        """The seconds that the stage takes for a batch of so many rows."""
        return self.fixed + self.a_row * rows


@dataclass(frozen=True)
class Bench:
    """`stages` of a batch, those of the views last; `rows_a_batch` is the median of the newest batches of the log."""

    sampled: int
    rows_a_batch: int
    stages: tuple[Stage, ...]

    def seconds(self, rows: float) -> float:
        """A batch of so many rows through all stages, one after the other."""
        return sum(stage.seconds(rows) for stage in self.stages)

    @property
    def fixed_share(self) -> float:
        """The share of the usual batch's cost that does not depend on its rows, 0 to 1."""
        return sum(stage.fixed for stage in self.stages) / self.seconds(self.rows_a_batch)

    @property
    def balanced(self) -> int:
        """Rows of a batch at which fixed cost and cost of rows are equal."""
        return round(sum(stage.fixed for stage in self.stages) / sum(stage.a_row for stage in self.stages))

    @property
    def costliest(self) -> Stage:
        """The stage that takes most of the usual batch."""
        return max(self.stages, key=lambda stage: stage.seconds(self.rows_a_batch))


def bench(spark: SparkSession, lake: Lake, pipeline: Pipeline, scratch: Path) -> Bench:
    """Replay the newest rows of a pipeline's log below the empty folder `scratch`, in batches of two sizes.

    Neither the pipeline nor its tables are touched. Valid rows without a payload are written out anew.

    Raises:
        LogError: the log is missing or too short, or columns are made of what only its source tells.
    """
    stream = pipeline.stream
    _check_replayable(stream)
    rows = log.came(log.read_log(spark, lake, stream.revisions)).where(F.col("_origin").isNotNull())
    batches = [batch for batch in log.read_batches(lake, stream.revisions) if batch.cause == "source"]
    there = sum(batch.summary.rows for batch in batches)
    if there < _SMALLEST_SAMPLE:
        raise LogError(
            f"the log of {stream.name!r} has {there:,} rows, and {_SMALLEST_SAMPLE:,} is the least that tells anything "
            "of its cost; run the stream on more input first."
        )
    usual = round(statistics.median(batch.summary.rows for batch in batches[:_NEWEST]))
    wanted = max(10 * usual, 20_000)
    fields = F.struct(*(F.col(f"`{column.name}`") for column in stream.format.columns))
    payload = F.coalesce(F.col("_raw").cast("string"), exact_json(fields, nulls=False))
    newest = rows.orderBy(F.col("_batch").desc(), F.col("_origin").desc()).limit(min(_SAMPLE, wanted * _BATCHES))
    payloads = newest.select(payload.alias("payload")).toArrow()["payload"].to_pylist()[::-1]
    large = min(wanted, len(payloads) // _BATCHES)
    small = min(usual, large // 4)
    at = batches[0].summary.processed_at
    replayed = [
        _replayed(spark, pipeline, payloads[-size * _BATCHES :], size, scratch / str(size), at)
        for size in (small, large)
    ]
    stages = tuple(_fit(name, small, replayed[0][name], large, replayed[1][name]) for name in replayed[0])
    return Bench(len(payloads), usual, stages)


def _check_replayable(stream: Stream) -> None:
    made = [name for name, expression in stream.derived.items() if ORIGIN in names_in(expression)]
    if made:
        raise LogError(
            f"{', '.join(made)} of {stream.name!r} is made of {ORIGIN}, which a replay from files does not have; bench "
            "a stream of the same payloads without it."
        )


def _fit(name: str, small: int, quick: float, large: int, slow: float) -> Stage:
    a_row = max(0.0, (slow - quick) / (large - small))
    return Stage(name, max(0.0, quick - a_row * small), a_row)


def _replayed(
    spark: SparkSession, pipeline: Pipeline, payloads: Sequence[str], size: int, folder: Path, at: datetime
) -> dict[str, float]:
    """The median seconds of each stage of batches of `size` rows, once the first ones have warmed up."""
    landing = folder / "landing"
    landing.mkdir(parents=True)
    for number in range(_BATCHES):
        lines = payloads[number * size : (number + 1) * size]
        (landing / f"{number:03}").write_text("".join(f"{line}\n" for line in lines))
    stream = replace(pipeline.stream, source=Files(str(landing), files_per_batch=1))
    views = [replace(view, of=stream) for view in pipeline.views if view.of == pipeline.stream]
    replayed = replace(pipeline, name=stream.name, streams=(stream,), operators=tuple(views), deliveries=())
    lake, taken = Lake(str(folder)), defaultdict[str, list[float]](list)
    by_tasks = Settings().ingest == "fast" and places_of_ingest(spark, stream, {}).judgement is not None
    if not by_tasks:
        _parse_and_judge(spark, lake, stream, at, taken)
    begun: dict[str, float] = {}

    class Timed(Observer):
        """Times each batch and step."""

        def during(self, query: str, number: int) -> AbstractContextManager[None]:
            begun[query] = time.monotonic()
            return nullcontext()

        def committed(self, query: str, written: Written, batch: Batch | None) -> None:
            stage = (TASKS if by_tasks else APPEND) if query == QUERY else query
            taken[stage].append(time.monotonic() - begun[query])
            if batch is not None:
                # Batch by batch: steps that came afterwards would take the whole log at once.
                run.step_all()

    # The time of the sample, so that no row is too old.
    run = Run(spark, lake, replayed, Timed(lambda: at))
    ingest = list(run.start_ingest(availableNow=True).values())
    await_queries(ingest, run.explain)
    medians = {name: statistics.median(seconds[_COUNT_FROM:]) for name, seconds in taken.items()}
    if not by_tasks:
        medians[APPEND] = max(0.0, medians[APPEND] - medians[PARSE] - medians[JUDGE])
    return {**medians, PLAN: sum(map(_besides, ingest))}


def _parse_and_judge(
    spark: SparkSession, lake: Lake, stream: Stream, at: datetime, taken: dict[str, list[float]]
) -> None:
    """Time the two stages before the log on each batch, without writing anything."""
    validate, reading = RowValidator(stream.revisions), Reading(lake, lake.path("_timed"))

    def run_batch(rows: DataFrame, number: int) -> None:
        located = log.with_origin(stream.format.parse(stream.source.take(spark, reading, number, rows).rows()))
        parsed = _seconds(lambda: _nowhere(located))
        taken[PARSE].append(parsed)
        taken[JUDGE].append(max(0.0, _seconds(lambda: _nowhere(validate(located, at))) - parsed))

    raw = stream.source.read(spark, reading)
    writer = raw.writeStream.option("checkpointLocation", reading.checkpoint).trigger(availableNow=True)
    await_queries([writer.foreachBatch(run_batch).start()])


def _seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _besides(query: StreamingQuery) -> float:
    """The median seconds that Spark takes for a batch besides running it: offsets, plans, its own commit."""
    durations = [entry.durationMs for entry in query.recentProgress if "addBatch" in entry.durationMs]
    return statistics.median(each["triggerExecution"] - each["addBatch"] for each in durations[_COUNT_FROM:]) / 1000
