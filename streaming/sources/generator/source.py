"""A generator as a source: a pure function of task and offset, and a rate."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DeclarationError
from streaming.lake import Lake
from streaming.sources.backlog import SourceBacklog
from streaming.sources.generator.reader import GeneratorReader, Row
from streaming.sources.offsets import Offsets, OffsetSource
from streaming.sources.source import Memory, SourceChange, SourceComparison


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

    row: Callable[[int, int], Row]
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
