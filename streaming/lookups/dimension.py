"""Lookups in a Delta table that is held in memory: at one version, the newest, or as of the event time of a row."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.base import (
    ADDED,
    SIGN,
    DeclarationError,
    DimensionError,
    FrozenMapping,
    as_dict,
    interval,
    python_values,
)
from streaming.declare import VALID_FROM, VALID_TO, History, LookupRequest
from streaming.keyed import NEVER
from streaming.lake import Lake
from streaming.tables import FilesRead, delta

_TIME = pa.timestamp("us", "UTC")

Values = Mapping[str, Any]


@dataclass(frozen=True)
class DimensionLookup:
    """A call for `Enriched` that finds the row of the Delta table at `uri` with the values of the row asked for.

    In the place of an address stands a `History` of the lake: the answer is the row that was valid at the time in the
    column `at` of the row that is asked for, and of a history of `kind=1` the newest.

    `on` maps columns of the row to those of the table, and `columns` are what the answer has of it; `version_as` names
    one more, a bigint, for the version of the table that was read.

    `version` pins the table. Left out, its newest version is read, and looked for anew after `fresh_for`, by a call
    whose timeout has to be long enough for that.

    With `valid_from` the table is a slowly changing dimension, with a row for each change: the answer is what was valid
    at the time in the column `at` of the row that is asked for, from `valid_from` (included, null for no beginning) on,
    up to the next row of the same key or, where it is named, `valid_to` (excluded, null for no end). Without, keys must
    not repeat.

    Keys are compared as SQL compares them: a null is equal to none, so that a row with one finds nothing, and columns
    whose types have no values in common, such as text and whole numbers, are refused before anything is asked.

    Raises:
        DeclarationError: nothing to look up by, a time without a column to hold it against, or of a history a column
            that it does not have.
    """

    uri: str | History
    on: Mapping[str, str]
    columns: tuple[str, ...]
    version: int | None = None
    fresh_for: str = "1 minute"
    valid_from: str | None = None
    valid_to: str | None = None
    at: str | None = None
    version_as: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", FrozenMapping(self.on))
        interval(self.fresh_for)
        if not self.on or not self.columns:
            raise DeclarationError(
                f"a lookup in {self.place} needs columns to look up by and to answer with; write on={{'sensor': 'id'}} "
                "and columns=('room',)."
            )
        if not isinstance(self.uri, str):
            _check_history(self, self.uri)
            return
        if (self.valid_from is None) != (self.at is None) or (self.valid_to and not self.valid_from):
            raise DeclarationError(
                f"a lookup in {self.place} as of a time needs both valid_from=, a column of the table, and at=, a "
                "column of the row that is asked for."
            )

    def check_types(self, asked: pa.Schema) -> None:
        """Refuse to be asked by columns that the row does not have, or that no key of the table can be equal to.

        Raises:
            DimensionError: with both types. Where there is no table yet, there is nothing to compare with.
        """
        table = delta.open_table(self.uri, self.version) if isinstance(self.uri, str) else None
        if table is not None:
            _check_keys(self, asked, pa.schema(table.schema().to_arrow()))

    @property
    def delta_tables(self) -> tuple[str | History, ...]:
        """The one table, which is what an operator looks up by it."""
        return (self.uri,)

    @property
    def place(self) -> str:
        """The table in words."""
        return repr(self.uri) if isinstance(self.uri, str) else f"history {self.uri.name!r}"

    def in_lake(self, lake: Lake) -> DimensionLookup:
        """The lookup with the address of its table."""
        return self if isinstance(self.uri, str) else _HistoryLookup.of(self, self.uri, lake)

    def rows_of(self, table: DeltaTable, columns: Sequence[str]) -> pa.Table:
        """The columns of a version of its table."""
        return delta.contents(table, columns=[*columns])

    async def __call__(self, row: Any, request: LookupRequest) -> Values | None:
        """The answer for a row."""
        held: _NewestVersion = request.opened
        return self._answer(await held.current(), as_dict(row))

    def answers_of(self, version: int, asked: pa.Table) -> tuple[list[Values | None], FilesRead]:
        """The answers that a version of the table has for rows, in their order, and the files that were read for them.

        Raises:
            DimensionError: that version cannot be read, or not by keys like these.
        """
        columns = {name: python_values(asked[name]) for name in asked.column_names}
        rows = ({name: values[place] for name, values in columns.items()} for place in range(asked.num_rows))
        lookup = replace(self, version=version)
        try:
            lookup.check_types(asked.schema)
            dimension = _read(lookup, None)
            files = len(delta.opened(str(self.uri), version).file_uris())
        # Files of an old version go with maintenance of the table, and its entries with time.
        except (OSError, DeltaError) as error:
            raise DimensionError(str(error).partition("\n")[0], table=str(self.uri)) from error
        return [self._answer(dimension, row) for row in rows], FilesRead(files, files)

    def _answer(self, dimension: _Dimension, asked: Values) -> Values | None:
        key = tuple(asked[name] for name in self.on)
        if None in key or (self.at is not None and asked[self.at] is None):
            return None
        entry = dimension.find(key, None if self.at is None else asked[self.at])
        if entry is None:
            return None
        return entry if self.version_as is None else {**entry, self.version_as: dimension.version}

    @asynccontextmanager
    async def opens(self) -> AsyncIterator[_NewestVersion]:
        """The table, which is read once before any call."""
        held = _NewestVersion(self)
        await held.current()
        yield held


class _HistoryLookup(DimensionLookup):
    """The lookup in the table of a history, whose rows are added and taken back."""

    @classmethod
    def of(cls, lookup: DimensionLookup, history: History, lake: Lake) -> _HistoryLookup:
        """The lookup in a history of the lake."""
        given = {each.name: getattr(lookup, each.name) for each in fields(lookup)}
        bounds = {"valid_from": VALID_FROM, "valid_to": VALID_TO} if history.kind == 2 else {}
        return cls(**{**given, **bounds, "uri": lake.table(history)})

    def rows_of(self, table: DeltaTable, columns: Sequence[str]) -> pa.Table:
        """The columns of the intervals that stand in a version of the table."""
        rows = delta.contents(table, columns=[*columns, ADDED, SIGN])
        net = rows.group_by(ADDED).aggregate([(SIGN, "sum")])
        stand = net.filter(pc.greater(net[f"{SIGN}_sum"], 0)).select([ADDED])
        added = rows.filter(pc.equal(rows[SIGN], 1))
        # An interval that was taken back may have come again, and its rows are equal.
        first = added.append_column("_place", pa.array(range(len(added)), pa.int64()))
        places = first.group_by(ADDED).aggregate([("_place", "min")]).join(stand, ADDED, join_type="inner")
        return added.take(places["_place_min"]).select([*columns])


def _check_history(lookup: DimensionLookup, history: History) -> None:
    """Refuse a lookup in a history by what it does not have, or as of no time where it has several rows of a key.

    Raises:
        DeclarationError: with what to write.
    """
    for name in (*lookup.on.values(), *lookup.columns):
        if name not in history.columns:
            raise DeclarationError(
                f"a lookup in history {history.name!r} names {name!r}, which is no column of it; these are: "
                f"{', '.join(history.columns)}.",
                operator=history.name,
                value=name,
                choices=tuple(history.columns),
            )
    if lookup.valid_from is not None or lookup.valid_to is not None:
        raise DeclarationError(
            f"a lookup in history {history.name!r} has valid_from={lookup.valid_from!r}, "
            f"valid_to={lookup.valid_to!r}, and a history tells by itself when a row is valid",
            "leave both out.",
            operator=history.name,
        )
    if (lookup.at is None) == (history.kind == 2):
        asked = "as of no time" if lookup.at is None else f"as of the time in {lookup.at!r}"
        has = "all intervals of a key" if history.kind == 2 else "the newest row of each key alone"
        raise DeclarationError(
            f"a lookup {asked} is in history {history.name!r}, which has {has}",
            "name the column with the time of the row, at=..., for kind=2, and none for kind=1.",
            operator=history.name,
        )


@dataclass(frozen=True)
class _Change:
    """A row of the table: valid from `since` on, before `until` where that is told."""

    since: int
    until: int | None
    values: Values


class _Dimension:
    """One version of the table."""

    def __init__(self, version: int, keys: pa.Schema, changes: Mapping[tuple[Any, ...], list[_Change]]) -> None:
        self.version = version
        self.keys = keys
        self._changes = {key: sorted(each, key=lambda change: change.since) for key, each in changes.items()}

    def find(self, key: tuple[Any, ...], at: int | None) -> Values | None:
        """The values that are valid for a key, at an instant in microseconds where the table is one of changes."""
        changes = self._changes.get(key, [])
        if at is None:
            return changes[0].values if changes else None
        place = bisect_right([change.since for change in changes], at)
        if not place:
            return None
        change = changes[place - 1]
        return change.values if change.until is None or at < change.until else None


class _NewestVersion:
    """The version that lookups go by now."""

    def __init__(self, lookup: DimensionLookup) -> None:
        self._lookup = lookup
        self._reading = asyncio.Lock()
        self._dimension: _Dimension | None = None
        self._looked = 0.0

    async def current(self) -> _Dimension:
        async with self._reading:
            now, fresh_for = asyncio.get_running_loop().time(), interval(self._lookup.fresh_for).total_seconds()
            stale = self._lookup.version is None and now - self._looked >= fresh_for
            if self._dimension is None or stale:
                # Reading must not hold up calls that go on meanwhile in the same loop.
                self._dimension = await asyncio.to_thread(_read, self._lookup, self._dimension)
                self._looked = now
            return self._dimension


def _read(lookup: DimensionLookup, before: _Dimension | None) -> _Dimension:
    """The version that is to be read now; `before` where it is still that one.

    Raises:
        DimensionError: there is no such table, a key repeats, or the keys are of other types than before.
    """
    assert isinstance(lookup.uri, str)
    table = delta.open_table(lookup.uri, lookup.version)
    if table is None:
        raise DimensionError(
            f"there is no Delta table at {lookup.uri!r}", "correct the path, or write the table first", table=lookup.uri
        )
    if before is not None and before.version == table.version():
        return before
    times = [name for name in (lookup.valid_from, lookup.valid_to) if name is not None]
    rows = lookup.rows_of(table, list(dict.fromkeys((*lookup.on.values(), *lookup.columns, *times))))
    keys = pa.schema([rows.schema.field(name) for name in lookup.on.values()])
    if before is not None and before.keys.types != keys.types:
        raise DimensionError(
            f"the keys of {lookup.uri!r} were {_listed(before.keys)} and are {_listed(keys)} in version "
            f"{table.version()}",
            "run again, so that they are compared with the columns that are asked by",
            table=lookup.uri,
        )
    values = {
        name: python_values(rows[name].cast(_TIME) if name in times else rows[name]) for name in rows.column_names
    }
    changes: dict[tuple[Any, ...], list[_Change]] = {}
    for number in range(rows.num_rows):
        row = {name: column[number] for name, column in values.items()}
        since = None if lookup.valid_from is None else row[lookup.valid_from]
        until = None if lookup.valid_to is None else row[lookup.valid_to]
        change = _Change(NEVER if since is None else since, until, {name: row[name] for name in lookup.columns})
        key = tuple(row[name] for name in lookup.on.values())
        # Nobody is equal to a null.
        if None not in key:
            changes.setdefault(key, []).append(change)
    repeated = next((key for key, each in changes.items() if len(each) > 1), None)
    if lookup.valid_from is None and repeated is not None:
        raise DimensionError(
            f"{lookup.uri!r} has several rows for {repeated!r}",
            "name valid_from= if they follow in time",
            table=lookup.uri,
        )
    return _Dimension(table.version(), keys, changes)


def _check_keys(lookup: DimensionLookup, asked: pa.Schema, table: pa.Schema) -> None:
    for name, key in lookup.on.items():
        for column, columns, where in ((name, asked, "the row that is asked for"), (key, table, repr(lookup.uri))):
            if column not in columns.names:
                raise DimensionError(
                    f"{column!r} is no column of {where}, which has: {', '.join(columns.names)}",
                    column=column,
                    choices=tuple(columns.names),
                )
        of_row, of_table = asked.field(name).type, table.field(key).type
        if not _can_be_equal(of_row, of_table):
            raise DimensionError(
                f"column {name!r} is of type {of_row}, and {key!r} of {lookup.uri!r} of type {of_table}, so that no "
                "value of one is one of the other",
                "derive a column of the same type, such as "
                f"derived={{'{name}_key': 'try_cast({name} as bigint)'}}, and look up by that",
                column=name,
            )


_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], ...], ...] = (
    (pa.types.is_integer, pa.types.is_decimal),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    (pa.types.is_boolean,),
    (pa.types.is_date,),
    (pa.types.is_timestamp,),
)
"""Types with values in common. A decimal is as good as never equal to a double, in whose digits it is not written."""


def _can_be_equal(one: pa.DataType, other: pa.DataType) -> bool:
    return any(all(any(is_kind(kind) for is_kind in family) for kind in (one, other)) for family in _FAMILIES)


def _listed(keys: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in keys)
