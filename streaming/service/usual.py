"""Hours that are unusual by what the same hours of the week were before: too many rows, too few, other values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from math import isfinite, pi, sqrt
from statistics import median

import pyarrow as pa

from streaming.base import DAY, interval, is_number_type, pc
from streaming.declare import HourlySum, Operator, Pipeline, Stream, Usual
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.service.progress_table import rows_by_hour
from streaming.service.query_errors import ingest_query
from streaming.service.status import UnusualHour
from streaming.tables import Between, arrow_schema_of, delta, files_added, files_between, read_added

HOUR, WEEK = timedelta(hours=1), timedelta(weeks=1)
_WRITTEN_AFTER = timedelta(minutes=1)
_INSTANT = pa.timestamp("us", "UTC")
_BYTES_AT_ONCE = 32 * 2**20
_OF_NORMAL = 1.4826
"""1 / 0.6745: the standard deviation of a normal distribution, by its median absolute deviation."""


@dataclass(frozen=True)
class JudgedHours:
    """The outcome: how many hours had enough history to be judged, and those that are unusual, in their order."""

    judged: int
    unusual: tuple[UnusualHour, ...]


def judge_hours(
    hours: Mapping[datetime, float], rule: Usual, as_of: datetime, *, empty: float | None = None, counts: bool = False
) -> JudgedHours:
    """The hours before `as_of` by the rule; it depends on nothing else, so that any instant can be judged again.

    `hours` has the value of each hour by its begin. One that it lacks, after its first, has the value `empty`; without
    that it is no hour. From one without a finite value nothing is learnt, and it is unusual. `counts`: values are
    numbers of rows.
    """
    end = _hour(as_of)
    begin = end - max(HOUR, interval(rule.last) // HOUR * HOUR)
    first = min(hours, default=end)
    medians, spread_of = _learnt(
        _between(hours, max(first, begin - rule.weeks * WEEK), begin, rule.holidays, empty), rule
    )
    judged, unusual = 0, []
    for at, value in _between(hours, max(first, begin), end, rule.holidays, empty):
        if _slot(at) not in medians:
            continue
        judged += 1
        usual = medians[_slot(at)]
        spread = spread_of[_slot(at)]
        if counts:
            spread = max(spread, sqrt(max(usual, 1.0)))
        reach = max(rule.factor * spread, rule.least)
        # Of NaN no comparison is true.
        if not isfinite(value) or abs(value - usual) > reach:
            told = value if isfinite(value) else None
            unusual.append(UnusualHour(at=at, value=told, median=usual, low=usual - reach, high=usual + reach))
    return JudgedHours(judged, tuple(unusual))


class UnusualHours:
    """The hours of each stream and view for which the limits have rules, each judged once when it is over."""

    def __init__(self, lake: Lake, pipeline: Pipeline) -> None:
        self._watched = [
            _Watched(hours, rules)
            for name, every in pipeline.limits.usual.items()
            for hours, rules in _hours_of(lake, pipeline, name, every)
            if rules
        ]

    def look(self, now: datetime, watermarks: Mapping[str, datetime | None]) -> None:
        """Judge the hours that are over since the last look, by `now` or by the watermarks; several may end at once.

        `watermarks` are those of streams, and of operators as far as they have followed theirs, by name. Of a table
        that cannot be read the next look judges the hours; those of the others are judged all the same, and the first
        error is raised then.
        """
        errors = []
        for each in self._watched:
            try:
                each.look(now, watermarks)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    @property
    def unusual(self) -> tuple[UnusualHour, ...]:
        """The hours that were over at the last look and are unusual."""
        return tuple(hour for each in self._watched for hour in each.unusual)


class _Watched:
    """The hours of something, the rules that they are judged by, and those that were over last and are `unusual`."""

    def __init__(self, hours: _Arrivals | _Stored, rules: tuple[Usual, ...]) -> None:
        self._hours = hours
        self._rules = rules
        self._over: datetime | None = None
        self.unusual: tuple[UnusualHour, ...] = ()

    def look(self, now: datetime, watermarks: Mapping[str, datetime | None]) -> None:
        """Judge the hours that are over and were not judged yet, at first the last one."""
        over = self._hours.over(now, watermarks)
        if over is None or over == self._over:
            return
        since_then = max(HOUR, HOUR if self._over is None else over - self._over)
        last = {rule: min(since_then, interval(rule.last) // HOUR * HOUR) for rule in self._rules}
        self._hours.read(over - max(rule.weeks * WEEK + last[rule] for rule in self._rules), over)
        self.unusual = tuple(hour for rule in self._rules for hour in self._judged(rule, last[rule], over))
        self._over = over

    def _judged(self, rule: Usual, last: timedelta, over: datetime) -> Iterator[UnusualHour]:
        asked, of_last = _asked(rule), replace(rule, last=f"{last // HOUR} hours")
        counts = asked.kind == "rows"
        judged = judge_hours(self._hours.values(asked), of_last, over, empty=0.0 if counts else None, counts=counts)
        for hour in judged.unusual:
            yield hour.model_copy(update={"of": self._hours.name, "aggregate": rule.value})


class _Arrivals:
    """The rows of a stream by the hour in which they came, of the table `progress`."""

    def __init__(self, lake: Lake, pipeline: Pipeline, stream: Stream) -> None:
        self.name = stream.name
        self._query = ingest_query(pipeline, stream)
        self._pipeline = pipeline
        self._lake = lake
        self._rows: dict[datetime, float] = {}

    def over(self, now: datetime, watermarks: Mapping[str, datetime | None]) -> datetime | None:
        """The end of the last hour of which everything is in the table."""
        del watermarks
        # What has ended is in the table half a minute later at the latest.
        return _hour(now - _WRITTEN_AFTER)

    def read(self, begin: datetime, end: datetime) -> None:
        """Take note of the hours from `begin` on."""
        del end
        self._rows = rows_by_hour(self._lake, self._pipeline, self._query, begin)

    def values(self, asked: HourlySum) -> dict[datetime, float]:
        """The rows of each hour that had a batch."""
        del asked
        return self._rows


class _Stored:
    """The rows of a stream's log, or the first results of a view, by the hour of their time.

    In memory are three numbers of each hour and column. The files of an hour are read when it is over, with no more
    columns than the rules name, those of the weeks before only at first; so a row that comes later is not counted.
    Where a table that was built anew has taken the place of the one that was read, all are read again.
    """

    def __init__(self, lake: Lake, of: Stream | Operator, rules: tuple[Usual, ...]) -> None:
        self.name = of.name
        self._of = of
        self._columns = sorted({_asked(rule).column or "" for rule in rules})
        self._sums: dict[datetime, dict[str, _Sum]] = {}
        self._read_until: datetime | None = None
        self._read_of: tuple[object, int] | None = None
        if isinstance(of, Stream):
            self._uri, self._time = lake.log(of.revisions), of.event_time
        else:
            self._uri, self._time = lake.table(of), "window_start"

    def over(self, now: datetime, watermarks: Mapping[str, datetime | None]) -> datetime | None:
        """The end of the last hour to which no row or result will be added in time."""
        del now
        watermark = watermarks.get(self.name)
        if watermark is None or isinstance(self._of, Stream):
            return None if watermark is None else _hour(watermark)
        begin = self._of.first_open(watermark)
        return None if begin is None else _hour(begin)

    def read(self, begin: datetime, end: datetime) -> None:
        """Add the hours up to `end` that were not read yet, from `begin` on, and forget those before."""
        table = delta.open_table(self._uri)
        if table is None:
            self._sums, self._read_until, self._read_of = {}, None, None
            return
        of, until, sums = (table.metadata().id, generation_of(table)), self._read_until, self._sums
        # A watermark that went back is that of a log or view which was built anew.
        if until is None or not begin <= until <= end or of != self._read_of:
            until, sums = begin, {}
        sums = {hour: dict(of_hour) for hour, of_hour in sums.items() if hour >= begin}
        there = {*arrow_schema_of(table).names}
        columns = dict.fromkeys([self._time, *(name for name in self._columns if name in there)])
        added = files_between(files_added(table), self._time, Between(until, end))
        if isinstance(self._of, Stream) and added.num_rows:
            # A rejected row has no day.
            added = added.filter(pc.is_valid(added.column(f"partition.{DAY}")))
        for files in _parts(added):
            rows = read_added(table, files, [*columns])
            at = rows.column(self._time).cast(_INSTANT)
            chosen = pc.and_(pc.greater_equal(at, pa.scalar(until, _INSTANT)), pc.less(at, pa.scalar(end, _INSTANT)))
            self._add(rows.filter(chosen), sums)
        # Only now, so that files which were read before one that cannot be read are not counted twice.
        self._sums, self._read_until, self._read_of = sums, end, of

    def _add(self, rows: pa.Table, sums: dict[datetime, dict[str, _Sum]]) -> None:
        """Add the rows to the `sums` of their hours; a column that the table does not have yet is null."""
        hours = pc.floor_temporal(rows.column(self._time).cast(_INSTANT), unit="hour")
        for name in self._columns:
            values = hours
            if name:
                values = rows.column(name) if name in rows.column_names else pa.nulls(len(hours))
            # A text has no sum, and nobody asks for it.
            numbers = values if is_number_type(values.type) else pa.nulls(len(hours))
            grouped = pa.table(
                {
                    "hour": hours,
                    "there": values.is_valid().cast(pa.int64()),
                    "number": numbers.cast(pa.float64(), safe=False),
                }
            )
            by_hour = grouped.group_by("hour").aggregate([("there", "count"), ("there", "sum"), ("number", "sum")])
            for row in by_hour.to_pylist():
                of_hour = sums.setdefault(row["hour"], {})
                more = _Sum(row["there_count"], row["there_sum"], row["number_sum"] or 0.0)
                of_hour[name] = of_hour.get(name, _Sum()) + more

    def values(self, asked: HourlySum) -> dict[datetime, float]:
        """The value of each hour that has one."""
        values = {hour: sums[asked.column or ""].value(asked) for hour, sums in self._sums.items()}
        return {hour: value for hour, value in values.items() if value is not None}


@dataclass(frozen=True)
class _Sum:
    """The number of `rows`, of those that have a value, and the `total` of these."""

    rows: int = 0
    there: int = 0
    total: float = 0.0

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(self.rows + other.rows, self.there + other.there, self.total + other.total)

    def value(self, asked: HourlySum) -> float | None:
        match asked.kind:
            case "rows":
                return float(self.rows)
            case "null_share":
                return (self.rows - self.there) / self.rows
            case "sum":
                return self.total if self.there else None
            case "mean":
                return self.total / self.there if self.there else None


def _hours_of(
    lake: Lake, pipeline: Pipeline, name: str, rules: tuple[Usual, ...]
) -> Iterator[tuple[_Arrivals | _Stored, tuple[Usual, ...]]]:
    declared: tuple[Stream | Operator, ...] = (*pipeline.streams, *pipeline.operators)
    of = next(each for each in declared if each.name == name)
    came: tuple[Usual, ...] = ()
    if isinstance(of, Stream):
        came = tuple(rule for rule in rules if _asked(rule).kind == "rows")
        yield _Arrivals(lake, pipeline, of), came
    stored = tuple(rule for rule in rules if rule not in came)
    yield _Stored(lake, of, stored), stored


def _parts(added: pa.Table) -> Iterator[pa.Table]:
    """The files in their order, so few at once that they fit into memory; a file that is larger comes alone."""
    first, size = 0, 0
    for place, more in enumerate(added.column("size_bytes").to_pylist() if added.num_rows else []):
        if place > first and size + more > _BYTES_AT_ONCE:
            yield added.slice(first, place - first)
            first, size = place, 0
        size += more
    if first < added.num_rows:
        yield added.slice(first)


def _asked(rule: Usual) -> HourlySum:
    asked = rule.hourly_sum
    assert asked is not None, "a pipeline refuses limits of other values"
    return asked


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _learnt(history: Iterator[tuple[datetime, float]], rule: Usual) -> tuple[dict[int, float], dict[int, float]]:
    """The median of each hour of the week that has come often enough, and its spread."""
    of_slot: dict[int, list[float]] = defaultdict(list)
    for at, value in history:
        if isfinite(value):
            of_slot[_slot(at)].append(value)
    known = {slot: values for slot, values in of_slot.items() if len(values) >= rule.minimum}
    medians = {slot: median(values) for slot, values in known.items()}
    relative = [
        abs(value - medians[slot]) / abs(medians[slot])
        for slot, values in known.items()
        for value in values
        if medians[slot]
    ]
    common = median(relative) if relative else 0.0
    spreads = {
        slot: _new(len(values))
        * _OF_NORMAL
        * max(median(abs(value - medians[slot]) for value in values), common * abs(medians[slot]))
        for slot, values in known.items()
    }
    return medians, spreads


def _new(count: int) -> float:
    """The factor from the spread of `count` values around their median to that of a new one.

    The median varies by pi / (2 n) of their variance itself, and takes a degree of freedom from them.
    """
    return sqrt((count + pi / 2) / (count - 1))


def _between(
    hours: Mapping[datetime, float], begin: datetime, end: datetime, holidays: Collection[date], empty: float | None
) -> Iterator[tuple[datetime, float]]:
    at = begin
    while at < end:
        value = hours.get(at, empty)
        if value is not None and at.date() not in holidays:
            yield at, value
        at += HOUR


def _slot(at: datetime) -> int:
    """The hour of the week."""
    return at.weekday() * 24 + at.hour
