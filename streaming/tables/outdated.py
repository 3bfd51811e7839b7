"""Rows of some keys taken out of the files of a table, which are written anew without them, a few files together.

The driver finds out by the list of files which may have such rows; tasks, or the driver itself, read and write them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from streaming.base import DAY
from streaming.tables.arrow import files_added
from streaming.tables.data_files import TaskFile, TaskFiles
from streaming.tables.matching import Keys, Mask, rows_in_pieces
from streaming.tables.storage import below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_OF_FILE = 500_000
"""Rows up to which files are put together to one."""
REPORT = "report"


@dataclass(frozen=True)
class FileGroup:
    """Files of one day, by their paths in the table, that become one where any of them has a row to be taken out."""

    day: date | None
    paths: tuple[str, ...]
    rows: int


def groups_on(table: DeltaTable, days: Collection[date | None]) -> tuple[FileGroup, ...]:
    """The files that an open table, partitioned by day, has of some `days`: large ones alone, small ones together.

    None among the days stands for the rows without one.
    """
    listed = files_added(table)
    columns = (listed[name].to_pylist() for name in (f"partition.{DAY}", "num_records", "path"))
    # Of a file that does not tell how large it is nobody knows that it is small.
    of_days = ((day, ROWS_OF_FILE if rows is None else rows, path) for day, rows, path in zip(*columns, strict=True))
    groups, last = list[FileGroup](), FileGroup(None, (), 0)
    chosen = (each for each in of_days if each[0] in days)
    for day, rows, path in sorted(chosen, key=lambda each: (each[0] or date.min, *each[1:])):
        if last.paths and last.day == day and last.rows + rows <= ROWS_OF_FILE:
            last = FileGroup(day, (*last.paths, path), last.rows + rows)
            groups[-1] = last
        else:
            last = FileGroup(day, (path,), rows)
            groups.append(last)
    return tuple(groups)


@dataclass(frozen=True)
class Replaced:
    """Files that were written, the paths of those that they stand for, and the number of `rows` that were taken out."""

    files: tuple[TaskFile, ...] = ()
    paths: tuple[str, ...] = ()
    rows: int = 0

    def __add__(self, other: Replaced) -> Replaced:
        return Replaced(self.files + other.files, self.paths + other.paths, self.rows + other.rows)

    def to_json(self) -> str:
        """The report as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Replaced:
        """The inverse of `to_json`."""
        told = json.loads(text)
        return cls(tuple(TaskFile(**file) for file in told["files"]), tuple(told["paths"]), told["rows"])


@dataclass(frozen=True)
class WriteOthers:
    """Write the rows of `groups` of files of the table at `uri` anew, but for those whose key is among the `outdated`.

    `columns` are those of the files, and have the types of the `outdated`, which are keys; `statistics` names those
    whose bounds are kept. As the function of a task it takes rows with the place of a group each, as `id`.
    """

    uri: str
    columns: pa.Schema
    statistics: tuple[str, ...]
    outdated: pa.Table
    groups: tuple[FileGroup, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reports = [self.replaced(self.groups[place]).to_json() for place in batch.column("id").to_pylist()]
            yield pa.record_batch({REPORT: pa.array(reports, pa.string())})

    def run(self) -> Replaced:
        """Write them here, one after the other."""
        return sum(map(self.replaced, self.groups), Replaced())

    def run_by(self, spark: SparkSession) -> Replaced:
        """Let tasks write them."""
        most = min(len(self.groups), spark.sparkContext.defaultParallelism)
        reports = spark.range(0, len(self.groups), 1, most).mapInArrow(self, f"{REPORT} string").collect()
        return sum((Replaced.from_json(row[REPORT]) for row in reports), Replaced())

    def replaced(self, group: FileGroup) -> Replaced:
        """The files that stand for those of a group; none where no row of it is to be taken out."""
        kept = {path: self._kept(path) for path in group.paths}
        if all(mask.all() for mask in kept.values()):
            return Replaced()
        files = TaskFiles(self.uri, self.columns, self.statistics, diverse_numbers="zstd", dated=True)
        for path, mask in kept.items():
            begins = 0
            for rows in self._read(path, self.columns):
                files.write(rows.filter(pa.array(mask[begins : begins + len(rows)])), group.day)
                begins += len(rows)
        taken_out = sum(int(np.count_nonzero(~mask)) for mask in kept.values())
        return Replaced(tuple(files.close()), group.paths, taken_out)

    def _kept(self, path: str) -> Mask:
        """For each row of a file whether its key is none of those to be taken out."""
        masks = [~self._keys.are_of(rows) for rows in self._read(path, self._keys.schema)]
        return np.concatenate(masks) if masks else np.empty(0, bool)

    @cached_property
    def _keys(self) -> Keys:
        return Keys(self.outdated)

    def _read(self, path: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        return rows_in_pieces(below(self.uri), path, columns)
