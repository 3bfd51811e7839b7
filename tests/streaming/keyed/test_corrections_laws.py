"""First results overlaid with corrections are the function over all rows by event time, whatever came late."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streaming.base import from_micros
from streaming.keyed.corrections import TimedRow, late_sessions
from tests.streaming.keyed.corrections_oracle import Batch, Row, over_all_rows, told
from tests.support.examples import many
from tests.support.instants import T0, at, ms
from tidemark.testing import Played, play

ROWS = st.builds(Row, st.sampled_from("ab"), st.integers(0, 25), st.integers(0, 9))
BATCHES = st.lists(st.lists(ROWS, max_size=6), max_size=6)


def drawn(batch: Batch) -> list[dict[str, Any]]:
    return [
        {"id": key, "timestamp": ms(at(when)), "temperature": float(value), "event_time": at(when)}
        for key, when, value in batch
    ]


def lines(done: Played) -> dict[str, list[tuple[str, int, Any]]]:
    """What is current, in the oracle's words."""
    lines_by_output: dict[str, list[tuple[str, int, Any]]] = {}
    for to, rows in done.current.items():
        told_of = [
            (key, (when - T0).total_seconds(), "nine" if to == "failed" else text) for key, when, text, *_ in rows
        ]
        lines_by_output[to] = sorted(((key, int(when), text) for key, when, text in told_of), key=repr)
    return lines_by_output


@many
@given(batches=BATCHES, steps=st.lists(st.integers(0, 5)))
# A late row that joins two sessions, one before all others, and one that lets a timer fire in the gap between two.
@example([[Row("a", 1, 1), Row("a", 7, 3)], [Row("a", 12, 4)], [Row("a", 4, 2)]], [])
@example([[Row("a", 5, 4)], [Row("a", 20, 4)], [Row("a", 3, 1), Row("a", 24, 5)]], [])
def test_current_is_the_function_over_all_rows_by_event_time(batches: list[Batch], steps: list[int]) -> None:
    done = play(told, *map(drawn, batches), steps=steps)
    assert lines(done) == over_all_rows(batches)
    assert not any(late for *_, late in done.current[""]), "in its place no row is late"


@many
@given(batches=BATCHES)
def test_before_its_first_late_row_a_session_says_what_it_said(batches: list[Batch]) -> None:
    done = play(told, *map(drawn, batches))
    times = [(row["id"], from_micros(row["event_time"])) for row in done.late]
    late = {key: min(when for of, when in times if of == key) for key, _ in times}
    for to, rows in done.outputs.items():
        before = [row for row in rows if row[0] not in late or row[1] < late[row[0]]]
        current = [row for row in done.current[to] if row[0] not in late or row[1] < late[row[0]]]
        assert sorted(before, key=repr) == sorted(current, key=repr)


@pytest.mark.parametrize(
    ("rows", "bounds"),
    [
        pytest.param([(0, False), (3, False)], [], id="none is late"),
        pytest.param([(0, False), (3, True)], [(0, 3, 7)], id="one late"),
        pytest.param([(0, False), (4, True)], [(4, 4, 8)], id="exactly idle apart is another session"),
        pytest.param([(0, True), (3, False), (6, True), (10, True)], [(0, 0, 10), (10, 10, 14)], id="two"),
    ],
)
def test_a_session_ends_idle_after_its_last_row(rows: list[tuple[int, bool]], bounds: list[tuple[int, ...]]) -> None:
    sessions = late_sessions(4, [TimedRow(("a",), when, late) for when, late in rows])
    assert [(each.start, each.first_late, each.end) for each in sessions] == bounds


def test_late_rows_are_counted_by_day_and_stream_with_their_newest_batch() -> None:
    day = 86_400_000_000
    rows = [
        TimedRow((), 1, True, 0, 5),
        TimedRow((), 2, True, 0, 3),
        TimedRow((), 3, True, 1, 9),
        TimedRow((), day, True),
    ]
    (session,) = late_sessions(2 * day, rows)
    assert session.late == {(0, 0): (2, 5), (0, 1): (1, 9), (1, 0): (1, 0)}
