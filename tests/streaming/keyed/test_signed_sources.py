"""Keyed functions of what is current of a history, of several streams with a key, and of logs that drop old days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Derived,
    Files,
    History,
    Json,
    Keyed,
    Lake,
    Pipeline,
    Stream,
    Table,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.operations.retention import drop_days
from streaming.operators.runtime import runtime_of
from tests.streaming.keyed.test_signed import COUNTS, PATHS, VISITS, visit
from tests.support.instants import NOW, T0
from tests.support.runs import run
from tidemark.testing import correct, land_all

DAY = 86_400


def read(spark: SparkSession, lake: Lake, keyed: Keyed, what: str = "current", column: str = "path") -> list[Any]:
    seconds = f"(unix_micros(_at) - {int(T0.timestamp() * 1_000_000)}) / 1e6"
    rows = runtime_of(keyed, lake).readable[what](spark).selectExpr(seconds, column).collect()
    return sorted(map(tuple, rows))


def followed(spark: SparkSession, lake: Lake, *pipelines: Pipeline) -> None:
    """Run them one after the other, each corrected and told before the next."""
    for pipeline in pipelines:
        run(spark, lake, pipeline)
        for operator in pipeline.operators:
            if operator.corrected:
                correct(spark, lake, operator, lambda: NOW)
        run(spark, lake, pipeline)


def broken(spark: SparkSession, lake: Lake, *pipelines: Pipeline) -> Sequence[object]:
    return [finding for pipeline in pipelines for finding in audit(spark, lake, pipeline) if not finding.holds]


@pytest.mark.long
def test_a_function_follows_the_intervals_of_a_history(spark: SparkSession, lake: Lake) -> None:
    """
    v1 a at 00:00, v3 c at 00:40       two intervals: a, and 40 seconds later c, which begins anew
    v2 b at 00:20 comes late           three, 20 seconds apart each, and so one path
    """
    history = History("pages", VISITS, track=("page",))
    intervals = Stream(
        name="intervals",
        source=Table(history, what="current"),
        format=Json("visitor string, page string, valid_from timestamp"),
        event_time="valid_from",
        clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    )
    paths, counts = (replace(keyed, of=intervals) for keyed in (PATHS, COUNTS))
    pipelines = Pipeline(VISITS, (history,)), Pipeline(intervals, (paths, counts))
    land_all(lake, VISITS, [visit("v", 1, 0, "a"), visit("v", 3, 40, "c"), visit("z", 1, 300, "z", visitor="zoe")])
    followed(spark, lake, *pipelines)
    assert read(spark, lake, paths)[:4] == [(0.0, "a"), (20.0, "a."), (40.0, "c"), (60.0, "c.")]
    land_all(lake, VISITS, [visit("v", 2, 20, "b")])
    followed(spark, lake, *pipelines)
    told = [(0.0, "a"), (20.0, "a."), (20.0, "ab"), (40.0, "ab."), (40.0, "abc"), (60.0, "abc.")]
    assert read(spark, lake, paths)[:6] == told
    # The interval of a ended later until then, and is another one now.
    changes = [change for _, change in read(spark, lake, counts, "current", "struct(page, change)") if change[0] == "a"]
    assert [tuple(change) for change in changes] == [("a", -1), ("a", 1), ("a", 1)]
    assert broken(spark, lake, *pipelines) == []


@pytest.mark.long
def test_a_function_of_two_streams_with_a_key_is_of_the_rows_that_stand_of_both(
    spark: SparkSession, lake: Lake
) -> None:
    """
    visits            calls
    a at 00:00        b at 00:20       one path, of which the clock of the calls, at 00:10, has passed a
                      z at 05:00       and now b
                      b is deleted     leaves a
    a moves to 00:30  c at 00:50       late, and later still
    """
    calls = replace(VISITS, name="calls", source=Files("landing/calls"))
    both = replace(PATHS, of=(VISITS, calls))
    pipeline = Pipeline(name="both", streams=(VISITS, calls), operators=(both,))

    def current(visits: Sequence[dict[str, Any]], of_calls: Sequence[dict[str, Any]]) -> list[Any]:
        for stream, rows in ((VISITS, visits), (calls, of_calls)):
            if rows:
                land_all(lake, stream, rows)
        followed(spark, lake, pipeline)
        assert broken(spark, lake, pipeline) == []
        return [each for each in read(spark, lake, both) if each[0] < 200]

    first = [visit("v", 1, 0, "a"), visit("z", 1, 300, "z", visitor="zoe")]
    whole = [(0.0, "a"), (20.0, "a."), (20.0, "ab"), (40.0, "ab.")]
    assert current(first, [visit("w", 1, 20, "b")]) == whole[:1]
    assert current([], [visit("z", 1, 300, "z", visitor="zoe")]) == whole
    assert current([], [visit("w", 2, 0)]) == whole[:2]
    assert current([visit("v", 2, 30, "a")], [visit("w", 3, 50, "c")]) == [
        (30.0, "a"),
        (50.0, "a."),
        (50.0, "ac"),
        (70.0, "ac."),
    ]
    assert read(spark, lake, both, "first")[: len(whole)] == whole


def on_page_but_x(key: Any, row: Any) -> None:
    if row.page == "x":
        raise ValueError("no page is called x")
    key.path = f"{key.path or ''}{row.page}"
    key.emit(path=key.path)


@pytest.mark.long
def test_a_row_for_which_a_function_fails_is_told_as_long_as_it_stands(spark: SparkSession, lake: Lake) -> None:
    """
    a at 00:00, x at 00:05, c at 00:10    x fails, and is as if it had never come
    x is deleted                          nothing has failed
    c becomes x, late                     that fails, and leaves a
    """
    paths = replace(PATHS, on_row=on_page_but_x, timers={}, on_error="side")
    counts = replace(COUNTS, on_row=on_page_but_x, state=PATHS.state, result=PATHS.result, on_error="side")
    pipeline = Pipeline(VISITS, (paths, counts))

    def failed(of: Keyed) -> list[float]:
        return [seconds for seconds, _ in read(spark, lake, of, "failed", "error")]

    rows = [visit("a", 1, 0, "a"), visit("b", 1, 5, "x"), visit("c", 1, 10, "c")]
    land_all(lake, VISITS, [*rows, visit("z", 1, 300, "z", visitor="zoe")])
    followed(spark, lake, pipeline)
    assert read(spark, lake, paths)[:2] == [(0.0, "a"), (10.0, "ac")]
    assert failed(paths) == failed(counts) == [5.0]
    land_all(lake, VISITS, [visit("b", 2, 0)])
    followed(spark, lake, pipeline)
    assert read(spark, lake, paths)[:2] == [(0.0, "a"), (10.0, "ac")]
    assert failed(paths) == []
    # This one is told of each row, also of that which takes the other back.
    assert failed(counts) == [5.0, 5.0]
    assert broken(spark, lake, pipeline) == []
    land_all(lake, VISITS, [visit("c", 2, 10, "x")])
    followed(spark, lake, pipeline)
    assert read(spark, lake, paths)[:1] == [(0.0, "a")] and failed(paths) == [10.0]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_a_log_of_what_is_current_drops_days_that_a_function_has_followed_and_keeps_those_it_may_correct(
    spark: SparkSession, lake: Lake
) -> None:
    daily = Windowed("daily", VISITS, Tumbling("1 day"), {"pages": agg.count()}, by=("visitor",))
    days = Stream(
        name="days",
        source=Table(daily, what="current"),
        format=Json("visitor string, pages bigint, window_start timestamp"),
        derived={"page": "cast(pages as string)"},
        event_time="window_start",
        clock=Derived(max_ahead="30 days"),
        retention="2 days",
    )
    counts, paths = replace(COUNTS, of=days), replace(PATHS, of=days, idle="1 hour")
    upstream, arriving = Pipeline(VISITS, (daily,)), Pipeline(days, (counts,))
    for day in range(7):
        land_all(lake, VISITS, [visit(f"v{day}", 1, day * DAY + 1, "a"), visit(f"w{day}", 1, day * DAY + 2, "b")])
        followed(spark, lake, upstream, arriving)
    told = read(spark, lake, counts, "current", "pages")
    # A function that is corrected may need rows of any day.
    corrected = Pipeline(days, (paths,))
    followed(spark, lake, corrected)
    assert "may be of any day" in drop_days(lambda: spark, lake, corrected)[0].keeps
    (dropped,) = drop_days(lambda: spark, lake, arriving)
    assert dropped.before is not None and dropped.before > T0.date() and dropped.rows > 0
    assert read(spark, lake, counts, "current", "pages") == told
    assert broken(spark, lake, arriving) == []
    # A day that is gone is revised upstream, which nobody can follow here; one that is there is.
    land_all(lake, VISITS, [visit("v0", 2, 0), visit("v3", 2, 0)])
    followed(spark, lake, upstream, arriving)
    more = [each for each in read(spark, lake, counts, "current", "struct(page, change)") if each[0] == 3 * DAY]
    assert [tuple(change) for _, change in more] == [("1", 1), ("2", -1), ("2", 1)]
    assert len(read(spark, lake, counts, "current", "pages")) == len(told) + 2
    assert broken(spark, lake, upstream, arriving) == []
