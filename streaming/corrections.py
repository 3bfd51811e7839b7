"""Corrections: the windows of a day that have late pairs, recomputed from all their rows and put in place whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming import delta
from streaming.intervals import literal
from streaming.lake import Lake
from streaming.late import late_pairs
from streaming.log import head, read_log
from streaming.windowed import Windowed

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Backlog:
    """A day whose late pairs are newer than its correction.

    `late_pairs` counts all pairs of the day, `newest_batch` the latest batch that brought one, `through_batch` the
    batch up to which the stored correction goes (null where there is none).
    """

    day: date
    late_pairs: int
    newest_batch: int
    through_batch: int | None


def plan(spark: SparkSession, lake: Lake, view: Windowed, log_version: int | None = None) -> list[Backlog]:
    """The days that need a correction, oldest first; `log_version` pins what is known of late pairs."""
    late = late_pairs(read_log(spark, lake, view.of, log_version), view)
    days = late.groupBy(F.col("window_day").alias("day")).agg(
        F.count(F.lit(1)).alias("late_pairs"), F.max("_batch").alias("newest_batch")
    )
    through = _through_batches(lake, view)
    backlog = [
        Backlog(row["day"], row["late_pairs"], row["newest_batch"], through.get(row["day"]))
        for row in days.orderBy("day").collect()
    ]
    return [entry for entry in backlog if entry.through_batch is None or entry.newest_batch > entry.through_batch]


def correct(
    spark: SparkSession,
    lake: Lake,
    view: Windowed,
    days: Iterable[date],
    now: Callable[[], datetime],
    on_day: Callable[[date, int], None] = lambda day, rows: None,
) -> dict[date, int]:
    """Replace the corrections of each of `days`, one commit a day; returns the corrected windows per day.

    Idempotent and restartable: a day is a function of the log up to the batch stored as `_through_batch`.

    Raises:
        LogError: nothing has been ingested yet.
    """
    log = read_log(spark, lake, view.of)
    newest = head(lake, view.of)
    through = -1 if newest is None else newest.number
    corrected: dict[date, int] = {}
    for day in sorted(set(days)):
        rows = correction(log, view, day, through).withColumn("_corrected_at", literal(now()))
        uri = lake.corrections(view)
        if delta.version_of(uri) is None:
            delta.create(uri, rows.schema, append_only=False, description=f"Corrections of view {view.name}")
        corrected[day] = delta.replace_days(
            rows, uri, [day], metadata={"through": {day.isoformat(): through}, "view": view.name}
        )
        on_day(day, corrected[day])
    return corrected


def correction(log: DataFrame, view: Windowed, day: date, through: int) -> DataFrame:
    """The correction of one day as a pure function of the log up to batch `through`.

    The view's columns, `_late_rows` (late pairs in the window), `_through_batch`, `_day`.
    """
    last = day + view.window.span + _DAY
    near = log.where(F.col("_day").between(F.lit(day), F.lit(last)) & (F.col("_batch") <= through))
    results = view.aggregate(view.pairs(near), _late_rows=F.count_if("_late"))
    return results.where((F.col("_day") == F.lit(day)) & (F.col("_late_rows") > 0)).select(
        *view.columns, "_late_rows", F.lit(through).cast("bigint").alias("_through_batch"), "_day"
    )


def read_corrections(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame | None:
    """The corrections as a batch frame, or None while there is no such table."""
    uri = lake.corrections(view)
    return None if delta.version_of(uri) is None else delta.read(spark, uri, version)


def _through_batches(lake: Lake, view: Windowed) -> dict[date, int]:
    through: dict[date, int] = {}
    for commit in reversed(delta.history(lake.corrections(view))):
        for day, batch in ((commit["userMetadata"] or {}).get("through") or {}).items():
            through[date.fromisoformat(day)] = batch
    return through
