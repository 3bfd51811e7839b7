"""What every test room shares: one Spark session for the whole run, a lake of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.lake.lake import Lake
from streaming.spark.session import start_session


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-spark", action="store_true", help="leave out the tests that start a Spark session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--without-spark"):
        items[:] = [item for item in items if "spark" not in getattr(item, "fixturenames", ())]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The platform's own session (Delta, RocksDB state, UTC) on two threads, hence two shuffle partitions."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIDEMARK_MASTER", "local[2]")
        session = start_session()
        yield session
        session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(str(tmp_path / "lake"))
