"""Two results held against each other: which differ, and by how much doubles may."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.base import is_close
from streaming.provenance import Evidence, InputRow, compared

NAN, INFINITE = float("nan"), float("inf")
CANCELLED = 0.1 + 0.2 - 0.3
"""Not quite zero."""


def evidence(recomputed: Any, *values: float, **more: Any) -> Evidence:
    rows = tuple(InputRow("readings", "", {}, 0, {"value": value}) for value in values)
    return Evidence(rows, recomputed, **more)


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        (CANCELLED, 0.0, True),
        (1e15 + 1, 1e15, True),
        (1.0, 1.1, False),
        (1.0, 1.00001, False),
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (INFINITE, INFINITE, True),
        (INFINITE, 1.0, False),
        (INFINITE, -INFINITE, False),
        ([1.0, CANCELLED], [1.0, 0.0], True),
        ([1.0], [1.0, 0.0], False),
        ({"a": [{"b": CANCELLED}]}, {"a": [{"b": 0.0}]}, True),
        ({"a": 1.0}, {"b": 1.0}, False),
        ({"a": None}, {"a": 0.0}, False),
        (3, 4, False),
        ("a", "a", True),
    ],
)
def test_doubles_may_differ_by_rounding_at_any_depth(one: Any, other: Any, are: bool) -> None:
    assert is_close(one, other) is are and is_close(other, one) is are


def test_a_sum_that_cancels_out_is_the_same_in_another_order() -> None:
    values = [1e9, 0.1, -1e9]
    one, other = sum(values), sum([1e9, -1e9, 0.1])
    assert abs(one - other) > 1e-9
    assert compared([{"total": one}], evidence(({"total": other},), *values))[0] is True
    assert compared([{"total": one + 1e-3}], evidence(({"total": other},), *values))[0] is False


def test_a_rounding_that_is_known_is_what_decides() -> None:
    tiny = evidence(({"total": 1e-12},), 1e-12, roundings={"total": 1e-27})
    assert compared([{"total": 2e-12}], tiny)[0] is False
    assert compared([{"total": 1e-12}], tiny)[0] is True


def test_a_result_that_is_due_and_not_published_is_told() -> None:
    row = {"id": "a", "total": 7}
    assert compared([], evidence((row,), is_due=True)) == (
        False,
        "NOTHING IS PUBLISHED THOUGH IT IS DUE: its rows give id=a total=7",
    )
    assert compared([], evidence((row, row), is_due=True))[1].endswith("its rows give 2 rows")
    assert compared([], evidence((row,))) == (None, "nothing is published; its rows so far give 1 row")
    assert compared([], evidence((), is_due=True)) == (None, "nothing is published; its rows so far give nothing")
    assert compared([], evidence((row,), is_due=True).without("its rows are gone"))[0] is None


def test_a_result_that_differs_tells_in_which_columns() -> None:
    said = compared([{"id": "a", "total": 10}], evidence(({"id": "a", "total": 9},)))
    assert said == (False, "RECOMPUTED FROM EXACTLY THESE ROWS, IT IS NOT THE SAME: total is 10 and should be 9")
