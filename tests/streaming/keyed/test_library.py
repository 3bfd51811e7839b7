"""The pieces on top of keyed functions, by the applications that they are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streaming.base.errors import DeclarationError
from streaming.declare.keyed import Keyed
from streaming.keyed.count_windows import count_window
from tests.streaming.keyed.functions import added, newest, readings, rows
from tests.support.instants import at
from tidemark.testing import play


def gathered(values: list[float]) -> Mapping[str, Any]:
    return {"values": values}


def numbers(last: int, key: str = "a") -> str:
    return ", ".join(f"{key}@{n}={n}" for n in range(1, last + 1))


def windows_of(size: int, slide: int | None = None, **declared: Any) -> Keyed:
    return count_window(
        "counted",
        readings,
        size=size,
        slide=slide,
        value="temperature",
        function=added,
        result="sum double",
        **declared,
    )


def test_w15_count_tumbling_4_leaves_what_does_not_fill_a_window_pending() -> None:
    done = play(windows_of(4), rows(numbers(10)), end_of_input=True)
    assert [row[1:] for row in done.results] == [(4, 10.0), (4, 26.0)]
    assert done.state == {(): {"waiting": [9.0, 10.0], "rows": 2}}


def test_w15_what_is_pending_expires_to_a_side_output() -> None:
    done = play(windows_of(4, by=("id",), expire_after="5 seconds"), rows(numbers(6)), rows("b@30=1"))
    assert [row[2:] for row in done.results] == [(4, 10.0)]
    assert done.outputs["expired"] == [("a", at(11), 2, 11.0)]
    assert set(done.state) == {("b",)}


def test_w16_count_sliding_4_every_3_begins_with_fewer() -> None:
    done = play(windows_of(4, 3), rows(numbers(5)), rows(numbers(10))[5:])
    assert [row[1:] for row in done.results] == [(3, 6.0), (4, 18.0), (4, 30.0)]


def test_w17_keyed_count_tumbling_2_by_colour() -> None:
    keyed = count_window(
        "coloured", readings, size=2, by=("id",), value="temperature", function=gathered, result="values array<double>"
    )
    done = play(keyed, rows("black@1=1, white@2=1, black@3=2, green@4=1, white@5=2, black@6=3"))
    assert [(row[0], row[3]) for row in done.results] == [("black", [1.0, 2.0]), ("white", [1.0, 2.0])]
    assert {key[0]: state["waiting"] for key, state in done.state.items()} == {"green": [1.0], "black": [3.0]}


def test_w18_count_window_100_every_10() -> None:
    done = play(windows_of(100, 10, by=("id",)), rows(numbers(37)), rows(numbers(120))[37:])
    assert len(done.results) == 12
    assert [row[3] for row in done.results[9:]] == [5050.0, 6050.0, 7050.0]


def test_a_slide_longer_than_the_window_leaves_rows_out() -> None:
    assert [row[2] for row in play(windows_of(2, 3), rows(numbers(7))).results] == [5.0, 11.0]


def test_a_count_window_that_cannot_be_is_refused() -> None:
    with pytest.raises(DeclarationError, match="size=0 of count window 'counted' is no number of rows"):
        windows_of(0)
    with pytest.raises(DeclarationError, match=r"'heat', which is no column .* these are: id, timestamp, temperature"):
        count_window("counted", readings, size=2, value="heat", function=added, result="sum double")


def test_the_latest_row_per_key_is_state_and_those_before_it_are_history() -> None:
    drawn = ("a@1=1, b@2=2, a@4=4", "a@3=3, c@20=1", "a@2=9")
    done = play(newest, *map(rows, drawn), end_of_input=True)
    assert [(row[0], row[3], row[5], row[6]) for row in done.results] == [("a", 1.0, at(1), at(4))]
    assert {key[0]: state["newest"]["temperature"] for key, state in done.state.items()} == {
        "a": 4.0,
        "b": 2.0,
        "c": 1.0,
    }
    assert len(done.late) == 2
