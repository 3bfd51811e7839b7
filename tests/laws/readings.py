"""The pipeline under test, declared for the engine and once more for the oracle."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    count,
    greatest,
    least,
    mean,
    share,
    total,
)
from tests.laws import oracle

MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)
NOW = datetime(2026, 1, 2, 0, 1, tzinfo=UTC)

AGGREGATES = {
    "readings": count(),
    "known": count("value is not null"),
    "sum_value": total("value"),
    "mean_value": mean("value"),
    "least_value": least("value"),
    "greatest_value": greatest("value"),
    "positive_share": share("value > 0"),
}


def pipeline(files_per_batch: int = 1) -> Pipeline:
    """One view by key, and one over all keys with an offset and a condition."""
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
        keep_raw=True,
    )
    by_key = Windowed("by_key", readings, Tumbling("10 seconds"), AGGREGATES, by=("key",))
    everywhere = Windowed(
        "everywhere", readings, Tumbling("7 seconds", offset="3 seconds"), AGGREGATES, where="value is not null"
    )
    return Pipeline(readings, (by_key, everywhere))


VIEWS = (
    oracle.View("by_key", True, 10 * oracle.SECOND, 0, lambda event: True),
    oracle.View("everywhere", False, 7 * oracle.SECOND, 3 * oracle.SECOND, lambda event: event.value is not None),
)


def without_raw(declared: Pipeline) -> Pipeline:
    """The same pipeline, keeping the payload of rejected rows only."""
    stream = replace(declared.stream, keep_raw=False)
    return Pipeline(stream, tuple(replace(view, of=stream) for view in declared.views))
