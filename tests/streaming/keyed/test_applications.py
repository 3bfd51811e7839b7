"""The applications of keyed state and timers, played without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed
from tests.streaming.keyed.functions import counts, fires, jumps, readings, rises, rows, self_cleaning, sums, switches
from tests.support.instants import at
from tidemark.testing import Played, play


def played(keyed: Keyed, drawn: str, end_of_input: bool = False) -> Played:
    """The function over batches that are separated by `|`."""
    return play(keyed, *(rows(batch) for batch in drawn.split("|")), end_of_input=end_of_input)


def test_k6_temperature_jump_never_alarms_on_the_first_reading() -> None:
    assert played(jumps, "a@1=20, a@2=21.5, a@3=23.5, a@4=23").results == [("a", at(3), 23.5, 2.0)]
    assert played(jumps, "a@1=0.5, b@2=40").results == []


@pytest.mark.parametrize(
    ("drawn", "results", "kept"),
    [
        ("a@0:00=20 | a@0:10=22 | b@1:10=5 | a@1:11=30", [("a", at(600), 22.0, 2.0)], {("a",), ("b",)}),
        ("a@0:10=22 | b@1:00=5 | a@1:09:59.999=30", [("a", at(4199.999), 30.0, 8.0)], {("a",), ("b",)}),
        ("a@0:10=22 | b@1:00=5 | a@1:10=30", [], {("a",), ("b",)}),
    ],
)
def test_k11_self_cleaning_alert_forgets_an_hour_after_the_newest_reading(
    drawn: str, results: list[Any], kept: set[Any]
) -> None:
    done = played(self_cleaning, drawn)
    assert done.results == results
    assert set(done.state) == kept
    assert played(self_cleaning, drawn, end_of_input=True).state == {}


def test_k11_the_state_is_gone_once_the_clock_has_reached_its_timer() -> None:
    assert set(played(self_cleaning, "a@0:00=20 | a@0:10=22 | b@1:10=5").state) == {("b",)}


@pytest.mark.parametrize(
    ("drawn", "warned"),
    [
        ("a@0=10, a@.25=11, a@.5=12, a@.75=12, a@1=13, a@1.5=9 | z@3", [at(1.25)]),
        ("a@0=10, a@.25=11, a@.5=12, a@.75=12, a@1.24=10.9, a@1.5=9 | z@3", []),
        ("a@0=10, a@.25=11, a@1.25=5 | z@3", [at(1.25)]),
        ("a@0=0, a@.25=1, a@.5=0 | z@3", []),
    ],
)
def test_k12_monotonic_rise_for_a_second(drawn: str, warned: list[Any]) -> None:
    assert played(rises, drawn).results == [("a", instant, instant) for instant in warned]


def test_k13_a_switch_may_extend_and_never_shorten() -> None:
    first = "s2@0=10, s2@5=-1, s2@9.999=-1, s2@10=-1, s1@1=-1"
    assert played(switches, first, end_of_input=True).results == [("s2", at(t), at(t)) for t in (5, 9.999)]
    second = "s2@0=10, s2@8=10, s2@9=2, s2@17.999=-1, s2@18=-1"
    done = played(switches, second, end_of_input=True)
    assert done.results == [("s2", at(17.999), at(17.999))]
    assert done.state == {}


def test_k14_fire_alarm_within_ten_minutes_inclusive() -> None:
    alarms = replace(fires, of=replace(readings, clock=BoundedOutOfOrderness("5 minutes")))
    drawn = (
        "p@0:00=1, p@0:10=2 | p@0:20=1, p@0:30:00.001=2 | p@0:41=2 | p@0:40=1 | p@0:50=1, p@0:55=1, p@0:56=2, p@0:57=2"
    )
    done = played(alarms, drawn, end_of_input=True)
    pairs = [(row[2], row[3]) for row in done.results]
    assert pairs == [(at(0), at(600)), (at(2400), at(2460)), (at(3300), at(3360))]
    assert done.late == [] and done.state == {}


def test_k17_even_and_odd_sums() -> None:
    numbers = ", ".join(f"{'even' if n % 2 == 0 else 'odd'}@{n}={n}" for n in range(1, 11))
    done = played(sums, numbers.replace(", even@6", " | even@6"))
    assert done.state == {("even",): {"total": 30}, ("odd",): {"total": 25}}
    assert [row[2] for row in done.results if row[0] == "even"] == [2, 6, 12, 20, 30]


def test_k18_record_counter_goes_on_after_a_step() -> None:
    assert [row[2] for row in played(counts, "a@1, a@2, a@3 | a@4").results] == [1, 2, 3, 4]


def test_late_rows_of_order_event_are_left_out_and_told() -> None:
    done = played(rises, "a@10=1 | a@9=2, a@10=2 | z@30")
    assert [row["event_time"] for row in done.late] == [1767225609000000]
    assert [moment.what.startswith("row") for moment in done.moments if moment.key == ("a",)] == [True, True, False]


def test_late_rows_of_order_arrival_come_and_say_so() -> None:
    done = played(counts, "a@10=1 | a@9=2")
    assert "late" not in str(done.moments[0]) and "late" in str(done.moments[1])
    assert done.results[-1] == ("a", at(9), 2)
