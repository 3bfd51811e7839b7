"""Fixtures for the tests of a project; pytest finds them once the package is installed.

They have long names, so that no project gets fixtures that it may have by the same name; `tidemark.short_fixtures` has
short ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming import Lake

_COLLECTOR = "-XX:+UseSerialGC"
# With the default of 48 MB for one compiler, what was compiled is dropped and compiled again, over and over.
_ROOM_FOR_CODE = "-XX:ReservedCodeCacheSize=512m"
# With the default of 21 MB the whole heap is collected for the sake of the classes that Spark loads at its start.
_ROOM_FOR_CLASSES = "-XX:MetaspaceSize=256m"
_EVERY_JVM = f"{_COLLECTOR} {_ROOM_FOR_CODE} {_ROOM_FOR_CLASSES}"
JVM_OPTIONS = f"-XX:TieredStopAtLevel=1 {_EVERY_JVM}"
"""Options of a JVM that lives for minutes: compiling once more, for speed, takes longer than it saves."""
_MANY_TESTS = 500
"""From here on it saves more than it takes."""
HANDFUL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Spark settings for queries over a handful of rows: compiling one takes longer than interpreting it, and a second part
of a shuffle longer than its rows."""


@pytest.fixture(scope="session")
def tidemark_spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The platform's own session (Delta, UTC) on two threads, with one shuffle partition; one for all tests."""
    # Tests of other packages must not wait for Spark to be imported.
    from streaming import start_session

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TIDEMARK_MASTER", "local[2]")
        with pytest.MonkeyPatch.context() as start:
            many = request.session.testscollected >= _MANY_TESTS
            start.setenv("SPARK_SUBMIT_OPTS", _EVERY_JVM if many else JVM_OPTIONS)
            for name, value in HANDFUL.items():
                start.setenv(f"TIDEMARK_SPARK_{name}", value)
            session = start_session()
        yield session
        session.stop()


@pytest.fixture
def tidemark_lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    from streaming import Lake

    return Lake(str(tmp_path / "lake"))
