"""Streams that meet, as whole pipelines from files to results, against oracles in plain Python.

A pipeline runs once; what each kind of operator has left is then a test of its own. Its keys know nothing of one
another, so each of them is a case.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from streaming import Joined, Lake
from streaming.declare.two_sided import TwoSided
from tests.laws.cases import PIPELINES
from tests.laws.meeting import (
    CALLS,
    JOINED,
    OVER_WINDOWS,
    Meeting,
    asked,
    attempts,
    by_rules,
    found,
    grouped,
    in_order,
    in_windows,
    inner,
    interval_joined,
    joined,
    meeting,
    of_both,
    ruled,
    run,
    said,
    visits,
)
from tests.support.instants import NOW
from tidemark.testing import correct


@dataclass(frozen=True)
class Ran:
    """A meeting, and the lake in which it took place; `calls` counts those for each left row."""

    meeting: Meeting
    lake: Lake
    calls: dict[int, int]


@pytest.fixture(scope="module", params=range(PIPELINES), ids=lambda number: f"pipeline{number}")
def ran(request: pytest.FixtureRequest, two_partitions: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    CALLS.clear()
    lake, of = Lake(str(tmp_path_factory.mktemp("meeting") / "lake")), meeting(request.param)
    run(two_partitions, lake, of)
    return Ran(of, lake, dict(CALLS))


@pytest.mark.sampled
@pytest.mark.parametrize("of", JOINED, ids=lambda of: of.kind)
def test_an_interval_join_tells_each_pair_once_and_who_has_waited_in_vain(
    spark: SparkSession, ran: Ran, of: Joined
) -> None:
    expected = interval_joined(ran.meeting, of.kind)
    for what in ("current",) if of is inner else ("pairs", "unmatched", "current"):
        assert found(spark, ran.lake, of, what, "left_n", "right_n") == in_order(expected[what]), what


@pytest.mark.sampled
@pytest.mark.parametrize("of", OVER_WINDOWS, ids=lambda of: of.name)
def test_windows_over_two_streams_are_first_of_rows_on_time_and_corrected_of_all(
    spark: SparkSession, ran: Ran, of: TwoSided
) -> None:
    columns = ("id", "window_start", "window_end", "a", "b")
    assert found(spark, ran.lake, of, "first", *columns) == in_order(in_windows(ran.meeting, of, late=False))
    correct(spark, ran.lake, of, lambda: NOW)
    assert found(spark, ran.lake, of, "current", *columns) == in_order(in_windows(ran.meeting, of, late=True))


@pytest.mark.sampled
def test_a_function_of_two_streams_says_what_one_reader_of_both_would_say(spark: SparkSession, ran: Ran) -> None:
    assert found(spark, ran.lake, said, "current") == in_order(of_both(ran.meeting))


@pytest.mark.sampled
def test_rows_and_timers_see_the_rules_that_their_batch_has_pinned(spark: SparkSession, ran: Ran) -> None:
    assert found(spark, ran.lake, ruled, "current") == in_order(by_rules(ran.meeting))


@pytest.mark.sampled
def test_each_row_is_answered_or_failed_once_and_asked_once_more_at_most_where_the_process_died(
    spark: SparkSession, ran: Ran
) -> None:
    numbers = [n for batch in ran.meeting.left for _, _, n in batch]
    answered, failed = [n for n in numbers if n % 7 != 3], [n for n in numbers if n % 7 == 3]
    assert found(spark, ran.lake, asked, "current", "n", "doubled") == in_order((n, 2 * n) for n in answered)
    assert found(spark, ran.lake, asked, "failed", "n", "attempts") == in_order((n, attempts(n)) for n in failed)
    assert found(spark, ran.lake, asked, "pending", "n") == []
    assert all(attempts(n) <= ran.calls[n] <= attempts(n) + 1 for n in numbers)


def test_meetings_have_late_rows_on_both_sides_that_change_something_and_a_silent_side() -> None:
    """Guards against laws that hold because nothing happened."""
    meetings = [meeting(number) for number in range(PIPELINES)]
    for sides in zip(*((of.lefts, of.rights) for of in meetings), strict=True):
        assert any(stamp is not None and row.at < stamp for side in sides for row, stamp in side.stamped())
    for operator in (joined, grouped, visits):
        assert any(in_windows(of, operator, late=True) != in_windows(of, operator, late=False) for of in meetings)
    joins = [interval_joined(of, "outer") for of in meetings]
    assert any(each["unmatched"] - each["current"] for each in joins) and all(each["pairs"] for each in joins)
    assert any(len(of.left) != len(of.right) for of in meetings)
    assert all(of_both(of) and by_rules(of) for of in meetings)
