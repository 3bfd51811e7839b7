"""Session windows with allowed lateness: what late rows make of sessions is published without waiting for anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples.allowed_lateness import bursts, updated_bursts
from streaming import Lake, correct, plan
from streaming.audit.laws import audit
from streaming.operators.runtime import runtime_of
from streaming.views.results import read_first
from streaming.views.updates import read_updates
from tests.support.feeds import readings
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run, tuples

# Sessions end ten seconds after their last row, and are updated until five seconds after that.
IN_TIME = readings(
    "within@12, within@17, bridge@0, bridge@20, inside@0, inside@9, inside@17, reopened@10, edge@16, gone@15, clock@31"
)
"""Watermark 31 after it: every session is closed but the clock's."""

LATE = readings(
    "within@13, bridge@10, inside@1"  # sessions that end less than five seconds before 31, as they end with these rows
    ", edge@15.9, gone@14"  # at 26, which is five seconds before, and at 25
    ", reopened@20, reopened@29, reopened@31"  # joined to a session that is open until 41
    ", alone@25"  # a session of its own, open until 35
    ", clock@33"
)
LAST = readings("within@23, clock@42")
"""Late again, as the watermark is 33; 42 after it."""

Result = tuple[Any, ...]


@dataclass(frozen=True)
class Shown:
    """What was there at a time: updates with their batch, and what readers see."""

    updates: list[Result]
    current: list[Result]
    first: list[Result]


def shown(spark: SparkSession, lake: Lake) -> Shown:
    updates = read_updates(spark, lake, updated_bursts)
    assert updates is not None
    columns = ("id", "window_start", "window_end", "readings")
    return Shown(
        tuples(updates, *columns, "_batch"),
        [row for row in tuples(read_current(spark, lake, updated_bursts), *columns) if row[0] != "clock"],
        tuples(read_first(spark, lake, updated_bursts), *columns),
    )


@dataclass(frozen=True)
class Story:
    """A lake, and what it showed after the late rows, after the last ones, and after the correction of the day."""

    lake: Lake
    late: Shown
    last: Shown
    waiting: list[tuple[Any, int]]
    corrected: Shown


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    lake = Lake(str(tmp_path_factory.mktemp("bursts")))
    run(spark, lake, bursts, IN_TIME, LATE)
    late = shown(spark, lake)
    run(spark, lake, bursts, LAST)
    last = shown(spark, lake)
    waiting = [(day.day, day.late_pairs) for day in plan(spark, lake, updated_bursts)]
    correct(spark, lake, updated_bursts, [day for day, _ in waiting], lambda: NOW)
    return Story(lake, late, last, waiting, shown(spark, lake))


def of(id_: str, results: list[Result]) -> list[Result]:
    return [row[1:] for row in results if row[0] == id_]


def test_l4_a_late_row_in_time_updates_its_session_with_its_batch(story: Story) -> None:
    assert of("within", story.late.updates) == [(at(12), at(27), 3, 1)]
    assert of("within", story.late.first) == [(at(12), at(27), 2)]
    assert of("within", story.late.current) == [(at(12), at(27), 3)]


def test_the_session_decides_whether_a_row_is_in_time_and_not_the_row_itself(story: Story) -> None:
    # A session of the row at 1 alone would have ended twenty seconds ago.
    assert of("inside", story.late.current) == [(at(0), at(27), 4)]


def test_a_late_row_between_two_sessions_makes_them_one_for_readers(story: Story) -> None:
    assert of("bridge", story.late.first) == [(at(0), at(10), 1), (at(20), at(30), 1)]
    assert of("bridge", story.late.current) == [(at(0), at(30), 3)]


def test_a_session_that_was_joined_to_an_open_one_is_shown_as_it_was_until_that_is_closed(story: Story) -> None:
    assert of("reopened", story.late.updates) == []
    assert of("reopened", story.late.current) == [(at(10), at(20), 1)]
    assert of("reopened", story.last.updates) == [(at(10), at(41), 4, 2)]
    assert of("reopened", story.last.first) == [(at(10), at(20), 1), (at(31), at(41), 1)]
    assert of("reopened", story.last.current) == [(at(10), at(41), 4)]


def test_a_late_row_alone_is_a_session_once_it_is_closed(story: Story) -> None:
    assert of("alone", story.late.current) == []
    assert of("alone", story.last.current) == [(at(25), at(35), 1)]


def test_of_several_updates_of_a_session_that_grows_readers_see_the_newest(story: Story) -> None:
    assert of("within", story.last.updates) == [(at(12), at(27), 3, 1), (at(12), at(33), 4, 2)]
    assert of("within", story.last.current) == [(at(12), at(33), 4)]


def test_later_rows_wait_for_the_correction_of_their_day_and_no_others_do(story: Story) -> None:
    assert of("edge", story.last.current) == [(at(16), at(26), 1)]
    assert of("gone", story.last.current) == [(at(15), at(25), 1)]
    assert story.waiting == [(T0.date(), 2)]
    assert of("edge", story.corrected.current) == [(at(15.9), at(26), 2)]
    assert of("gone", story.corrected.current) == [(at(14), at(25), 2)]
    others = [row for row in story.last.current if row[0] not in ("edge", "gone")]
    assert [row for row in story.corrected.current if row[0] not in ("edge", "gone")] == others


@pytest.mark.long
def test_the_laws_hold_and_a_drain_without_rows_adds_nothing(spark: SparkSession, story: Story) -> None:
    assert [finding for finding in audit(spark, story.lake, bursts) if not finding.holds] == []
    run(spark, story.lake, bursts)
    assert shown(spark, story.lake) == story.corrected
    assert plan(spark, story.lake, updated_bursts) == []


def test_explain_tells_what_becomes_of_late_rows(spark: SparkSession, story: Story) -> None:
    late = runtime_of(updated_bursts, story.lake).explain(spark)["late rows"]
    assert late == (
        "within 5 seconds of the end of their session it is published again, as an update, once it is closed; then "
        "they wait for the correction of their day"
    )
