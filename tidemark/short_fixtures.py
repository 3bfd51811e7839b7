"""The package's fixtures by short names, where a project asks for them: `pytest -p tidemark.short_fixtures`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming import Lake


@pytest.fixture(scope="session")
def spark(tidemark_spark: SparkSession) -> SparkSession:
    """The session of `tidemark_spark`."""
    return tidemark_spark


@pytest.fixture
def lake(tidemark_lake: Lake) -> Lake:
    """The empty lake of `tidemark_lake`."""
    return tidemark_lake
