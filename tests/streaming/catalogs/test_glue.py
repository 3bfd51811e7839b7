"""The Data Catalog of AWS Glue, on moto's server of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import boto3
import pytest

from streaming.base.errors import CatalogError, SettingsError
from streaming.catalogs import CatalogColumn, TableEntry
from streaming.catalogs.glue import GlueCatalog
from tests.streaming.catalogs.contract import LAWS, Registry, a_lake


@pytest.fixture
def registry(object_store_running: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    return Registry(lambda: GlueCatalog(object_store_running), f"s{uuid4().hex}", a_lake(tmp_path))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_glue_keeps_the_contract_of_catalogs(law: Callable[[Registry], None], registry: Registry) -> None:
    law(registry)


def test_athena_trino_and_spark_find_a_delta_table_there(registry: Registry, object_store_running: str) -> None:
    registry.sync()
    client = boto3.client("glue", endpoint_url=object_store_running)
    table = client.get_table(DatabaseName=registry.schema, Name="hourly")["Table"]
    assert (table["TableType"], table["Owner"]) == ("EXTERNAL_TABLE", "team:doors")
    told = {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "delta", "classification": "delta", "table_type": "DELTA"}
    assert told.items() <= table["Parameters"].items()
    assert table["StorageDescriptor"]["SerdeInfo"]["Parameters"]["path"] == table["StorageDescriptor"]["Location"]


def test_texts_are_cut_to_what_glue_takes() -> None:
    entry = TableEntry("s", "t", "file:///x", (CatalogColumn("n", "timestamp_ntz", "m" * 300),), comment="c" * 3_000)
    held = GlueCatalog().as_held(entry)
    assert held.columns == (CatalogColumn("n", "timestamp", "m" * 252 + "..."),)
    assert held.comment == "c" * 2_045 + "..."


@pytest.mark.parametrize(
    "url",
    ["localhost:5000", "http://user:sesame@localhost", "http://localhost:sesame", "http://user:ses/ame@localhost"],
)
def test_what_is_no_endpoint_is_refused(url: str) -> None:
    refused = (
        r"TIDEMARK_CATALOG_URL \(.*\) is no address of a catalog; write https://host:port, without a user, and cred"
    )
    with pytest.raises(SettingsError, match=refused) as raised:
        GlueCatalog(url)
    assert "sesame" not in str(raised.value)


def test_an_endpoint_that_is_away_or_credentials_that_are_missing_are_told(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    away = Registry(lambda: GlueCatalog("http://127.0.0.1:9"), "s", registry.lake)
    with pytest.raises(
        CatalogError, match=r"the glue catalog at http://127.0.0.1:9 cannot be reached .*set AWS_REGION"
    ):
        away.sync()
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION", raising=False)
    nowhere = Registry(lambda: GlueCatalog(None), "s", registry.lake)
    with pytest.raises(
        CatalogError, match=r"the glue catalog at AWS Glue cannot be reached \(You must specify a region"
    ):
        nowhere.sync()
