"""What a receiver asks its source for: the values of a column, which it finds in the table of a stream or view."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from streaming.declare import SUBSCRIPTIONS, Receiver, Stream
from streaming.lake import Lake
from streaming.tables import delta, storage

_LOOKS_EVERY = 0.5
_AT_ONCE = 100
_REJECTED = "_rejected"

_log = logging.getLogger("tidemark")


class Subscribing:
    """The values that a receiver with subscriptions asks for, in the order in which it came upon them.

    A value is committed to `<receiver>_subscriptions` before it is asked for. What is read of the other table are its
    files that were not there before; that compaction writes rows again into new ones does no harm.
    """

    def __init__(self, lake: Lake, receiver: Receiver, now: Callable[[], datetime]) -> None:
        assert receiver.subscriptions is not None
        self._declared = receiver.subscriptions
        of = self._declared.of
        self._source = lake.log(of) if isinstance(of, Stream) else lake.table(of)
        self._uri = lake.table(receiver, SUBSCRIPTIONS)
        self._now = now
        self._table: DeltaTable | None = None
        self._read: set[str] = set()
        self._looked_at = 0.0
        self._looked_at_version: int | None = None
        self._failed = ""
        self.values: list[str] = self._stored()
        """Each value in JSON."""

    def requests(self) -> Callable[[], Sequence[str]]:
        """For one connection: what is to be asked for on it, a portion with each call, new values last."""
        asked = 0

        def portion() -> Sequence[str]:
            nonlocal asked
            self._look_if_due()
            values = self.values[asked : asked + _AT_ONCE]
            asked += len(values)
            return [self._declared.message_for(value) for value in values]

        return portion

    def _stored(self) -> list[str]:
        table = delta.open_table(self._uri)
        if table is None:
            return []
        rows = delta.contents(table)
        values = map(_in_json, rows[self._declared.column].to_pylist())
        return [value for _, value in sorted(zip(rows["first_seen"].to_pylist(), values, strict=True))]

    def _look_if_due(self) -> None:
        if time.monotonic() - self._looked_at < _LOOKS_EVERY:
            return
        try:
            self._look()
            self._failed = ""
        # A table that cannot be read now is read later; the connection must not end with it.
        except Exception as error:
            if str(error) != self._failed:
                _log.warning("%s cannot be read for what to ask for, and is tried again (%s)", self._source, error)
            self._failed = str(error)
        self._looked_at = time.monotonic()

    def _look(self) -> None:
        """Take up the values of files that are new."""
        table = self._newest()
        if table is not None and table.version() != self._looked_at_version:
            paths = table.get_add_actions()["path"].to_pylist()
            for path in (path for path in paths if path not in self._read):
                self._take_up(self._column_in(table, path))
                self._read.add(path)
            self._looked_at_version = table.version()

    def _newest(self) -> DeltaTable | None:
        if self._table is None:
            self._table = delta.open_table(self._source)
        else:
            self._table.update_incremental()
        return self._table

    def _column_in(self, table: DeltaTable, path: str) -> pa.Array:
        """The values in one file of the table, each once, of valid rows only."""
        column = self._declared.column
        with storage.files_of(table).open_input_file(unquote(path)) as handle:
            file = pq.ParquetFile(handle)
            rows = file.read([name for name in (column, _REJECTED) if name in file.schema_arrow.names])
        if _REJECTED in rows.column_names:
            rows = rows.filter(rows[_REJECTED].is_null())
        # A file from before the column was added has none.
        return rows[column].unique() if column in rows.column_names else pa.array([], pa.string())

    def _take_up(self, column: pa.Array) -> None:
        subscriptions = set(self.values)
        candidates = {_in_json(value): value for value in column.to_pylist() if value is not None}
        if new := sorted(candidates.keys() - subscriptions):
            self._store(pa.array([candidates[value] for value in new], column.type))
            self.values += new

    def _store(self, values: pa.Array) -> None:
        first_seen = pa.array([self._now()] * len(values), pa.timestamp("us", "UTC"))
        write_deltalake(
            storage.location(self._uri),
            pa.table({self._declared.column: values, "first_seen": first_seen}),
            mode="append",
            configuration=delta.CONFIGURATION,
        )


def _in_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
