"""A table that a stream follows, as it is now: whether it is still the one, and what of it is new."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from deltalake import DeltaTable
from pyspark.sql.types import StructType

from streaming.base import SourceError
from streaming.sources.offsets import OffsetReader, Offsets
from streaming.sources.source import Memory
from streaming.sources.table.changes import REMOVED, ChangeReader
from streaming.sources.table.placed import BEGIN, UnitTable
from streaming.sources.table.unit_index import UnitIndex, paths_since
from streaming.sources.table.units import ROWS, UNIT, UnitReader
from streaming.sources.table.versions import FILE, NO_SNAPSHOT, SNAPSHOT, VERSION, VersionReader
from streaming.tables import delta

_TABLE, _GENERATION, _OFFSETS = "table", "generation", "offsets"
_ANEW = (
    "To follow the one that is there now, begin a new log: stop the stream, move its log and its checkpoint away, and "
    "start it again; or declare another stream."
)


def source_table(
    uri: str,
    placed: UnitTable | None,
    memory: Memory,
    start_version: int | None = None,
    changes_by: tuple[str, ...] = (),
) -> SourceTable:
    """The table at `uri`, followed by the units of its rows, or without `placed` by its versions from one on.

    With `changes_by` by what changes in it between two versions, those columns being the key of its rows.

    Raises:
        SourceError: it is not there, or not the one that `memory` knows.
    """
    table = delta.open_table(uri)
    if table is None:
        made_by = "check the path" if placed is None else placed.made_by
        raise SourceError(f"there is no table at {uri!r} to follow; {made_by}. Nothing was read.")
    it: SourceTable
    if placed is not None:
        it = TableUnits(placed, table)
    else:
        it = TableChanges(uri, table, changes_by) if changes_by else TableVersions(uri, table, start_version)
    it.check_same(memory)
    return it


class SourceTable(ABC):
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


class TableUnits(SourceTable):
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


class TableVersions(SourceTable):
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
        return version_words(offsets, offsets)

    def check_there(self, begins: Offsets, ends: Offsets) -> None:
        # Asking for the files looks at each.
        self.reader(1).pieces(begins, ends)

    def rows_since(self, begins: Offsets) -> int:
        until = {**begins, VERSION: self._newest + 1, FILE: 0}
        return sum(file.rows for file in self.reader(1).files(begins, until))

    def offsets_after(self, unit: int) -> Offsets:
        return {SNAPSHOT: NO_SNAPSHOT, VERSION: unit + 1, FILE: 0}


class TableChanges(SourceTable):
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
        return version_words(offsets, offsets)

    def check_there(self, begins: Offsets, ends: Offsets) -> None:
        self._reader.files_since(begins, ends[VERSION] - 1)

    def rows_since(self, begins: Offsets) -> int:
        # What cannot be told any more, the stream itself refuses.
        with suppress(SourceError):
            if self._reader.files_since(begins, self._newest):
                return sum(rows.num_rows for rows in self._reader.read((begins[VERSION] - 1, self._newest)))
        return 0

    def offsets_after(self, unit: int) -> Offsets:
        return {VERSION: unit + 1, FILE: 0}


def version_words(begins: Offsets, ends: Offsets) -> str:
    """The versions between two offsets, both included: `versions 3 to 5`."""
    last = ends[VERSION] - (ends[FILE] == 0)
    if VERSION not in begins:
        return f"everything up to version {last}"
    first = begins[VERSION]
    return f"version {last}" if last <= first else f"versions {first} to {last}"


def _payload(table: DeltaTable) -> StructType:
    """The columns that are rows' own, of those of an open table."""
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    return StructType([field for field in schema.fields if not field.name.startswith("_")])
