"""Rolling aggregates: what all rows of a key so far come to, with each row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.base import DeclarationError, check_mapping, check_type, is_less
from streaming.declare import Keyed, OnError, Stream
from streaming.keyed.fold import Key
from streaming.keyed.schemas import row_types, struct_of, type_of

_WRITTEN = re.compile(r"\s*(count\(\*\)|(sum|min|max)\((\w+)\)|(min_by|max_by)\(\*\s*,\s*(\w+)\))\s*")
_WAYS = "count(*), sum(column), min(column), max(column), min_by(*, column), max_by(*, column)"


@dataclass(frozen=True)
class _Rolling:
    """One aggregate: what it is called, how it goes on with a row, and by which column."""

    name: str
    kind: str
    column: str
    whole: tuple[str, ...]

    def goes_on(self, before: Any, row: Any) -> Any:
        """Its value with one more row; a null changes nothing."""
        if self.kind == "count":
            return (before or 0) + 1
        value = row[self.column]
        if value is None:
            return before
        if before is None:
            return {name: row[name] for name in self.whole} if self.whole else value
        if self.kind == "sum":
            return before + value
        # Of equal values the one that came first stays.
        newest = before[self.column] if self.whole else before
        if is_less(value, newest) if self.kind.startswith("min") else is_less(newest, value):
            return {name: row[name] for name in self.whole} if self.whole else value
        return before


@dataclass(frozen=True)
class _RollOn:
    """Goes on with every aggregate, and emits them."""

    aggregates: tuple[_Rolling, ...]

    def __call__(self, key: Key, row: Any) -> None:
        for each in self.aggregates:
            setattr(key, each.name, each.goes_on(getattr(key, each.name), row))
        key.emit(**{each.name: getattr(key, each.name) for each in self.aggregates})


def rolling(
    name: str,
    of: Stream,
    aggregates: Mapping[str, str],
    *,
    by: tuple[str, ...] = (),
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function that emits with each row, in the order of arrival, aggregates of all rows so far.

    `aggregates` maps columns of the result to what they are, such as `{"total": "sum(amount)"}`: `count(*)`,
    `sum`, `min` and `max` of a column, `min_by(*, column)` and `max_by(*, column)` for the whole row in which it is
    least or greatest, the first of several (Flink's rolling `sum`, `min`, `max`, `minBy`, `maxBy`). A null changes
    nothing. What is kept is the state, one value per aggregate, for ever: the keys should be bounded.

    Raises:
        DeclarationError: no such aggregate, an unknown column, or one whose type is not known.
    """
    check_type(f"of= of rolling {name!r}", of, Stream, "the stream that it reads")
    check_mapping(f"aggregates of rolling {name!r}", aggregates, str, "a dict such as {'total': 'sum(amount)'}")
    parsed, columns = [], []
    for target, written in aggregates.items():
        each, kind = _parsed(name, of, by, target, written)
        parsed.append(each)
        columns.append(f"{target} {kind}")
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=", ".join(columns),
        result=", ".join(columns),
        on_row=_RollOn(tuple(parsed)),
        on_error=on_error,
        version=version,
        description=description,
    )


def _parsed(name: str, of: Stream, by: tuple[str, ...], target: str, written: str) -> tuple[_Rolling, str]:
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise DeclarationError(
            f"{target} of rolling {name!r} is {written!r}, which does not roll; write one of: {_WAYS}."
        )
    _, function, column, picking, picked_by = match.groups()
    if function is None and picking is None:
        return _Rolling(target, "count", "", ()), "bigint"
    kind = type_of(f"the column of {written!r} of rolling {name!r}", of, column or picked_by)
    if picking is not None:
        types = row_types(f"a column of rolling {name!r}", of, by)
        return _Rolling(target, picking, picked_by, tuple(types)), struct_of(types)
    return _Rolling(target, function, column, ()), _sum_type(name, written, kind) if function == "sum" else kind


def _sum_type(name: str, written: str, kind: str) -> str:
    """The type of a sum, wide enough not to overflow, as Spark has it."""
    if kind in ("tinyint", "smallint", "int", "bigint"):
        return "bigint"
    if kind == "double":
        return "double"
    if match := re.fullmatch(r"decimal(?:\((\d+)(?:,\s*(\d+))?\))?", kind):
        return f"decimal(38, {match[2] or 0})"
    raise DeclarationError(f"{written!r} of rolling {name!r} sums a column of type {kind}; sum one of numbers.")
