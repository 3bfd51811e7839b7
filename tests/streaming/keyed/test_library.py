"""The pieces on top of keyed functions, by the applications that they are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from inspect import isfunction, signature
from typing import Any

import pytest

from streaming import keyed as keyed_room
from streaming.base.errors import DeclarationError
from streaming.declare.keyed import Keyed
from streaming.keyed.count_windows import count_window
from tests.streaming.keyed.functions import added, newest, readings, rows
from tests.support.instants import at
from tidemark.testing import play


def gathered(values: list[float]) -> Mapping[str, Any]:
    return {"values": values}


def raise_unless_sum_is_odd(values: list[float]) -> Mapping[str, Any]:
    if sum(values) % 2 == 0:
        raise ValueError("an even sum")
    return added(values)


def is_hot(value: Any) -> bool:
    return bool(value > 30)


WINDOWED = {"value": "temperature", "function": gathered, "result": "values array<double>"}
PATTERN = {"first": is_hot, "then": is_hot, "within": "1 second"}
DECLARED: dict[str, dict[str, Any]] = {
    "absence": {"by": ("id",), "after": "1 second"},
    "count_window": {"size": 2, **WINDOWED},
    "deduplicated": {"by": ("id",)},
    "flat_mapped": {"function": gathered, "state": "n int", "result": "n int"},
    "followed_by": PATTERN,
    "iterated": {"value": "temperature", "body": is_hot, "goes_on": is_hot, "by": ("id",)},
    "latest": {"by": ("id",)},
    "marker_window": {"starts": is_hot, "ends": is_hot, **WINDOWED},
    "not_followed_by": PATTERN,
    "reduced": {"function": gathered, "result": "n int"},
    "rolling": {"aggregates": {"total": "sum(temperature)"}},
    "top": {"n": 1, "item": "id", "value": "temperature"},
    "triggered_window": WINDOWED,
}
"""The pieces that make a keyed function, each with the least that has to be declared."""


def numbers(last: int, key: str = "a") -> str:
    return ", ".join(f"{key}@{n}={n}" for n in range(1, last + 1))


def windows_of(size: int, slide: int | None = None, **declared: Any) -> Keyed:
    return count_window(
        "counted",
        readings,
        size=size,
        slide=slide,
        value="temperature",
        result="sum double",
        **{"function": added, **declared},
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


def test_every_piece_takes_on_error_as_a_keyed_function_does() -> None:
    named = {name: getattr(keyed_room, name) for name in dir(keyed_room)}
    pieces = {name: piece for name, piece in named.items() if isfunction(piece) and _makes_keyed(piece)}
    assert pieces.keys() == DECLARED.keys()
    default = next(field.default for field in fields(Keyed) if field.name == "on_error")
    assert {signature(piece).parameters["on_error"].default for piece in pieces.values()} == {default}
    diverting = {name: piece(name, readings, on_error="side", **DECLARED[name]) for name, piece in pieces.items()}
    assert all(keyed.diverts for keyed in diverting.values())
    assert not any(piece(name, readings, **DECLARED[name]).diverts for name, piece in pieces.items())


def _makes_keyed(piece: Any) -> bool:
    return signature(piece, eval_str=False).return_annotation == Keyed.__name__


def test_a_piece_whose_function_raises_goes_on_and_tells_the_row_as_failed() -> None:
    done = play(
        windows_of(2, function=raise_unless_sum_is_odd, on_error="side"), rows("a@1=1, a@2=2, a@3=3, a@4=5, a@5=6")
    )
    assert [row[2] for row in done.results] == [3.0, 9.0]
    assert len(done.outputs["failed"]) == 1
