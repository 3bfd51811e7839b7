"""The pipeline under test, declared for the engine and once more for the oracle: a view per window kind and policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pandas as pd

from streaming import (
    BoundedOutOfOrderness,
    Custom,
    Files,
    Json,
    LocalDays,
    Pipeline,
    Rule,
    SessionWindow,
    Sliding,
    Stream,
    Tumbling,
    Windowed,
    WindowFunction,
    agg,
)
from tests.laws import windows
from tests.laws.clocks import Bounded, Clock
from tests.laws.oracle import SECOND, Event, micros
from tests.laws.timeline import Timeline, Values, View
from tests.laws.windows import Bounds

MIDNIGHT = datetime(2026, 3, 9, tzinfo=UTC)
LOCAL_MIDNIGHT = datetime(2026, 3, 9, 4, tzinfo=UTC)
"""The end of the day of 23 hours in New York."""

NOW = datetime(2026, 3, 9, 4, 1, tzinfo=UTC)
"""The processing time of every run."""

AGGREGATES = {
    "readings": agg.count(),
    "known": agg.count("value is not null"),
    "sum_value": agg.sum("value"),
    "mean_value": agg.mean("value"),
    "least_value": agg.minimum("value"),
    "greatest_value": agg.maximum("value"),
    "positive_share": agg.share("value > 0"),
}

_HALF_MINUTE = (
    "named_struct('start', timestamp_micros(unix_micros(at) - pmod(unix_micros(at), 30000000)), "
    "'end', timestamp_micros(unix_micros(at) - pmod(unix_micros(at), 30000000) + 30000000))"
)


def _around(before: str, after: str) -> str:
    bounds = (f"timestamp_micros(unix_micros(at) {shift})" for shift in (before, after))
    return "named_struct('start', {}, 'end', {})".format(*bounds)


ASSIGNER = f"""case
    when value is null then null
    when value > 50 then array({_HALF_MINUTE}, {_around("+ 1000000", "+ 9000000")})
    when value > 0 then array({_HALF_MINUTE}, {_around("- 9000000", "- 1000000")}, {_HALF_MINUTE})
    when value < -80 then array({_around("+ 1000000", "+ 60000001")}, {_around("- 60000001", "+ 0")})
    when value < -60 then array({_around("+ 1000000", "+ 1000000")}, {_around("- 60000000", "+ 60000000")})
    else array({_HALF_MINUTE})
end"""


def _steps() -> WindowFunction:
    # A nested function is pickled whole, so that Spark's workers need not import the tests.
    def steps(rows: pd.DataFrame) -> pd.DataFrame:
        values = rows["value"].dropna().astype("int64").tolist()
        pairs = list(pairwise(values))
        return pd.DataFrame(pairs, columns=["before", "after"]).astype("int64")

    return WindowFunction(steps, "before bigint, after bigint")


def pipeline(files_per_batch: int = 1, *, keep_raw: bool = True) -> Pipeline:
    """One stream, whose batches are paid for once, and all the views."""
    readings = Stream(
        name="readings",
        source=Files("landing/readings", files_per_batch=files_per_batch),
        format=Json("key string, at timestamp, value bigint, unit string"),
        event_time="at",
        clock=BoundedOutOfOrderness("5 seconds", max_ahead="30 seconds"),
        rules=(
            Rule("value_plausible", "value is null or value between -100 and 100"),
            Rule("unit_known", "unit = 'C'"),
        ),
        keep_raw=keep_raw,
    )
    by_key = Windowed("by_key", readings, Tumbling("10 seconds"), AGGREGATES, by=("key",), early="each batch")
    return Pipeline(
        readings,
        (
            by_key,
            replace(by_key, name="sliding", window=Sliding("10 seconds", "4 seconds"), early=None),
            replace(
                by_key, name="gapped", window=Sliding("3 seconds", "7 seconds", "2 seconds"), late="drop", early=None
            ),
            replace(by_key, name="local_days", window=LocalDays("America/New_York"), early=None),
            replace(by_key, name="sessions", window=SessionWindow("4 seconds")),
            replace(by_key, name="own_gaps", window=SessionWindow(seconds_of="abs(value) % 7 - 1"), early=None),
            replace(by_key, name="custom", window=Custom(ASSIGNER, within="1 minute"), early=None),
            replace(by_key, name="once", by=(), distinct=("key",), early=None),
            replace(by_key, name="steps", window=Tumbling("1 minute"), aggregates={}, function=_steps(), early=None),
            replace(
                by_key,
                name="updated",
                window=Tumbling("7 seconds", offset="3 seconds"),
                where="value is not null",
                late="update",
                allowed_lateness="20 seconds",
                early=None,
            ),
            replace(
                by_key,
                name="updated_sessions",
                window=SessionWindow("4 seconds"),
                late="update",
                allowed_lateness="10 seconds",
                early=None,
            ),
        ),
    )


def _aggregate(events: Sequence[Event]) -> list[Values]:
    values = [event.value for event in events if event.value is not None]
    if not values:
        return [(len(events), 0, None, None, None, None, None)]
    positive = sum(value > 0 for value in values) / len(values)
    return [(len(events), len(values), sum(values), sum(values) / len(values), min(values), max(values), positive)]


def _steps_of(events: Sequence[Event]) -> list[Values]:
    return list(pairwise(event.value for event in events if event.value is not None))


def _own_gap(event: Event) -> int | None:
    return None if event.value is None else (abs(event.value) % 7 - 1) * SECOND


def _assigned(event: Event) -> list[Bounds]:
    """What `ASSIGNER` says; windows that are empty or reach further than a minute are none."""
    if event.value is None or event.value < -80:
        return []
    if event.value < -60:
        return [(event.at - 60 * SECOND, event.at + 60 * SECOND)]
    half_minute = event.at // (30 * SECOND) * 30 * SECOND
    windows = [(half_minute, half_minute + 30 * SECOND)]
    if event.value > 50:
        windows.append((event.at + SECOND, event.at + 9 * SECOND))
    elif event.value > 0:
        windows.append((event.at - 9 * SECOND, event.at - SECOND))
    return windows


_BY_KEY = View("by_key", windows.tumbling(10 * SECOND), _aggregate, len(AGGREGATES), early=True)
VIEWS = (
    _BY_KEY,
    replace(_BY_KEY, name="sliding", assign=windows.sliding(10 * SECOND, 4 * SECOND), early=False),
    replace(
        _BY_KEY, name="gapped", assign=windows.sliding(3 * SECOND, 7 * SECOND, 2 * SECOND), late="drop", early=False
    ),
    replace(_BY_KEY, name="local_days", assign=windows.local_days("America/New_York"), early=False),
    replace(_BY_KEY, name="sessions", assign=windows.gaps(lambda event: 4 * SECOND), merging=True),
    replace(_BY_KEY, name="own_gaps", assign=windows.gaps(_own_gap), merging=True, early=False),
    replace(_BY_KEY, name="custom", assign=_assigned, early=False),
    replace(_BY_KEY, name="once", by_key=False, distinct=lambda event: event.key, early=False),
    replace(_BY_KEY, name="steps", assign=windows.tumbling(60 * SECOND), compute=_steps_of, width=2, early=False),
    replace(
        _BY_KEY,
        name="updated",
        assign=windows.tumbling(7 * SECOND, 3 * SECOND),
        counts=lambda event: event.value is not None,
        late="update",
        lateness=20 * SECOND,
        early=False,
    ),
    replace(
        _BY_KEY,
        name="updated_sessions",
        assign=windows.gaps(lambda event: 4 * SECOND),
        merging=True,
        late="update",
        lateness=10 * SECOND,
        early=False,
    ),
)


def clock() -> Clock:
    """The stream's clock for the oracle."""
    return Bounded(5 * SECOND)


def timeline(views: tuple[View, ...] = VIEWS) -> Timeline:
    """The oracle of `pipeline` with these views, before its first batch."""
    return Timeline(micros(NOW), views, clock())
