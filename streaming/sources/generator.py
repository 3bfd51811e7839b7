"""A generator as a source: a pure function of task and offset, and a rate. Its chance can be replayed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from hashlib import blake2b
from math import cos, log, pi, sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from streaming.base import DeclarationError, F, SourceError, T, from_micros, to_micros, utc_now
from streaming.lake import Lake
from streaming.sources.offsets import OffsetReader, Offsets, OffsetSource
from streaming.sources.source import Memory, SourceBacklog, SourceChange, SourceComparison

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_WORD = 8
_Row = Mapping[str, Any] | str | bytes | None
"""A row that a generator makes: a mapping becomes JSON, text and bytes are payloads as they are, None is a null one."""

BEGAN = "began"
"""The part of an offset that tells when the first row was due, in microseconds; the others are tasks by number."""

_SECOND = 1_000_000
_ROWS_AT_ONCE = 1_000

_Piece = tuple[int, int, int, int]
"""Rows of one task: its number, the offsets in [first, end), and when the generator began."""


@dataclass(frozen=True)
class Generator(OffsetSource):
    """Rows that a function makes: for demos, load tests, and tests that must see the same rows again.

    `row(task, offset)` gives the row of a task with this number, from 0: a mapping, which becomes a JSON object, text
    or bytes, which are the payload, or None, a null payload. It must depend on its arguments alone, and Spark's workers
    must find it by its name; `tidemark.noise(...)` is chance that follows from its arguments. Then every row is the
    same whenever it is made, so the stream is exactly once: Spark's checkpoint and the log keep how far each task is.

    A function that looks at the clock, or at other chance, makes another row where a batch is read again after a
    failure: such rows come at most once as they were, unless they are landed first and read as `Files`. For the time of
    a row there is `_origin.due`, the instant at which it was due, which is kept: `derived={"at": "_origin.due"}`.

    `rows_per_second`: of each task; the first one is due at the first start, and whatever fell due while the stream was
    away comes afterwards; a rate that is changed counts from the first start, too. None: as fast as batches follow one
    another, and a drain takes one batch, or all where `rows` bounds them.

    `rows`: of each task, in all; None: without end. `tasks` run side by side, each a source partition of the clock,
    named by its number. `rows_per_batch`: a batch takes at most so many rows of all tasks.

    Raises:
        DeclarationError: a number is below 1, or no worker can find the function.
    """

    row: Callable[[int, int], _Row]
    rows_per_second: float | None = None
    tasks: int = 1
    rows: int | None = None
    rows_per_batch: int = 10_000

    counts_rows: ClassVar[bool] = True
    origin: ClassVar[str] = "struct<task: int, offset: bigint, due: timestamp>"

    def __post_init__(self) -> None:
        rate = self.rows_per_second
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, (int, float)) or rate <= 0):
            raise DeclarationError(f"rows_per_second={rate!r} of Generator makes no rows; write a number above 0.")
        for name in ("tasks", "rows", "rows_per_batch"):
            number = getattr(self, name)
            if name == "rows" and number is None:
                continue
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise DeclarationError(f"{name}={number!r} of Generator makes no rows; write 1 or more.")
        if not callable(self.row):
            raise DeclarationError(f"Generator({self.row!r}) makes no rows; give it a function of task and offset.")
        try:
            pickle.dumps(self.row)
            hash(self.row)
        except Exception as error:
            raise DeclarationError(
                f"Generator({self.row!r}) has a function that Spark's workers cannot find by its name ({error}); "
                "define it in a module, not within another function or as a lambda."
            ) from error

    @property
    def partitioned(self) -> bool:
        """Where there are several tasks."""
        return self.tasks > 1

    @property
    def larger_batches(self) -> str:
        """A higher cap."""
        return f"raise rows_per_batch={self.rows_per_batch} of the source"

    def location(self, lake: Lake) -> str:
        """The name of the function."""
        name = getattr(self.row, "__qualname__", type(self.row).__qualname__)
        return f"generator://{getattr(self.row, '__module__', type(self.row).__module__)}.{name}"

    def reader(self, lake: Lake, memory: Memory) -> GeneratorReader:
        """Makes the rows that are due."""
        return GeneratorReader(self.row, self.tasks, self.rows_per_second, self.rows, self.rows_per_batch)

    def partition_of(self, origin: Column) -> Column:
        """The number of the task."""
        return origin["task"].cast("string") if self.partitioned else F.lit("")

    def time_of(self, origin: Column) -> Column:
        """When the row was due."""
        return origin["due"]

    def words(self, begins: Offsets, ends: Offsets) -> str:
        """The rows of each task: `task 0 rows 0 to 9`."""
        pieces = self.reader(Lake("."), {}).pieces(begins, ends)
        return ", ".join(
            f"task {task} row {first}" if end - first == 1 else f"task {task} rows {first} to {end - 1}"
            for task, first, end, _ in pieces
        )

    def waiting(self, lake: Lake, memory: Memory, begins: Offsets) -> SourceBacklog:
        """The rows that are due by now; without a rate and an end there is nothing to wait."""
        if self.rows_per_second is None and self.rows is None:
            return SourceBacklog(0, "rows")
        reader = self.reader(lake, memory)
        rows = {f"task {task}": end - first for task, first, end, _ in reader.pieces(begins, reader.newest(begins))}
        return SourceBacklog(sum(rows.values()), "rows", partitions=rows)

    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        """Offsets that are in the log twice or are missing there: each row of a task comes once, in order."""
        return _compare_offsets(origins)


def _compare_offsets(origins: DataFrame) -> SourceComparison:
    """The tasks of which `origins` (column `_origin`) do not have each row once, from the first on."""
    origin = F.col("_origin")
    own = origins.where(origin.isNotNull())
    if "repairs" in origins.select("_origin.*").columns:
        # A row that repairs one has its place.
        own = own.where(origin["repairs"].isNull())
    tasks = (
        own.groupBy(origin["task"].alias("task"))
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count_distinct(origin["offset"]).alias("offsets"),
            F.max(origin["offset"]).alias("last"),
        )
        .orderBy("task")
        .collect()
    )
    changes = tuple(
        SourceChange(
            "changed",
            f"task {row['task']}",
            f"task {row['task']} has {row['rows']:,} rows in the log, with {row['offsets']:,} offsets up to "
            f"{row['last']:,}; each should be there once.",
        )
        for row in tasks
        if not row["rows"] == row["offsets"] == row["last"] + 1
    )
    return SourceComparison(len(tasks), "tasks", changes)


def noise(*seed: object) -> float:
    """A draw of the normal distribution with mean 0 and deviation 1 that follows from `seed` alone, on any machine.

    By the transform of Box and Muller, of two uniform numbers that are a hash of the text of `seed`.
    """
    digest = blake2b(repr(seed).encode(), digest_size=2 * _WORD).digest()
    first, second = (int.from_bytes(digest[start : start + _WORD], "big") for start in (0, _WORD))
    # Above 0, because 0 has no logarithm.
    return sqrt(-2 * log((first + 1) / 2**64)) * cos(2 * pi * second / 2**64)


class GeneratorReader(OffsetReader):
    """Makes rows by `row`; of each task `rows` in all, `rate` a second, null for no limit."""

    def __init__(
        self,
        row: Callable[[int, int], _Row],
        tasks: int,
        rate: float | None,
        rows: int | None,
        rows_per_batch: int,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._row = row
        self._tasks = tasks
        self._rate = rate
        self._rows = rows
        self._rows_per_batch = rows_per_batch
        self._now = now

    @property
    def schema(self) -> T.StructType:
        """The payload, and the origin."""
        return T.StructType(
            [
                T.StructField("_raw", T.BinaryType()),
                T.StructField("task", T.IntegerType()),
                T.StructField("offset", T.LongType()),
                T.StructField("due", T.TimestampType()),
            ]
        )

    @property
    def rows_per_batch(self) -> int:
        return self._rows_per_batch

    def first(self) -> Offsets:
        return {str(task): 0 for task in range(self._tasks)} | {BEGAN: 0}

    def newest(self, begins: Offsets) -> Offsets:
        now = to_micros(self._now())
        began = begins[BEGAN] or now
        ends = {task: self._due(offset, began, now) for task, offset in self._offsets(begins).items()}
        # A task that is declared no more is kept, so that it goes on where it was should it come back.
        return begins if ends == self._offsets(begins) else {**begins, **ends, BEGAN: began}

    def bounded(self, begins: Offsets, newest: Offsets, rows: int) -> Offsets:
        most = max(1, rows // self._tasks)
        taken = self._offsets(begins)
        ends = {task: min(newest[task], offset + most) for task, offset in taken.items()}
        return begins if ends == taken else {**begins, **ends, BEGAN: newest[BEGAN]}

    def pieces(self, begins: Offsets, ends: Offsets) -> Sequence[_Piece]:
        taken = {task: offset for task, offset in ends.items() if task != BEGAN}
        bounds = ((task, begins.get(task, 0), end) for task, end in taken.items())
        return [(int(task), first, end, ends[BEGAN]) for task, first, end in bounds if end > first]

    def read(self, piece: _Piece) -> Iterator[pa.RecordBatch]:
        task, first, end, began = piece
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self.schema, timezone="UTC")
        for start in range(first, end, _ROWS_AT_ONCE):
            offsets = range(start, min(start + _ROWS_AT_ONCE, end))
            payloads = [self._payload(task, offset) for offset in offsets]
            dues = [from_micros(self._due_at(offset, began)) for offset in offsets]
            columns = [payloads, [task] * len(offsets), offsets, dues]
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _offsets(self, begins: Offsets) -> dict[str, int]:
        """The next row of each task; one that is new begins with its first."""
        return {str(task): begins.get(str(task), 0) for task in range(self._tasks)}

    def _due(self, offset: int, began: int, now: int) -> int:
        """The number of rows of a task that are due by now, the first one at once."""
        if self._rate is None:
            due = offset + max(1, self._rows_per_batch // self._tasks) if self._rows is None else self._rows
        else:
            due = int((now - began) * self._rate // _SECOND) + 1
        return max(offset, due if self._rows is None else min(due, self._rows))

    def _due_at(self, offset: int, began: int) -> int:
        return began if self._rate is None else began + int(offset * _SECOND / self._rate)

    def _payload(self, task: int, offset: int) -> bytes | None:
        try:
            row = self._row(task, offset)
            match row:
                case None | bytes():
                    return row
                case str():
                    return row.encode()
                case Mapping():
                    return json.dumps(dict(row), default=_plain).encode()
        except Exception as error:
            raise SourceError(
                f"the generator raised {type(error).__name__} at row {offset} of task {task}: {error}. Correct the "
                "function and start again; nothing is lost."
            ) from error
        raise SourceError(
            f"the generator gave {row!r} as row {offset} of task {task}; give a mapping, text, bytes or None."
        )


def _plain(value: object) -> str | float:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: {value!r}")
