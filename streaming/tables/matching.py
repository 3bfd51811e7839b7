"""Rows that have one of some keys, found by Arrow, which takes a fraction of what Spark takes for the same files.

They are read, or taken out: the driver finds out by the list of files which may have such rows, and tasks, or the
driver itself, write these files anew without them, a few together.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from streaming.base import DAY, as_type, pc, python_values
from streaming.tables.bounds import Ordered, Span, is_ordered, ordered, spans_in_group
from streaming.tables.data_files import MOST_FILES, TaskFile, TaskFiles, files_added
from streaming.tables.storage import below, is_on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_SCANNED = 30_000_000
"""Rows that are looked through by Arrow, which takes one core about three seconds; a job of Spark has more cores."""
MOST_READ = 2**30
"""Bytes of columns in memory up to which files are looked through: those of so many rows of a few numbers each."""
MOST_FOUND = 2**27
"""Bytes of rows that are handed over: they are in memory several times on their way to Spark."""
_TELL = 1_000_000
"""Rows looked through that tell, by the share of them that is found, about how many there will be."""
_AT_ONCE = 131_072
_BYTES_AT_ONCE = 2**26
"""Rows, and about the bytes of them, that are in memory before most of them are left out."""
_AHEAD, _WHOLE = 8, 8 * 2**20
"""Files of an object store that are fetched ahead, and the bytes up to which one is fetched by a single request."""
_SAMPLED = 1_024
"""Rows by which the bytes of a row are estimated."""
ROWS_OF_FILE = 500_000
"""Rows up to which files are put together to one."""
_REPORT = "report"
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Places = np.ndarray[Any, np.dtype[np.int64]]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, by which numbers that lie close to each other are spread (Knuth, TAOCP 3, 6.4)."""


class _Sieve:
    """A table of hashes by which most numbers that are none of some values are told from these.

    Arrow's own search takes several times as long, for each of the rows alike.
    """

    def __init__(self, values: pa.Array) -> None:
        # At most one of 64 other numbers is let through, of up to a million values; of more, the table would take more
        # memory than the 64 MB that it does.
        bits = min(max(len(values).bit_length() + 6, 10), 26)
        self._shift = np.uint64(64 - bits)
        self._is_taken = np.zeros(1 << bits, bool)
        self._is_taken[self._hashes(values)] = True
        self._has_null = values.null_count > 0

    @staticmethod
    def sifts(kind: pa.DataType) -> bool:
        """True for columns of numbers of which two are equal where they have the same bits, as those of NaN differ."""
        return pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)

    def places(self, values: pa.Array) -> Places:
        """The places of those that may be one of the values."""
        # Numpy looks places up several times faster by numbers with a sign.
        may_be = self._is_taken[self._hashes(values).view(np.int64)]
        if self._has_null and values.null_count:
            may_be |= pc.is_null(values).to_numpy(zero_copy_only=False)
        return np.flatnonzero(may_be)

    def _hashes(self, values: pa.Array) -> np.ndarray[Any, np.dtype[np.uint64]]:
        numbers = values.view(f"int{values.type.bit_width}")
        if numbers.null_count:
            # The hash of a null counts for nothing: nulls are looked for by themselves.
            numbers = pc.fill_null(numbers, 0)
        bits = numbers.to_numpy().astype(np.int64, copy=False).view(np.uint64)
        return (bits * _MULTIPLIER) >> self._shift


class _Level(NamedTuple):
    """A column of the keys: its different values, and which pairs of a beginning and one of these there are, in order.

    A beginning is the place of a pair of the column before.
    """

    name: str
    values: pa.Array
    pairs: Places
    sieve: _Sieve | None


class Keys:
    """Keys by which rows are looked up, of columns of any types.

    Two values are one where they are written alike: null is null and NaN is NaN, and zeros differ by their signs.
    """

    def __init__(self, keys: pa.Table) -> None:
        self.schema = keys.schema
        self._levels = list[_Level]()
        begins = np.zeros(keys.num_rows, np.int64)
        # To write values out takes longest, which is done for what is left then.
        for name in sorted(keys.column_names, key=lambda name: pa.types.is_nested(keys.schema.field(name).type)):
            forms = _forms(keys[name].combine_chunks())
            values = pc.unique(forms)
            pairs, begins = np.unique(begins * len(values) + _places(forms, values), return_inverse=True)
            sieve = _Sieve(values) if _Sieve.sifts(keys.schema.field(name).type) else None
            self._levels.append(_Level(name, values, pairs, sieve))

    @property
    def number(self) -> int:
        """The number of different keys."""
        return len(self._levels[-1].pairs) if self._levels else 0

    def may_be_within(self, spans: Mapping[str, Span]) -> bool:
        """True if rows whose columns are within these spans, of those that have one, may have one of the keys."""
        return all(
            spans[name].has_some_of(values, null=has_null)
            for name, (values, has_null) in self._in_order.items()
            if name in spans
        )

    @cached_property
    def _in_order(self) -> Mapping[str, tuple[list[Ordered], bool]]:
        """The values of each column of which bounds are asked, in order, and whether null is one of them."""
        told = {name: ordered(values) for name, values, *_ in self._levels if is_ordered(self.schema.field(name).type)}
        return {
            name: (sorted(each for each in values if each is not None), None in values) for name, values in told.items()
        }

    def are_of(self, rows: pa.RecordBatch) -> Mask:
        """True for each row that has one of the keys; rows have their columns, of the same types."""
        mask = np.zeros(rows.num_rows, bool)
        mask[self.places_in(rows)] = True
        return mask

    def places_in(self, rows: pa.RecordBatch) -> Places:
        """The places of the rows that have one of the keys; rows have their columns, of the same types."""
        left: Places | None = None
        begins: Places | int = 0
        for name, values, pairs, sieve in self._levels:
            column = rows[name] if left is None else rows[name].take(pa.array(left))
            if sieve is not None:
                through = sieve.places(column)
                column, left, begins = column.take(pa.array(through)), *_at(through, left, begins)
            places = _places(_forms(column), values)
            # Most rows have none of the values, and to look for their pairs would take longest.
            may_be = np.flatnonzero(places >= 0)
            left, begins = _at(may_be, left, begins)
            wanted = begins * len(values) + places[may_be]
            at = np.searchsorted(pairs, wanted)
            is_one = np.append(pairs, -1)[at] == wanted
            left, begins = left[is_one], at[is_one]
        return np.arange(rows.num_rows) if left is None else left


def _at(places: Places, left: Places | None, begins: Places | int) -> tuple[Places, Places | int]:
    """Those at some places of the places `left`, None for all, and of the beginnings."""
    return (places if left is None else left[places]), (begins if isinstance(begins, int) else begins[places])


@dataclass(frozen=True)
class DataFile:
    """A Parquet file by its path, with the number of its rows, None for unknown, and the spans of some columns.

    `size` is that of the file in bytes, where it is known.
    """

    path: str
    rows: int | None
    spans: Mapping[str, Span] = field(default_factory=dict)
    size: int | None = None


def _rows_in_pieces(storage: fs.FileSystem, path: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows of a Parquet file in pieces, null where it is older than one."""
    with storage.open_input_file(path) as handle:
        file = pq.ParquetFile(handle, coerce_int96_timestamp_unit="us")
        yield from _pieces(file, range(file.num_row_groups), columns, _AT_ONCE)


def rows_among(
    storage: fs.FileSystem, files: Sequence[DataFile], columns: pa.Schema, keys: Keys | None, most: int
) -> pa.Table | None:
    """The rows of Parquet files, of all or those that have one of `keys`, whose columns are among the `columns`.

    Files and their parts are left out in which no key can be by the bounds of their columns. None where there are more
    keys or rows than `most`, or where it is dearer to find them here than by Spark: in more files than `MOST_FILES`,
    among more rows than `MOST_SCANNED` or an unknown number, in more bytes than `MOST_READ`, or in `MOST_FOUND`. It
    gives up early where the rows looked through so far have twice their share of `most`.
    """
    if keys is not None and keys.number > most:
        return None
    files = files if keys is None else [each for each in files if keys.may_be_within(each.spans)]
    counts = [each.rows for each in files if each.rows is not None]
    are_many = len(counts) > MOST_FILES or sum(counts) > (most if keys is None else MOST_SCANNED)
    if are_many or len(counts) < len(files):
        return None
    found, number, size, read, scanned, every = list[pa.RecordBatch](), 0, 0, 0, 0, sum(counts)
    for handle in _opened(storage, files):
        with handle:
            file = pq.ParquetFile(handle, coerce_int96_timestamp_unit="us")
            groups = [
                group
                for group in range(file.num_row_groups)
                if keys is None or keys.may_be_within(spans_in_group(file, group, keys.schema))
            ]
            number_here = sum(file.metadata.row_group(group).num_rows for group in groups)
            if number_here == 0:
                continue
            width = _width(file, groups, columns)
            read += number_here * width
            if read > MOST_READ:
                return None
            at_once = min(_AT_ONCE, _BYTES_AT_ONCE // width + 1)
            for rows in _pieces(file, groups, columns, at_once):
                found.append(rows if keys is None else rows.take(pa.array(keys.places_in(rows))))
                number += len(found[-1])
                size += found[-1].nbytes
                scanned += len(rows)
                will_be_more = scanned >= _TELL and number * every > 2 * most * scanned
                if number > most or size > MOST_FOUND or will_be_more:
                    return None
    return pa.Table.from_batches(found, columns)


def _close(fetched: Future[pa.NativeFile]) -> None:
    if not fetched.cancelled() and fetched.exception() is None:
        fetched.result().close()


def _opened(storage: fs.FileSystem, files: Sequence[DataFile]) -> Iterator[pa.NativeFile]:
    """Each of the files, opened when it is asked for; those of an object store by threads ahead of that.

    There a request takes longer than what it brings, so small files are fetched whole.
    """
    if is_on_disk(storage):
        for each in files:
            yield storage.open_input_file(each.path)
        return

    def fetched(file: DataFile) -> pa.NativeFile:
        handle = storage.open_input_file(file.path)
        if file.size is None or file.size > _WHOLE:
            return handle
        with handle:
            return pa.BufferReader(handle.read_buffer())

    waiting = deque[Future[pa.NativeFile]]()
    pool = ThreadPoolExecutor(_AHEAD)
    try:
        for each in files:
            waiting.append(pool.submit(fetched, each))
            if len(waiting) == _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # Whoever has enough asks for no more of them; what was opened ahead is closed once it is there.
        pool.shutdown(wait=False, cancel_futures=True)
        for fetching in waiting:
            fetching.add_done_callback(_close)


def _pieces(file: pq.ParquetFile, groups: Sequence[int], columns: pa.Schema, at_once: int) -> Iterator[pa.RecordBatch]:
    """Some columns of row groups of an open file, up to so many rows `at_once`."""
    there = [name for name in columns.names if name in file.schema_arrow.names]
    # Threads of Arrow's own would take the cores of other tasks, and of the driver's other steps.
    for rows in file.iter_batches(at_once, row_groups=groups, columns=there, use_threads=False):
        arrays = [
            as_type(rows[each.name], each.type) if each.name in there else pa.nulls(len(rows), each.type)
            for each in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def _width(file: pq.ParquetFile, groups: Sequence[int], columns: pa.Schema) -> int:
    """About the bytes in memory of some columns of a row.

    Of texts and nested columns the first rows tell, as a file has each of equal ones once.
    """
    sampled = [each for each in columns if not (pa.types.is_primitive(each.type) or pa.types.is_decimal(each.type))]
    width = sum(each.type.bit_width for each in columns if each not in sampled) // 8 + 1
    if not sampled:
        return width
    first = next(_pieces(file, groups[:1], pa.schema(sampled), _SAMPLED))
    return width + first.nbytes // len(first)


def _forms(values: pa.Array) -> pa.Array:
    """Values that Arrow finds equal where the given ones are written alike."""
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(numbers), np.nan, numbers).astype(numbers.dtype).view(f"i{numbers.dtype.itemsize}")
        return pa.array(bits, mask=pc.is_null(values).to_numpy(zero_copy_only=False))
    if pa.types.is_nested(kind):
        return pa.array([repr(value) for value in python_values(values)], pa.large_string())
    return values


def _places(forms: pa.Array, values: pa.Array) -> Places:
    """The place of each among the `values`; -1 where it is none of them."""
    places = pc.fill_null(pc.index_in(forms, value_set=values), -1)
    return places.to_numpy(zero_copy_only=False).astype(np.int64)


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
            yield pa.record_batch({_REPORT: pa.array(reports, pa.string())})

    def run(self) -> Replaced:
        """Write them here, one after the other."""
        return sum(map(self.replaced, self.groups), Replaced())

    def run_by(self, spark: SparkSession) -> Replaced:
        """Let tasks write them."""
        most = min(len(self.groups), spark.sparkContext.defaultParallelism)
        reports = spark.range(0, len(self.groups), 1, most).mapInArrow(self, f"{_REPORT} string").collect()
        return sum((Replaced.from_json(row[_REPORT]) for row in reports), Replaced())

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
        return _rows_in_pieces(below(self.uri), path, columns)
