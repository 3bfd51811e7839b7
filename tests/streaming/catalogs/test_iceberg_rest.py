"""Catalogs of Iceberg's REST API, by the recorded contract of Apache Polaris' generic tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from streaming.base.errors import CatalogError
from streaming.catalogs.iceberg_rest import IcebergRestCatalog
from tests.streaming.catalogs.contract import LAWS, Registry, a_lake
from tests.support.catalog_servers import TOKEN, RecordedPolaris, serving


@pytest.fixture
def server() -> Iterator[RecordedPolaris]:
    recorded = RecordedPolaris()
    with serving(recorded):
        yield recorded


@pytest.fixture
def registry(server: RecordedPolaris, tmp_path: Path) -> Registry:
    url = f"{server.url}/api/catalog"
    return Registry(lambda: IcebergRestCatalog(url, "main", TOKEN), f"s{uuid4().hex}", a_lake(tmp_path))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_generic_tables_keep_the_contract_of_catalogs(law: Callable[[Registry], None], registry: Registry) -> None:
    law(registry)


def test_a_table_is_registered_as_one_of_the_format_delta(server: RecordedPolaris, registry: Registry) -> None:
    registry.sync()
    assert {table["format"] for table in server.tables.values()} == {"delta"}


def test_a_server_that_has_iceberg_tables_alone_is_refused_in_words(
    server: RecordedPolaris, registry: Registry
) -> None:
    server.offers_generic_tables = False
    with pytest.raises(
        CatalogError, match=r"keeps Iceberg tables alone: it offers no generic tables.*--to unity, hive"
    ):
        registry.sync()
    assert {*server.requests} == {"GET /api/catalog/v1/config"}


def test_a_warehouse_that_is_not_there_is_named(server: RecordedPolaris, tmp_path: Path) -> None:
    url = f"{server.url}/api/catalog"
    registry = Registry(lambda: IcebergRestCatalog(url, "nonesuch", TOKEN), "s", a_lake(tmp_path))
    with pytest.raises(CatalogError, match=r"has no warehouse 'nonesuch'; correct TIDEMARK_CATALOG_NAME"):
        registry.sync()
