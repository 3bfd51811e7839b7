"""Precision and recall of `usual(...)` on hours with known faults: `python -m benchmarks.unusual [--plot FILE]`.

A series has the seasons of a day and a week, growth, noise of each hour and day, and Poisson counts. Into its last week
faults are put: outages, drops, spikes, bursts of nulls and shifted means. Holidays halve a day, once declared and once
not. What is drawn follows from the seed alone.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from math import cos, pi, sqrt

from streaming.declare import Usual
from streaming.service import HOUR, judge_hours

WEEKS = 9
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
END = BEGIN + timedelta(weeks=WEEKS)
FAULTS = ("outage", "drop", "spike", "nulls", "mean")


@dataclass
class Series:
    """The hours of a stream: rows, the share of nulls in a column and its mean, and the faults by hour.

    `holidays` are days on which half as much comes.
    """

    rows: dict[datetime, float] = field(default_factory=dict)
    null_share: dict[datetime, float] = field(default_factory=dict)
    mean: dict[datetime, float] = field(default_factory=dict)
    faults: dict[datetime, str] = field(default_factory=dict)
    holidays: tuple[date, ...] = ()


@dataclass(frozen=True)
class Score:
    """Hours that were told rightly, told wrongly, and not told though there was a fault."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        """The share of the hours told that have a fault."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """The share of the hours with a fault that are told."""
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0

    def __add__(self, other: Score) -> Score:
        return Score(self.right + other.right, self.wrong + other.wrong, self.missed + other.missed)


def drawn(seed: int, *, level: float = 2_000.0, holiday_in_week: int | None = None) -> Series:
    """A series of the seed; `level` is the mean of an hour's rows, and a holiday is the Wednesday of some week."""
    draw, series = random.Random(seed), Series()
    if holiday_in_week is not None:
        series.holidays = ((BEGIN + timedelta(weeks=holiday_in_week, days=2)).date(),)
    growth, at = draw.uniform(-0.01, 0.03), BEGIN
    while at < END:
        if at.hour == 0:
            of_day = draw.gauss(1, 0.03)
        weekend = 0.6 if at.weekday() >= 5 else 1.0
        season = weekend * (1.05 - 0.9 * cos(2 * pi * (at.hour - 3) / 24))
        expected = level * season * (1 + growth) ** ((at - BEGIN) / timedelta(weeks=1)) * of_day * draw.gauss(1, 0.05)
        expected *= 0.5 if at.date() in series.holidays else 1.0
        series.rows[at] = _poisson(draw, expected)
        rows = max(series.rows[at], 1.0)
        series.null_share[at] = min(1.0, max(0.0, draw.gauss(0.01, sqrt(0.01 * 0.99 / rows))))
        series.mean[at] = draw.gauss(50 + 5 * cos(2 * pi * at.hour / 24), 20 / sqrt(rows))
        at += HOUR
    for begin, length, fault in _placed(draw):
        for hour in (begin + number * HOUR for number in range(length)):
            _break(draw, series, hour, fault)
    return series


def _placed(draw: random.Random) -> Iterator[tuple[datetime, int, str]]:
    """Faults in the last week, each of some hours by day, on days of their own."""
    days = draw.sample(range(7), len(FAULTS))
    for day, fault in zip(days, FAULTS, strict=True):
        yield END - timedelta(days=7 - day) + draw.randint(7, 16) * HOUR, draw.randint(1, 6), fault


def _break(draw: random.Random, series: Series, at: datetime, fault: str) -> None:
    series.faults[at] = fault
    if fault == "outage":
        series.rows[at] = 0.0
        del series.null_share[at], series.mean[at]
    elif fault == "drop":
        series.rows[at] = float(round(series.rows[at] * draw.uniform(0.2, 0.6)))
    elif fault == "spike":
        series.rows[at] = float(round(series.rows[at] * draw.uniform(1.6, 4.0)))
    elif fault == "nulls":
        series.null_share[at] = draw.uniform(0.06, 0.8)
    else:
        series.mean[at] *= draw.choice([draw.uniform(0.5, 0.85), draw.uniform(1.15, 2.0)])


def told(series: Series, rule: Usual) -> set[datetime]:
    """The hours of the last week that are unusual in any of the three, each day judged when it was over."""
    found: set[datetime] = set()
    for day in range(7):
        as_of = END - timedelta(days=6 - day)
        found |= _told(series.rows, rule, as_of, empty=0.0, counts=True)
        found |= _told(series.null_share, replace(rule, least=0.02), as_of)
        found |= _told(series.mean, rule, as_of)
    return found


def _told(
    hours: Mapping[datetime, float], rule: Usual, as_of: datetime, *, empty: float | None = None, counts: bool = False
) -> set[datetime]:
    return {hour.at for hour in judge_hours(hours, rule, as_of, empty=empty, counts=counts).unusual}


def score(series: Series, rule: Usual) -> Score:
    """The hours told against those that have a fault; a holiday is none."""
    found, faults = told(series, rule), {*series.faults}
    return Score(len(found & faults), len(found - faults), len(faults - found))


def recall_by_fault(seeds: range, rule: Usual) -> dict[str, float]:
    """The share of the hours of each kind of fault that are told."""
    hits: dict[str, list[bool]] = {fault: [] for fault in FAULTS}
    for seed in seeds:
        series = drawn(seed)
        found = told(series, rule)
        for at, fault in series.faults.items():
            hits[fault].append(at in found)
    return {fault: sum(each) / len(each) for fault, each in hits.items()}


def scenarios(seeds: range) -> Iterator[tuple[str, Score]]:
    """The score of each scenario over all seeds."""
    plain = Usual()
    for name, level in (("2,000 rows an hour", 2_000.0), ("100 rows an hour", 100.0)):
        yield name, _sum(score(drawn(seed, level=level), plain) for seed in seeds)
    yield "a holiday among the weeks before", _sum(score(drawn(seed, holiday_in_week=4), plain) for seed in seeds)
    for declared in (False, True):
        name = f"a holiday in the week that is judged, {'' if declared else 'not '}declared"
        series = (drawn(seed, holiday_in_week=WEEKS - 1) for seed in seeds)
        yield name, _sum(score(_without_holiday(each), _rule(each, declared)) for each in series)


def _rule(series: Series, declared: bool) -> Usual:
    return Usual(holidays=series.holidays if declared else ())


def _without_holiday(series: Series) -> Series:
    """A fault on a holiday is nobody's to tell, where the day is declared."""
    series.faults = {at: fault for at, fault in series.faults.items() if at.date() not in series.holidays}
    return series


def _sum(scores: Iterator[Score]) -> Score:
    total = Score(0, 0, 0)
    for each in scores:
        total += each
    return total


def _poisson(draw: random.Random, expected: float) -> float:
    """A count; above a few dozen rows the normal distribution is the same to a percent."""
    return float(max(0, round(draw.gauss(expected, sqrt(expected)))))


def plot(path: str, seed: int = 0) -> None:
    """The last two weeks of a series with its bounds, and the hours that are told."""
    from matplotlib.dates import date2num
    from matplotlib.figure import Figure

    series, rule = drawn(seed), Usual()
    found = told(series, rule)
    hours = [at for at in series.rows if at >= END - timedelta(weeks=1)]
    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(date2num(hours), [series.rows[at] for at in hours], color="#4477aa", linewidth=1, label="rows an hour")
    volume = [at for at in hours if series.faults.get(at) in ("outage", "drop", "spike")]
    axes.scatter(
        date2num(volume),
        [series.rows[at] for at in volume],
        s=60,
        facecolors="none",
        edgecolors="#bbbbbb",
        label="a fault",
    )
    shown = [at for at in sorted(found) if series.faults.get(at) not in ("nulls", "mean")]
    axes.scatter(date2num(shown), [series.rows[at] for at in shown], s=14, color="#cc3311", label="told as unusual")
    axes.xaxis_date()
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, ncols=3, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print the scores as the page has them."""
    parser = argparse.ArgumentParser(description="Precision and recall of usual(...) on hours with known faults.")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--plot", metavar="FILE")
    given = parser.parse_args()
    print("| series | precision | recall |\n|---|---:|---:|")
    for name, each in scenarios(range(given.seeds)):
        print(f"| {name} | {each.precision:.2f} | {each.recall:.2f} |")
    print("\n| fault | recall |\n|---|---:|")
    for fault, recall in recall_by_fault(range(given.seeds), Usual()).items():
        print(f"| {fault} | {recall:.2f} |")
    if given.plot:
        plot(given.plot)


if __name__ == "__main__":
    main()
