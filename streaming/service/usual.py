"""Hours that are unusual by what the same hours of the week were before: too many rows, too few, other values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from math import pi, sqrt
from statistics import median

from streaming.base import interval
from streaming.declare import Pipeline, Usual
from streaming.lake import Lake
from streaming.service.progress_table import rows_by_hour
from streaming.service.status import UnusualHour

HOUR, WEEK = timedelta(hours=1), timedelta(weeks=1)
_WRITTEN_AFTER = timedelta(minutes=1)
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
    that it is no hour. `counts`: values are numbers of rows.
    """
    end = as_of.replace(minute=0, second=0, microsecond=0)
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
        if abs(value - usual) > reach:
            unusual.append(UnusualHour(at=at, value=value, median=usual, low=usual - reach, high=usual + reach))
    return JudgedHours(judged, tuple(unusual))


class RowsByHour:
    """The rows of the last hour of a pipeline against those of the weeks before, looked at once in each hour."""

    def __init__(self, lake: Lake, pipeline: Pipeline) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._looked: datetime | None = None
        self._unusual: tuple[UnusualHour, ...] = ()

    def unusual(self, now: datetime) -> tuple[UnusualHour, ...]:
        """The last hour that was over before `now`, if it was unusual; nothing where the limits do not ask."""
        rule, hour = self._pipeline.limits.usual_rows, now.replace(minute=0, second=0, microsecond=0)
        # What has ended is in the table half a minute later at the latest.
        if rule is None or hour == self._looked or now - hour < _WRITTEN_AFTER:
            return self._unusual
        hours = rows_by_hour(self._lake, self._pipeline, hour - rule.weeks * WEEK - timedelta(days=1))
        judged = judge_hours(hours, replace(rule, last="1 hour"), hour, empty=0.0, counts=True)
        self._looked, self._unusual = hour, judged.unusual
        return self._unusual


def _learnt(history: Iterator[tuple[datetime, float]], rule: Usual) -> tuple[dict[int, float], dict[int, float]]:
    """The median of each hour of the week that has come often enough, and its spread."""
    of_slot: dict[int, list[float]] = defaultdict(list)
    for at, value in history:
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
