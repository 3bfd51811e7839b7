"""SQL's way to order, compare and add values, for Python code that is to come to the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import ROUND_HALF_UP, Context, DivisionByZero, InvalidOperation, Overflow, localcontext
from functools import partial, wraps
from math import isclose
from typing import Any, ParamSpec, TypeVar

from streaming.base.values import NAN

P = ParamSpec("P")
T = TypeVar("T")

DECIMALS = Context(prec=76, rounding=ROUND_HALF_UP, traps=[InvalidOperation, DivisionByZero, Overflow])
"""The decimal context of functions: sums and products of two decimals of 38 digits have 76 at most, so none is rounded.

What has endless digits, as 1/3, is cut at 76 of them; where it is kept, its column says how many there may be.
"""


def computes_as_sql(task: Callable[P, Iterable[T]]) -> Callable[P, Iterator[T]]:
    """The `task` with its results computed one after another, each in the decimal context `DECIMALS`."""

    @wraps(task)
    def computed(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        results = iter(task(*args, **kwargs))
        # Not around the whole: between two results the context of whoever asks for them holds.
        while True:
            with localcontext(DECIMALS):
                try:
                    result = next(results)
                except StopIteration:
                    return
            yield result

    return computed


def is_less(left: Any, right: Any) -> bool:
    """SQL's `<` of two values of one type, neither of them None: NaN is the greatest number.

    Structs, dicts here, are compared field by field, lists entry by entry; a null in them is the least.
    """
    kind = left.__class__
    if kind is float:
        return bool(left == left and (right != right or left < right))
    return bool(_rank(left) < _rank(right)) if kind is dict or kind is list else bool(left < right)


def is_same(left: Any, right: Any) -> bool:
    """SQL's `<=>`: NaN equals itself, a null equals a null, -0.0 is 0.0, and so in lists, structs and maps."""
    if left is right:
        return True
    kind = left.__class__
    if kind is not right.__class__:
        return bool(left == right)
    if kind is float:
        return bool(left == right or (left != left and right != right))
    if kind is list:
        return len(left) == len(right) and all(map(is_same, left, right))
    if kind is dict:
        return left.keys() == right.keys() and all(is_same(value, right[name]) for name, value in left.items())
    return bool(left == right)


ROUNDING = 1e-9
"""The distance of doubles that rounding may make: a share of the greater one, or absolute where summands cancel out."""


def is_close(left: Any, right: Any, within: float = ROUNDING) -> bool:
    """True where `is_same` is, and where doubles, also within lists, structs and maps, differ by rounding alone.

    That is by a billionth, or, as summands may cancel each other out, `within` a distance.
    """
    kind = left.__class__
    if kind is right.__class__:
        if kind is float:
            return is_same(left, right) or isclose(left, right, rel_tol=ROUNDING, abs_tol=within)
        if kind is list:
            return len(left) == len(right) and all(map(partial(is_close, within=within), left, right))
        if kind is dict:
            return left.keys() == right.keys() and all(
                is_close(value, right[name], within) for name, value in left.items()
            )
    return is_same(left, right)


def canonical(value: Any) -> Any:
    """The one value that stands for all that SQL takes for the same: 0.0 for -0.0, one NaN; also within others."""
    kind = value.__class__
    if kind is float:
        return NAN if value != value else value + 0.0
    if kind is list or kind is tuple:
        return kind(canonical(each) for each in value)
    if kind is dict:
        return {name: canonical(each) for name, each in value.items()}
    return value


def _rank(value: Any) -> Any:
    """Tuples that Python orders as SQL orders the values."""
    if value is None:
        return (0,)
    kind = value.__class__
    if kind is dict:
        return (1, *map(_rank, value.values()))
    if kind is list:
        return (1, *map(_rank, value))
    if kind is float:
        return (1, value != value, 0.0 if value != value else value)
    return (1, value)
