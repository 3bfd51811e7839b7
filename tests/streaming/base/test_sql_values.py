"""Order, equality and decimals of Python code, as SQL has them."""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Iterator
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.base import NAN, canonical, computes_as_sql, is_less, is_same

OTHER_NAN = float("nan")


def oracle(left: float, right: float) -> int:
    """-1, 0 or 1 as Java's `Double.compare` has it, which Spark orders by, but that zeros are equal."""
    if left != left or right != right:
        return (left != left) - (right != right)
    return (left > right) - (left < right)


@given(st.floats(), st.floats())
def test_nan_is_the_greatest_number_and_equal_to_itself(left: float, right: float) -> None:
    for one, other in ((left, right), (left, OTHER_NAN), (OTHER_NAN, right), (OTHER_NAN, NAN)):
        assert is_less(one, other) == (oracle(one, other) < 0)
        assert is_same(one, other) == (oracle(one, other) == 0)
        assert is_less([one], [other]) == is_less({"v": one}, {"v": other}) == is_less(one, other)
        assert is_same([one], [other]) == is_same({"v": one}, {"v": other}) == is_same(one, other)


def test_structs_and_lists_are_ordered_entry_by_entry_and_a_null_in_them_is_the_least() -> None:
    ordered: list[Any] = [[], [None], [None, 1.0], [1.0], [1.0, 2.0], [NAN]]
    for (place, one), (other_place, other) in itertools.product(enumerate(ordered), repeat=2):
        assert is_less(one, other) == (place < other_place)
    structs = [{"a": None, "b": [2]}, {"a": "x", "b": None}, {"a": "x", "b": [1]}, {"a": "y", "b": None}]
    by_sql = cmp_to_key(lambda one, other: -1 if is_less(one, other) else int(is_less(other, one)))
    assert sorted([*structs[2:], *structs[:2]], key=by_sql) == structs


def test_other_values_are_compared_as_they_are() -> None:
    assert is_less(1, 2) and not is_less(2, 1) and not is_less(2, 2)
    assert is_less("a", "b") and is_less(Decimal("1.1"), Decimal("1.2")) and is_less(False, True)


def test_values_are_the_same_by_type_and_depth() -> None:
    assert is_same(None, None) and not is_same(None, 0) and not is_same(0, None) and is_same(0.0, -0.0)
    assert is_same(1, Decimal(1)) and not is_same(1, 2) and not is_same("1", 1)
    assert not is_same([1], [1, 2]) and not is_same([1, 2], [1, 3]) and is_same([1, [None]], [1, [None]])
    assert not is_same({"a": 1}, {"b": 1}) and not is_same({"a": 1}, {"a": 2}) and is_same({}, {})
    assert not is_same({"a": 1}, {"a": 1, "b": None})


def test_one_value_stands_for_all_that_are_the_same() -> None:
    assert canonical(OTHER_NAN) is NAN and repr(canonical(-0.0)) == "0.0" and canonical(1.5) == 1.5
    assert repr(canonical({"a": [-0.0, None], "b": "x"})) == "{'a': [0.0, None], 'b': 'x'}"
    assert canonical([OTHER_NAN])[0] is NAN and canonical(None) is None
    # Entries of a map, as Arrow gives them.
    assert repr(canonical([("k", -0.0)])) == "[('k', 0.0)]" and canonical(("k", OTHER_NAN))[1] is NAN


def test_sums_and_products_of_38_digits_are_exact_in_a_task_and_nowhere_else() -> None:
    most = Decimal("9" * 38)

    @computes_as_sql
    def task(rows: int) -> Iterator[tuple[Decimal, Decimal]]:
        for _ in range(rows):
            yield most + Decimal("1e-38"), most * most

    before = decimal.getcontext().prec
    seen = []
    for number, result in enumerate(task(2), 1):
        assert decimal.getcontext().prec == before
        seen.append(result)
        assert len(seen) == number
    assert seen == [(Decimal("9" * 38 + "." + "0" * 37 + "1"), Decimal(int("9" * 38) ** 2))] * 2
    assert decimal.getcontext().prec == before


def test_a_division_goes_on_for_76_digits_and_rounds_as_sql_does() -> None:
    @computes_as_sql
    def task() -> Iterator[Decimal]:
        yield Decimal(1) / 3
        yield Decimal("0.125").quantize(Decimal("0.01"))
        yield Decimal(1) / 0

    results = task()
    assert str(next(results)) == "0." + "3" * 76
    assert next(results) == Decimal("0.13")
    with pytest.raises(decimal.DivisionByZero):
        next(results)
