"""The demo through a real broker into a real database, both its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from platform_assets.cli.through_kafka import show_through_kafka
from platform_assets.demo.feeds import feed_flights
from platform_assets.demo.feeds.flights_topic import send_flights
from platform_assets.demo.kafka import through_kafka
from platform_assets.demo.steps import FIRST_DAY
from tests.support.kafka import Broker
from tests.support.received import received


@pytest.fixture
def lake_for_services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a lake that Postgres may enter also where this process is root."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-demo-"))
    folder.chmod(0o755)
    for name, value in {
        "TIDEMARK_HOME": str(folder / "lake"),
        "DAGSTER_HOME": str(folder / "dagster"),
        # The demo sets these, and the next test must not find them.
        "TIDEMARK_PIPELINES": "platform_assets.demo.pipelines",
        "TIDEMARK_PARAMETER_DEMO_KAFKA": "",
        "TIDEMARK_PARAMETER_DEMO_POSTGRES": "",
    }.items():
        monkeypatch.setenv(name, value)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.processes
@pytest.mark.long
def test_the_database_has_the_late_flights_after_the_corrections(spark: SparkSession, lake_for_services: Path) -> None:
    console = Console(record=True, width=200)
    with through_kafka(console) as done:
        assert show_through_kafka(console, done)
    assert "every law holds" in console.export_text()
    assert [row["origin"] for row in done.current] == ["EWR", "JFK", "LGA"]
    for first, current in zip(done.first, done.current, strict=True):
        assert first["flights"] < current["flights"]
        # The most delayed flights are those that come late.
        assert first["mean_dep_delay"] < current["mean_dep_delay"]


@pytest.mark.long
def test_flights_are_sent_to_a_topic_once_in_the_order_in_which_they_leave(kafka: Broker, tmp_path: Path) -> None:
    topic = f"flights-{tmp_path.name}"
    feed_flights(tmp_path, FIRST_DAY, 2)
    sent = [send_flights(kafka.servers, topic, FIRST_DAY, days) for days in (1, 2, 2)]
    records = received(kafka, topic)
    assert sent[0] > 0 and sent[1] > 0 and sent[2] == 0
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert sorted((record.value or b"").decode() for record in records) == sorted(lines)
