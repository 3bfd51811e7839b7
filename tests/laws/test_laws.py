"""The laws of the design, on feeds that hypothesis draws, against the oracle in plain Python.

Each feed runs once (a micro-batch costs about a second); every law is then a test of its own on what it left. A feed
holds many keys, and each is a case of its own for every kind of window.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from tests.laws.cases import FEEDS, TRIED, feed
from tests.laws.oracle import day_of
from tests.laws.running import LogRow, Ran, Tables, run
from tests.laws.timeline import Row, View


@pytest.fixture(scope="module", params=range(FEEDS), ids=lambda number: f"feed{number}")
def ran(request: pytest.FixtureRequest, two_partitions: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    lake = Lake(str(tmp_path_factory.mktemp("laws") / "lake"))
    return run(two_partitions, lake, feed(request.param), TRIED, again=request.param == 0)


@pytest.fixture(params=TRIED, ids=lambda view: view.name)
def view(request: pytest.FixtureRequest) -> View:
    return request.param


COUNTING = {view.name for view in TRIED if view.width > 2 and view.distinct is None}
"""The views whose first value is the number of pairs."""


def source_rows(tables: Tables) -> list[LogRow]:
    return [row for row in tables.log if not row.is_heartbeat]


def place(row: LogRow | Row) -> tuple[Any, ...]:
    return (row.file, row.line)


def test_conservation_every_line_is_in_the_log_exactly_once_and_in_the_batch_that_read_it(ran: Ran) -> None:
    kept = [row for row in ran.expected.rows if row.verdict.reasons or row.verdict.unknown or ran.feed.keep_raw]
    assert Counter((*place(row), row.batch) for row in source_rows(ran.tables)) == Counter(
        (*place(row), row.batch) for row in ran.expected.rows
    )
    assert {place(row): row.raw for row in source_rows(ran.tables) if row.raw is not None} == {
        place(row): row.raw for row in kept
    }


def test_conservation_fields_that_nobody_declared_are_counted_in_the_commit_that_brought_them(ran: Ran) -> None:
    expected: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for row in ran.expected.rows:
        expected[row.batch].update(row.verdict.unknown)
    counted = {batch.number: batch.unknown for batch in ran.commits if batch.unknown}
    assert counted == {number: dict(fields) for number, fields in expected.items() if fields}


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
    instants = [mark for mark in marks if mark is not None]
    assert marks == [None] * (len(marks) - len(instants)) + sorted(instants)
    assert [batch.number for batch in ran.commits] == list(range(len(ran.commits)))


def test_partition_every_pair_is_late_xor_on_time(ran: Ran, view: View) -> None:
    late = ran.expected.late(view)
    assert ran.tables.views[view.name].late == Counter((*place(pair.row), *pair.own) for pair in late)
    if view.name in COUNTING:
        # Once every window is closed, first results count each pair that was on time.
        on_time = sum(values[0] * times for (_, values), times in ran.tables.views[view.name].first.items())
        assert on_time + len(late) == len(view.pairs(ran.expected.rows))


def test_late_pairs_and_rows_in_no_window_are_counted_in_the_commit_that_brought_them(ran: Ran, view: View) -> None:
    late, unassigned = Counter(pair.row.batch for pair in ran.expected.late(view)), ran.expected.unassigned(view)
    counted = {
        batch.number: ((batch.late or {}).get(view.name, 0), (batch.unassigned or {}).get(view.name, 0))
        for batch in ran.commits
    }
    assert counted == {batch.number: (late[batch.number], unassigned[batch.number]) for batch in ran.commits}


def test_first_results_are_a_batch_aggregate_over_the_pairs_on_time(ran: Ran, view: View) -> None:
    assert ran.tables.views[view.name].first == ran.expected.first(view)


def test_updates_are_the_full_count_so_far_for_each_window_and_batch_with_a_pair_in_lateness(
    ran: Ran, view: View
) -> None:
    expected = ran.expected.updates(view) if view.late == "update" else Counter()
    assert ran.tables.views[view.name].updates == expected


def test_corrections_are_the_truth_of_exactly_the_windows_with_late_pairs(ran: Ran, view: View) -> None:
    assert ran.tables.views[view.name].corrections == ran.expected.corrections(view)


def test_convergence_current_is_a_batch_aggregate_over_all_valid_rows_of_closed_windows(ran: Ran, view: View) -> None:
    """But for a view that drops late pairs by declaration: its current are its first results."""
    assert ran.tables.views[view.name].current == ran.expected.current(view)


def test_early_results_are_the_open_windows_over_all_rows_so_far(ran: Ran) -> None:
    assert ran.opens == ran.expected_opens


def test_copies_are_the_rows_of_a_window_that_agree_with_an_earlier_one(ran: Ran, view: View) -> None:
    copies: Counter[tuple[Any, ...]] = Counter()
    if view.distinct is not None:
        for identity, pairs in view.groups(view.pairs(ran.expected.rows)).items():
            copies[identity] = view.copies(pairs)
    assert ran.tables.views[view.name].copies == +copies


def test_the_plan_names_exactly_the_days_with_new_late_pairs(ran: Ran) -> None:
    assert ran.backlogs == ran.expected_backlogs


def test_idempotence_draining_and_correcting_again_changes_nothing(ran: Ran) -> None:
    assert ran.stored_again == ran.stored
    assert not any(ran.backlog_afterwards.values())
