"""Which days the retention of a log may drop by now: those that nothing needs any more, and what needs the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date

from pyspark.sql import SparkSession

from streaming.declare import DEAD, Delivery, Operator, Pipeline, Stream
from streaming.deliveries import ledger_of, outbox_of
from streaming.lake import Lake
from streaming.log import batches_after, dropped_before, head, noted_before
from streaming.operations.savepoint import savepoints
from streaming.operators import next_of, runtime_of
from streaming.sources import Table
from streaming.tables import days_of, delta

Limit = tuple[date | None, str]
"""The first day that has to stay, null for all days, and in words what needs it."""


@dataclass(frozen=True)
class PlannedDrop:
    """The part of a log that may go: its `days` before the day `before`; no day where something needs them all.

    `keeps`: in words what needs the first day that stays.
    """

    stream: Stream
    before: date | None
    days: tuple[date, ...]
    keeps: str


def is_unfinished(lake: Lake, stream: Stream) -> bool:
    """True if a drop was begun, and killed before the log had lost the days."""
    noted, dropped = noted_before(lake, stream), dropped_before(delta.open_table(lake.log(stream)))
    return noted is not None and (dropped is None or noted > dropped)


def planned_drop(
    spark: SparkSession | None, lake: Lake, pipeline: Pipeline, stream: Stream, others: Iterable[Pipeline] = ()
) -> PlannedDrop:
    """The plan of what may go of the log of a stream; `others` are further pipelines, which may follow it.

    Without a session it is as far as that can be told: there may be less to drop.
    """
    if stream.retention is None or not delta.exists(lake.log(stream)):
        return PlannedDrop(stream, None, (), "it keeps everything")
    pipelines = (pipeline, *others)
    limits = [*_in_use(lake, pipeline, stream, pipelines)]
    horizons = {each.name: _horizon(lake, pipeline, each, pipelines) for each in pipeline.streams}
    limits.append(horizons[stream.name])
    if horizons[stream.name][0] is not None:
        for operator in pipeline.operators_of(stream):
            limits.append(_needed(spark, lake, operator, stream, horizons))
    day, keeps = min(limits, key=lambda limit: limit[0] or date.min)
    days = () if day is None else tuple(sorted(each for each in days_of(lake.log(stream)) if each < day))
    return PlannedDrop(stream, day, days, keeps)


def blocked(lake: Lake, pipeline: Pipeline, stream: Stream, others: Iterable[Pipeline] = ()) -> str | None:
    """In words what reads rows of the log by their places right now, so that none may go; None for nothing."""
    return next((why for day, why in _in_use(lake, pipeline, stream, (pipeline, *others)) if day is None), None)


def _horizon(lake: Lake, pipeline: Pipeline, stream: Stream, pipelines: Iterable[Pipeline]) -> Limit:
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
        if isinstance(follower.source, Table):
            newest = head(lake, follower) if delta.exists(lake.log(follower)) else None
            through = -1 if newest is None else follower.source.taken_through(newest.source)
            yield through, f"stream {follower.name!r}"


def _followers(stream: Stream, pipelines: Iterable[Pipeline]) -> Iterator[tuple[Pipeline, Stream]]:
    """The streams that take rows of the log, by its name: what else they say of it makes no other rows of them."""
    for pipeline in pipelines:
        for each in pipeline.streams:
            if any(isinstance(part, Table) and _is_of(part, stream) for part in each.source.parts):
                yield pipeline, each


def _is_of(table: Table, stream: Stream) -> bool:
    return isinstance(table.of, Stream) and table.of.name == stream.name


def _needed(
    spark: SparkSession | None, lake: Lake, operator: Operator, stream: Stream, horizons: Mapping[str, Limit]
) -> Limit:
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


def _in_use(lake: Lake, pipeline: Pipeline, stream: Stream, pipelines: Iterable[Pipeline]) -> Iterator[Limit]:
    for of, follower in _followers(stream, pipelines):
        if not isinstance(follower.source, Table):
            yield None, f"stream {follower.name!r} follows it after a history"
        if of.name != pipeline.name:
            for saved in savepoints(lake, of):
                # Where it is restored, the stream takes the rows since then once more.
                yield None, f"savepoint {saved.name!r} of {of.name!r} is of stream {follower.name!r}, which follows it"
    for operator in pipeline.operators_of(stream):
        if delta.exists(lake.table(next_of(operator))):
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
