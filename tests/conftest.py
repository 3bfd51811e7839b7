"""What every test room shares: one Spark session for each worker, a lake of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from streaming.lake.lake import Lake
from streaming.spark.session import start_session
from tests.support.jvm import INTERPRETED, SHORT_LIVED

_MEMORY_OF_A_WORKER = 3 * 2**30
"""Bytes: a worker with its JVM takes up to 2 GB, and the processes that its tests start take the rest."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-spark", action="store_true", help="leave out the tests that start a Spark session")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """As many workers as there are cores, as far as the memory goes."""
    return max(1, min(os.cpu_count() or 1, psutil.virtual_memory().available // _MEMORY_OF_A_WORKER))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--without-spark"):
        items[:] = [item for item in items if "spark" not in getattr(item, "fixturenames", ())]
    # Without workers, tests run in the order of their files.
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """Workers begin with what takes minutes and end with what takes none, so that they end together."""
    if item.get_closest_marker("processes"):
        return 0
    return 1 if "spark" in getattr(item, "fixturenames", ()) else 2


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The platform's own session (Delta, UTC) on two threads, hence two shuffle partitions."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIDEMARK_MASTER", "local[2]")
        with pytest.MonkeyPatch.context() as start:
            start.setenv("SPARK_SUBMIT_OPTS", SHORT_LIVED)
            for name, value in INTERPRETED.items():
                start.setenv(f"TIDEMARK_SPARK_{name}", value)
            session = start_session()
        yield session
        session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(str(tmp_path / "lake"))
