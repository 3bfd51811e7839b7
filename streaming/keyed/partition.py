"""The fold over one Spark partition: sorted Arrow batches of state and rows in, what follows from them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.declare import Keyed
from streaming.keyed.fold import Fold, Kept
from streaming.keyed.key import NEVER, Key, Output
from streaming.keyed.rows import row_class
from streaming.keyed.rules import PinnedRules
from streaming.keyed.values import python_values

TIMERS, DUE, TIME, STAMP, BATCH, STREAM, ORIGIN = "_timers", "_due", "_time", "_stamp", "_batch", "_stream", "_origin"
MATCHING = "_matching"
"""Columns that the fold reads beside keys, state and the streams' own."""

_OUTPUTS_AT_ONCE = 10_000


@dataclass(frozen=True)
class KeyKept:
    """A key of which there is something to keep."""

    key: tuple[Any, ...]
    kept: Kept


@dataclass(frozen=True)
class Untouched:
    """State of keys that had no row, and no timer that was due, as it came: keys, state, timers and due."""

    state: pa.RecordBatch


Folded = list[Output] | KeyKept | Untouched


def key_column(place: int) -> str:
    """The name under which the key at this place goes into the fold."""
    return f"_key{place}"


def state_column(place: int) -> str:
    """The name under which the state field at this place goes into the fold."""
    return f"_state{place}"


def value_column(stream: int, place: int) -> str:
    """The name under which the column at this place, of the stream at that one, goes into the fold."""
    return f"_value{stream}_{place}"


def fold_partition(
    keyed: Keyed, clock: int, batches: Iterable[pa.RecordBatch], rules: PinnedRules | None = None
) -> Iterator[Folded]:
    """Fold rows that are sorted by key, the state of a key before its rows, these in their order.

    The columns are the keys, the state fields, `_timers`, `_due`, `_time`, `_stamp`, `_batch` (null for state),
    `_stream` (the place of the row's stream) and those of each stream that are no keys. A key's rows are never
    gathered, so that memory does not depend on how many there are. `rules` are those for these rows, where there are
    some; with conditions, `_matching` behind `_stream` has the places of those that are true of the row.

    Raises:
        FunctionError: as `Fold`.
    """
    fold = Fold(keyed, rules)
    keys, fields = len(keyed.by), len(keyed.state_schema)
    timers = keys + fields
    time, stamp, batch_number = timers + 2, timers + 3, timers + 4
    stream_number = batch_number + 1
    matching = None if keyed.condition is None else stream_number + 1
    made_of = _row_makers(keyed, (matching or stream_number) + 1)
    key: Key | None = None
    for whole in batches:
        untouched = _untouched(whole, keys, timers + 1, batch_number, clock)
        if untouched is not None:
            yield Untouched(whole.filter(untouched).select(list(range(timers + 2))))
        batch = whole if untouched is None else whole.filter(pc.invert(untouched))
        lists = [python_values(column) for column in batch.columns]
        of_rows = zip(lists[time], lists[stamp], lists[batch_number], lists[stream_number], strict=True)
        values_of = zip(*lists[:keys], strict=True) if keys else repeat(())
        # A row as each stream would have it: it is of one of them.
        rows = zip(
            *(map(as_row, zip(*(lists[place] for place in places), strict=True)) for as_row, places in made_of),
            strict=True,
        )
        # Both are endless where the function has no keys, or its rules have no conditions.
        true = repeat(()) if matching is None else lists[matching]
        entries = zip(values_of, of_rows, rows, true, strict=False)
        for place, (values, (at, stamped, number, of), row, places) in enumerate(entries):
            if key is None or values != key.key:
                if key is not None:
                    yield from _end(fold, key, clock)
                if number is None:
                    state = [lists[keys + field][place] for field in range(fields)]
                    key = fold.begin(values, state, lists[timers][place])
                    continue
                key = fold.begin(values)
            fold.row(key, at, NEVER if stamped is None else stamped, row[of], number, of, places)
            if len(fold.outputs) >= _OUTPUTS_AT_ONCE:
                yield _taken(fold)
    if key is not None:
        yield from _end(fold, key, clock)
    if fold.outputs:
        yield _taken(fold)


def _row_makers(keyed: Keyed, others: int) -> list[tuple[Callable[[Any], Any], list[int]]]:
    """For each stream what makes a row of its values, and where these are.

    Keys are among the keys, the others behind everything else, stream after stream and in order.
    """
    makers: list[tuple[Callable[[Any], Any], list[int]]] = []
    for stream in keyed.streams:
        rest = [name for name in stream.columns if name not in keyed.by]
        places = [keyed.by.index(name) if name in keyed.by else others + rest.index(name) for name in stream.columns]
        makers.append((partial(tuple.__new__, row_class(stream.columns)), places))
        others += len(rest)
    return makers


def _end(fold: Fold, key: Key, clock: int) -> Iterator[Folded]:
    fold.advance(key, clock)
    kept = fold.kept(key)
    if kept is not None:
        yield KeyKept(key.key, kept)


def _taken(fold: Fold) -> list[Output]:
    outputs = list(fold.outputs)
    fold.outputs.clear()
    return outputs


def _untouched(batch: pa.RecordBatch, keys: int, due: int, number: int, clock: int) -> pa.BooleanArray | None:
    """Which rows are state with which nothing happens; None where there are none."""
    if batch.num_rows < 2 or batch.column(number).null_count == 0:
        return None
    later = pc.fill_null(pc.greater(batch.column(due).cast(pa.int64()), clock), True)
    mask = pc.and_(pc.is_null(batch.column(number)), later)
    followed = pa.array([True] * (batch.num_rows - 1))
    for place in range(keys):
        column = batch.column(place)
        # Two keys of null are the same, and one of null is left to the fold.
        followed = pc.and_(followed, pc.fill_null(pc.equal(column.slice(0, batch.num_rows - 1), column.slice(1)), True))
    # The row after the last one is in the next batch.
    mask = pc.and_(mask, pa.concat_arrays([pc.invert(followed), pa.array([False])]))
    return mask if pc.any(mask).as_py() else None
