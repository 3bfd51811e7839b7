"""The table of a keyed function's state as a step finds it: its files by bucket, and the first timer in each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streaming.base import optional_micros
from streaming.keyed.buckets import Buckets
from streaming.keyed.key import FOREVER, NEVER
from streaming.keyed.state_columns import DUE, HASH
from streaming.keyed.stored import StoredState

BUCKETS = "buckets"
"""The number of the state's table that tells into how many buckets its files are cut."""


@dataclass(frozen=True)
class StateFile:
    """A file of the table; no hash in it is outside `first` to `last`, no timer before `due` (microseconds)."""

    path: str
    rows: int
    size: int
    first: int
    last: int
    due: int


class StateTable:
    """The open `table` of state at `uri`, of a function with so many `keys` columns; its columns are in `schema`."""

    def __init__(self, table: DeltaTable, uri: str, schema: pa.Schema, keys: int) -> None:
        self._uri = uri
        self._schema = schema
        self._keys = keys
        self.files = tuple(_files(table))
        before = table.transaction_version(BUCKETS)
        self.buckets = Buckets.of_size(self.rows, self.size, before)
        # Each file is of one bucket, unless their number has changed or somebody has compacted the table.
        self._is_cut = before == self.buckets.count and all(len(self._buckets_of(file)) == 1 for file in self.files)

    @property
    def rows(self) -> int:
        """How many keys have state."""
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def stored(self, clock: int) -> StoredState:
        """What a step up to `clock` reads: all buckets where the table is cut otherwise, else those it has to do with.

        These are the ones with rows, which its tasks find out, and those with a timer that is due.
        """
        due = (file for file in self.files if file.due <= clock or not self._is_cut)
        return self._stored(frozenset(bucket for file in due for bucket in self._buckets_of(file)))

    def whole(self) -> StoredState:
        """All of it, to be visited."""
        return self._stored(frozenset(bucket for file in self.files for bucket in self._buckets_of(file)))

    def left_by(self, folded: Collection[int]) -> tuple[StateFile, ...]:
        """The files that a step leaves as they are which has folded these buckets."""
        return tuple(file for file in self.files if not any(each in folded for each in self._buckets_of(file)))

    def _stored(self, visited: frozenset[int]) -> StoredState:
        files: dict[int, tuple[str, ...]] = {}
        for file in self.files:
            for bucket in self._buckets_of(file):
                files[bucket] = (*files.get(bucket, ()), file.path)
        return StoredState(self.buckets, self._keys, self._uri, self._schema, files, visited)

    def _buckets_of(self, file: StateFile) -> range:
        return range(self.buckets.of(file.first), self.buckets.of(file.last) + 1)


def _files(table: DeltaTable) -> Iterator[StateFile]:
    actions = pa.table(table.get_add_actions(flatten=True))

    def column(name: str) -> Iterable[Any]:
        return actions[name].to_pylist() if name in actions.column_names else [None] * len(actions)

    names = ("path", "num_records", "size_bytes", f"min.{HASH}", f"max.{HASH}", f"min.{DUE}", f"null_count.{DUE}")
    for path, rows, size, first, last, due, nulls in zip(*map(column, names), strict=True):
        yield StateFile(
            path,
            rows or 0,
            size,
            # Of a file whose bounds nobody knows everything is possible.
            -(1 << 63) if first is None else first,
            (1 << 63) - 1 if last is None else last,
            _due(due, has_none=nulls is not None and nulls == rows),
        )


def _due(first: datetime | None, *, has_none: bool) -> int:
    if has_none:
        return FOREVER
    micros = optional_micros(first)
    return NEVER if micros is None else micros
