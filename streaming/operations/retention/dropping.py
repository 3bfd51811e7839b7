"""Drops the days of a log that its retention lets go and nothing needs any more, while the pipeline runs.

1. What goes of which batch is noted in `<stream>/dropped`, which counts from the commit on that drops the days.
2. That commit takes the files of the days out of the log, and says before which day there is no row any more.

Whatever kills it in between, the log has all its rows and every law holds; the next run goes on with the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, DAY, ORIGIN, counted, date_literal
from streaming.declare import Pipeline, Stream
from streaming.lake import Lake
from streaming.log import (
    REPAIRS,
    dropped_before,
    dropped_number,
    dropped_rows,
    note_dropped,
    noted_before,
    place,
    read_log,
    repaired,
)
from streaming.operations.batch_counts import counted_by_batch
from streaming.operations.erasure import erasures
from streaming.operations.rebuild import LeasePlace
from streaming.operations.retention.planned import blocked, is_unfinished, planned_drop
from streaming.service import take_lease
from streaming.spark import exact_json
from streaming.tables import Split, days_of, delta, take_out_days


@dataclass(frozen=True)
class Dropped:
    """The outcome of retention for the log of a stream.

    `before`: the log has no valid row of an older day; null where it has dropped none yet. `days`, `rows` and `files`:
    those that were dropped this time. `keeps`: in words what needs the first day that stays.
    """

    stream: str
    before: date | None
    days: int
    rows: int
    files: int
    keeps: str


def drop_days(
    spark: Callable[[], SparkSession],
    lake: Lake,
    pipeline: Pipeline,
    others: Iterable[Pipeline] = (),
    listener: Callable[[str], None] = lambda what: None,
) -> list[Dropped]:
    """Drop the days of each log that are older than its retention and that nothing needs any more.

    Every operator and delivery has followed their rows, no day of them waits for a correction, no window, join or
    session that may still change has such a row, and no savepoint pins them. Published results stay as they are.
    `spark` is asked for a session where days may go. `others` are further pipelines, whose streams may follow a log.
    The pipeline may run; this may be killed and run again at any time. What is left of the files goes with `maintain`,
    once they have been out of the table for long enough.

    Raises:
        LeaseError: another process drops days of the same log.
    """
    others, dropped = [*others], []
    for stream in pipeline.streams:
        if not delta.exists(lake.log(stream)) or (stream.retention is None and not is_unfinished(lake, stream)):
            continue
        with take_lease(lake, LeasePlace(f"{stream.name}/retention")):
            dropped.append(_drop(spark, lake, pipeline, stream, others, listener))
    return dropped


def _drop(
    session: Callable[[], SparkSession],
    lake: Lake,
    pipeline: Pipeline,
    stream: Stream,
    others: list[Pipeline],
    listener: Callable[[str], None],
) -> Dropped:
    gone, begun = _Gone(), noted_before(lake, stream) if is_unfinished(lake, stream) else None
    why = _erasing(lake, pipeline) or blocked(lake, pipeline, stream, others)
    # A session is started only where it may have something to do.
    foreseen = planned_drop(None, lake, pipeline, stream, others)
    if why is not None or (begun is None and not foreseen.days):
        return Dropped(stream.name, dropped_before(delta.open_table(lake.log(stream))), 0, 0, 0, why or foreseen.keeps)
    spark = session()
    if begun is not None:
        listener(f"{stream.name}: going on with the days before {begun}, where a run before has ended")
        gone += _taken_out(spark, lake, stream, begun)
    planned = planned_drop(spark, lake, pipeline, stream, others)
    if planned.before is not None and planned.days:
        listener(f"{stream.name}: dropping {counted(len(planned.days), 'day')} before {planned.before}")
        repaired = _repaired(spark, lake, stream, planned.before)
        going = read_log(spark, lake, stream).where(_is_old(planned.before) | _is_one(repaired))
        note_dropped(lake, stream, planned.before, counted_by_batch(going, lake, pipeline, stream))
        gone += _taken_out(spark, lake, stream, planned.before)
    before = dropped_before(delta.open_table(lake.log(stream)))
    return Dropped(stream.name, before, gone.days, gone.rows, gone.files, planned.keeps)


@dataclass(frozen=True)
class _Gone:
    days: int = 0
    rows: int = 0
    files: int = 0

    def __add__(self, other: _Gone) -> _Gone:
        return _Gone(self.days + other.days, self.rows + other.rows, self.files + other.files)


def _taken_out(spark: SparkSession, lake: Lake, stream: Stream, before: date) -> _Gone:
    """Take out what is noted of the days `before`."""
    uri, there = lake.log(stream), dropped_before(delta.open_table(lake.log(stream)))
    days = sum(day < before for day in days_of(uri))
    repaired = _repaired(spark, lake, stream, before)
    # The rejected rows of which they are the repair would come back as rejected.
    split = Split(lambda rows: rows.where(_is_one(repaired)), lambda rows: rows.where(~_is_one(repaired)))
    metadata = {"retention": {"before": before.isoformat()}}
    files = take_out_days(spark, uri, before, split if repaired else None, metadata, dropped_number(before))
    noted = dropped_rows(lake, stream, before)
    earlier = {} if there is None else dropped_rows(lake, stream, there)
    rows = sum(each["valid"] for each in noted.values()) - sum(each["valid"] for each in earlier.values())
    return _Gone(days, rows, files)


def _is_old(before: date) -> Column:
    return F.col(DAY) < date_literal(before)


def _repaired(spark: SparkSession, lake: Lake, stream: Stream, before: date) -> list[str]:
    """The rejected rows that rows of the days `before` repair, each by its place and batch."""
    repairs = repaired(read_log(spark, lake, stream)).where(_is_old(before))
    return [row[0] for row in repairs.select(_key(F.col(ORIGIN)[REPAIRS])).collect()]


def _is_one(repaired: list[str]) -> Column:
    """True where a row is one of the `repaired` ones."""
    is_rejected = F.col(DAY).isNull() & F.col("_rejected").isNotNull()
    return is_rejected & _key(F.col(BATCH)).isin(repaired) if repaired else F.lit(False)


def _key(batch: Column) -> Column:
    return F.concat_ws("@", exact_json(place(F.col(ORIGIN)), nulls=False), batch.cast("string"))


def _erasing(lake: Lake, pipeline: Pipeline) -> str | None:
    """The reason to drop nothing while rows are being erased, which are counted by batch too; None while none are."""
    begun = any(each.is_unfinished_in(pipeline) for each in erasures(lake))
    return "an erasure has begun; run `tidemark erase` again, which finishes it" if begun else None
