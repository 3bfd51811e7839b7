"""Tables of files as targets, each of its kind, with a reader that has nothing to do with the one under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import deltalake
import duckdb
import pyarrow as pa

from streaming import DeltaTable, IcebergTable, Lake
from streaming.sinks.sink import Target


class Place(Protocol):
    """A table that is not there yet."""

    def target(self, **given: Any) -> Target:
        """The declaration of it."""

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Columns of its rows, in order; none where it is not there."""

    def table(self) -> pa.Table:
        """All of it."""


@dataclass(frozen=True)
class DeltaPlace:
    """A folder below the lake."""

    lake: Lake
    uri: str = "out/numbers"

    def target(self, **given: Any) -> DeltaTable:
        return DeltaTable(self.uri, **given)

    def open(self) -> deltalake.DeltaTable:
        """By delta-rs."""
        return deltalake.DeltaTable(self.lake.path(self.uri))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """By DuckDB over delta-rs."""
        if not deltalake.DeltaTable.is_deltatable(self.lake.path(self.uri)):
            return []
        there = self.open().to_pyarrow_dataset()
        return duckdb.from_arrow(there).project(", ".join(columns)).order("all").fetchall()

    def table(self) -> pa.Table:
        return self.open().to_pyarrow_table()


@dataclass(frozen=True)
class IcebergPlace:
    """A table of a SQL catalog."""

    properties: Mapping[str, str]
    name: str = "shop.numbers"

    def target(self, **given: Any) -> IcebergTable:
        return IcebergTable(self.name, self.properties, **given)

    def open(self) -> Any:
        """By PyIceberg."""
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.properties).load_table(self.name)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self.table()
        except NoSuchTableError:
            return []
        return duckdb.from_arrow(table).project(", ".join(columns)).order("all").fetchall()

    def table(self) -> pa.Table:
        return self.open().scan().to_arrow()


def in_file(lake: Lake) -> IcebergPlace:
    """A table of a catalog in a file below the lake."""
    Path(lake.root, "warehouse").mkdir(parents=True, exist_ok=True)
    catalog, warehouse = lake.path("catalog.db"), lake.path("warehouse")
    return IcebergPlace({"type": "sql", "uri": f"sqlite:///{catalog}", "warehouse": f"file://{warehouse}"})
