"""Sessions that late rows merge, move, reopen or pull over midnight; and copies of a row that count once."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    Ascending,
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
    correct,
    epoch_millis,
    log,
    plan,
)
from streaming.views.results import duplicates, read_first
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run, tuples

GAP = timedelta(seconds=10)
DAY, DAY_BEFORE = T0.date(), date(2025, 12, 31)

clicks = Stream(
    name="clicks",
    source=Files("landing/clicks"),
    format=Json("id string not null, timestamp bigint not null, number bigint"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("0 seconds"),
)
sessions = Windowed(
    "sessions", clicks, SessionWindow("10 seconds"), {"clicks": agg.count(), "last": agg.last("number")}, by=("id",)
)
numbers_by_session = Windowed(
    "numbers_by_session",
    clicks,
    SessionWindow("10 seconds"),
    {"numbers": agg.count()},
    by=("id",),
    distinct=("number",),
)
numbers_by_window = Windowed(
    "numbers_by_window",
    clicks,
    Tumbling("10 seconds"),
    {"numbers": agg.count(), "sum": agg.sum("number")},
    by=("id",),
    distinct=("number",),
)


def timeline(text: str) -> list[dict[str, Any]]:
    """Clicks in the notation `key@seconds=number`."""
    clicked = []
    for entry in text.split():
        key, _, rest = entry.partition("@")
        second, _, number = rest.partition("=")
        millis = round(T0.timestamp() * 1000) + round(float(second) * 1000)
        clicked.append({"id": key, "timestamp": millis, "number": int(number)})
    return clicked


def closed_sessions(rows: list[dict[str, Any]], watermark: float) -> list[tuple[str, datetime, datetime, int, int]]:
    """Key, bounds, number of clicks and last number of every session that is over at `watermark`, by plain Python."""
    spans: list[list[Any]] = []
    for row in sorted(rows, key=lambda row: (row["id"], row["timestamp"])):
        second = at(row["timestamp"] / 1000 - T0.timestamp())
        if spans and spans[-1][0] == row["id"] and second <= spans[-1][2]:
            spans[-1][2:] = [second + GAP, spans[-1][3] + 1, row["number"]]
        else:
            spans.append([row["id"], second, second + GAP, 1, row["number"]])
    return [tuple(session) for session in spans if session[2] <= at(watermark)]


def correct_what_is_due(spark: SparkSession, lake: Lake, view: Windowed) -> list[date]:
    days = [backlog.day for backlog in plan(spark, lake, view)]
    correct(spark, lake, view, days, lambda: NOW)
    assert plan(spark, lake, view) == []
    return days


@pytest.mark.long
def test_current_shows_the_sessions_of_all_rows_whatever_late_rows_do_to_them(spark: SparkSession, lake: Lake) -> None:
    declared, landed = Pipeline(clicks, (sessions,)), []

    def arrive(*batches: str) -> None:
        for batch in batches:
            landed.extend(timeline(batch))
        run(spark, lake, declared, *(timeline(batch) for batch in batches))

    def current() -> list[tuple[Any, ...]]:
        return tuples(read_current(spark, lake, sessions), *sessions.columns)

    arrive(
        "merge@0=1 merge@20=2 move@5=1 start@5=1 night@-5=1 night@8=2 join@30=1 clock@40=0",  # watermark 40
        # Late: a bridge between two sessions, a later end, an earlier start, and the same past midnight.
        "merge@10=3 move@12=2 start@1=0 night@9=3 join@45=2 clock@48=0",  # watermark 48
    )
    first = tuples(read_first(spark, lake, sessions), "id", "window_start", "window_end")
    assert ("merge", at(0), at(10)) in first and ("merge", at(20), at(30)) in first
    assert correct_what_is_due(spark, lake, sessions) == [DAY]
    assert current() == closed_sessions(landed, 48)
    assert ("merge", at(0), at(30), 3, 2) in current()

    arrive("join@38=3 night@1=4 clock@50=0")
    # Past midnight, night's session is part of one that began on the day before: both days change.
    assert correct_what_is_due(spark, lake, sessions) == [DAY_BEFORE, DAY]
    assert current() == closed_sessions(landed, 50)
    assert ("night", at(-5), at(19), 4, 3) in current()
    # The late row has joined a session that was over to one that is still open: nothing of it is over now.
    assert "join" not in {row[0] for row in current()}

    arrive("clock@70=0")
    assert ("join", at(45), at(55)) in tuples(read_first(spark, lake, sessions), "id", "window_start", "window_end")
    assert "join" not in {row[0] for row in current()}  # void until the next correction
    assert correct_what_is_due(spark, lake, sessions) == [DAY]
    assert current() == closed_sessions(landed, 70)
    assert ("join", at(30), at(55), 3, 2) in current()


@pytest.fixture(scope="module")
def repeated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with copies within a batch, in a later one, and late for their window."""
    lake = Lake(str(tmp_path_factory.mktemp("repeated")))
    run(
        spark,
        lake,
        Pipeline(clicks, (numbers_by_session, numbers_by_window)),
        timeline("a@1=1 a@2=1 a@3=2 a@30=9"),  # watermark 30: the first window and the first session are over
        timeline("a@31=9 a@4=2 a@5=3"),  # a copy in time, a late copy, and a late row that is none
        end_of_input=True,
    )
    return lake


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("view", "columns", "first", "corrected"),
    [
        (
            numbers_by_window,
            ("window_start", "window_end", "numbers", "sum"),
            [(at(0), at(10), 2, 3), (at(30), at(40), 1, 9)],
            [(at(0), at(10), 3, 6), (at(30), at(40), 1, 9)],
        ),
        (
            numbers_by_session,
            ("window_start", "window_end", "numbers"),
            # A copy counts once, and it is a sign of life all the same.
            [(at(1), at(13), 2), (at(30), at(41), 1)],
            [(at(1), at(15), 3), (at(30), at(41), 1)],
        ),
    ],
    ids=["windows", "sessions"],
)
def test_copies_count_once_in_first_results_and_in_corrections_and_can_be_read(
    spark: SparkSession,
    repeated: Lake,
    view: Windowed,
    columns: tuple[str, ...],
    first: list[tuple[Any, ...]],
    corrected: list[tuple[Any, ...]],
) -> None:
    assert tuples(read_first(spark, repeated, view), *columns) == first
    assert correct_what_is_due(spark, repeated, view) == [DAY]
    assert tuples(read_current(spark, repeated, view), *columns) == corrected

    copies = duplicates(log.read_log(spark, repeated, clicks), view)
    assert tuples(copies, "event_time", "number", "_copy") == [(at(2), 1, 2), (at(4), 2, 2), (at(31), 9, 2)]


class ByItsEnd(SessionWindow):
    """A session under the rule of all other windows: its end decides whether a pair is late."""

    decided_by = "end"  # type: ignore[assignment]


@pytest.mark.long
def test_the_rule_of_other_windows_makes_sessions_depend_on_the_cut_into_batches_and_their_own_does_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    by_end = replace(sessions, name="by_end", window=ByItsEnd("10 seconds"))
    pipeline = Pipeline(clicks, (sessions, by_end))
    closing, late = "x@12=1", "a@5=2"  # at 12 the session of a@0 is closed; the window of a@5 itself ends at 15
    at_once, one_by_one = Lake(str(tmp_path / "at_once")), Lake(str(tmp_path / "one_by_one"))

    run(spark, at_once, pipeline, timeline("a@0=1"), timeline(closing), timeline(late), end_of_input=True)
    run(spark, one_by_one, pipeline, timeline("a@0=1"))
    run(spark, one_by_one, pipeline, timeline(closing))
    run(spark, one_by_one, pipeline, timeline(late), end_of_input=True)

    def first(lake: Lake, view: Windowed) -> list[tuple[Any, ...]]:
        return tuples(read_first(spark, lake, view).where("id = 'a'"), "window_start", "window_end", "clicks")

    # Same rows, same stamps. What the view saw in one batch it merged, what it saw in two it had told already.
    assert first(at_once, by_end) == [(at(0), at(15), 2)]
    assert first(one_by_one, by_end) == [(at(0), at(10), 1), (at(5), at(15), 1)]
    assert first(at_once, sessions) == first(one_by_one, sessions) == [(at(0), at(10), 1)]


def test_rows_of_one_instant_that_two_batches_share_are_on_time_and_in_one_session(
    spark: SparkSession, lake: Lake
) -> None:
    """The stamp of the second batch is the very time of its first rows; the session of b ends at it, and goes on."""
    in_order = replace(clicks, clock=Ascending())
    view = replace(sessions, of=in_order)
    run(spark, lake, Pipeline(in_order, (view,)), timeline("b@0=1 a@10=1"), timeline("a@10=2 b@10=2 a@15=3"))
    assert tuples(read_first(spark, lake, view)) == []
    run(spark, lake, Pipeline(in_order, (view,)), end_of_input=True)
    results = tuples(read_first(spark, lake, view), "id", "window_start", "window_end", "clicks")
    assert results == [("a", at(10), at(25), 3), ("b", at(0), at(20), 2)]
    assert [sum((batch.late or {}).values()) for batch in log.read_batches(lake, in_order)] == [0, 0, 0]
