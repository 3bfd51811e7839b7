"""Unity Catalog, by the recorded contract of its open-source server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from streaming import Pipeline
from streaming.base.errors import CatalogError, SettingsError
from streaming.catalogs import apply_difference, compare
from streaming.catalogs.unity import UnityCatalog
from tests.streaming.catalogs.contract import DOORS, LAWS, PIPELINE, TABLES, WIDE, Registry, a_lake, replace_owner
from tests.support.catalog_servers import TOKEN, RecordedUnity, serving


@pytest.fixture
def server() -> Iterator[RecordedUnity]:
    recorded = RecordedUnity()
    with serving(recorded):
        yield recorded


@pytest.fixture
def registry(server: RecordedUnity, tmp_path: Path) -> Registry:
    return Registry(lambda: UnityCatalog(server.url, "main", TOKEN), f"s{uuid4().hex}", a_lake(tmp_path))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_unity_catalog_keeps_the_contract_of_catalogs(law: Callable[[Registry], None], registry: Registry) -> None:
    law(registry)


@pytest.mark.parametrize("conflict", [400, 409])
def test_what_somebody_else_has_made_meanwhile_is_told_whatever_version_the_server_has(
    conflict: int, server: RecordedUnity, registry: Registry
) -> None:
    server.conflict = conflict
    with registry.open() as catalog:
        found = compare(catalog, registry.lake, [PIPELINE], registry.schema)
        registry.sync()
        with pytest.raises(CatalogError, match=r"has a table main\..*\.doors_log by now, which somebody else has made"):
            apply_difference(catalog, registry.lake, found)


def test_tables_of_a_renamed_pipeline_leave_the_schema_of_the_old_name_first(
    server: RecordedUnity, registry: Registry
) -> None:
    for name in ("old", "new"):
        renamed = Pipeline(DOORS, (WIDE,), name=name)
        with registry.open() as catalog:
            found = compare(catalog, registry.lake, [renamed], all_of_lake=True)
            apply_difference(catalog, registry.lake, found)
    assert [(change.action, str(change.entry)) for change in found.changes] == [
        *(("withdraw", f"old.{name}") for name in ("doors_log", "wide")),
        *(("create", f"new.{name}") for name in ("doors_log", "wide")),
    ]
    assert sorted(server.tables) == ["main.new.doors_log", "main.new.wide"]


def test_a_pipeline_without_tables_is_told_where_another_schema_has_tables_of_the_lake(registry: Registry) -> None:
    def done(pipeline: Pipeline) -> list[tuple[str, str]]:
        with registry.open() as catalog:
            found = compare(catalog, registry.lake, [pipeline])
            apply_difference(catalog, registry.lake, found)
        return [(change.action, str(change.entry)) for change in found.changes]

    gates = replace(DOORS, name="gates")
    shutil.copytree(registry.lake.path("doors", "log"), registry.lake.path("gates", "log"))
    assert done(Pipeline(gates, (replace(WIDE, of=gates),))) == [("create", "gates.gates_log")]
    assert len(done(PIPELINE)) == len(TABLES)
    shutil.rmtree(registry.lake.path("doors"))
    assert done(PIPELINE) == [("withdraw", f"doors.{name}") for name in TABLES]


def test_columns_are_told_as_spark_and_the_server_read_them(server: RecordedUnity, registry: Registry) -> None:
    registry.sync()
    columns = {each["name"]: each for each in server.tables[f"main.{registry.schema}.hourly"]["columns"]}
    assert [(each["type_name"], each["type_text"]) for each in columns.values()] == [
        ("INT", "int"),
        ("TIMESTAMP", "timestamp"),
        ("LONG", "bigint"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("DATE", "date"),
    ]
    assert columns["_day"]["partition_index"] == 0 and "partition_index" not in columns["n"]
    assert columns["n"]["type_json"] == '{"name": "n", "type": "long", "nullable": true, "metadata": {}}'


def test_a_table_that_could_not_be_registered_again_is_said_to_be_gone_and_comes_back(
    server: RecordedUnity, registry: Registry
) -> None:
    registry.sync()
    server.failing = lambda request: request == "POST /api/2.1/unity-catalog/tables"
    with pytest.raises(CatalogError, match=r"doors_log was taken out to be changed, and is not in .*the disk is full"):
        registry.sync([replace_owner("team:gates")])
    assert sorted(registry.tables()) == ["hourly", "hourly_current", "wide"]
    server.failing = lambda request: False
    assert registry.sync([replace_owner("team:gates")])[0] == ("create", "doors_log")


@pytest.mark.parametrize(
    ("name", "token", "says"),
    [
        ("main", None, "refuses GET .* (401): who are you?; set TIDEMARK_CATALOG_TOKEN"),
        ("nonesuch", TOKEN, "has no catalog 'nonesuch'; make it there, or set TIDEMARK_CATALOG_NAME"),
    ],
)
def test_a_refusal_says_what_to_do(server: RecordedUnity, tmp_path: Path, name: str, token: str, says: str) -> None:
    registry = Registry(lambda: UnityCatalog(server.url, name, token), "s", a_lake(tmp_path))
    with pytest.raises(CatalogError, match=says.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        registry.sync([PIPELINE])
    assert server.tables == {} and server.schemas == {}


def test_a_server_that_is_away_is_named_without_what_is_secret(tmp_path: Path) -> None:
    registry = Registry(lambda: UnityCatalog("http://127.0.0.1:9/with/sesame", "main", "sesame"), "s", a_lake(tmp_path))
    with pytest.raises(CatalogError, match=r"the unity catalog at http://127.0.0.1:9 cannot be reached") as raised:
        registry.sync()
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("url", ["localhost:8080", "http://", "http://user:sesame@host", "thrift://host:9083"])
def test_what_is_no_address_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(SettingsError, match=r"is no address of a catalog; write https://host:port") as raised:
        UnityCatalog(url, "main")
    assert "sesame" not in str(raised.value)
