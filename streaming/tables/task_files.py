"""Parquet files that a Spark task writes into a table's folder itself, to be committed by the driver.

So one pass over rows can fill several tables. What a task wrote that failed, or was run twice, is in no table, and
VACUUM takes it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from streaming.base import DAY
from streaming.tables.added_files import file_statistics
from streaming.tables.storage import make_folder, resolve


@dataclass(frozen=True)
class TaskFile:
    """A file that is written and not committed: its path in the table, what it holds, and its statistics as JSON.

    `day` is the partition, null where the table has none.
    """

    path: str
    size: int
    rows: int
    day: str | None
    statistics: str

    def action(self) -> AddAction:
        """The file as a commit adds it."""
        return AddAction(
            path=self.path,
            size=self.size,
            partition_values={} if self.day is None else {DAY: self.day},
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=self.statistics,
        )


class TaskFiles:
    """The files of one table that one task writes: one for each day, or one in all.

    `columns` are those of the table without the day; `statistics` names those whose bounds are kept, `diverse` those
    whose values hardly repeat, so that no time goes into a dictionary of them.
    """

    def __init__(
        self, uri: str, columns: pa.Schema, statistics: Sequence[str] = (), diverse: Sequence[str] = ()
    ) -> None:
        self._columns = columns
        self._statistics = statistics
        self._with_dictionary: bool | list[str] = not diverse or [name for name in columns.names if name not in diverse]
        self._storage, self._table = resolve(uri)
        # A folder of this attempt: whoever writes the same again writes elsewhere.
        self._folder = f"data/{uuid.uuid4().hex}"
        self._writers: dict[date | None, pq.ParquetWriter] = {}

    def write(self, rows: pa.RecordBatch, day: date | None = None) -> None:
        """Add rows, all of one day."""
        if day not in self._writers:
            path = f"{self._table}/{self._path(day)}"
            make_folder(self._storage, path.rpartition("/")[0])
            self._writers[day] = pq.ParquetWriter(
                path,
                self._columns,
                filesystem=self._storage,
                compression="snappy",
                use_dictionary=self._with_dictionary,
            )
        self._writers[day].write_batch(rows)

    def close(self) -> list[TaskFile]:
        """End the files; returns them."""
        return [self._closed(day, writer) for day, writer in self._writers.items()]

    def _closed(self, day: date | None, writer: pq.ParquetWriter) -> TaskFile:
        writer.close()
        path = self._path(day)
        with self._storage.open_input_file(f"{self._table}/{path}") as handle:
            size, footer = handle.size(), pq.ParquetFile(handle).metadata
        statistics = json.dumps(file_statistics(footer, self._statistics))
        return TaskFile(path, size, footer.num_rows, None if day is None else day.isoformat(), statistics)

    def _path(self, day: date | None) -> str:
        partition = "" if day is None else f"{DAY}={day.isoformat()}/"
        return f"{self._folder}/{partition}rows.parquet"
