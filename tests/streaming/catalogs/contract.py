"""What every catalog must do: run it over one of your own by giving a `Registry`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Selected, Stream, Tumbling, Windowed
from streaming.base.errors import CatalogError
from streaming.catalogs import Catalog, Change, TableEntry, apply_difference, compare, lake_entries
from streaming.declare import aggregates as agg

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
_COMMENT = 'Of "quotes", \\ backslashes, ünicode 🌊, a line\'s end; and more than a name: a.b-c/d'

DOORS = Stream(
    "doors",
    Files("landing/doors"),
    Json("`Größe` int, `Tür 1` string, `a-b` struct<`c d`: int, e: decimal(10,2)>, at timestamp"),
    "at",
    BoundedOutOfOrderness("1 second"),
    description=_COMMENT,
)
WIDE = Selected("wide", DOORS, where="`Größe` > 3", description=_COMMENT)
HOURLY = Windowed("hourly", DOORS, Tumbling("1 hour"), by=("Größe",), aggregates={"n": agg.count()})
PIPELINE = Pipeline(DOORS, (WIDE, HOURLY), owner="team:doors")
TABLES = ["doors_log", "hourly", "hourly_current", "wide"]
"""The tables that lie in the lake of `a_lake`, by their names in a catalog."""


@dataclass(frozen=True)
class Registry:
    """A catalog under test: how to open it, an own schema in it, and an own lake."""

    open: Callable[[], Catalog]
    schema: str
    lake: Lake

    def sync(self, pipelines: Sequence[Pipeline] = (PIPELINE,), *, all_of_lake: bool = False) -> list[tuple[str, str]]:
        """Settle what differs, in a connection of its own; returns what was done."""
        done: list[Change] = []
        with self.open() as catalog:
            found = compare(catalog, self.lake, pipelines, self.schema, all_of_lake=all_of_lake)
            apply_difference(catalog, self.lake, found, done.append)
        return [(change.action, change.entry.name) for change in done]

    def tables(self) -> dict[str, TableEntry]:
        """All tables of the schema, as another connection sees them."""
        with self.open() as catalog:
            return dict(catalog.tables(self.schema))


def a_lake(folder: Path) -> Lake:
    """A lake with the tables of the pipeline, written by delta-rs; its path has a space."""
    lake = Lake(str(folder / "a lake"))
    nested = pa.struct([("c d", pa.int32()), ("e", pa.decimal128(10, 2))])
    rows = {
        "Größe": pa.array([4], pa.int32()),
        "Tür 1": pa.array(["a"]),
        "a-b": pa.array([{"c d": 1, "e": None}], nested),
        "at": pa.array([NOON], pa.timestamp("us", "UTC")),
        "_rejected": pa.array([None], pa.list_(pa.string())),
        "_day": pa.array([NOON.date()]),
    }
    result = {
        "Größe": rows["Größe"],
        "window_start": rows["at"],
        "n": pa.array([1], pa.int64()),
        "local": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")),
        "_day": rows["_day"],
    }
    for name, columns in {"log": rows, "wide": rows, "hourly": result, "hourly_current": result}.items():
        write_deltalake(lake.path("doors", name), pa.table(columns), partition_by=["_day"])
    return lake


def a_first_sync_registers_every_table_of_the_pipeline_as_it_lies(registry: Registry) -> None:
    assert registry.sync() == [("create", name) for name in TABLES]
    tables = registry.tables()
    assert sorted(tables) == TABLES
    for name, table in tables.items():
        place = "log" if name == "doors_log" else name
        assert table.location == f"file://{registry.lake.root}/doors/{place}"
        assert table.properties["tidemark.owner"] == "team:doors"
        assert (table.properties["tidemark.pipeline"], table.schema) == ("doors", registry.schema)
    assert tables["hourly_current"].properties["tidemark.key"] == "Größe, window_start, window_end"
    assert _COMMENT in tables["wide"].comment and _COMMENT in tables["doors_log"].comment
    with registry.open() as catalog:
        has_columns = bool(catalog.as_held(TableEntry("s", "t", "x", tables["wide"].columns)).columns)
    if has_columns:
        columns = {column.name.lower(): column for column in tables["wide"].columns}
        assert [*columns] == ["größe", "tür 1", "a-b", "at", "_rejected", "_day"]
        assert columns["a-b"].type.replace("`c d`", "c_d") == "struct<c_d:int,e:decimal(10,2)>"
        assert columns["_rejected"].type == "array<string>"
        log = {column.name: column.comment for column in tables["doors_log"].columns}
        assert log["_rejected"] == "Why the row was rejected, every reason; null for a valid row."


def a_second_sync_does_nothing(registry: Registry) -> None:
    registry.sync()
    before = registry.tables()
    assert registry.sync() == []
    assert registry.sync(all_of_lake=True) == []
    assert registry.tables() == before


def a_changed_comment_owner_or_column_is_changed_there_and_nothing_else(registry: Registry) -> None:
    registry.sync()
    before = registry.tables()
    changed = replace(WIDE, description="Doors that are wide.")
    assert registry.sync([Pipeline(DOORS, (changed, HOURLY), owner="team:doors")]) == [("change", "wide")]
    assert registry.tables()["wide"].comment.endswith("Doors that are wide.")
    assert {name: table for name, table in registry.tables().items() if name != "wide"} == {
        name: table for name, table in before.items() if name != "wide"
    }
    moved = Pipeline(DOORS, (changed, HOURLY), owner="team:gates")
    assert registry.sync([moved]) == [("change", name) for name in TABLES]
    assert registry.tables()["hourly"].properties["tidemark.owner"] == "team:gates"
    if before["hourly"].columns:
        row = {"added": pa.array(["a"]), "n": pa.array(["1"]), "_day": pa.array([NOON.date()])}
        place = registry.lake.path("doors", "hourly")
        write_deltalake(place, pa.table(row), mode="overwrite", schema_mode="overwrite", partition_by=["_day"])
        assert registry.sync([moved]) == [("change", "hourly")]
        columns = [(column.name, column.type) for column in registry.tables()["hourly"].columns]
        assert columns == [("added", "string"), ("n", "string"), ("_day", "date")]
    assert registry.sync([moved]) == []


def a_table_that_is_gone_or_not_declared_any_more_is_withdrawn_and_files_stay(registry: Registry) -> None:
    registry.sync()
    shutil.rmtree(registry.lake.path("doors", "hourly_current"))
    assert registry.sync() == [("withdraw", "hourly_current")]
    assert sorted(registry.tables()) == ["doors_log", "hourly", "wide"]
    assert registry.sync([Pipeline(DOORS, (WIDE,), owner="team:doors")]) == [("withdraw", "hourly")]
    assert Path(registry.lake.path("doors", "hourly", "_delta_log")).is_dir()


def a_lake_that_is_not_mounted_is_no_lake_without_tables(registry: Registry) -> None:
    registry.sync()
    before = registry.tables()
    elsewhere = f"{registry.lake.root}, unmounted"
    Path(registry.lake.root).rename(elsewhere)
    Path(registry.lake.root).mkdir()
    for all_of_lake in (False, True):
        with pytest.raises(CatalogError, match=r"a lake has no table at all, and .* has 4 tables of it.*TIDEMARK_HOME"):
            registry.sync(all_of_lake=all_of_lake)
    assert registry.tables() == before
    Path(registry.lake.root).rmdir()
    Path(elsewhere).rename(registry.lake.root)
    assert registry.sync(all_of_lake=True) == []


def all_tables_of_one_pipeline_are_withdrawn_where_the_lake_has_others(registry: Registry) -> None:
    gates = replace(DOORS, name="gates")
    shutil.copytree(registry.lake.path("doors", "log"), registry.lake.path("gates", "log"))
    registry.sync([PIPELINE, Pipeline(gates, (replace(WIDE, of=gates),))])
    shutil.rmtree(registry.lake.path("doors"))
    assert registry.sync() == [("withdraw", name) for name in TABLES]
    assert [*registry.tables()] == ["gates_log"]


def tables_of_a_pipeline_that_is_not_declared_here_are_withdrawn_once_they_are_gone(registry: Registry) -> None:
    registry.sync()
    gates = replace(DOORS, name="gates")
    other = Pipeline(gates, (replace(WIDE, of=gates),))
    assert registry.sync([other], all_of_lake=True) == []
    shutil.rmtree(registry.lake.path("doors", "wide"))
    assert registry.sync([other]) == []
    assert registry.sync([other], all_of_lake=True) == [("withdraw", "wide")]
    assert sorted(registry.tables()) == ["doors_log", "hourly", "hourly_current"]


def tables_of_others_are_never_touched(registry: Registry) -> None:
    theirs = TableEntry(registry.schema, "wide", "file:///elsewhere", comment="Of somebody else.")
    with registry.open() as catalog:
        catalog.create_schema(registry.schema, {})
        catalog.create(replace(theirs, name="another"))
        # As if another lake had registered it.
        catalog.create(replace(theirs, name="elsewhere", properties={"tidemark.lake": "file:///x"}))
    before = registry.tables()
    registry.sync(all_of_lake=True)
    after = registry.tables()
    assert {name: after[name] for name in before} == before
    assert sorted(after) == sorted((*TABLES, *before))


def a_name_that_somebody_else_has_is_refused_before_anything_is_done(registry: Registry) -> None:
    theirs = TableEntry(registry.schema, "wide", "file:///elsewhere", comment="Of somebody else.")
    with registry.open() as catalog:
        catalog.create_schema(registry.schema, {})
        catalog.create(theirs)
    with pytest.raises(CatalogError, match=r"\.wide in .* was not registered from this lake, and nothing was changed"):
        registry.sync()
    assert [*registry.tables()] == ["wide"] and registry.tables()["wide"].location == theirs.location


def properties_of_others_stay_when_a_table_is_changed(registry: Registry) -> None:
    registry.sync()
    standing = registry.tables()["wide"]
    (wide,) = (each for each in lake_entries(registry.lake, PIPELINE, registry.schema) if each.name == "wide")
    with registry.open() as catalog:
        noted = replace(catalog.as_held(wide), properties={**wide.properties, "team.note": "theirs"})
        catalog.change(noted, standing)
    assert registry.sync() == []
    assert registry.sync([replace_owner("team:gates")]) == [("change", name) for name in TABLES]
    assert registry.tables()["wide"].properties["team.note"] == "theirs"


def replace_owner(owner: str) -> Pipeline:
    """The pipeline as somebody else's."""
    return Pipeline(DOORS, (WIDE, HOURLY), owner=owner)


def a_sync_that_breaks_off_has_done_what_it_told_and_the_next_goes_on(registry: Registry) -> None:
    told: list[str] = []

    def tell(change: Change) -> None:
        told.append(change.entry.name)
        if len(told) == 2:
            raise KeyboardInterrupt

    with registry.open() as catalog, pytest.raises(KeyboardInterrupt):
        apply_difference(catalog, registry.lake, compare(catalog, registry.lake, [PIPELINE], registry.schema), tell)
    assert sorted(registry.tables()) == told == TABLES[:2]
    assert registry.sync() == [("create", name) for name in TABLES[2:]]


def a_schema_of_the_lake_is_found_again(registry: Registry) -> None:
    uri = f"file://{registry.lake.root}"
    with registry.open() as catalog:
        assert catalog.schemas_of(uri) == ()
        assert dict(catalog.tables(registry.schema)) == {}
    registry.sync()
    with registry.open() as catalog:
        assert catalog.schemas_of(uri) == (registry.schema,)
        catalog.create_schema(registry.schema, {})
        catalog.withdraw(TableEntry(registry.schema, "nonesuch", ""))


LAWS = (
    a_first_sync_registers_every_table_of_the_pipeline_as_it_lies,
    a_second_sync_does_nothing,
    a_changed_comment_owner_or_column_is_changed_there_and_nothing_else,
    a_table_that_is_gone_or_not_declared_any_more_is_withdrawn_and_files_stay,
    a_lake_that_is_not_mounted_is_no_lake_without_tables,
    all_tables_of_one_pipeline_are_withdrawn_where_the_lake_has_others,
    tables_of_a_pipeline_that_is_not_declared_here_are_withdrawn_once_they_are_gone,
    tables_of_others_are_never_touched,
    a_name_that_somebody_else_has_is_refused_before_anything_is_done,
    properties_of_others_stay_when_a_table_is_changed,
    a_sync_that_breaks_off_has_done_what_it_told_and_the_next_goes_on,
    a_schema_of_the_lake_is_found_again,
)
