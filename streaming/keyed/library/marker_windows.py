"""Windows that begin and end with a marker: a row that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streaming.base import check_type
from streaming.declare import Keyed, OnError, Stream, check_callable
from streaming.keyed.fold import Key
from streaming.keyed.schemas import type_of

UNASSIGNED = "unassigned"
"""The side output of rows that lie in no window."""


@dataclass(frozen=True)
class _BetweenMarkers:
    """Gathers the values behind a row that begins a window, until a row ends it."""

    value: str
    function: Callable[[list[Any]], Mapping[str, Any]]
    starts: Callable[[Any], bool]
    ends: Callable[[Any], bool]

    def __call__(self, key: Key, row: Any) -> None:
        if self.starts(row):
            self._give_up(key)
            key.waiting, key.started_at = [], key.at
        elif self.ends(row):
            if key.waiting is not None:
                values = key.waiting
                key.emit(started_at=key.started_at, ended_at=key.at, rows=len(values), **self.function(list(values)))
            key.clear()
        elif key.waiting is None:
            key.emit(UNASSIGNED, value=row[self.value])
        else:
            key.waiting = [*key.waiting, row[self.value]]

    def _give_up(self, key: Key) -> None:
        for value in key.waiting or []:
            key.emit(UNASSIGNED, value=value)


def marker_window(
    name: str,
    of: Stream,
    *,
    starts: Callable[[Any], bool],
    ends: Callable[[Any], bool],
    value: str,
    function: Callable[[list[Any]], Mapping[str, Any]],
    result: str,
    by: tuple[str, ...] = (),
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function with windows from a row for which `starts` is true to one for which `ends` is, in arrival order.

    When one ends, `function` is handed the values of column `value` between the two rows and returns the columns of
    `result` by name, beside `started_at`, `ended_at` (event times of the two rows) and `rows`. Rows outside a window,
    and those of one that another row begins anew, go to the side output `unassigned`. The state is what waits.

    Raises:
        DeclarationError: an unknown column or one whose type is not known, or a condition that workers cannot find.
    """
    check_type(f"of= of marker window {name!r}", of, Stream, "the stream that it reads")
    for what, condition in (("starts", starts), ("ends", ends)):
        check_callable(f"{what}= of marker window {name!r}", condition)
    kind = type_of(f"value= of marker window {name!r}", of, value)
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=f"waiting array<{kind}>, started_at timestamp",
        result=f"started_at timestamp, ended_at timestamp, rows bigint, {result}",
        on_row=_BetweenMarkers(value, function, starts, ends),
        sides={UNASSIGNED: f"value {kind}"},
        on_error=on_error,
        version=version,
        description=description,
    )
