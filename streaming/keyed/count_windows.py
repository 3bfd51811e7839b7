"""Count windows: a result after every so many rows of a key, over the last so many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streaming.base import check_number, check_type
from streaming.declare import Keyed, OnError, Stream, micros
from streaming.keyed.fold import Key
from streaming.keyed.schemas import type_of

_EXPIRE = "expire"
EXPIRED = "expired"
"""The side output of rows that waited in vain for their window to fill."""


@dataclass(frozen=True)
class _CountRows:
    """Keeps the last `size` values of a key, and emits what `function` makes of them at every `slide`th."""

    value: str
    size: int
    slide: int
    function: Callable[[list[Any]], Mapping[str, Any]]
    expire_after: int | None

    def __call__(self, key: Key, row: Any) -> None:
        values = key.waiting or []
        values.append(row[self.value])
        key.waiting = values[-self.size :]
        key.rows = (key.rows or 0) + 1
        if self.expire_after is not None:
            key.timer(_EXPIRE, max(key.at + self.expire_after, key.pending(_EXPIRE) or key.at))
        if key.rows < self.slide:
            return
        key.emit(rows=len(key.waiting), **self.function(list(key.waiting)))
        key.rows = 0
        overlapping = max(self.size - self.slide, 0)
        if overlapping:
            key.waiting = key.waiting[-overlapping:]
        else:
            key.clear()


@dataclass(frozen=True)
class _Expire:
    """Gives up the rows that wait, to the side output."""

    function: Callable[[list[Any]], Mapping[str, Any]]

    def __call__(self, key: Key) -> None:
        if key.rows:
            waiting = key.waiting[-key.rows :]
            key.emit(EXPIRED, rows=len(waiting), **self.function(list(waiting)))
        key.clear()


def count_window(
    name: str,
    of: Stream,
    *,
    size: int,
    value: str,
    function: Callable[[list[Any]], Mapping[str, Any]],
    result: str,
    slide: int | None = None,
    by: tuple[str, ...] = (),
    expire_after: str | None = None,
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function that emits at every `slide`th row of a key what `function` makes of its last `size` values.

    `function` is handed the values of column `value`, at most `size` of them and in the order of arrival, and returns
    the columns of `result` by name; `rows` says how many values there were. Without `slide` windows do not overlap: a
    result after every `size` rows. Before `size` rows have come, a sliding window has fewer, as in Flink's
    `countWindow(size, slide)`. What waits for its window to fill is the state, and never comes out by itself; with
    `expire_after` it goes to the side output `expired` once its key had no row for that long in event time.

    Raises:
        DeclarationError: a size or slide below 1, an unknown column, or one whose type is not known.
    """
    check_type(f"of= of count window {name!r}", of, Stream, "the stream that it reads")
    step = size if slide is None else slide
    for what, number in (("size", size), ("slide", step)):
        check_number(f"{what}={number!r} of count window {name!r}", number, "number of rows")
    kind = type_of(f"value= of count window {name!r}", of, value)
    after = None if expire_after is None else micros(expire_after)
    columns = f"rows bigint, {result}"
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=f"waiting array<{kind}>, rows bigint",
        result=columns,
        on_row=_CountRows(value, size, step, function, after),
        timers={} if after is None else {_EXPIRE: _Expire(function)},
        sides={} if after is None else {EXPIRED: columns},
        on_error=on_error,
        version=version,
        description=description,
    )
