"""The freshness of running streams and views, as wholes and value by value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streaming.base import DAY, counted, pc
from streaming.declare import Freshness, Operator, Pipeline, Stream, freshness_of
from streaming.lake import Lake
from streaming.service.overview import Overview
from streaming.service.status import LateValue, ValuesStatus
from streaming.tables import delta, files_added, read_added

_NEWEST = "_newest"
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Watched:
    """A stream, or an operator, of which somebody asks that it is fresh."""

    of: Stream | Operator
    freshness: Freshness

    @property
    def table(self) -> str:
        """The table that is looked at, by its place in the lake, such as `rides/log`."""
        return f"{self.of.name}/log" if isinstance(self.of, Stream) else f"{self.of.folder}/{self.of.name}"

    @property
    def what(self) -> str:
        """The stream or operator in words, such as `view 'rides'`."""
        return f"{self.of.kind_name} {self.of.name!r}"


def watched(pipeline: Pipeline) -> tuple[Watched, ...]:
    """The streams and operators of a pipeline that declare `fresh_within`."""
    every: tuple[Stream | Operator, ...] = (*pipeline.streams, *pipeline.operators)
    asked = ((each, freshness_of(getattr(each, "fresh_within", None))) for each in every)
    return tuple(Watched(each, freshness) for each, freshness in asked if freshness is not None)


class NewestTimes:
    """The newest time of each value of a stream or view, read from its table without Spark.

    Only files that came since the last look are read, with no more of their columns than are asked for, and at first
    those of the days on which a value may have come that is not retired yet. Where files are put together, their rows
    are read again, which changes nothing.
    """

    def __init__(self, lake: Lake, of: Watched) -> None:
        if isinstance(of.of, Stream):
            self._uri, self._time = lake.log(of.of.revisions), of.of.event_time
        else:
            self._uri, self._time = lake.table(of.of), "window_end"
        self._freshness = of.freshness
        self._table: DeltaTable | None = None
        self._read: set[str] = set()
        self._newest: pa.Table | None = None

    def status(self, now: datetime) -> ValuesStatus:
        """The values that are known, and those that are late, at the instant `now`."""
        newest, freshness = self._values(now - self._freshness.remembered), self._freshness
        if newest is None:
            return ValuesStatus(at=now, known=0, late=0)
        known = newest.filter(pc.field(_NEWEST) >= pa.scalar(now - freshness.remembered, _INSTANT))
        late = known.filter(pc.field(_NEWEST) < pa.scalar(now - freshness.length, _INSTANT))
        order = [(_NEWEST, "ascending"), *((name, "ascending") for name in freshness.by)]
        named = late.sort_by(order).slice(0, freshness.named).to_pylist()
        return ValuesStatus(
            at=now,
            known=known.num_rows,
            late=late.num_rows,
            named=tuple(LateValue(value=_named(row, freshness), newest=row[_NEWEST]) for row in named),
        )

    def _values(self, since: datetime) -> pa.Table | None:
        """A row for each value, with its newest time; values whose times are all before `since` may be missing."""
        table = delta.open_table(self._uri)
        if table is None:
            self._table = self._newest = None
            return None
        if self._table is None or self._table.metadata().id != table.metadata().id:
            self._read, self._newest = set(), None
        elif self._table.version() == table.version():
            return self._newest
        self._table = table
        added = files_added(table)
        paths = added.column("path").to_pylist()
        unread = added.filter(pa.array([path not in self._read for path in paths], pa.bool_()))
        days = unread.column(f"partition.{DAY}") if f"partition.{DAY}" in unread.column_names else None
        if days is not None:
            # Rejected rows have no day.
            unread = unread.filter(pc.greater_equal(days, pa.scalar(since.date(), days.type)))
        rows = read_added(table, unread, [*self._freshness.by, self._time, DAY])
        rows = (
            rows.filter(pc.is_valid(rows.column(DAY)))
            .drop_columns([DAY])
            .rename_columns([*self._freshness.by, _NEWEST])
        )
        times = rows.column(_NEWEST).cast(_INSTANT)
        rows = rows.set_column(rows.column_names.index(_NEWEST), _NEWEST, times)
        before = [] if self._newest is None else [self._newest]
        together = pa.concat_tables([*before, rows.filter(pc.is_valid(rows.column(_NEWEST)))])
        grouped = together.group_by(list(self._freshness.by)).aggregate([(_NEWEST, "max")])
        self._newest = grouped.rename_columns(
            [_NEWEST if name == f"{_NEWEST}_max" else name for name in grouped.column_names]
        )
        self._read = {*paths}
        return self._newest


class ValueCounts:
    """The values of all streams and views of a pipeline that are asked for one by one."""

    def __init__(self, lake: Lake, pipeline: Pipeline) -> None:
        self._times = {each.table: NewestTimes(lake, each) for each in watched(pipeline) if each.freshness.by}

    def at(self, now: datetime) -> dict[str, ValuesStatus]:
        """The counts at the instant `now`, by the table of the stream or view, such as `rides/log`."""
        return {name: times.status(now) for name, times in self._times.items()}


def is_fresh(overview: Overview, of: Stream | Operator, now: datetime) -> bool:
    """True where nothing is asked of the stream or operator, or it is as young as that; false where nothing runs."""
    asked = next((each for each in watched(overview.pipeline) if each.of == of), None)
    return asked is None or not (_is_behind(overview, asked, now) or _late(overview, asked))


def lateness_texts(overview: Overview, now: datetime) -> Iterator[str]:
    """A line for each stream or operator that runs and is not as young as is asked, with the values that are late."""
    if overview.process is None:
        return
    for each in watched(overview.pipeline):
        mark = _watermark(overview, each)
        if mark is not None and now - mark > each.freshness.length:
            yield f"{each.what} is {_age(now - mark)} old by its watermark, of {each.freshness.within}"
        values = overview.process.values.get(each.table)
        if values is not None and values.late:
            named = ", ".join(f"{late.value} for {_age(now - late.newest)}" for late in values.named)
            more = values.late - len(values.named)
            yield (
                f"{each.what} has had nothing of {named}{f' and {more:,} more' if more else ''}: "
                f"{values.late:,} of {counted(values.known, 'value')} late, of {each.freshness.within}"
            )


def _is_behind(overview: Overview, of: Watched, now: datetime) -> bool:
    mark = _watermark(overview, of)
    return mark is None or now - mark > of.freshness.length


def _late(overview: Overview, of: Watched) -> int:
    values = None if overview.process is None else overview.process.values.get(of.table)
    return 0 if values is None else values.late


def _watermark(overview: Overview, of: Watched) -> datetime | None:
    """That of the stream, or of what the operator follows, as far as it does: its log may be ahead of it."""
    process = overview.process
    if process is None:
        return None
    if isinstance(of.of, Stream):
        return process.watermarks.get(of.of.name)
    query = process.queries.get(of.of.name)
    return None if query is None else query.watermark


def _named(row: dict[str, Any], freshness: Freshness) -> str:
    return ", ".join(f"{name}={'null' if row[name] is None else row[name]}" for name in freshness.by)


def _age(length: timedelta) -> str:
    """A length of time in whole minutes, or hours and days where it is long."""
    minutes = int(length.total_seconds() // 60)
    if minutes >= 2 * 24 * 60:
        return f"{minutes // (24 * 60)} d"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
