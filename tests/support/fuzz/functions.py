"""Functions of users that some row makes fail, as Spark's workers import them, each with the rows for which it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from streaming import LookupRequest


def of_i64(row: Any) -> int:
    """A division by zero, of nothing, or what fits no bigint."""
    return 100 // row.i64 + row.i64 * row.i64


def of_f64(row: Any) -> int:
    """No whole number is infinite, and few doubles fit a bigint."""
    return int(row.f64 * 1000)


def of_s(row: Any) -> int:
    """No text that is empty has a first letter."""
    return ord(row.s[0])


def of_xs(row: Any) -> int:
    """No list that is shorter has a second element."""
    return 10 // row.xs[1]


def of_i32(row: Any) -> int:
    """It fails for no whole number, and for nothing."""
    return -row.i32


@dataclass(frozen=True)
class Part:
    """What a function computes of a row: of which column, and for which of its values it fails."""

    column: str
    of: Callable[[Any], int]
    fails: Callable[[Any], bool]


def _is_far(value: float) -> bool:
    return not math.isfinite(value * 1000) or not -(2**63) <= int(value * 1000) < 2**63


PARTS = (
    Part("i64", of_i64, lambda value: value is None or value == 0 or not -(2**63) <= 100 // value + value**2 < 2**63),
    Part("f64", of_f64, lambda value: value is None or _is_far(value)),
    Part("s", of_s, lambda value: not value),
    Part("xs", of_xs, lambda value: value is None or len(value) < 2 or not value[1]),
    Part("i32", of_i32, lambda value: value is None),
)


@dataclass(frozen=True)
class OfRow:
    """A row function: the row, and what `of` computes of it."""

    of: Callable[[Any], int]

    def __call__(self, row: Any, opened: None) -> Iterator[Mapping[str, Any]]:
        yield {"uid": row.uid, "n": self.of(row)}


@dataclass(frozen=True)
class OnRow:
    """A keyed function that has changed state, timer and output before it computes what may fail."""

    of: Callable[[Any], int]

    def __call__(self, key: Any, row: Any) -> None:
        key.seen = (key.seen or 0) + 1
        key.timer("quiet", key.at + 5_000_000)
        key.emit(n=key.seen, uid=row.uid)
        key.last = self.of(row)
        key.emit(n=key.seen, value=key.last, uid=row.uid)


def on_quiet(key: Any) -> None:
    """Tell what a key has come to."""
    key.emit(n=key.seen, value=key.last)


@dataclass(frozen=True)
class OfBoth:
    """A co-group: how many rows either side has, and what `of` makes of them."""

    of: Callable[[Any], int]
    left: bool

    def __call__(self, key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterable[dict[str, Any]]:
        values = [self.of(row) for row in (left if self.left else right)]
        yield {"lefts": len(left), "rights": len(right), "most": max(values, default=None)}


def window_of_i64(rows: pd.DataFrame) -> pd.DataFrame:
    """How many rows a window has, and the most of what is computed of them."""
    return _of_window(rows, of_i64)


def window_of_s(rows: pd.DataFrame) -> pd.DataFrame:
    """The same of their texts."""
    return _of_window(rows, of_s)


WINDOW_FUNCTIONS = {"i64": window_of_i64, "s": window_of_s}


def _of_window(rows: pd.DataFrame, of: Callable[[Any], int]) -> pd.DataFrame:
    return pd.DataFrame({"rows": [len(rows)], "most": [max(of(row) for row in rows.itertuples())]})


@dataclass(frozen=True)
class Answer:
    """A lookup that answers with what `of` computes."""

    of: Callable[[Any], int]

    async def __call__(self, row: Any, request: LookupRequest) -> dict[str, Any]:
        return {"answer": self.of(row)}
