"""The state of keys as the task that folds them reads it: bucket by bucket, from the files of the state's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming.base import python_values
from streaming.keyed.buckets import Buckets
from streaming.keyed.state_columns import DUE, HASH
from streaming.tables import storage

Hashes = np.ndarray[Any, np.dtype[np.int64]]


StoredKey = tuple[int, int, tuple[Any, ...], Mapping[str, int] | None]
"""What is kept of a key: its place in the bucket, its hash, its state fields in order, and its timers."""


@dataclass(frozen=True)
class StoredState:
    """What there is of state before a step: the files of the table at `uri`, of the columns in `schema`, by bucket.

    `visited`: the buckets that are folded also where no row is of them. `keys`: how many columns the keys are.
    """

    buckets: Buckets
    keys: int
    uri: str
    schema: pa.Schema
    files: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    visited: frozenset[int] = frozenset()

    @classmethod
    def none(cls, schema: pa.Schema) -> StoredState:
        """That of a function which has no state yet."""
        return cls(Buckets.of_size(0, 0), 0, "", schema)

    def opened(self, bucket: int) -> OpenBucket:
        """The bucket as it was before the step."""
        rows = [self._read(path, bucket) for path in self.files.get(bucket, ())]
        whole = pa.concat_tables(rows) if rows else self.schema.empty_table()
        return OpenBucket(whole.combine_chunks(), self.keys)

    def _read(self, path: str, bucket: int) -> pa.Table:
        files, table = storage.resolve(self.uri)
        with files.open_input_file(f"{table}/{path}") as handle:
            # A task has one core.
            rows = pq.ParquetFile(handle).read(use_threads=False)
        rows = rows.select(self.schema.names).cast(self.schema)
        of_bucket = self.buckets.of(rows.column(HASH).to_numpy()) == bucket
        # After a change of their number, or where somebody has compacted the table, a file has several buckets.
        return rows if of_bucket.all() else rows.filter(pa.array(of_bucket))


class OpenBucket:
    """The state of the keys in one bucket, from which each is taken once at most."""

    def __init__(self, rows: pa.Table, keys: int) -> None:
        self._rows = rows
        self._keys = keys
        self._taken = np.zeros(len(rows), dtype=bool)

    @cached_property
    def _hashes(self) -> Hashes:
        return np.asarray(self._rows.column(HASH).to_numpy())

    @cached_property
    def _order(self) -> Hashes:
        # Files are written in a few runs of rising hashes, which takes this little more than to look at them.
        return np.argsort(self._hashes, kind="stable")

    @cached_property
    def _sorted(self) -> Hashes:
        return self._hashes[self._order]

    def find(self, hashes: Hashes) -> dict[tuple[Any, ...], StoredKey]:
        """The keys with one of these hashes, by their values: few of a large bucket cost little."""
        if not len(self._rows):
            return {}
        wanted = np.unique(hashes)
        first = np.searchsorted(self._sorted, wanted, side="left")
        counts = np.searchsorted(self._sorted, wanted, side="right") - first
        # Two keys with one hash are as good as never, and each is found.
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return dict(self._at(self._order[np.repeat(first, counts) + steps]))

    def take(self, place: int) -> None:
        """Somebody has this key now."""
        self._taken[place] = True

    def take_due(self, clock: int) -> Iterator[tuple[tuple[Any, ...], StoredKey]]:
        """The keys that nobody has and whose first timer is not after `clock`; they are taken."""
        due = pc.fill_null(pc.less_equal(self._rows.column(DUE).cast(pa.int64()), clock), False)
        places = np.flatnonzero(np.asarray(due.to_numpy()) & ~self._taken)
        self._taken[places] = True
        return self._at(places)

    def untouched(self) -> pa.RecordBatch | None:
        """The rows of the keys that nobody has taken; None where there are none."""
        left = self._rows.filter(pa.array(~self._taken)).combine_chunks() if self._taken.any() else self._rows
        return left.to_batches()[0] if len(left) else None

    def _at(self, places: Hashes) -> Iterator[tuple[tuple[Any, ...], StoredKey]]:
        if not len(places):
            return iter(())
        # Rows of one chunk stay in one.
        rows = self._rows.take(pa.array(places)).combine_chunks().to_batches()[0]
        hashes, _, *kept = rows.columns
        keys, fields = map(python_values, kept[: self._keys]), map(python_values, kept[self._keys : -1])
        of_keys = zip(*keys, strict=True) if self._keys else repeat(())
        of_fields = zip(*fields, strict=True) if len(kept) > self._keys + 1 else repeat(())
        entries = zip(places.tolist(), python_values(hashes), of_fields, _timers_of(kept[-1]), strict=False)
        # Both are endless where there are no keys, or no fields.
        return zip(of_keys, entries, strict=False)


def _timers_of(column: pa.Array) -> list[Mapping[str, int] | None]:
    # Of most functions no key has one, and to find that out costs nothing.
    return [None] * len(column) if not len(column.values) else python_values(column)
