"""The Parquet files of a Delta table: their list, those of one write, those that tasks write, and reads of a list."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from streaming.base import DAY, F, T, pc
from streaming.tables.bounds import file_statistics
from streaming.tables.storage import files_of, make_folder, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The name of the folder of rows without a day."""
MOST_FILES = 1_000
"""A table with more files than this is left to Spark's own reader."""

_GROUP_BYTES = 32 * 2**20
"""Bytes of rows that are written together; groups of few rows are larger in all, and slower to read."""
_MOST_BYTES = 4 * _GROUP_BYTES
"""Bytes of rows of all days that a task keeps."""
_MOST_OPEN = 50
_SAMPLE = 2_048
"""Rows by which columns are judged whose values hardly repeat."""

_DAY_OF_FILE = f"try_cast(regexp_extract(_metadata.file_path, '{DAY}=([^/]+)', 1) as date)"


def files_added(table: DeltaTable) -> pa.Table:
    """The files of an open table as Delta lists them: path, size, rows, partition and bounds of each."""
    # Making a table of it would import pandas first.
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()


def files_of_write(table: DeltaTable, folder: str, statistics: Sequence[str]) -> tuple[list[AddAction], int]:
    """The files below `folder` of the table that hold rows, and how many rows those are.

    `statistics` names the columns whose bounds are kept.
    """
    files = files_of(table)
    selector = pa_fs.FileSelector(folder, recursive=True, allow_not_found=True)
    actions: list[AddAction] = []
    total = 0
    for info in files.get_file_info(selector):
        if not info.path.endswith(".parquet"):
            continue
        with files.open_input_file(info.path) as handle:
            footer = pq.ParquetFile(handle).metadata
        if footer.num_rows == 0:
            continue
        day = info.path.partition(f"/{DAY}=")[2].partition("/")[0]
        total += footer.num_rows
        actions.append(
            AddAction(
                path=info.path,
                size=info.size,
                partition_values={DAY: None if day == NO_DAY else day} if day else {},
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=_as_text(file_statistics(footer, statistics)),
            )
        )
    return actions, total


def _as_text(statistics: Mapping[str, Any]) -> str:
    # delta-rs reads other signs out of escaped ones beyond the first 65,536.
    return json.dumps(statistics, ensure_ascii=False)


@dataclass(frozen=True)
class TaskFile:
    """A file that is written and not committed: its path in the table, what it holds, and its statistics as JSON.

    `day` is the partition, null where the table has none, or of rows without a day.
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
            partition_values={DAY: self.day} if f"{DAY}=" in self.path else {},
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=self.statistics,
        )


class TaskFiles:
    """The files of one table that one task writes: one for each day, or one in all.

    The driver commits them, so one pass over rows can fill several tables. Files of a task that failed, or was run
    twice, are in no table, and VACUUM takes them.

    `columns` are those of the table without the day; `statistics` names those whose bounds are kept, `diverse` those
    whose values hardly repeat, so that no time goes into a dictionary of them. With a form for `diverse_numbers` these
    are not named but seen in some of the first rows of each file: `zstd` of files that many read, `none` of those that
    one step reads after the other. `dated`: rows without a day are in a partition of their own. Few rows are kept in
    memory, and few files open: of very many days one may have several.
    """

    def __init__(
        self,
        uri: str,
        columns: pa.Schema,
        statistics: Sequence[str] = (),
        diverse: Sequence[str] = (),
        *,
        diverse_numbers: Literal["none", "zstd"] | None = None,
        dated: bool = False,
    ) -> None:
        self._columns = columns
        self._diverse_numbers = diverse_numbers
        self._dated = dated
        self._statistics = statistics
        self._with_dictionary: bool | list[str] = not diverse or [name for name in columns.names if name not in diverse]
        self._storage, self._table = resolve(uri)
        # A folder of this attempt: whoever writes the same again writes elsewhere.
        self._folder = f"data/{uuid.uuid4().hex}"
        self._waiting: dict[date | None, list[pa.RecordBatch]] = {}
        self._bytes: dict[date | None, int] = {}
        self._open: dict[date | None, tuple[str, pq.ParquetWriter]] = {}
        self._written: list[TaskFile] = []

    def write(self, rows: pa.RecordBatch, day: date | None = None) -> None:
        """Add rows, all of one day."""
        if not rows.num_rows:
            return
        self._waiting.setdefault(day, []).append(rows)
        self._bytes[day] = self._bytes.get(day, 0) + rows.nbytes
        if self._bytes[day] >= _GROUP_BYTES:
            self._write_group(day)
        elif sum(self._bytes.values()) >= _MOST_BYTES:
            self._write_group(max(self._bytes, key=self._bytes.__getitem__))

    def close(self) -> list[TaskFile]:
        """End the files; returns them."""
        for day in [*self._waiting]:
            self._write_group(day)
            self._end(day)
        for day in [*self._open]:
            self._end(day)
        return self._written

    def _write_group(self, day: date | None) -> None:
        rows = pa.Table.from_batches(self._waiting.pop(day), self._columns)
        del self._bytes[day]
        if day not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._end(next(iter(self._open)))
            path = self._path(day)
            make_folder(self._storage, f"{self._table}/{path}".rpartition("/")[0])
            form: dict[str, Any] = {"use_dictionary": self._with_dictionary, "compression": "snappy"}
            if self._diverse_numbers is not None:
                form = _form_by_sample(rows, self._diverse_numbers)
            writer = pq.ParquetWriter(
                f"{self._table}/{path}",
                self._columns,
                filesystem=self._storage,
                write_page_index=True,
                **form,
            )
            self._open[day] = path, writer
        self._open[day][1].write_table(rows, rows.num_rows)

    def _end(self, day: date | None) -> None:
        if day not in self._open:
            return
        path, writer = self._open.pop(day)
        writer.close()
        with self._storage.open_input_file(f"{self._table}/{path}") as handle:
            size, footer = handle.size(), pq.ParquetFile(handle).metadata
        statistics = _as_text(file_statistics(footer, self._statistics))
        self._written.append(
            TaskFile(path, size, footer.num_rows, None if day is None else day.isoformat(), statistics)
        )

    def _path(self, day: date | None) -> str:
        undated = f"{DAY}={NO_DAY}/" if self._dated else ""
        partition = undated if day is None else f"{DAY}={day.isoformat()}/"
        return f"{self._folder}/{partition}rows-{uuid.uuid4().hex[:8]}.parquet"


def _form_by_sample(rows: pa.Table, diverse_numbers: str) -> dict[str, Any]:
    """The columns of a Parquet file that have a dictionary, and the compression of each, by a sample of its rows.

    A dictionary of values that hardly repeat has nearly all of them, and takes longest to write and to read. Snappy
    looks for what repeats, and finds nothing in such values.
    """
    (sample,) = rows.slice(0, _SAMPLE).combine_chunks().to_batches()
    leaves = {path: of_leaf for name in rows.column_names for path, of_leaf in _leaves(name, sample[name])}
    diverse = {
        path: diverse_numbers if _is_number(values.type) else "zstd"
        for path, values in leaves.items()
        if _hardly_repeats(values, len(rows))
    }
    return {
        "use_dictionary": [path for path in leaves if path not in diverse],
        "compression": dict.fromkeys(leaves, "snappy") | diverse,
    }


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The columns that Parquet makes of one, by their paths in a file, each with its values."""
    kind = values.type
    if pa.types.is_struct(kind):
        for field, of_field in zip(kind, values.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", of_field)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", values.keys)
        yield from _leaves(f"{path}.key_value.value", values.items)
    elif pa.types.is_nested(kind):
        yield from _leaves(f"{path}.list.element", values.flatten())
    else:
        yield path, values


def _is_number(type_: pa.DataType) -> bool:
    """True for what is stored as numbers, as instants are, and decimals."""
    return bool(pa.types.is_primitive(type_) or pa.types.is_decimal(type_))


def _hardly_repeats(sample: pa.Array, rows: int) -> bool:
    """True where most values come less than three times in so many rows, by a sample of them."""
    there = len(sample) - sample.null_count
    if not there:
        return False
    again = there - pc.count_distinct(sample).as_py()
    # Where each comes three times, one of the sample has two others among all rows, and `there / rows` of these in it.
    return bool(again < there * min(there / rows, 0.5))


def read_listed(spark: SparkSession, table: DeltaTable, uri: str) -> DataFrame | None:
    """The rows of the open `table` at `uri`; None where its files alone do not tell them, or are too many.

    delta-rs has the list without a Spark job. Spark's own Delta reader computes the state of a table anew at each
    version that it has not seen, in five jobs, and asks for it in another at each read; of a small table that is most
    of the cost (see spark/FACTS.md, Costs). It skips files by statistics, which is worth more where there are many.

    Every table of the platform can be read so: it has no deletion vectors and no mapped columns, and its one partition
    column, if any, is the day in the names of its folders.
    """
    partitioned = table.metadata().partition_columns
    paths = [str(path) for path in table.get_add_actions()["path"].to_pylist()]
    if partitioned not in ([], [DAY]) or table.protocol().min_reader_version > 1 or len(paths) > MOST_FILES:
        return None
    return read_files(spark, table, uri, paths)


def read_files(
    spark: SparkSession, table: DeltaTable, uri: str, paths: Sequence[str], *, skip_pages: bool = True
) -> DataFrame:
    """The rows in some of the files of the open `table` at `uri`, by their `paths` in it, with all of its columns.

    `skip_pages`: look in each file's index for the pages that may pass a filter, which a small file costs more than it
    saves, and without literals in the filter finds nothing.
    """
    schema = T.StructType.fromJson(json.loads(table.schema().to_json()))
    return read_paths(spark, uri, schema, table.metadata().partition_columns, paths, skip_pages=skip_pages)


def read_paths(
    spark: SparkSession,
    uri: str,
    schema: T.StructType,
    partitioned: Sequence[str],
    paths: Sequence[str],
    *,
    skip_pages: bool = True,
) -> DataFrame:
    """As `read_files`, of files that need be in no commit, with the columns of `schema`."""
    if not paths:
        return spark.createDataFrame([], schema)
    stored = T.StructType([field for field in schema.fields if field.name not in partitioned])
    rows = (
        spark.read.schema(stored)
        # Spark would look for partition columns in the paths, and refuses folders of several writes.
        .option("recursiveFileLookup", "true")
        .option("parquet.filter.columnindex.enabled", str(skip_pages).lower())
        .parquet(*(f"{uri.rstrip('/')}/{path}" for path in paths))
    )
    if not partitioned:
        return rows
    day = _DAY_OF_FILE
    if all(f"{DAY}=" in path and NO_DAY not in path for path in paths):
        # Told that no day is null, Spark looks into the path of a row only where its day is asked for.
        day = f"coalesce({day}, date'1970-01-01')"
    return rows.select(*(F.expr(day).alias(DAY) if name in partitioned else name for name in schema.names))
