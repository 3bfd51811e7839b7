"""Delta tables tell readers of other engines what their columns mean, which are a key, and which have bounds.

They do so by metadata of columns and by properties, which are given to an open table here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from deltalake import DeltaTable

from streaming.base import T
from streaming.tables.bounds import named_bounded, property_of_bounded
from streaming.tables.history import attempts

KEY = "tidemark.key"
"""The property of a table that names the columns of which no two of its rows have the same values, with commas."""
_SAID = {"comment", "tidemark.unit"}
"""The metadata of columns that are the platform's to write and to empty."""


class DescribedColumn(Protocol):
    """A column with what a table keeps of it beside its type, such as its `comment`."""

    @property
    def name(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class TableAbout:
    """The meaning of a table's `columns`, as metadata by the name of each, and its `key`, for whoever reads it.

    `bounded` are the columns whose bounds all of its files keep; None where nobody says which.
    """

    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    bounded: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls, columns: Iterable[DescribedColumn], key: Iterable[str] = (), bounded: Iterable[str] | None = None
    ) -> Self:
        """The meaning of a table with these columns."""
        named = {each.name: each.metadata for each in columns}
        return cls(named, tuple(key), None if bounded is None else tuple(bounded))

    @classmethod
    def in_table(cls, table: DeltaTable) -> Self:
        """The meaning that an open table tells of itself."""
        key = table.metadata().configuration.get(KEY, "")
        return cls.of(table.schema().fields, filter(None, key.split(", ")), named_bounded(table))

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table that say it, but for that of its bounds."""
        return {KEY: ", ".join(self.key)} if self.key else {}


NOTHING_SAID = TableAbout()


def describe(table: DeltaTable, about: TableAbout) -> None:
    """Bring what an open table says of its columns up to date.

    What is not said any more is empty from then on, as delta-rs takes no metadata away.
    """
    for attempt in attempts(table):
        with attempt:
            there = {field.name: field.metadata for field in table.schema().fields}
            for name, told in _untold(there, about.columns).items():
                table.alter.set_column_metadata(name, told)
    key = {KEY: ", ".join(about.key)} if about.key or KEY in table.metadata().configuration else {}
    bounded = {} if about.bounded is None else property_of_bounded(about.bounded, table.schema())
    set_properties(table, {**key, **bounded})


def set_properties(table: DeltaTable, properties: Mapping[str, str], *, needed: bool = False) -> bool:
    """Give an open table those `properties` that it does not have yet; tells if it has all of them then.

    A table with reader features, such as one of instants without a time zone, keeps what it has unless they are
    `needed`: delta-rs adds features with them that readers of the table may not know.
    """
    for attempt in attempts(table):
        with attempt:
            lacking = dict(properties.items() - table.metadata().configuration.items())
            if lacking and not needed and table.protocol().min_reader_version >= 3:
                return False
            if lacking:
                table.alter.set_table_properties(lacking, raise_if_not_exists=False)
    return True


def with_metadata(schema: T.StructType, columns: Mapping[str, Mapping[str, Any]]) -> T.StructType:
    """The schema with what is said of each of its columns, all of which may be null."""
    fields = [
        T.StructField(each.name, each.dataType, True, {**each.metadata, **columns.get(each.name, {})})
        for each in schema
    ]
    return T.StructType(fields)


def _untold(there: Mapping[str, Mapping[str, Any]], said: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """By column what is to be written, of those whose metadata are `there` and of which something else is `said`."""
    wanted = {
        name: {**dict.fromkeys(_SAID & metadata.keys(), ""), **said[name]}
        for name, metadata in there.items()
        if name in said
    }
    return {name: told for name, told in wanted.items() if not told.items() <= there[name].items()}
