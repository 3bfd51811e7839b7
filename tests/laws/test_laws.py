"""The laws of the design, on feeds that hypothesis draws, against the oracle in plain Python.

Each feed runs once (a micro-batch costs about a second); every law is then a test of its own on what it left.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.log import Batch
from tests.laws.oracle import Identity, Row, Timeline, View, day_of, micros
from tests.laws.readings import NOW, VIEWS, pipeline, without_raw
from tests.laws.running import LogRow, Ran, Tables, current_of, run
from tests.laws.strategies import Feed, feeds, generated

FEEDS = generated(feeds(), 5)[1:]


@pytest.fixture(scope="module", params=range(len(FEEDS)), ids=lambda number: f"feed{number}")
def ran(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(spark, Lake(str(tmp_path_factory.mktemp("laws") / "lake")), FEEDS[request.param])


@pytest.fixture(params=VIEWS, ids=lambda view: view.name)
def view(request: pytest.FixtureRequest) -> View:
    return request.param


def source_rows(tables: Tables) -> list[LogRow]:
    return [row for row in tables.log if not row.is_heartbeat]


def place(row: LogRow | Row) -> tuple[Any, ...]:
    return (row.file, row.line)


def as_mapping(results: list[tuple[Identity, tuple[Any, ...]]]) -> dict[Identity, tuple[Any, ...]]:
    """Results by identity; none may come twice."""
    twice = [identity for identity, count in Counter(identity for identity, _ in results).items() if count > 1]
    assert not twice
    return dict(results)


def test_conservation_every_line_is_in_the_log_exactly_once_and_in_the_batch_that_read_it(ran: Ran) -> None:
    assert Counter((*place(row), row.batch, row.raw) for row in source_rows(ran.tables)) == Counter(
        (*place(row), row.batch, row.raw) for row in ran.expected.rows
    )


def test_conservation_rows_read_are_valid_plus_rejected_in_every_batch(ran: Ran) -> None:
    verdicts = {place(row): (row.day is not None, row.rejected is not None) for row in source_rows(ran.tables)}
    assert all(is_valid != is_rejected for is_valid, is_rejected in verdicts.values())
    stored: Counter[tuple[int, bool]] = Counter((row.batch, row.day is None) for row in source_rows(ran.tables))
    counted = [(batch.summary.rows - batch.rejected, batch.rejected) for batch in ran.commits]
    assert counted == [(stored[batch.number, False], stored[batch.number, True]) for batch in ran.commits]
    assert sum(valid + rejected for valid, rejected in counted) == len(ran.feed.lines())


def test_every_verdict_with_all_its_reasons_is_the_oracles(ran: Ran) -> None:
    assert {place(row): row.labels for row in source_rows(ran.tables)} == {
        place(row): row.verdict.reasons for row in ran.expected.rows
    }
    assert Counter(ran.tables.rejected) == Counter(place(row) for row in ran.expected.rows if row.verdict.reasons)


def test_every_valid_row_says_what_its_line_says(ran: Ran) -> None:
    stored = {place(row): (row.key, row.at, row.value, row.unit, row.day) for row in source_rows(ran.tables)}
    for row in ran.expected.rows:
        event = row.verdict.event
        if event is not None:
            assert stored[place(row)] == (event.key, event.at, event.value, "C", day_of(event.at)), row.raw


def test_every_row_is_stamped_with_the_watermark_of_the_batches_before_it(ran: Ran) -> None:
    stored = {place(row): row.stamp for row in source_rows(ran.tables)}
    assert stored == {place(row): row.stamp for row in ran.expected.rows}
    heartbeats = [(row.batch, row.stamp) for row in ran.tables.log if row.is_heartbeat]
    assert sorted(heartbeats) == ran.expected.heartbeats


def test_the_clock_in_the_commits_never_goes_back_and_numbers_have_no_gap(ran: Ran) -> None:
    marks = [batch.state.watermark for batch in ran.commits]
    known = [mark for mark in marks if mark is not None]
    assert marks == [None] * (len(marks) - len(known)) + sorted(known)
    assert [batch.number for batch in ran.commits] == list(range(len(ran.commits)))


def test_partition_every_pair_is_late_xor_on_time(ran: Ran, view: View) -> None:
    expected = Counter(
        (*place(row), *view.window(row.verdict.event.at))
        for row in ran.expected.late(view)
        if row.verdict.event is not None
    )
    assert Counter(ran.tables.views[view.name].late) == expected
    # On time is what first results are made of: together they are all pairs of closed windows.
    closed = [event for event in ran.expected.events() if view.counts(event) and ran.expected.is_closed(view, event)]
    on_time = sum(values[0] for _, values in ran.tables.views[view.name].first)
    assert on_time + len(ran.tables.views[view.name].late) == len(closed)


def test_late_pairs_are_counted_in_the_commit_that_brought_them(ran: Ran, view: View) -> None:
    late = Counter(row.batch for row in ran.expected.late(view))
    assert {batch.number: counted(batch, view) for batch in ran.commits} == {
        batch.number: late[batch.number] for batch in ran.commits
    }


def counted(batch: Batch, view: View) -> int:
    return (batch.late or {}).get(view.name, 0)


def test_first_results_are_a_batch_aggregate_over_the_pairs_on_time(ran: Ran, view: View) -> None:
    assert as_mapping(ran.tables.views[view.name].first) == ran.expected.first(view)


def test_corrections_are_the_truth_of_exactly_the_windows_with_late_pairs(ran: Ran, view: View) -> None:
    assert as_mapping(ran.tables.views[view.name].corrections) == ran.expected.corrections(view)


def test_convergence_current_is_a_batch_aggregate_over_all_valid_rows_of_closed_windows(ran: Ran, view: View) -> None:
    assert as_mapping(ran.tables.views[view.name].current) == ran.expected.current(view)


def test_the_plan_names_exactly_the_days_with_new_late_pairs(ran: Ran) -> None:
    assert ran.backlogs == ran.expected_backlogs
    assert ran.backlog_afterwards == {view.name: {} for view in VIEWS}


def test_idempotence_draining_and_correcting_again_changes_nothing(ran: Ran) -> None:
    assert ran.stored_again == ran.stored


def test_spark_itself_drops_nothing(ran: Ran) -> None:
    assert ran.native_drops == {"readings.log": 0, **{f"readings.{view.name}": 0 for view in VIEWS}}


@pytest.mark.parametrize("feed", generated(feeds(), 24)[-1:], ids=("feed23",))
def test_convergence_the_same_lines_in_another_order_and_cut_give_the_same_current(
    feed: Feed, spark: SparkSession, lake: Lake
) -> None:
    lines = feed.lines()
    backwards = [lines[::-1][start : start + 17] for start in range(0, len(lines), 17)]
    at_once = [lines]
    truth = Timeline(micros(NOW), VIEWS)
    truth.batch([("all", lines)])
    truth.settle()
    truth.end_of_input()
    for number, files in enumerate((backwards, at_once)):
        tables = current_of(spark, Lake(f"{lake.root}{number}"), without_raw(pipeline()), files)
        for view in VIEWS:
            assert as_mapping(tables.views[view.name].current) == truth.current(view), (number, view.name)
        assert {row.raw is None for row in source_rows(tables) if row.rejected is None} == {True}
