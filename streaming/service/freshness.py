"""The freshness of running streams and views, as wholes and value by value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
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
_FILE_DAY = f"partition.{DAY}"
_FILES_AT_ONCE = 32


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

    Only files that came since the last look are read, with no more of their columns than are asked for, and of those
    only the days on which a value may have come that is not retired yet. Where one of them is there no more, as after
    an erasure or where files were put together, all are read again: its values may have gone with it. In memory are the
    values that are not retired.
    """

    def __init__(self, lake: Lake, of: Watched) -> None:
        if isinstance(of.of, Stream):
            self._uri, self._time = lake.log(of.of.revisions), of.of.event_time
        else:
            self._uri, self._time = lake.table(of.of), "window_end"
        self._freshness = of.freshness
        # The date of a window is that of its start, which lies before the end that is compared.
        self._first_begin = _same if isinstance(of.of, Stream) else of.of.first_begin
        self._table: DeltaTable | None = None
        self._read: dict[str, date | None] = {}
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

    @property
    def remembered(self) -> int:
        """The number of values in memory."""
        return 0 if self._newest is None else self._newest.num_rows

    def _values(self, since: datetime) -> pa.Table | None:
        """A row for each value, with its newest time; values whose times are all before `since` may be missing."""
        table = delta.open_table(self._uri)
        if table is None:
            self._table = self._newest = None
            return None
        if self._table is None or self._table.metadata().id != table.metadata().id:
            self._read, self._newest = {}, None
        elif self._table.version() == table.version():
            return self._newest
        self._table = table
        added = _files_since(files_added(table), self._first_begin(since))
        days = added.column(_FILE_DAY).to_pylist() if _FILE_DAY in added.column_names else [None] * added.num_rows
        files = dict(zip(added.column("path").to_pylist(), days, strict=True))
        if any(path not in files for path, day in self._read.items() if _is_since(day, self._first_begin(since))):
            self._read, self._newest = {}, None
        unread = added.filter(pa.array([path not in self._read for path in files], pa.bool_()))
        for first in range(0, max(unread.num_rows, 1), _FILES_AT_ONCE):
            rows = self._times_in(table, unread.slice(first, _FILES_AT_ONCE))
            before = [] if self._newest is None else [self._newest]
            self._newest = _newest_of(pa.concat_tables([*before, rows]), self._freshness.by, since)
        self._read = files
        return self._newest

    def _times_in(self, table: DeltaTable, files: pa.Table) -> pa.Table:
        """The values and times of the valid rows in some files."""
        rows = read_added(table, files, [*self._freshness.by, self._time, DAY])
        rows = rows.filter(pc.is_valid(rows.column(DAY))).drop_columns([DAY])
        rows = rows.rename_columns([*self._freshness.by, _NEWEST])
        return rows.set_column(len(self._freshness.by), _NEWEST, rows.column(_NEWEST).cast(_INSTANT))


def _same(since: datetime) -> datetime:
    return since


def _files_since(added: pa.Table, since: datetime | None) -> pa.Table:
    """The files with valid rows of the days from `since` on; rejected rows have no day."""
    if _FILE_DAY not in added.column_names:
        return added
    days = added.column(_FILE_DAY)
    if since is None:
        return added.filter(pc.is_valid(days))
    return added.filter(pc.greater_equal(days, pa.scalar(since.date(), days.type)))


def _is_since(day: date | None, since: datetime | None) -> bool:
    return day is None or since is None or day >= since.date()


def _newest_of(rows: pa.Table, by: Sequence[str], since: datetime) -> pa.Table:
    """The newest time of each value, of those that have one from `since` on."""
    rows = rows.filter(pc.field(_NEWEST) >= pa.scalar(since, _INSTANT))
    grouped = rows.group_by(list(by)).aggregate([(_NEWEST, "max")])
    return grouped.rename_columns([_NEWEST if name == f"{_NEWEST}_max" else name for name in grouped.column_names])


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
