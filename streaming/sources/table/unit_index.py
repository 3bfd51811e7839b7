"""The number of rows of each unit of a table, read from the column of its units alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.base import DAY, MICROSECOND, MILLISECOND, to_micros
from streaming.sources.table.placed import UnitTable
from streaming.sources.table.row_order import as_numbers, read_columns
from streaming.tables import delta, storage

_ROUNDED = MILLISECOND // MICROSECOND


class UnitIndex:
    """Counts the rows of each unit. A file never changes, so each is read once, and only if it may hold what is new."""

    def __init__(self, rows: UnitTable) -> None:
        self._rows = rows
        self._counted: dict[str, Counter[int]] = {}
        self._last: tuple[str, int, int] | None = None
        self._found: Counter[int] = Counter()

    def since(self, unit: int) -> Counter[int]:
        """The rows of each unit from `unit` on, as the table is now; nothing where there is no table."""
        table = delta.open_table(self._rows.uri)
        if table is None:
            return Counter()
        asked = (str(table.metadata().id), table.version(), unit)
        if asked != self._last:
            self._counted = {path: self._counts(table, path) for path in paths_since(table, self._rows, unit)}
            self._last, self._found = asked, Counter()
            for counts in self._counted.values():
                self._found.update({number: count for number, count in counts.items() if number >= unit})
        return Counter(self._found)

    def _counts(self, table: DeltaTable, path: str) -> Counter[int]:
        counter = self._counted.get(path)
        if counter is not None:
            return counter
        column = as_numbers(read_columns(storage.files_of(table), path, [self._rows.unit])[self._rows.unit])
        counts = pc.value_counts(column).to_pylist()
        return Counter({entry["values"]: entry["counts"] for entry in counts if entry["values"] is not None})


def paths_since(table: DeltaTable, rows: UnitTable, unit: int, until: int | None = None) -> list[str]:
    """The files of an open table that may have a row of the units in [unit, until), null for no end."""
    return [
        path
        for path, day, least, greatest in _files(table, rows.unit)
        if (greatest is None or greatest >= unit)
        and (until is None or least is None or least < until)
        and not (rows.dated and day is None)
    ]


def _files(table: DeltaTable, unit: str) -> Iterator[tuple[str, Any, int | None, int | None]]:
    actions = table.get_add_actions(flatten=True)
    names = actions.schema.names
    absent = [None] * actions.num_rows
    wanted = ("path", f"partition.{DAY}", f"min.{unit}", f"max.{unit}")
    columns = [actions[name].to_pylist() if name in names else absent for name in wanted]
    for path, day, least, greatest in zip(*columns, strict=True):
        yield path, day, _number(least, 0), _number(greatest, _ROUNDED)


def _number(bound: Any, widened: int) -> int | None:
    """A bound as a number, that of instants `widened`: whoever wrote it may have cut it off at the millisecond."""
    return to_micros(bound.astimezone(UTC)) + widened if isinstance(bound, datetime) else bound
