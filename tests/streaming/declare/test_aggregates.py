"""Every aggregate against the same thing said in plain Python, over groups with nulls, ties and copies."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from streaming import BoundedOutOfOrderness, Files, Json, Stream, Tumbling, Windowed, WindowFunction, agg
from streaming.base.columns import WINDOW
from streaming.base.errors import DeclarationError
from streaming.declare.aggregates import Aggregate
from streaming.views.partial_results import partial_columns
from streaming.views.results import aggregate, finish, pairs
from tests.support.instants import T0, at
from tests.support.logs import static_log
from tests.support.runs import tuples

TYPES = "key string, at timestamp, value bigint, label string"

samples = Stream(
    name="samples",
    source=Files("landing/samples"),
    format=Json("key string, at timestamp not null, value bigint, label string"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

Row = dict[str, Any]


def _values(rows: list[Row]) -> list[int]:
    return [row["value"] for row in rows if row["value"] is not None]


def _interpolated(values: list[int], share: float) -> float | None:
    if not values:
        return None
    ranked, place = sorted(values), share * (len(values) - 1)
    low = int(place)
    return ranked[low] + (place - low) * (ranked[min(low + 1, len(ranked) - 1)] - ranked[low])


def _mode(values: list[int]) -> int | None:
    counts = Counter(values)
    return min((value for value in counts if counts[value] == max(counts.values())), default=None)


def _labels(rows: list[Row]) -> list[str]:
    return [row["label"] for row in rows if row["label"] is not None]


def _arrived(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["_batch"], row["position"]))


def _label_at(rows: list[Row], choose: Callable[[list[int]], int], place: int) -> str | None:
    non_null_rows = [row for row in rows if row["value"] is not None]
    if not non_null_rows:
        return None
    return [row["label"] for row in non_null_rows if row["value"] == choose(_values(non_null_rows))][place]


# What is declared, and what it means for rows in order of event time, then of arrival.
MEANINGS: dict[str, tuple[Aggregate, Callable[[list[Row]], Any]]] = {
    "rows": (agg.count(), len),
    "positive": (agg.count("value > 0"), lambda rows: sum(value > 0 for value in _values(rows))),
    "different": (agg.count_distinct("value"), lambda rows: len(set(_values(rows)))),
    "mean": (agg.mean("value"), lambda rows: statistics.mean(_values(rows)) if _values(rows) else None),
    "total": (agg.sum("value"), lambda rows: sum(_values(rows)) if _values(rows) else None),
    "least": (agg.minimum("value"), lambda rows: min(_values(rows), default=None)),
    "greatest": (agg.maximum("value"), lambda rows: max(_values(rows), default=None)),
    "share": (
        agg.share("value > 0"),
        lambda rows: statistics.mean(float(value > 0) for value in _values(rows)) if _values(rows) else None,
    ),
    "stddev": (agg.stddev("value"), lambda rows: statistics.stdev(_values(rows)) if len(_values(rows)) > 1 else None),
    "p90": (agg.percentile("value", 0.9), lambda rows: _interpolated(_values(rows), 0.9)),
    "median": (agg.median("value"), lambda rows: statistics.median(_values(rows)) if _values(rows) else None),
    "mode": (agg.mode("value"), lambda rows: _mode(_values(rows))),
    "first": (agg.first("label"), lambda rows: next(iter(_labels(rows)), None)),
    "last": (agg.last("label"), lambda rows: next(reversed(_labels(rows)), None)),
    "came_first": (agg.first_arrived("label"), lambda rows: next(iter(_labels(_arrived(rows))), None)),
    "came_last": (agg.last_arrived("label"), lambda rows: next(reversed(_labels(_arrived(rows))), None)),
    "at_least": (agg.min_by("label", "value"), lambda rows: _label_at(rows, min, 0)),
    "at_greatest": (agg.max_by("label", "value"), lambda rows: _label_at(rows, max, -1)),
    "all": (agg.collect("label"), lambda rows: [row["label"] for row in rows]),
}

everything = Windowed(
    "everything",
    samples,
    Tumbling("10 seconds"),
    {f"of_{name}": aggregate for name, (aggregate, _) in MEANINGS.items()},
    by=("key",),
)


def sampled() -> list[Row]:
    """Rows of many groups; few instants, so that equal event times are told apart by batch and position."""
    chance = random.Random(4)
    rows = [
        {
            "key": chance.choice("abcdefghijklmnopqrst"),
            "at": T0 + timedelta(seconds=chance.randrange(30)),
            "value": chance.choice([None, *range(-3, 4)]),
            "label": chance.choice([None, *(f"l{number}" for number in range(40))]),
            "_batch": number // 100,
            "position": number % 100,
        }
        for number in range(400)
    ]
    rows += [{"key": "empty", "at": T0, "value": None, "label": None, "_batch": 0, "position": 500}]
    return chance.sample(rows, len(rows))


def check(results: list[SparkRow], rows: list[Row], names: Iterable[str]) -> None:
    """The results are what plain Python says of the rows."""
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["at"], row["_batch"], row["position"])):
        groups.setdefault((row["key"], (row["at"] - T0) // timedelta(seconds=10)), []).append(row)
    assert len(results) == len(groups) > 50
    for result in results:
        window = int(result["window_start"].timestamp() - T0.timestamp()) // 10
        members = groups[result["key"], window]
        for name in names:
            expected = MEANINGS[name][1](members)
            wanted = pytest.approx(expected, abs=1e-9) if isinstance(expected, float) else expected
            assert result[f"of_{name}"] == wanted, (name, members)


def test_every_aggregate_is_what_plain_python_says_in_whatever_order_rows_are_met(spark: SparkSession) -> None:
    rows = sampled()
    log = static_log(spark, samples, TYPES, rows).repartition(3)
    check(aggregate(pairs(log, everything), everything).collect(), rows, MEANINGS)


def test_parts_of_an_aggregate_that_are_put_together_are_the_aggregate_of_all_rows(spark: SparkSession) -> None:
    rows, names = sampled(), [name for name, (declared, _) in MEANINGS.items() if declared.parts]
    assert len(names) > 10
    view = replace(everything, aggregates={f"of_{name}": MEANINGS[name][0] for name in names})
    counted = pairs(static_log(spark, samples, TYPES, rows), view)
    kept = partial_columns(view, aggregate(counted, view).schema, counted)
    lots = [counted.where(F.col("_batch") % 3 == lot).groupBy("key", WINDOW).agg(*kept.of_rows) for lot in range(3)]

    merged = reduce(DataFrame.unionByName, lots).groupBy("key", WINDOW).agg(*kept.merged)
    check(finish(merged.select("key", WINDOW, *kept.wholes), view).collect(), rows, names)


def test_a_function_gets_all_rows_of_a_window_in_order_and_gives_none_one_or_many(spark: SparkSession) -> None:
    def rises(rows: pd.DataFrame) -> pd.DataFrame:
        later = rows.assign(before=rows["value"].shift()).query("value > before")
        return pd.DataFrame({"risen_at": later["_event_time"], "by": later["value"] - later["before"]})

    view = Windowed(
        "rises",
        samples,
        Tumbling("10 seconds"),
        by=("key",),
        function=WindowFunction(rises, returns="risen_at timestamp, by double"),
    )
    events = [("a", 3, 5), ("a", 1, 1), ("a", 2, 4), ("a", 12, 9), ("b", 1, 2), ("b", 2, 1), (None, 4, 1), (None, 5, 3)]
    rows = [{"key": key, "at": at(second), "value": value} for key, second, value in events]

    results = aggregate(pairs(static_log(spark, samples, TYPES, rows), view), view)

    assert tuples(results, "key", "window_end", "risen_at", "by") == [
        (None, at(10), at(5), 2.0),
        ("a", at(10), at(2), 3.0),
        ("a", at(10), at(3), 1.0),
    ]


@pytest.mark.parametrize("share", [-0.01, 1.01, float("nan")])
def test_a_percentile_that_does_not_exist_is_refused(share: float) -> None:
    with pytest.raises(DeclarationError, match=f"percentile of {share!r} does not exist; give a share between 0 and 1"):
        agg.percentile("value", share)
