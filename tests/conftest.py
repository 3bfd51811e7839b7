"""How tests are shared out to workers; the fixtures `spark` and `lake` are those of the package's pytest plugin."""

from __future__ import annotations

import os

import psutil
import pytest

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
