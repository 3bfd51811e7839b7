"""Killed anywhere while it delivers, a pipeline leaves every row in each target once, and every dead letter."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, drain
from streaming.audit.deliveries import audit_deliveries, reconcile
from streaming.deliveries.runtime import DeliveryRuntime
from streaming.operations.redeliver import redeliver_days
from tests.support.crash import crash
from tests.support.delivering import ingested, pipeline, reading, readings
from tests.support.delivery_crash import (
    BUCKET,
    CONNECTION,
    DAY_POINTS,
    POINTS,
    SECOND,
    SERVERS,
    TOPIC_POINTS,
    TWO_PHASE_POINTS,
    by_value,
    deliveries,
    to_topic,
    to_two,
)
from tests.support.feeds import land
from tests.support.instants import NOW, at
from tests.support.kafka import Broker
from tests.support.object_store import Bucket
from tests.support.postgres import Server, rows, run
from tests.support.received import received

pytestmark = pytest.mark.processes

PREPARED = "select count(*) from pg_prepared_xacts where gid like 'tidemark:%'"
"""Of the whole server."""


@pytest.mark.long
def test_every_row_arrives_once_wherever_a_process_is_killed(
    spark: SparkSession, tmp_path: Path, postgres: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    run(postgres, "create table r (id text, value bigint check (value % 10 <> 3))")
    run(postgres, "create table b (id text, value bigint check (value % 10 <> 3), blob text unique)")
    monkeypatch.setenv(CONNECTION, postgres)
    monkeypatch.setenv(BUCKET, f"{bucket.endpoint} {bucket.name}")
    values = []
    for number, name in enumerate(POINTS):
        fed = [10 * number + each for each in range(5)]
        # Every other row lies in the next hour, hence in a second file.
        ingested(spark, lake, [reading("a", 3600 * (value % 2), value) for value in fed])
        values += fed
        died = crash(tmp_path, name, "tests.support.delivery_crash", lent=spark)
        assert died.returncode == -signal.SIGKILL, f"{name}: {died.stdout}"

    of = pipeline(*deliveries(postgres, f"{bucket.endpoint} {bucket.name}"))
    assert drain(spark, lake, of, now=lambda: NOW).waiting == {}

    paths = [path for path in Path(lake.root, "out").rglob("*.json") if path.parent.name != "_delivered"]
    put = [json.loads(line)["value"] for path in paths for line in path.read_text().splitlines()]
    assert sorted(put) == values
    assert list(Path(lake.root, "out").rglob(".*.json")) == []
    dead = [value for value in values if value % 10 == 3]
    assert [row[0] for row in rows(postgres, "select value from r order by 1")] == [v for v in values if v not in dead]
    both = rows(postgres, "select value, blob from b order by 1")
    assert [value for value, _ in both] == [value for value in values if value not in dead]
    names = {url.removeprefix(f"s3://{bucket.name}/out/"): value for value, url in both}
    assert sorted(names) == bucket.names()
    assert {name: json.loads(bucket.content(name))["value"] for name in names} == names
    for delivery in of.deliveries[1:]:
        runtime = DeliveryRuntime(delivery, lake, lambda: NOW)
        letters = runtime.dead_letters.pending(0, runtime.standing().delivered)
        assert [json.loads(letter["payload"])["value"] for letter in letters] == dead
    findings = list(audit_deliveries(spark, lake, of))
    assert [finding.holds and finding.checked > 0 for finding in findings] == [True] * 9


@pytest.mark.long
def test_x9_killed_in_mid_batch_all_ids_arrive_and_a_reader_of_committed_rows_sees_each_once(
    spark: SparkSession, tmp_path: Path, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    kafka.create("crashes")
    monkeypatch.setenv(SERVERS, kafka.servers)
    values = []
    for number, name in enumerate(TOPIC_POINTS):
        fed = [10 * number + each for each in range(5)]
        ingested(spark, lake, [reading("a", value, value) for value in fed])
        values += fed
        died = crash(tmp_path, name, "tests.support.delivery_crash", lent=spark)
        assert died.returncode == -signal.SIGKILL, f"{name}: {died.stdout}"

    of = pipeline(to_topic(kafka.servers))
    assert drain(spark, lake, of, now=lambda: NOW).waiting == {}

    dead = [value for value in values if value % 10 == 3]
    arrived = [record.json["value"] for record in received(kafka, "crashes")]
    assert arrived == [value for value in values if value not in dead]
    everything = [record.json["value"] for record in received(kafka, "crashes", committed=False)]
    assert len(everything) > len(arrived), "what was killed had sent rows that nobody sees"
    letters = DeliveryRuntime(of.deliveries[0], lake, lambda: NOW).dead_letters.pending(0, len(TOPIC_POINTS))
    assert [json.loads(letter["payload"])["value"] for letter in letters] == dead


@pytest.mark.long
def test_a_row_is_in_both_databases_or_in_neither_wherever_a_process_is_killed(
    spark: SparkSession, tmp_path: Path, postgres_running: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first database refuses each fourth of five rows, the second one each third."""
    lake, both = Lake(str(tmp_path / "lake")), [postgres_running.database() for _ in range(2)]
    for connection, variable, refused in zip(both, (CONNECTION, SECOND), (4, 3), strict=True):
        run(connection, f"create table t (id text, value bigint check (value % 10 <> {refused}))")
        monkeypatch.setenv(variable, connection)
    values = []
    for number, (name, (_, left)) in enumerate(TWO_PHASE_POINTS.items()):
        fed = [10 * number + each for each in range(5)]
        ingested(spark, lake, [reading("a", value, value) for value in fed])
        values += fed
        died = crash(tmp_path, name, "tests.support.delivery_crash", lent=spark)
        assert died.returncode == -signal.SIGKILL, f"{name}: {died.stdout}"
        assert rows(both[0], PREPARED) == [(left,)], name

    of = pipeline(to_two(*both))
    assert drain(spark, lake, of, now=lambda: NOW).waiting == {}
    arrived = [[value for (value,) in rows(connection, "select value from t order by 1")] for connection in both]
    assert arrived == [[value for value in values if value % 10 not in (3, 4)]] * 2
    assert rows(both[0], PREPARED) == [(0,)]
    letters = DeliveryRuntime(of.deliveries[0], lake, lambda: NOW).dead_letters.pending(0, len(TWO_PHASE_POINTS))
    assert [json.loads(letter["payload"])["value"] for letter in letters] == [v for v in values if v % 10 in (3, 4)]
    assert [finding.broken for finding in reconcile(spark, lake, of.deliveries[0])] == [0, 0, 0]


@pytest.mark.long
def test_a_day_that_is_delivered_again_is_whole_and_has_no_row_twice_wherever_a_process_is_killed(
    spark: SparkSession, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, delivery = Lake(str(tmp_path / "lake")), by_value(postgres)
    monkeypatch.setenv(CONNECTION, postgres)
    land(readings.source.location(lake), [reading("a", value, value) for value in range(7)])
    assert drain(spark, lake, pipeline(delivery), now=lambda: NOW).waiting == {}
    run(postgres, "delete from k where value in (0, 3, 6)", "update k set id = 'damaged'")
    before = rows(postgres, "select batch from tidemark_progress")[0][0]
    for name in DAY_POINTS:
        died = crash(tmp_path, name, "tests.support.delivery_crash", lent=spark)
        assert died.returncode == -signal.SIGKILL, f"{name}: {died.stdout}"
        damaged = rows(postgres, "select count(*) from k where id = 'damaged'")[0][0]
        assert damaged > 0, "it is killed in the middle"

    assert redeliver_days(spark, lake, pipeline(delivery), delivery, [at(0).date()], now=lambda: NOW).done
    assert rows(postgres, "select id, value from k order by value") == [("a", value) for value in range(7)]
    sent = rows(postgres, "select batch from tidemark_progress")[0][0] - before
    assert sent == 4, "seven rows, two in a batch: no batch was sent twice"
