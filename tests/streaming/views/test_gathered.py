"""Rows in many windows are put together by pane first, and make the results that each by itself would make."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from docs.examples.late_counts import readings as stream
from streaming import Lake, Pipeline, Sliding
from streaming.views.results import read_first
from tests.support.feeds import readings
from tests.support.instants import at
from tests.support.runs import run

DELAY = 5
BATCHES = (("a", (1, 9)), ("a", (30,)), ("a", (3, 23, 26)), ("b", (23, 24)), ("a", (60,)))
"""Key and seconds; the third and the fourth batch come when windows up to 25 s are closed."""


def expected(size: int, slide: int) -> Counter[tuple[str, int]]:
    """Readings in time, by key and the end of each window that is closed in the end."""
    counts: Counter[tuple[str, int]] = Counter()
    closed: float = float("-inf")
    for key, seconds in BATCHES:
        for second in seconds:
            last = second // slide * slide
            ends = range(last + size, second, -slide)
            counts.update((key, end) for end in ends if end > closed)
        closed = max(closed, *(second - DELAY for second in seconds))
    return Counter({(key, end): number for (key, end), number in counts.items() if end <= closed})


@pytest.mark.long
@pytest.mark.parametrize(
    ("gathered_from", "folded_from", "by_arrow"),
    [(1, 1, 0), (1, 1_000_000, 0), (1_000, 1, 0), (1_000, 1_000_000, 0), (1_000, 1_000_000, 1_000)],
)
@pytest.mark.parametrize(("size", "slide"), [(10, 2), (7, 2), (2, 5), (10, 10)])
def test_one_step_over_rows_that_are_late_for_some_of_their_windows(
    size: int,
    slide: int,
    gathered_from: int,
    folded_from: int,
    by_arrow: int,
    spark: SparkSession,
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streaming.views.steps.GATHERED_FROM", gathered_from)
    monkeypatch.setattr("streaming.views.steps.FOLDED_FROM", folded_from)
    monkeypatch.setattr("streaming.views.arrow_results.MOST_ROWS", by_arrow)
    view = replace(count_by_sensor, window=Sliding(f"{size} seconds", f"{slide} seconds"))
    files = [readings(", ".join(f"{key}@{second}" for second in seconds)) for key, seconds in BATCHES]
    run(spark, lake, Pipeline(stream, (view,)), *files[:1])
    run(spark, lake, Pipeline(stream, (view,)), *files[1:])
    results = read_first(spark, lake, view).selectExpr("id", "unix_micros(window_end)", "readings").collect()
    begin = at(0).timestamp()
    counts = {(key, round(end / 1e6 - begin)): number for key, end, number in results}
    assert counts == expected(size, slide)


@pytest.mark.long
def test_1440_windows_a_row_are_all_published_in_bounded_memory(spark: SparkSession, lake: Lake) -> None:
    """A window of a day that slides by the minute: an expression for each window took more memory than there is."""
    minutes = [number * 21 for number in range(100)]
    view = replace(count_by_sensor, window=Sliding("1 day", "1 minute"))
    run(
        spark,
        lake,
        Pipeline(stream, (view,)),
        readings(", ".join(f"a@{60 * each}" for each in minutes)),
        end_of_input=True,
    )
    counts = Counter(end for each in minutes for end in range(each + 1, each + 1441))
    begin = at(0).timestamp()
    results = read_first(spark, lake, view).selectExpr("unix_micros(window_end)", "readings").collect()
    assert {round((end / 1e6 - begin) / 60): number for end, number in results} == counts
