"""More applications of keyed functions, each a few lines on the public API."""

from __future__ import annotations

from typing import Any

from streaming.declare.keyed import Keyed, micros
from streaming.keyed.fold import Key
from tests.streaming.keyed.functions import forget, readings, rows
from tests.support.instants import at
from tidemark.testing import play


def values(results: list[tuple[Any, ...]]) -> list[Any]:
    """What was emitted, without key and time."""
    return [row[2:] if len(row) > 3 else row[2] for row in results]


def keep_extremes(key: Key, row: Any) -> None:
    key.least = row.temperature if key.least is None else min(key.least, row.temperature)
    if key.greatest is None or row.temperature > key.greatest["value"]:
        key.greatest = {"value": row.temperature, "at": row.event_time}
    key.emit(least=key.least, greatest_at=key.greatest["at"])


def test_k2_rolling_minimum_and_the_whole_row_of_the_maximum_the_first_one_of_a_tie() -> None:
    extremes = Keyed(
        name="extremes",
        of=readings,
        by=("id",),
        state="least double, greatest struct<value: double, at: timestamp>",
        result="least double, greatest_at timestamp",
        on_row=keep_extremes,
    )
    done = play(extremes, rows("a@1=5, a@2=3"), rows("a@3=5, a@4=1"))
    assert values(done.results) == [(5.0, at(1)), (3.0, at(1)), (3.0, at(1)), (1.0, at(1))]


def gather(key: Key, row: Any) -> None:
    key.values = [*(key.values or []), row.temperature]
    key.emit(values=key.values)


def test_k3_reduce_concatenates_in_the_order_of_arrival() -> None:
    lists = Keyed("lists", readings, ("id",), "values array<double>", "values array<double>", gather)
    done = play(lists, rows("en@1=1, fr@2=2"), rows("en@3=3"))
    assert [(row[0], row[2]) for row in done.results] == [("en", [1.0]), ("fr", [2.0]), ("en", [1.0, 3.0])]


def count_once(key: Key, row: Any) -> None:
    key.clicks = (key.clicks or 0) + 1
    key.timer("over", max(key.at, key.pending("over") or key.at) + micros("30 minutes"))


def tell_clicks(key: Key) -> None:
    key.emit(clicks=key.clicks)
    key.clear()


def test_k16_ids_that_never_return_leave_no_state() -> None:
    clicks = Keyed(
        "clicks", readings, ("id",), "clicks bigint", "clicks bigint", count_once, timers={"over": tell_clicks}
    )
    visits = ", ".join(f"visit{n}@{n % 60}" for n in range(10_000))
    done = play(clicks, rows(visits), end_of_input=True)
    assert len(done.results) == 10_000 and {row[2] for row in done.results} == {1}
    assert done.state == {}


def watch_card(key: Key, row: Any) -> None:
    if row.temperature < 1.0:
        key.small_at = row.event_time
        key.timer("over", row.event_time + micros("60 seconds") + 1)
    elif row.temperature > 500.0 and key.small_at is not None:
        key.emit(small_at=key.small_at, large_at=row.event_time)


def test_k20_a_small_amount_and_within_a_minute_a_large_one() -> None:
    fraud = Keyed(
        name="fraud",
        of=readings,
        by=("id",),
        state="small_at timestamp",
        result="small_at timestamp, large_at timestamp",
        on_row=watch_card,
        timers={"over": forget},
        order="event",
    )
    drawn = "c@0=0.5, c@60=600, c@100=1, c@110=600, c@200=.99, c@210=500, c@300=.5, c@360.001=600"
    assert values(play(fraud, rows(drawn), end_of_input=True).results) == [(at(0), at(60))]


def keep_first(key: Key, row: Any) -> None:
    key.emit("" if key.seen is None else "duplicates", value=row.temperature)
    key.seen = True


def test_e20_the_first_order_wins_and_a_duplicate_does_not_vanish() -> None:
    orders = Keyed(
        "orders", readings, ("id",), "seen boolean", "value double", keep_first, sides={"duplicates": "value double"}
    )
    done = play(orders, rows("o1@1=10.5, o2@2=1"), rows("o1@3=10.5"))
    assert [row[0] for row in done.results] == ["o1", "o2"]
    assert done.outputs["duplicates"] == [("o1", at(3), 10.5)]


def sum_every_three(key: Key, row: Any) -> None:
    key.rows, key.total = (key.rows or 0) + 1, (key.total or 0.0) + row.temperature
    key.timer("rest", max(key.at, key.pending("rest") or key.at) + micros("1 day"))
    if key.rows == 3:
        tell_rest(key)


def tell_rest(key: Key) -> None:
    key.emit(total=key.total)
    key.clear()


def test_x2_the_rest_comes_at_the_end_of_input_only() -> None:
    every_three = Keyed(
        name="every_three",
        of=readings,
        by=("id",),
        state="rows bigint, total double",
        result="total double",
        on_row=sum_every_three,
        timers={"rest": tell_rest},
    )
    seven = rows(", ".join(f"a@{n}={n}" for n in range(1, 8)))
    assert values(play(every_three, seven).results) == [6.0, 15.0]
    assert values(play(every_three, seven, end_of_input=True).results) == [6.0, 15.0, 7.0]


START, END = -1.0, -2.0


def between_markers(key: Key, row: Any) -> None:
    if row.temperature == START:
        key.inside = []
    elif row.temperature == END:
        key.emit(total=sum(key.inside or []))
        key.clear()
    elif key.inside is None:
        key.emit("unassigned", value=row.temperature)
    else:
        key.inside.append(row.temperature)


def test_t4_windows_that_begin_and_end_with_a_marker() -> None:
    marked = Keyed(
        name="marked",
        of=readings,
        by=("id",),
        state="inside array<double>",
        result="total double",
        on_row=between_markers,
        sides={"unassigned": "value double"},
    )
    done = play(marked, rows("a@1=9, a@2=-1, a@3=1"), rows("a@4=2, a@5=-2, a@6=3, a@7=-1, a@8=4"))
    assert values(done.results) == [3.0]
    assert values(done.outputs["unassigned"]) == [9.0, 3.0]
    assert done.state == {("a",): {"inside": [4.0]}}


def twice_in_five_seconds(key: Key, row: Any) -> None:
    times = key.seen or {}
    before = times.get(row.temperature)
    if before is not None and row.event_time - before <= micros("5 seconds"):
        key.emit(again_at=row.event_time)
    key.seen = {**times, row.temperature: row.event_time}


def test_t5_two_events_of_a_type_within_five_seconds_inclusive() -> None:
    twice = Keyed(
        name="twice",
        of=readings,
        by=("id",),
        state="seen map<double, timestamp>",
        result="again_at timestamp",
        on_row=twice_in_five_seconds,
        order="event",
    )
    done = play(twice, rows("p@0=1, p@1=2"), rows("p@5=1, p@10.001=1"), end_of_input=True)
    assert values(done.results) == [at(5)]


def tell_order(key: Key, row: Any) -> None:
    key.rows = (key.rows or 0) + 1
    key.emit(rows=key.rows)


def test_a_session_ends_after_its_gap_and_rows_exactly_a_gap_apart_do_not_merge() -> None:
    sessions = Keyed(
        "sessions", readings, ("id",), "rows bigint", "rows bigint", tell_order, order="event", idle="10 seconds"
    )
    done = play(sessions, rows("a@0, a@9.999, a@19.999, a@25, a@34"), rows("a@50"), end_of_input=True)
    assert values(done.results) == [1, 2, 1, 2, 3, 1]
    assert done.state == {}
