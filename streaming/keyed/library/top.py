"""The top N: those items of a key with the greatest values so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming.base import check_number, check_type, is_less, is_same
from streaming.declare import Keyed, OnError, Stream
from streaming.keyed.fold import Key
from streaming.keyed.schemas import type_of


@dataclass(frozen=True)
class _Rank:
    """Ranks the items by their greatest values, and emits the ranks that have changed."""

    n: int
    item: str
    value: str

    def __call__(self, key: Key, row: Any) -> None:
        item, value = row[self.item], row[self.value]
        if item is None or value is None:
            return
        before = key.ranking or []
        best = next((entry["value"] for entry in before if is_same(entry["item"], item)), None)
        if best is not None and not is_less(best, value):
            return
        others = [entry for entry in before if not is_same(entry["item"], item)]
        # Of equal values the one that came first is ahead.
        place = sum(not is_less(entry["value"], value) for entry in others)
        key.ranking = [*others[:place], {"item": item, "value": value}, *others[place:]][: self.n]
        for number, entry in enumerate(key.ranking):
            if number >= len(before) or not is_same(entry, before[number]):
                key.emit(rank=number + 1, **{self.item: entry["item"], self.value: entry["value"]})


def top(
    name: str,
    of: Stream,
    *,
    n: int,
    item: str,
    value: str,
    by: tuple[str, ...] = (),
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function with the `n` items of each key that have the greatest values so far (a continuous Top-N).

    An item, a value of column `item`, stands with the greatest that it had in column `value`; of equal values the one
    that came first is ahead. The state has the ranking, best first; a result is a rank that changed: `rank`, item and
    value. Rows without an item or a value change nothing.

    Raises:
        DeclarationError: `n` is below 1, an unknown column, or one whose type is not known.
    """
    check_type(f"of= of top {name!r}", of, Stream, "the stream that it reads")
    check_number(f"n={n!r} of top {name!r}", n, "number of items")
    kinds = {column: type_of(f"a column of top {name!r}", of, column) for column in (item, value)}
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=f"ranking array<struct<item: {kinds[item]}, value: {kinds[value]}>>",
        result=f"rank int, `{item}` {kinds[item]}, `{value}` {kinds[value]}",
        on_row=_Rank(n, item, value),
        on_error=on_error,
        version=version,
        description=description,
    )
