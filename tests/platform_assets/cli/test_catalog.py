"""`tidemark catalog sync`: a catalog is told of the tables of the lake."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from platform_assets.cli import context
from streaming.lake import Lake
from tests.platform_assets.conftest import Tidemark
from tests.support.catalog_servers import TOKEN, RecordedPolaris, RecordedUnity, serving
from tests.support.written_lake import write_flights


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake, in a process in which nobody may start Spark."""
    monkeypatch.setattr(context, "start_quietly", lambda **_: pytest.fail("Spark was started"))
    return write_flights(Lake(str(tmp_path / "lake")))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedUnity]:
    """Unity Catalog, to which the environment sends."""
    recorded = RecordedUnity()
    with serving(recorded):
        for name, value in {"KIND": "unity", "URL": recorded.url, "NAME": "main", "TOKEN": TOKEN}.items():
            monkeypatch.setenv(f"TIDEMARK_CATALOG_{name}", value)
        yield recorded


def test_what_is_done_is_told_table_by_table_and_then_what_to_do_next(
    tidemark: Tidemark, server: RecordedUnity, lake: Lake
) -> None:
    code, out = tidemark("catalog sync --dry-run")
    assert code == 0 and "to be registered flights.departures_by_origin_current" in out
    assert "0 tables as in the lake; 3 to be registered, 0 to be changed, 0 to be withdrawn." in out
    assert "Next: tidemark catalog sync does it." in out
    assert server.tables == {}

    code, out = tidemark("catalog sync")
    assert code == 0 and out.startswith("registered main.flights.departures_by_origin registered main.flights.")
    assert f"3 tables in {server.url}/main; 3 registered, 0 changed, 0 withdrawn. Next: tidemark catalog sync" in out
    names = ("departures_by_origin", "departures_by_origin_current", "flights_log")
    assert sorted(server.tables) == [f"main.flights.{name}" for name in names]

    shutil.rmtree(lake.path("flights", "departures_by_origin_current"))
    code, out = tidemark("catalog sync flights")
    assert code == 0 and "withdrawn main.flights.departures_by_origin_current: the lake does not have it" in out
    assert "2 tables in" in out and "Next: tidemark catalog sync flights --dry-run" in out
    code, out = tidemark("catalog sync flights --dry-run")
    assert "2 tables as in the lake; 0 to be registered" in out and "has nothing to do" in out


def test_where_there_is_no_table_yet_the_next_step_makes_some(
    tidemark: Tidemark, server: RecordedUnity, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "lake")
    code, out = tidemark("catalog sync flights")
    assert code == 0 and f"0 tables in {server.url}/main; 0 registered" in out and "Next: tidemark run flights" in out


def test_tables_have_the_one_schema_that_is_set(
    tidemark: Tidemark, server: RecordedUnity, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    monkeypatch.setenv("TIDEMARK_CATALOG_SCHEMA", "lakehouse")
    assert tidemark("catalog sync")[0] == 0
    assert [*server.schemas] == ["main.lakehouse"] and "main.lakehouse.flights_log" in server.tables


def test_a_name_of_somebody_else_is_told_and_refused(tidemark: Tidemark, server: RecordedUnity, lake: Lake) -> None:
    server.schemas["main.flights"] = {"name": "flights"}
    theirs = {"name": "flights_log", "schema_name": "flights", "storage_location": "file:///x"}
    server.tables["main.flights.flights_log"] = theirs
    code, out = tidemark("catalog sync --dry-run")
    assert code == 0 and "taken by somebody else flights.flights_log file:///x" in out
    code, out = tidemark("catalog sync")
    assert code == 1 and "main.flights.flights_log in" in out and "[catalog]" in out
    assert server.tables == {"main.flights.flights_log": theirs}


def test_an_option_wins_over_the_environment(
    tidemark: Tidemark, server: RecordedUnity, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    polaris = RecordedPolaris()
    with serving(polaris):
        monkeypatch.setenv("TIDEMARK_CATALOG_URL", f"{polaris.url}/api/catalog")
        code, out = tidemark("catalog sync --to iceberg-rest")
    assert code == 0 and "--to iceberg-rest --dry-run" in out
    assert sorted(polaris.tables) == [
        "flights.departures_by_origin",
        "flights.departures_by_origin_current",
        "flights.flights_log",
    ]


@pytest.mark.parametrize(
    ("environment", "command", "says"),
    [
        (
            {},
            "catalog sync",
            "no catalog is set; set TIDEMARK_CATALOG_KIND, or give --to; kinds are unity, hive, glue,",
        ),
        ({"KIND": "unityy"}, "catalog sync", "TIDEMARK_CATALOG_KIND='unityy' is none of unity, hive, glue"),
        (
            {},
            "catalog sync --to unity",
            "a catalog of kind unity needs TIDEMARK_CATALOG_URL, which is not set; set it,",
        ),
        (
            {"URL": "http://localhost"},
            "catalog sync --to iceberg-rest",
            "kind iceberg-rest needs TIDEMARK_CATALOG_NAME",
        ),
        ({}, "catalog sync nonesuch --to glue", "nonesuch"),
    ],
)
def test_what_is_missing_is_said(
    environment: dict[str, str],
    command: str,
    says: str,
    tidemark: Tidemark,
    monkeypatch: pytest.MonkeyPatch,
    lake: Lake,
) -> None:
    for name in ("KIND", "URL", "NAME"):
        monkeypatch.delenv(f"TIDEMARK_CATALOG_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(f"TIDEMARK_CATALOG_{name}", value)
    code, out = tidemark(command)
    assert code == 1 and says in out


def test_settings_show_the_catalog_and_not_its_token(
    tidemark: Tidemark, server: RecordedUnity, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    monkeypatch.setenv("TIDEMARK_CATALOG_SCHEMA", "lakehouse")
    monkeypatch.setenv("TIDEMARK_CATALOG_URL", f"{server.url}/with/sesame")
    code, out = tidemark("settings")
    assert code == 0 and "sesame" not in out and f"catalog_url {server.url} TIDEMARK_CATALOG_URL" in out
    assert "catalog_schema lakehouse TIDEMARK_CATALOG_SCHEMA" in out
    assert "catalog_token (not shown) TIDEMARK_CATALOG_TOKEN" in out
