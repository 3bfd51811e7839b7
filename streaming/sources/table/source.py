"""A table as a source: the rows of another stream, of an operator, or of any Delta table, each exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DeclarationError, check_tuple
from streaming.lake import Lake
from streaming.sources.backlog import SourceBacklog
from streaming.sources.offsets import OFFSETS, OffsetReader, Offsets, OffsetSource
from streaming.sources.source import Memory, SourceChange, SourceComparison
from streaming.sources.table.placed import BEGIN, UnitTable, unit_table_of
from streaming.sources.table.source_table import SourceTable, source_table, version_words
from streaming.sources.table.units import UNIT
from streaming.spark import JarGroup, exact_json, storage_jars

_NAMED = 5


@dataclass(frozen=True)
class Table(OffsetSource):
    """Rows of a table as they are added to it, so that applications make a chain: one writes, others follow.

    `of` is a stream, whose valid rows are followed as they come into its log; an operator, whose results are, of a view
    its first results; or the path or URI of a Delta table. `side` names a side output of an operator.

    A row's payload is its columns as a JSON object, so the stream declares those it wants with `Json`, under their own
    names; instants are ISO 8601 with six digits, binary columns Base64. Columns that begin with `_` are left out. A
    `double` or `float` may be any that the table has: NaN, which is written `"NaN"`, an infinity, -0.0.
    `_origin` tells `table` (its id), `unit` (the batch of the log; for results the end of the window or the instant of
    the step, in microseconds; the version of a Delta table), `position` (the row's place in it), `written` and `at`,
    the event time of a row of the lake: `derived={"at": "_origin.at"}`.

    A table of the lake is followed by its rows, so however long a stream is away, compaction and clean-up of what it
    follows change nothing. Any other is followed by its versions and must only grow: at the first start from all that
    is there, or from what `start_version` added. A stream that is away for longer than such a table keeps deleted files
    is told so, and loses nothing silently. A table that was replaced, rewound, or built anew is refused.

    `changes_by` follows the Delta table at a path that is updated, such as a dimension or a model, by the columns of
    which no two rows have the same values: first its rows come, then after each change of the table those that are new
    or have other values, with `removed` false, and those that are gone, as they were, with `removed` true.
    `_origin.unit` is the version to which they belong, `_origin.written` when that was committed. As the log keeps
    them, whoever pins the stream (`Pinned`) needs no old version of the table. It is compared in memory.

    `rows_per_batch`: a batch takes at most so many rows, but whole batches of a log, steps, files or changes.
    """

    of: Any
    side: str = ""
    start_version: int | None = None
    rows_per_batch: int = 500_000
    changes_by: tuple[str, ...] = ()

    counts_rows: ClassVar[bool] = True
    origin: ClassVar[str] = "struct<table: string, unit: bigint, position: bigint, written: timestamp, at: timestamp>"

    def __post_init__(self) -> None:
        if isinstance(self.of, str):
            if not self.of.strip() or self.side:
                raise DeclarationError(
                    f"Table({self.of!r}, side={self.side!r}) is no table; write the path of one, without a side output."
                )
        elif not hasattr(self.of, "name"):
            raise DeclarationError(
                f"Table(of={self.of!r}) is of a {type(self.of).__name__}; write a stream, an operator such as a view, "
                "or the path of a Delta table as text."
            )
        start = self.start_version
        if start is not None and (not isinstance(self.of, str) or not isinstance(start, int) or start < 0):
            raise DeclarationError(
                f"start_version={start!r} is no version to start from; write 0 or more, and only for the path of a "
                "Delta table: what is in the lake is followed from its first row."
            )
        check_tuple("changes_by of Table", self.changes_by, str, "a tuple of column names, such as ('id',)")
        if self.changes_by and (not isinstance(self.of, str) or start is not None):
            raise DeclarationError(
                f"changes_by={self.changes_by!r} is for the path of a Delta table, whose changes are followed from the "
                "newest version on: leave start_version out; what is in the lake only grows, and needs no changes_by."
            )
        if not isinstance(self.rows_per_batch, int) or self.rows_per_batch < 1:
            raise DeclarationError(f"rows_per_batch={self.rows_per_batch!r} reads nothing; use 1 or more.")

    @property
    def jars(self) -> tuple[JarGroup, ...]:
        """Those of the storage on which the table lies, where its path says so."""
        return storage_jars(self.of) if isinstance(self.of, str) else ()

    @property
    def follows(self) -> tuple[tuple[Any, str], ...]:
        """The one, where it is of the lake."""
        return () if isinstance(self.of, str) else ((self.of, self.side),)

    @property
    def larger_batches(self) -> str:
        """A higher cap."""
        return f"raise rows_per_batch={self.rows_per_batch} of the source"

    def placed(self, lake: Lake) -> UnitTable | None:
        """Where the rows lie, and what numbers them; None for a table that is followed by its versions.

        Raises:
            DeclarationError: nothing is known of what the table is of.
        """
        return None if isinstance(self.of, str) else unit_table_of(self.of, lake, self.side)

    def location(self, lake: Lake) -> str:
        """The table."""
        placed = self.placed(lake)
        return lake.path(self.of) if placed is None else placed.uri

    def source_table(self, lake: Lake, memory: Memory) -> SourceTable:
        """The table as it is now.

        Raises:
            SourceError: it is gone, or is not the one that was followed.
        """
        return source_table(self.location(lake), self.placed(lake), memory, self.start_version, self.changes_by)

    def reader(self, lake: Lake, memory: Memory) -> OffsetReader:
        """Reads it by the units of its rows, or by its versions."""
        return self.source_table(lake, memory).reader(self.rows_per_batch)

    def remembered(self, lake: Lake) -> Memory:
        """The id of the table and its generation, which a table in its place would not have."""
        return self.source_table(lake, {}).identity

    def taken_through(self, memory: Memory) -> int:
        """The newest unit of a table of the lake that a log has which remembers `memory`; -1 for none."""
        return max(-1, memory.get(OFFSETS, {}).get(UNIT, 0) - 1)

    def payload(self) -> Column:
        """The row as JSON."""
        return exact_json(F.col("payload"), nulls=False)

    def partition_of(self, origin: Column) -> Column:
        """One for all."""
        return F.lit("")

    def is_typed(self, origin: Column) -> Column:
        """All of them."""
        return F.lit(True)

    def time_of(self, origin: Column) -> Column:
        """When the row was written."""
        return origin["written"]

    def words(self, begins: Offsets, ends: Offsets) -> str:
        """Batches, windows, steps or versions from and to."""
        if isinstance(self.of, str):
            return version_words(begins, ends)
        # What units are called is the same wherever they lie.
        placed = unit_table_of(self.of, Lake("."), self.side)
        return placed.range_words(begins.get(UNIT, BEGIN), ends[UNIT])

    def check_planned(self, lake: Lake, memory: Memory, begins: Offsets, ends: Offsets) -> None:
        """Refuse a batch of which rows were removed since it was planned."""
        self.source_table(lake, memory).check_there(begins, ends)

    def waiting(self, lake: Lake, memory: Memory, begins: Offsets) -> SourceBacklog:
        """The rows that are not taken yet."""
        return SourceBacklog(self.source_table(lake, memory).rows_since(begins), "rows")

    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        """A table that was replaced, units that have other rows than were ingested, and units that wait."""
        return _compare_table(partial(self.source_table, lake), origins)


def _compare_table(table: Callable[[Memory], SourceTable], origins: DataFrame) -> SourceComparison:
    """The differences between the table and what `origins` (column `_origin`) say of it."""
    it = table({})
    origin = F.col("_origin")
    own = origins.where(origin.isNotNull())
    if "repairs" in origins.select("_origin.*").columns:
        # A row that repairs one has its place.
        own = own.where(origin["repairs"].isNull())
    rows = own.groupBy(origin["table"].alias("table"), origin["unit"].alias("unit")).count().collect()
    ingested = {row["unit"]: row["count"] for row in rows if row["table"] == it.table}
    changes = [
        SourceChange(
            "changed",
            it.uri,
            f"{it.uri} was replaced since: the log has rows of the table {other}, and it is {it.table} now. Run the "
            "pipeline, which says what to do.",
        )
        for other in sorted({row["table"] for row in rows} - {it.table})
    ]
    changed = it.changed_units(ingested)
    if changed:
        named = ", ".join(
            f"{unit} ({ingested[unit]:,}, now {rows:,})" for unit, rows in sorted(changed.items())[:_NAMED]
        )
        more = f" and {len(changed) - _NAMED:,} more" if len(changed) > _NAMED else ""
        changes.append(
            SourceChange(
                "changed",
                it.uri,
                f"{it.uri} has other rows than were ingested, by `_origin.unit`: {named}{more}. Nobody may change rows "
                "that are followed.",
            )
        )
    last = max((row["unit"] for row in rows), default=None)
    waiting = it.rows_since(it.reader(1).first() if last is None else it.offsets_after(last))
    if waiting:
        text = f"{it.uri} has {waiting:,} rows that are not in the log; run the pipeline."
        changes.append(SourceChange("waiting", it.uri, text))
    return SourceComparison(len(rows), "units", tuple(changes))
