"""Reads any Delta table by what changes in it, key by key: rows that are new or others, and rows that are gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streaming.base import EPOCH, MILLISECOND, SourceError, T, canonical, python_values
from streaming.sources.offsets import OffsetReader, Offsets
from streaming.sources.table.units import batches, open_with_id, origin_fields
from streaming.sources.table.versions import FILE, VERSION, written_at
from streaming.tables import delta, history

REMOVED = "removed"
"""The column of the payload that is true of a row which is in the table no more."""

_NOTHING = 0
"""The next version of a query that has taken none."""

Span = tuple[int, int]
"""The version that the log has all rows of, `delta.BEFORE` for none, and the one to go to."""


class ChangeReader(OffsetReader):
    """Reads the table at `uri`, which has the id `table` and no two rows with the same values of `key`.

    A batch goes from the version that was taken last to the newest: a table that changes often in between brings each
    row once, as it is in the end. Both have to be there still.
    """

    def __init__(self, uri: str, table: str, columns: T.StructType, key: tuple[str, ...]) -> None:
        self._uri = uri
        self._table = table
        self._columns = columns
        self._key = key

    @property
    def schema(self) -> T.StructType:
        """The origin, and the row itself as `payload`, with whether it was removed."""
        payload = T.StructType([*self._columns.fields, T.StructField(REMOVED, T.BooleanType())])
        return T.StructType([*origin_fields(), T.StructField("payload", payload)])

    @property
    def rows_per_batch(self) -> int:
        """All that has changed, since a version is seen whole or not at all."""
        return 1

    def first(self) -> Offsets:
        return {VERSION: _NOTHING, FILE: 0}

    def newest(self, begins: Offsets) -> Offsets:
        version = open_with_id(self._uri, self._table).version()
        # What cannot be followed is told before a batch of it is planned. A version without changes is taken as well:
        # the table forgets those before it in time, and with one that is forgotten nothing can be compared.
        self.files_since(begins, version)
        return {VERSION: version + 1, FILE: 0}

    def bounded(self, begins: Offsets, newest: Offsets, rows: int) -> Offsets:
        return newest

    def pieces(self, begins: Offsets, ends: Offsets) -> Sequence[Span]:
        return [(begins[VERSION] - 1, ends[VERSION] - 1)] if begins[VERSION] < ends[VERSION] else []

    def files_since(self, begins: Offsets, version: int) -> set[str]:
        """The files of a version, without those of the one that was taken last; all where rows were only removed."""
        if begins[VERSION] == version + 1:
            return set()
        now, then = set(self._files_at(version)), set(self._files_at(begins[VERSION] - 1))
        return now - then or (then - now)

    def read(self, piece: Span) -> Iterator[pa.RecordBatch]:
        if not self.files_since({VERSION: piece[0] + 1}, piece[1]):
            return
        before, after = (self._rows(version) for version in piece)
        were, are = self._by_key(before, piece[0]), self._by_key(after, piece[1])
        others = [place for key, (place, row) in are.items() if key not in were or were[key][1] != row]
        gone = [place for key, (place, _) in were.items() if key not in are]
        if not others and not gone:
            return
        rows = pa.concat_tables([_taken(after, others), _taken(before, gone)], promote_options="permissive")
        removed = pa.array([False] * len(others) + [True] * len(gone))
        number = rows.num_rows
        origin = {
            "table": pa.array([self._table] * number, pa.string()),
            "unit": pa.array([piece[1]] * number, pa.int64()),
            "position": pa.array(range(number), pa.int64()),
            "written": pa.array([self._written(piece[1])] * number, pa.timestamp("us", "UTC")),
            "at": pa.nulls(number, pa.timestamp("us", "UTC")),
        }
        payload = rows.append_column(REMOVED, removed).to_struct_array()
        yield from batches(self.schema, {**origin, "payload": payload})

    def _rows(self, version: int) -> pa.Table:
        """The rows of a version in the order of their keys, with the columns that the table has now."""
        names = self._columns.names
        if version == delta.BEFORE:
            return delta.contents(open_with_id(self._uri, self._table), columns=names).slice(0, 0)
        table = self._at(version)
        there = [field.name for field in table.schema().fields if field.name in names]
        try:
            rows = delta.contents(table, columns=there)
        except Exception as error:
            raise SourceError(self._too_late(version)) from error
        for name in names:
            if name not in there:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        keys = list(zip(*(python_values(rows[name]) for name in self._key), strict=True))
        order = sorted(range(rows.num_rows), key=lambda place: [_rank(value) for value in keys[place]])
        return _taken(rows.select(names), order)

    def _by_key(self, rows: pa.Table, version: int) -> dict[tuple[Any, ...], tuple[int, tuple[Any, ...]]]:
        """Place and values of each row.

        Raises:
            SourceError: a key repeats.
        """
        # A NaN that stays one is no change.
        columns = {name: [canonical(value) for value in python_values(rows[name])] for name in rows.column_names}
        keys = zip(*(columns[name] for name in self._key), strict=True)
        rows_by_key: dict[tuple[Any, ...], tuple[int, tuple[Any, ...]]] = {}
        for place, (key, row) in enumerate(zip(keys, zip(*columns.values(), strict=True), strict=True)):
            if key in rows_by_key:
                raise SourceError(
                    f"version {version} of the table {self._uri!r} has several rows with {', '.join(self._key)} = "
                    f"{key!r}, so which of them changed is not to be told; name columns in changes_by that no two rows "
                    "have in common, or remove the row that is too many."
                )
            rows_by_key[key] = (place, row)
        return rows_by_key

    def _written(self, version: int) -> datetime:
        """When the version was committed; where its entry was cleaned away, when its newest file was written."""
        table = self._at(version)
        time = written_at(history.actions_of(table, version))
        return time or EPOCH + max(table.get_add_actions()["modification_time"].to_pylist(), default=0) * MILLISECOND

    def _files_at(self, version: int) -> list[str]:
        return [] if version == delta.BEFORE else self._at(version).file_uris()

    def _at(self, version: int) -> DeltaTable:
        open_with_id(self._uri, self._table)
        try:
            return delta.opened(self._uri, version)
        except Exception as error:
            raise SourceError(self._too_late(version)) from error

    def _too_late(self, version: int) -> str:
        return (
            f"version {version} of the table {self._uri!r}, by which its changes are to be told, cannot be read any "
            "more: the stream was away for longer than the table keeps its history. Restore its files, or "
            "follow the table as it is now in a stream of another name; a longer delta.deletedFileRetentionDuration "
            "leaves more time. What was taken so far stays."
        )


def _rank(value: Any) -> tuple[bool, bool, Any]:
    """Null is the least, NaN the greatest."""
    return value is not None, value != value, value


def _taken(rows: pa.Table, places: list[int]) -> pa.Table:
    return rows.take(pa.array(places, pa.int64()))
