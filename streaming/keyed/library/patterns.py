"""Patterns over the rows of a key, by event time: one followed by another within a time, or by none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streaming.base import check_type
from streaming.declare import Keyed, OnError, Stream, check_callable, micros
from streaming.keyed.fold import Key
from streaming.keyed.library.forget import forget
from streaming.keyed.schemas import ddl, struct_of, type_of

Condition = Callable[[Any], bool]

_OVER = "over"


@dataclass(frozen=True)
class _FollowedBy:
    """Keeps the newest row that begins the pattern until one ends it, or time is up."""

    first: Condition
    then: Condition
    within: int
    columns: tuple[str, ...]

    def __call__(self, key: Key, row: Any) -> None:
        if key.first is not None and self.then(row):
            firsts = {f"first_{name}": key.first[name] for name in self.columns}
            thens = {f"then_{name}": row[name] for name in self.columns}
            key.emit(first_at=key.first["_at"], then_at=key.at, **firsts, **thens)
            key.clear()
        elif self.first(row):
            key.first = {"_at": key.at, **{name: row[name] for name in self.columns}}
            key.timer(_OVER, key.at + self.within + 1)


@dataclass(frozen=True)
class _NotFollowedBy:
    """Keeps the rows that begin the pattern until one comes that was awaited."""

    first: Condition
    then: Condition
    within: int
    columns: tuple[str, ...]

    def __call__(self, key: Key, row: Any) -> None:
        if self.then(row):
            key.clear()
        elif self.first(row):
            key.open = [*(key.open or []), {"_at": key.at, **{name: row[name] for name in self.columns}}]
            key.timer(_OVER, key.open[0]["_at"] + self.within + 1)


@dataclass(frozen=True)
class _TellMissing:
    """Emits the rows whose time is up."""

    within: int
    columns: tuple[str, ...]

    def __call__(self, key: Key) -> None:
        missed = [row for row in key.open if row["_at"] + self.within < key.at]
        for row in missed:
            key.emit(first_at=row["_at"], **{f"first_{name}": row[name] for name in self.columns})
        key.open = key.open[len(missed) :] or None
        if key.open:
            key.timer(_OVER, key.open[0]["_at"] + self.within + 1)


def followed_by(
    name: str,
    of: Stream,
    *,
    first: Condition,
    then: Condition,
    within: str,
    by: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function that emits a pair for each row `first` and a row `then` at most `within` (inclusive) later.

    `first` and `then` are conditions on a row. Of several rows `first` the newest counts, and the first row `then` uses
    it up; other rows may lie between (Flink CEP's `followedBy` and `within`, the match skipping past its end). Rows
    come by event time, late ones not at all. The result has `first_at`, `then_at`, and `columns` of both rows as
    `first_...` and `then_...`.

    Raises:
        DeclarationError: an unknown column or one whose type is not known, or a condition that workers cannot find.
    """
    length, types = _checked(name, of, first, then, within, columns)
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=f"first {struct_of({'_at': 'timestamp', **types})}",
        result=_listed("first_at timestamp, then_at timestamp", ddl(types, "first_"), ddl(types, "then_")),
        on_row=_FollowedBy(first, then, length, columns),
        timers={_OVER: forget},
        order="event",
        on_error=on_error,
        version=version,
        description=description,
    )


def not_followed_by(
    name: str,
    of: Stream,
    *,
    first: Condition,
    then: Condition,
    within: str,
    by: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function that emits each row `first` for which no row `then` came at most `within` (inclusive) later.

    One row `then` is enough for all rows `first` before it. It is told once the watermark has passed the time in which
    it should have come (Flink CEP's `notFollowedBy` with `within`). The result has `first_at`, and `columns` of that
    row as `first_...`.

    Raises:
        DeclarationError: an unknown column or one whose type is not known, or a condition that workers cannot find.
    """
    length, types = _checked(name, of, first, then, within, columns)
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=f"open array<{struct_of({'_at': 'timestamp', **types})}>",
        result=_listed("first_at timestamp", ddl(types, "first_")),
        on_row=_NotFollowedBy(first, then, length, columns),
        timers={_OVER: _TellMissing(length, columns)},
        order="event",
        on_error=on_error,
        version=version,
        description=description,
    )


def _checked(
    name: str, of: Stream, first: Condition, then: Condition, within: str, columns: tuple[str, ...]
) -> tuple[int, dict[str, str]]:
    check_type(f"of= of pattern {name!r}", of, Stream, "the stream that it reads")
    for what, condition in (("first", first), ("then", then)):
        check_callable(f"{what}= of pattern {name!r}", condition)
    return micros(within), {column: type_of(f"a column of pattern {name!r}", of, column) for column in columns}


def _listed(*columns: str) -> str:
    return ", ".join(filter(None, columns))
