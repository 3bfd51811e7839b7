"""A table as a source: the rows of another stream, of an operator, or of any Delta table, each exactly once."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from streaming.base import EPOCH, DeclarationError, F, SourceError, T, check_choice, check_tuple
from streaming.lake import Lake
from streaming.sources.offsets import OFFSETS, OffsetReader, Offsets, OffsetSource
from streaming.sources.source import Memory, SourceBacklog, SourceChange, SourceComparison
from streaming.sources.table.changes import REMOVED, ChangeReader
from streaming.sources.table.placed import BEGIN, UnitTable, changes_of, unit_table_of
from streaming.sources.table.units import ROWS, UNIT, UnitIndex, UnitReader, paths_since
from streaming.sources.table.versions import FILE, NO_SNAPSHOT, SNAPSHOT, VERSION, VersionReader
from streaming.spark import JarGroup, exact_json, storage_jars
from streaming.tables import delta

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NAMED = 5
_TABLE, _GENERATION, _OFFSETS = "table", "generation", "offsets"
_ANEW = (
    "To follow the one that is there now, begin a new log: stop the stream, move its log and its checkpoint away, and "
    "start it again; or declare another stream."
)


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

    `what="current"` follows what is current of an operator whose results are corrected, at any depth: each change of it
    brings the old result, which takes back the row that brought it, and the new one. Such rows have `_origin.change`,
    -1 and 1, and the same `_origin.identity`; operators that can follow them count what stands. `_origin.at` is the
    start of the window, `_origin.unit` the revision. Its clock is `Derived()`, or one that goes by the rows.

    `rows_per_batch`: a batch takes at most so many rows, but whole batches of a log, steps, files or changes.
    """

    of: Any
    side: str = ""
    start_version: int | None = None
    rows_per_batch: int = 500_000
    changes_by: tuple[str, ...] = ()
    what: Literal["first", "current"] = "first"

    counts_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("what", self.what, "of Table", ("first", "current"))
        if self.takes_back and (isinstance(self.of, str) or not hasattr(self.of, "published") or self.side):
            raise DeclarationError(
                f"Table(of={self.of!r}, side={self.side!r}, what='current') is not of current results",
                "write an operator whose results are corrected, such as a view, without a side output.",
                field="what",
                value=self.what,
            )
        if not self.takes_back and getattr(getattr(self.of, "source", None), "takes_back", False):
            raise DeclarationError(
                f"Table(of={self.of.name!r}) follows a stream of which rows are taken back",
                f"Follow what that stream follows: {self.of.source!r}.",
                value=self.of.name,
            )
        if not self.takes_back and getattr(self.of, "signed", False):
            raise DeclarationError(
                f"Table({self.of.name!r}) would follow rows that {self.of.kind_name} {self.of.name!r} takes back",
                "write Table(..., what='current').",
                operator=self.of.name,
                value=self.what,
            )
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
    def origin(self) -> str:
        """Where a row lies in the table; of current results also whether it takes one back, and which."""
        signed = ", change: int, identity: string" if self.takes_back else ""
        return f"struct<table: string, unit: bigint, position: bigint, written: timestamp, at: timestamp{signed}>"

    @property
    def takes_back(self) -> bool:
        """Where it follows what is current."""
        return self.what == "current"

    @property
    def jars(self) -> tuple[JarGroup, ...]:
        """Those of the storage on which the table lies, where its path says so."""
        return storage_jars(self.of) if isinstance(self.of, str) else ()

    @property
    def follows(self) -> tuple[tuple[Any, str], ...]:
        """The one, where it is of the lake."""
        return () if isinstance(self.of, str) else ((self.of, "current" if self.takes_back else self.side),)

    @property
    def larger_batches(self) -> str:
        """A higher cap."""
        return f"raise rows_per_batch={self.rows_per_batch} of the source"

    def placed(self, lake: Lake) -> UnitTable | None:
        """Where the rows lie, and what numbers them; None for a table that is followed by its versions.

        Raises:
            DeclarationError: nothing is known of what the table is of.
        """
        if isinstance(self.of, str):
            return None
        return changes_of(self.of, lake) if self.takes_back else unit_table_of(self.of, lake, self.side)

    def location(self, lake: Lake) -> str:
        """The table."""
        placed = self.placed(lake)
        return lake.path(self.of) if placed is None else placed.uri

    def source_table(self, lake: Lake, memory: Memory) -> _SourceTable:
        """The table as it is now.

        Raises:
            SourceError: it is gone, or is not the one that was followed.
        """
        return source_table(self.location(lake), self.placed(lake), memory, self.start_version, self.changes_by)

    def check_same(self, lake: Lake, memory: Memory) -> None:
        """Refuse where the table is gone, or is not the one that was followed; where it lies does not count."""
        self.source_table(lake, memory)

    def reader(self, lake: Lake, memory: Memory) -> OffsetReader:
        """Reads it by the units of its rows, or by its versions."""
        return self.source_table(lake, memory).reader(self.rows_per_batch)

    def remembered(self, lake: Lake) -> Memory:
        """The id of the table and its generation, which a table in its place would not have."""
        return self.source_table(lake, {}).identity

    def taken_through(self, memory: Memory) -> int:
        """The newest unit of a table of the lake that a log has which remembers `memory`; -1 for none."""
        return max(-1, memory.get(OFFSETS, {}).get(UNIT, 0) - 1)

    @property
    def tells_watermark(self) -> bool:
        """Where it is known when the earliest window begins that is still to be published."""
        return self.takes_back and self.of.first_begin(EPOCH) is not None

    def told_watermark(self, lake: Lake, memory: Memory) -> datetime | None:
        """That of the operator, as far as its changes are taken."""
        placed = self.placed(lake)
        table = None if placed is None else delta.open_table(placed.uri)
        return None if placed is None or table is None else placed.watermark(table, self.taken_through(memory))

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
            return _version_words(begins, ends)
        # What units are called is the same wherever they lie.
        placed = self.placed(Lake("."))
        assert placed is not None
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


def _compare_table(table: Callable[[Memory], _SourceTable], origins: DataFrame) -> SourceComparison:
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


def source_table(
    uri: str,
    placed: UnitTable | None,
    memory: Memory,
    start_version: int | None = None,
    changes_by: tuple[str, ...] = (),
) -> _SourceTable:
    """The table at `uri`, followed by the units of its rows, or without `placed` by its versions from one on.

    With `changes_by` by what changes in it between two versions, those columns being the key of its rows.

    Raises:
        SourceError: it is not there, or not the one that `memory` knows.
    """
    table = delta.open_table(uri)
    if table is None:
        made_by = "check the path" if placed is None else placed.made_by
        raise SourceError(f"there is no table at {uri!r} to follow; {made_by}. Nothing was read.")
    it: _SourceTable
    if placed is not None:
        it = _TableUnits(placed, table)
    else:
        _check_readable(uri, table)
        _check_partitions(uri, table)
        it = _TableChanges(uri, table, changes_by) if changes_by else _TableVersions(uri, table, start_version)
    it.check_same(memory)
    return it


def _check_readable(uri: str, table: DeltaTable) -> None:
    """Refuse a table of others whose files have other columns or rows than it has itself, as they are read by Arrow.

    Raises:
        SourceError: naming the feature, and how the table is freed of it.
    """
    is_mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    if is_mapped and (column := _named_otherwise(json.loads(table.schema().to_json()))):
        raise SourceError(
            f"the table {uri!r} maps its columns (delta.columnMapping.mode): its files have {column!r} under another "
            "name. Copy it into a table without, and follow that. Nothing was read."
        )
    if "deletionVectors" in (table.protocol().reader_features or ()) and _has_deletion_vectors(table):
        raise SourceError(
            f"the table {uri!r} has deletion vectors, so its files have rows that were deleted. Rewrite it without, by "
            "REORG TABLE ... APPLY (PURGE), and turn delta.enableDeletionVectors off. Nothing was read."
        )


def _check_partitions(uri: str, table: DeltaTable) -> None:
    """Refuse a table with parts by the bytes of a column, which Delta writes as a text that engines read differently.

    Raises:
        SourceError: naming the column.
    """
    types = {field.name: field.type for field in table.schema().fields}
    for name in table.metadata().partition_columns:
        if types[name] == PrimitiveType("binary"):
            raise SourceError(
                f"the table {uri!r} is partitioned by the binary column {name!r}, whose values cannot be told from the "
                "names of its parts. Copy it into a table that is partitioned by something else, and follow that. "
                "Nothing was read."
            )


def _named_otherwise(schema: Any) -> str | None:
    """A column, or a field of one, that files have under another name; None where there is none."""
    if isinstance(schema, list):
        return next(filter(None, map(_named_otherwise, schema)), None)
    if not isinstance(schema, dict):
        return None
    name = schema.get("name")
    if name is not None and schema.get("metadata", {}).get("delta.columnMapping.physicalName", name) != name:
        return str(name)
    return _named_otherwise([*schema.values()])


def _has_deletion_vectors(table: DeltaTable) -> bool:
    try:
        return any(batch.num_rows for batch in table.deletion_vectors())
    # There is one, which cannot be read.
    except DeltaError:
        return True


class _SourceTable(ABC):
    """An open table at `uri`."""

    def __init__(self, uri: str, table: DeltaTable, generation: int = 0) -> None:
        self.uri = uri
        self.identity: dict[str, Any] = {_TABLE: str(table.metadata().id), _GENERATION: generation}
        self.columns = _payload(table)

    @property
    def table(self) -> str:
        """The id of the table."""
        return str(self.identity[_TABLE])

    def check_same(self, memory: Memory) -> None:
        """Refuse another table than the one that was followed, another generation of it, or one that was rewound.

        Raises:
            SourceError: with what to do.
        """
        if memory.get(_TABLE, self.table) != self.table:
            raise SourceError(
                f"the table {self.uri!r} was replaced: its id was {memory[_TABLE]} and is {self.table}. Rows that were "
                f"not read are gone with the old one. {_ANEW}"
            )
        generation = self.identity[_GENERATION]
        if memory.get(_GENERATION, generation) != generation:
            raise SourceError(
                f"the table {self.uri!r} was built anew: the log follows its generation {memory[_GENERATION]}, and it "
                f"is at {generation}, whose rows may differ in any way. {_ANEW}"
            )
        offsets = memory.get(_OFFSETS)
        if offsets is not None and self.is_behind(offsets):
            raise SourceError(
                f"the table {self.uri!r} was rewound: the log has what was in it up to {self.words_before(offsets)}, "
                f"and it does not reach there any more. Restore the newer state of the table. {_ANEW}"
            )

    @abstractmethod
    def reader(self, rows_per_batch: int) -> OffsetReader:
        """The reader that plans and reads batches of the table."""

    @abstractmethod
    def is_behind(self, offsets: Offsets) -> bool:
        """True if the table does not reach as far as a stream that is at `offsets`."""

    @abstractmethod
    def words_before(self, offsets: Offsets) -> str:
        """The last thing before `offsets`."""

    @abstractmethod
    def check_there(self, begins: Offsets, ends: Offsets) -> None:
        """Refuse where rows between two offsets were removed since.

        Raises:
            SourceError: naming where.
        """

    @abstractmethod
    def rows_since(self, begins: Offsets) -> int:
        """The number of rows from `begins` on."""

    @abstractmethod
    def offsets_after(self, unit: int) -> Offsets:
        """Behind everything of the unit, which is a row's `_origin.unit`."""

    def changed_units(self, ingested: dict[int, int]) -> dict[int, int]:
        """The number of rows that each unit has now, of those units for which it differs from the one in `ingested`."""
        return {}


class _TableUnits(_SourceTable):
    """By the units of its rows."""

    def __init__(self, placed: UnitTable, table: DeltaTable) -> None:
        super().__init__(placed.uri, table, placed.generation(table))
        self._placed = placed
        self._open = table

    def reader(self, rows_per_batch: int) -> OffsetReader:
        return UnitReader(self._placed, self.table, self.columns, rows_per_batch)

    def is_behind(self, offsets: Offsets) -> bool:
        return offsets[UNIT] > BEGIN and not paths_since(self._open, self._placed, offsets[UNIT] - 1)

    def words_before(self, offsets: Offsets) -> str:
        return self._placed.words(offsets[UNIT] - 1)

    def check_there(self, begins: Offsets, ends: Offsets) -> None:
        there = UnitIndex(self._placed).since(begins[UNIT])
        units = [unit for unit in there if unit < ends[UNIT]]
        now, planned = sum(there[unit] for unit in units), ends[ROWS] - begins[ROWS]
        if now != planned:
            raise SourceError(
                f"{self.uri} had {planned:,} rows in {self._placed.range_words(begins[UNIT], ends[UNIT])} when a batch "
                f"of them was planned, and has {now:,} now; nobody may remove or change rows that are followed. "
                f"Restore them. {_ANEW}"
            )

    def rows_since(self, begins: Offsets) -> int:
        return sum(UnitIndex(self._placed).since(begins[UNIT]).values())

    def offsets_after(self, unit: int) -> Offsets:
        return {UNIT: unit + 1, ROWS: 0}

    def changed_units(self, ingested: dict[int, int]) -> dict[int, int]:
        there = UnitIndex(self._placed).since(min(ingested, default=0))
        dropped = self._placed.dropped(self._open)
        # A unit of which nothing is left is no longer there.
        now = {unit: there[unit] + dropped.get(unit, 0) for unit in ingested if unit in there}
        return {unit: rows for unit, rows in now.items() if rows != ingested[unit]}


class _TableVersions(_SourceTable):
    """By its versions."""

    def __init__(self, uri: str, table: DeltaTable, start: int | None) -> None:
        super().__init__(uri, table)
        self._newest = table.version()
        self._start = start

    def reader(self, rows_per_batch: int) -> VersionReader:
        return VersionReader(self.uri, self.table, self.columns, rows_per_batch, self._start)

    def is_behind(self, offsets: Offsets) -> bool:
        return self._newest < offsets[VERSION] - (offsets[FILE] == 0)

    def words_before(self, offsets: Offsets) -> str:
        return _version_words(offsets, offsets)

    def check_there(self, begins: Offsets, ends: Offsets) -> None:
        # Asking for the files looks at each.
        self.reader(1).pieces(begins, ends)

    def rows_since(self, begins: Offsets) -> int:
        until = {**begins, VERSION: self._newest + 1, FILE: 0}
        return sum(file.rows for file in self.reader(1).files(begins, until))

    def offsets_after(self, unit: int) -> Offsets:
        return {SNAPSHOT: NO_SNAPSHOT, VERSION: unit + 1, FILE: 0}


class _TableChanges(_SourceTable):
    """By what changes in it."""

    def __init__(self, uri: str, table: DeltaTable, key: tuple[str, ...]) -> None:
        super().__init__(uri, table)
        self._newest = table.version()
        self._reader = ChangeReader(uri, self.table, self.columns, key)
        columns = self.columns.names
        if REMOVED in columns or not {*key} <= {*columns}:
            raise SourceError(
                f"the table {uri!r} cannot be followed by its changes by {', '.join(key)}: its columns are "
                f"{', '.join(columns)}. It must have those, and none called {REMOVED!r}, by which a row tells that it "
                "is gone."
            )

    def reader(self, rows_per_batch: int) -> ChangeReader:
        return self._reader

    def is_behind(self, offsets: Offsets) -> bool:
        return self._newest < offsets[VERSION] - 1

    def words_before(self, offsets: Offsets) -> str:
        return _version_words(offsets, offsets)

    def check_there(self, begins: Offsets, ends: Offsets) -> None:
        self._reader.files_since(begins, ends[VERSION] - 1)

    def rows_since(self, begins: Offsets) -> int:
        # What cannot be told any more, the stream itself refuses.
        with suppress(SourceError):
            return sum(rows.num_rows for rows in self._reader.read((begins[VERSION] - 1, self._newest)))
        return 0

    def offsets_after(self, unit: int) -> Offsets:
        return {VERSION: unit + 1, FILE: 0}


def _version_words(begins: Offsets, ends: Offsets) -> str:
    """The versions between two offsets, both included: `versions 3 to 5`."""
    last = ends[VERSION] - (ends[FILE] == 0)
    if VERSION not in begins:
        return f"everything up to version {last}"
    first = begins[VERSION]
    return f"version {last}" if last <= first else f"versions {first} to {last}"


def _payload(table: DeltaTable) -> T.StructType:
    """The columns that are rows' own, of those of an open table."""
    schema = delta.columns_of(table)
    return T.StructType([field for field in schema.fields if not field.name.startswith("_")])
