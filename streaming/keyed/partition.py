"""The fold over one Spark partition: sorted Arrow batches of rows in, what follows from them and the state out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import python_values
from streaming.declare import Keyed
from streaming.keyed.fold import Fold, KeyState
from streaming.keyed.key import NEVER, Key, Output
from streaming.keyed.rows import row_class
from streaming.keyed.rules import PinnedRules
from streaming.keyed.state_table import OpenBucket, StoredKey, StoredState

TIME, STAMP, BATCH, STREAM, ORIGIN = "_time", "_stamp", "_batch", "_stream", "_origin"
MATCHING = "_matching"
"""Columns that the fold reads beside the hash, the keys and the streams' own."""

_AT_ONCE = 10_000


@dataclass(frozen=True)
class BucketBegun:
    """The beginning of a bucket: what is kept from here on is of it, up to the next one."""

    bucket: int


@dataclass(frozen=True)
class KeyStates:
    """Keys of which there is something to keep, and for each its hash and what that is; hashes rise."""

    hashes: list[int] = field(default_factory=list)
    keys: list[tuple[Any, ...]] = field(default_factory=list)
    states: list[tuple[Any, ...]] = field(default_factory=list)
    timers: list[Mapping[str, int]] = field(default_factory=list)

    def add(self, hash_of_key: int, key: tuple[Any, ...], kept: KeyState) -> None:
        """One more."""
        self.hashes.append(hash_of_key)
        self.keys.append(key)
        self.states.append(kept.state)
        self.timers.append(kept.timers)


@dataclass(frozen=True)
class Untouched:
    """State of keys that had no row, and no timer that was due, as it is stored."""

    state: pa.RecordBatch


Folded = BucketBegun | list[Output] | KeyStates | Untouched


def key_column(place: int) -> str:
    """The name under which the key at this place goes into the fold."""
    return f"_key{place}"


def value_column(stream: int, place: int) -> str:
    """The name under which the column at this place, of the stream at that one, goes into the fold."""
    return f"_value{stream}_{place}"


def fold_partition(
    keyed: Keyed,
    clock: int,
    batches: Iterable[pa.RecordBatch],
    rules: PinnedRules | None = None,
    state: StoredState | None = None,
) -> Iterator[Folded]:
    """Fold rows that are sorted by the hash of their key, by key, and those of a key in their order.

    The columns are `_hash`, the keys, `_time`, `_stamp`, `_batch`, `_stream` (the place of the row's stream) and those
    of each stream that are no keys. A key's rows are never gathered, so that memory does not depend on how many there
    are. `rules` are those for these rows, where there are some; with conditions, `_matching` behind `_stream` has the
    places of those that are true of the row. Of `state`, where some is given, the buckets are folded that have rows
    here, and of those to be visited the ones for which a row without `_batch` stands here, each in one go.

    Raises:
        FunctionError: as `Fold`.
    """
    fold = _PartitionFold(keyed, clock, rules, state)
    for batch in batches:
        yield from fold.batch(batch)
    yield from fold.end()


class _PartitionFold:
    """The place in the rows of a partition: a bucket, and a key in it."""

    def __init__(self, keyed: Keyed, clock: int, rules: PinnedRules | None, state: StoredState | None) -> None:
        self._fold = Fold(keyed, rules)
        self._clock = clock
        self._state = state
        self._keys = len(keyed.by)
        self._time = self._keys + 1
        self._matching = None if keyed.condition is None else self._time + 4
        self._made_of = _row_makers(keyed, (self._matching or self._time + 3) + 1)
        self._key: Key | None = None
        self._hash = 0
        self._number: int | None = None
        self._bucket: OpenBucket | None = None
        self._found: dict[tuple[Any, ...], StoredKey] = {}
        self._kept = KeyStates()

    def batch(self, whole: pa.RecordBatch) -> Iterator[Folded]:
        """Go on with the next rows."""
        number = whole.column(self._time + 2)
        rows = whole.filter(pc.is_valid(number)) if number.null_count else whole
        entries = self._entries(rows)
        if self._state is None:
            yield from self._rows(entries)
            return
        buckets = self._state.buckets.of(whole.column(0).to_numpy())
        hashes, of_rows = rows.column(0).to_numpy(), self._state.buckets.of(rows.column(0).to_numpy())
        for bucket in dict.fromkeys(buckets.tolist()):
            first, last = of_rows.searchsorted(bucket), of_rows.searchsorted(bucket, side="right")
            # Where its rows begin in the next batch, it is begun there.
            if bucket != self._number and (first < last or bucket in self._state.visited):
                yield from self._begin(bucket)
            if first < last:
                assert self._bucket is not None
                self._found = self._bucket.find(hashes[first:last])
                yield from self._rows(islice(entries, int(last - first)))

    def end(self) -> Iterator[Folded]:
        """No row comes any more."""
        yield from self._end_bucket()
        if self._fold.outputs:
            yield self._taken()

    def _entries(self, rows: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """Each row as its hash, its key, what the fold is told of it, the row of each stream, and what matches."""
        lists = [python_values(column) for column in rows.columns]
        of_rows = lists[self._time : self._time + 4]
        values_of = zip(*lists[1 : self._time], strict=True) if self._keys else repeat(())
        # A row as each stream would have it: it is of one of them.
        as_rows = zip(
            *(map(as_row, zip(*(lists[place] for place in places), strict=True)) for as_row, places in self._made_of),
            strict=True,
        )
        # Both are endless where the function has no keys, or its rules have no conditions.
        true = repeat(()) if self._matching is None else lists[self._matching]
        return zip(lists[0], values_of, *of_rows, as_rows, true, strict=False)

    def _rows(self, entries: Iterator[tuple[Any, ...]]) -> Iterator[Folded]:
        fold, key, outputs = self._fold, self._key, self._fold.outputs
        for of_key, values, at, stamp, number, of, row, places in entries:
            if key is None or values != key.key:
                self._end_key()
                key = self._key = self._begun(of_key, values)
                if len(self._kept.hashes) >= _AT_ONCE:
                    yield self._keys_kept()
            fold.row(key, at, NEVER if stamp is None else stamp, row[of], number, of, places)
            if len(outputs) >= _AT_ONCE:
                yield self._taken()

    def _begun(self, of_key: int, values: tuple[Any, ...]) -> Key:
        self._hash = of_key
        stored = self._found.get(values)
        if stored is None:
            return self._fold.begin(values)
        assert self._bucket is not None
        place, _, state, timers = stored
        self._bucket.take(place)
        return self._fold.begin(values, state, timers)

    def _begin(self, bucket: int) -> Iterator[Folded]:
        assert self._state is not None
        yield from self._end_bucket()
        self._number, self._bucket = bucket, self._state.opened(bucket)
        yield BucketBegun(bucket)

    def _end_bucket(self) -> Iterator[Folded]:
        self._end_key()
        if self._bucket is not None:
            for values, (_, of_key, state, timers) in self._bucket.take_due(self._clock):
                self._hash, self._key = of_key, self._fold.begin(values, state, timers)
                self._end_key()
                # When a clock leaps, the timers of every key in the partition may fire at once.
                if len(self._kept.hashes) >= _AT_ONCE:
                    yield self._keys_kept()
                if len(self._fold.outputs) >= _AT_ONCE:
                    yield self._taken()
        if self._kept.hashes:
            yield self._keys_kept()
        untouched = None if self._bucket is None else self._bucket.untouched()
        if untouched is not None:
            yield Untouched(untouched)
        self._bucket = None

    def _end_key(self) -> None:
        key, self._key = self._key, None
        if key is None:
            return
        if key._due <= self._clock:
            self._fold.advance(key, self._clock)
        kept = self._fold.kept(key)
        if kept is not None:
            self._kept.add(self._hash, key.key, kept)

    def _keys_kept(self) -> KeyStates:
        kept, self._kept = self._kept, KeyStates()
        return kept

    def _taken(self) -> list[Output]:
        outputs = list(self._fold.outputs)
        self._fold.outputs.clear()
        return outputs


def _row_makers(keyed: Keyed, others: int) -> list[tuple[Callable[[Any], Any], list[int]]]:
    """For each stream what makes a row of its values, and where these are.

    Keys are among the keys, the others behind everything else, stream after stream and in order.
    """
    makers: list[tuple[Callable[[Any], Any], list[int]]] = []
    for stream in keyed.streams:
        rest = [name for name in stream.columns if name not in keyed.by]
        of_keys = {name: 1 + place for place, name in enumerate(keyed.by)}
        places = [of_keys[name] if name in of_keys else others + rest.index(name) for name in stream.columns]
        makers.append((partial(tuple.__new__, row_class(stream.columns)), places))
        others += len(rest)
    return makers
