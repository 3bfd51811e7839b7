"""What every stream process of these tests inherits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import short_lived

PROJECT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stream process inherits."""
    monkeypatch.setenv("TIDEMARK_PIPELINES", "tests.support.pipelines")
    monkeypatch.setenv("TIDEMARK_MASTER", "local[2]")
    monkeypatch.setenv("TIDEMARK_SPARK_DRIVER_MEMORY", "1g")
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    for name, value in short_lived().items():
        monkeypatch.setenv(name, value)
