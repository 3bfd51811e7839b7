"""Drops the days of a log that its retention lets go and nothing needs any more, while the pipeline runs.

1. What goes of which batch is noted in `<stream>/dropped`, which counts from the commit on that drops the days.
2. That commit takes the files of the days out of the log, and says before which day there is no row any more.

Whatever kills it in between, the log has all its rows and every law holds; the next run goes on with the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, DAY, ORIGIN, counted, date_literal
from streaming.declare import DEAD, Delivery, Operator, Pipeline, Stream, broken_modules, declared_pipelines
from streaming.deliveries import ledger_of, outbox_of
from streaming.lake import Lake
from streaming.log import (
    REPAIRS,
    batches_after,
    dropped_before,
    dropped_number,
    dropped_rows,
    head,
    is_dropping,
    newest_retraction,
    note_dropped,
    noted_before,
    place,
    read_log,
    repaired,
)
from streaming.operations.batch_counts import counted_by_batch
from streaming.operations.erasure import erasures
from streaming.operations.rebuild import builder_of
from streaming.operations.savepoint import savepoints
from streaming.operators import next_of, runtime_of
from streaming.service import rewriting
from streaming.spark import exact_json
from streaming.tables import Split, days_of, delta, take_out_days

_CHANGED = "what needs its days has changed meanwhile, so the next run looks again"
_Limit = tuple[date | None, str]
"""The first day that has to stay, null for all days, and in words what needs it."""


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
        LeaseError: another process drops days, maintains the pipeline or erases somebody.
    """
    others = [*others]
    kept = [each for each in pipeline.streams if delta.exists(lake.log(each))]
    dropping = [each for each in kept if each.retention is not None or is_dropping(lake, each)]
    if not dropping:
        return []
    with rewriting(lake, pipeline):
        return [_drop(spark, lake, pipeline, stream, others, listener) for stream in dropping]


def _drop(
    session: Callable[[], SparkSession],
    lake: Lake,
    pipeline: Pipeline,
    stream: Stream,
    others: list[Pipeline],
    listener: Callable[[str], None],
) -> Dropped:
    gone, begun = _Gone(), noted_before(lake, stream) if is_dropping(lake, stream) else None

    def so_far(keeps: str) -> Dropped:
        before = dropped_before(delta.open_table(lake.log(stream)))
        return Dropped(stream.name, before, gone.days, gone.rows, gone.files, keeps)

    why = _erasing(lake, pipeline) or _blocked(lake, pipeline, stream, others)
    # A session is started only where it may have something to do.
    foreseen = planned_drop(None, lake, pipeline, stream, others)
    if why is not None or (begun is None and not foreseen.days):
        return so_far(why or foreseen.keeps)
    spark, retracted = session(), newest_retraction(lake, stream)
    if begun is not None:
        # Since then a row of these days may have been taken back, or something may have begun that needs them.
        may_go = planned_drop(spark, lake, pipeline, stream, others)
        if may_go.before is None or may_go.before < begun:
            return so_far(may_go.keeps)
        listener(f"{stream.name}: going on with the days before {begun}, where a run before has ended")
        # An erasure may have taken rows of them since, which it has counted.
        note_dropped(lake, stream, begun, _counted(spark, lake, pipeline, stream, begun))
        gone += _taken_out(spark, lake, stream, begun)
    planned = planned_drop(spark, lake, pipeline, stream, others)
    if planned.before is not None and planned.days:
        listener(f"{stream.name}: dropping {counted(len(planned.days), 'day')} before {planned.before}")
        by_batch = _counted(spark, lake, pipeline, stream, planned.before)
        # Counting takes a while, in which somebody may have come to need these days.
        again = planned_drop(spark, lake, pipeline, stream, others)
        if again != planned or newest_retraction(lake, stream) != retracted:
            return so_far(_CHANGED)
        note_dropped(lake, stream, planned.before, by_batch)
        # Who began to need these days before they were noted is seen now; who begins later sees that they are noted.
        again = planned_drop(spark, lake, pipeline, stream, others)
        if again.before is None or again.before < planned.before:
            return so_far(again.keeps)
        gone += _taken_out(spark, lake, stream, planned.before)
    return so_far(planned.keeps)


@dataclass(frozen=True)
class _Gone:
    days: int = 0
    rows: int = 0
    files: int = 0

    def __add__(self, other: _Gone) -> _Gone:
        return _Gone(self.days + other.days, self.rows + other.rows, self.files + other.files)


def _counted(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, stream: Stream, before: date
) -> dict[int, Mapping[str, Any]]:
    """The number of rows of each batch of the days `before`, and of the rejected rows that these repair."""
    repaired = _repaired(spark, lake, stream, before)
    going = read_log(spark, lake, stream).where(_is_old(before) | _is_one(repaired))
    return counted_by_batch(going, lake, pipeline, stream)


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


@dataclass(frozen=True)
class PlannedDrop:
    """The part of a log that may go: its `days` before the day `before`; no day where something needs them all.

    `keeps`: in words what needs the first day that stays.
    """

    before: date | None
    days: tuple[date, ...]
    keeps: str


def planned_drop(
    spark: SparkSession | None, lake: Lake, pipeline: Pipeline, stream: Stream, others: Iterable[Pipeline] = ()
) -> PlannedDrop:
    """The plan of what may go of the log of a stream; `others` are further pipelines, which may follow it.

    Without a session it is as far as that can be told: there may be less to drop.
    """
    if stream.retention is None or not delta.exists(lake.log(stream)):
        return PlannedDrop(None, (), "it keeps everything")
    pipelines = (pipeline, *others)
    limits = [*_in_use(lake, pipeline, stream, pipelines)]
    horizons = {each.name: _horizon(lake, pipeline, each, pipelines) for each in pipeline.streams}
    limits.append(horizons[stream.name])
    if horizons[stream.name][0] is not None:
        for operator in pipeline.operators_of(stream):
            limits.append(_needed(spark, lake, operator, stream, horizons))
    day, keeps = min(limits, key=lambda limit: limit[0] or date.min)
    days = () if day is None else tuple(sorted(each for each in days_of(lake.log(stream)) if each < day))
    return PlannedDrop(day, days, keeps)


def _blocked(lake: Lake, pipeline: Pipeline, stream: Stream, others: Iterable[Pipeline] = ()) -> str | None:
    """In words what reads rows of the log by their places right now, so that none may go; None for nothing."""
    return next((why for day, why in _in_use(lake, pipeline, stream, (pipeline, *others)) if day is None), None)


def _horizon(lake: Lake, pipeline: Pipeline, stream: Stream, pipelines: Iterable[Pipeline]) -> _Limit:
    """The day before which nobody has to follow a row of the stream any more, and none can come."""
    if stream.retention is None:
        return None, "it keeps everything"
    followed = min(_followed(lake, pipeline, stream, pipelines), default=None)
    if followed is not None and followed[0] < 0:
        return None, f"{followed[1]} has not followed it yet"
    batch = head(lake, stream) if followed is None else batches_after(lake, stream, followed[0] - 1)[0]
    if batch is None or batch.kept_from is None:
        return None, f"no batch that is followed is {stream.retention} after its first day"
    return batch.kept_from, f"retention is {stream.retention}"


def _followed(
    lake: Lake, pipeline: Pipeline, stream: Stream, pipelines: Iterable[Pipeline]
) -> Iterator[tuple[int, str]]:
    """The newest batch of the log up to which each that reads it has followed it, -1 for none."""
    for operator in pipeline.operators:
        if stream in operator.follows:
            yield runtime_of(operator, lake).read_through()[stream.name], f"{operator.kind_name} {operator.name!r}"
    for delivery in _of_log(lake, pipeline, stream):
        ledger = ledger_of(lake, delivery)
        yield -1 if ledger is None else ledger.arrived_up_to.unit - 1, f"delivery {delivery.name!r}"
    for _, follower in _followers(stream, pipelines):
        if follower.source.parts == (follower.source,):
            newest = head(lake, follower) if delta.exists(lake.log(follower)) else None
            through = -1 if newest is None else follower.source.taken_through(newest.source)
            yield through, f"stream {follower.name!r}"


def _followers(stream: Stream, pipelines: Iterable[Pipeline]) -> Iterator[tuple[Pipeline, Stream]]:
    """The streams that take rows of the log, by its name: what else they say of it makes no other rows of them."""
    for pipeline in pipelines:
        for each in pipeline.streams:
            if any(isinstance(of, Stream) and of.name == stream.name for of, _ in each.source.follows):
                yield pipeline, each


def _needed(
    spark: SparkSession | None, lake: Lake, operator: Operator, stream: Stream, horizons: Mapping[str, _Limit]
) -> _Limit:
    runtime, who = runtime_of(operator, lake), f"{operator.kind_name} {operator.name!r}"
    waiting = min((entry.day for entry in runtime.plan(spark)), default=None) if spark is not None else None
    first_days = {name: day for name, (day, _) in horizons.items() if day is not None}
    since = {name: day if waiting is None else min(day, waiting) for name, day in first_days.items()}
    day = runtime.needs_since(spark, stream, since)
    if day is None:
        open_ended = next((each.name for each in operator.reads if each.name not in first_days), None)
        if open_ended is None:
            return None, f"{who} {runtime.why_all(stream)}"
        why = horizons[open_ended][1]
        return None, f"{who} brings it together with stream {open_ended!r}, of which rows of any day may come: {why}"
    if waiting is not None and waiting < first_days[stream.name]:
        return day, f"{who} waits for the correction of {waiting}"
    return day, f"{who} may still need rows from {day} on"


def _in_use(lake: Lake, pipeline: Pipeline, stream: Stream, pipelines: Iterable[Pipeline]) -> Iterator[_Limit]:
    for of, follower in _followers(stream, pipelines):
        if follower.source.parts != (follower.source,):
            yield None, f"stream {follower.name!r} follows it after a history"
        if of.name != pipeline.name:
            for saved in savepoints(lake, of):
                # Where it is restored, the stream takes the rows since then once more.
                yield None, f"savepoint {saved.name!r} of {of.name!r} is of stream {follower.name!r}, which follows it"
    taken_back = newest_retraction(lake, stream)
    if taken_back is not None:
        # The rows that take others back are of any day, also of those that the clock has long passed.
        for operator in (each for each in pipeline.operators if stream in each.follows):
            if runtime_of(operator, lake).read_through()[stream.name] < taken_back:
                yield None, f"{operator.kind_name} {operator.name!r} has not followed yet that rows were taken back"
    for operator in pipeline.operators_of(stream):
        beside = next_of(operator)
        if delta.exists(lake.table(beside)) or builder_of(lake, beside) is not None:
            yield None, f"{operator.kind_name} {operator.name!r} is being built anew of it"
    for delivery in _of_log(lake, pipeline, stream):
        ledger = ledger_of(lake, delivery)
        if delta.row_count(delta.open_table(lake.table(delivery, DEAD))):
            # A dead letter is known by the place of its row among those of its batch.
            yield None, f"delivery {delivery.name!r} has dead letters, of which rows may be asked for again"
        if ledger is not None and ledger.again_of > ledger.answered:
            yield None, f"delivery {delivery.name!r} sends days again"
    for saved in savepoints(lake, pipeline):
        table = saved.of(f"{stream.name}/log")
        days = () if table is None else days_of(lake.log(stream), table.version)
        if days:
            yield min(days), f"savepoint {saved.name!r} keeps them"


def _of_log(lake: Lake, pipeline: Pipeline, stream: Stream) -> Iterator[Delivery]:
    """The deliveries of rows of the log itself."""
    for delivery in pipeline.deliveries:
        if delivery.stream == stream and outbox_of(delivery, lake).of_log:
            yield delivery


def drop_old_days(
    spark: Callable[[], SparkSession],
    lake: Lake,
    pipeline: Pipeline,
    listener: Callable[[str], None] = lambda what: None,
) -> list[Dropped]:
    """As `drop_days`, with all pipelines of the project; nothing while a module is broken, as nobody knows its streams.

    Raises:
        LeaseError: as `drop_days` says.
    """
    broken = broken_modules()
    if not broken:
        others = [each for each in declared_pipelines().values() if each.name != pipeline.name]
        return drop_days(spark, lake, pipeline, others, listener)
    why = f"a stream of a module that cannot be used may follow it: {broken[0]}"
    kept = [stream for stream in pipeline.streams if stream.retention is not None]
    logs = {stream.name: delta.open_table(lake.log(stream)) for stream in kept}
    return [Dropped(name, dropped_before(log), 0, 0, 0, why) for name, log in logs.items()]
