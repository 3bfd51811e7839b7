"""What is in a target against what was sent: a changed row is found where the number of rows has not changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import CsvFiles, JsonLines, KafkaTopic, Lake, ParquetFiles
from streaming.audit.deliveries import reconcile
from streaming.declare.delivery import Delivery
from streaming.operators import Finding
from streaming.sinks.files import FileTarget
from streaming.sinks.postgres import Postgres
from streaming.sinks.printing import Console
from streaming.views.corrections import correct
from tests.support.delivering import Courier, by_id, ingested, reading, readings
from tests.support.instants import NOW
from tests.support.kafka import Broker, Message
from tests.support.object_store import Bucket
from tests.support.postgres import rows, run
from tests.support.received import received


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected is read in pieces, as of large tables."""
    monkeypatch.setattr("streaming.audit.deliveries._ROWS_AT_ONCE", 2)


def contents(spark: SparkSession, lake: Lake, delivery: Delivery) -> Finding:
    """What the audit says of what is in the rows; their number is as it should be."""
    *counts, last = reconcile(spark, lake, delivery)
    assert all(finding.holds for finding in counts)
    return last


@pytest.mark.long
def test_a_changed_row_of_a_database_is_found(spark: SparkSession, lake: Lake, postgres: str) -> None:
    """The table has types of its own, refuses one row, and the newest batch ends in the middle of one of the log."""
    run(postgres, "create table r (id varchar(3), value numeric(6, 1), at timestamptz)")
    delivery = Delivery("out", readings, Postgres("r", connection=postgres), select=("id", "value", "at"), batch=3)
    ingested(spark, lake, [reading("a", 1, 1), reading("far", 2, 2)], [reading("long", 3, 3), reading("b", 4, 4)])
    courier = Courier(spark, lake, delivery)
    courier.runtime.next_batch(spark)
    courier.runtime.deliver(spark)
    assert courier.runtime.standing().dead == 1

    assert (contents(spark, lake, delivery).checked, contents(spark, lake, delivery).broken) == (2, 0)
    run(postgres, "update r set value = 9 where id = 'far'")
    finding = contents(spark, lake, delivery)
    assert (finding.checked, finding.broken) == (2, 1)
    assert finding.advice.startswith("not as sent: 1 row of 127.0.0.1/")


@pytest.mark.long
def test_of_a_key_the_newest_row_counts_and_the_changed_key_is_named(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    delivery = Delivery("out", readings, Postgres("r", ("id",), postgres), select=("id", "value"))
    ingested(spark, lake, [reading("a", 2, 1), reading("b", 2, 2)], [reading("a", 3, 3), reading("b", 1, 4)])
    Courier(spark, lake, delivery).deliver()
    assert rows(postgres, "select id, value from r order by 1") == [("a", 3), ("b", 2)]
    assert contents(spark, lake, delivery).holds
    run(postgres, "update r set value = 7 where id = 'b'")
    finding = contents(spark, lake, delivery)
    assert (finding.checked, finding.broken) == (2, 1)
    assert "such as (b)" in finding.advice


@pytest.mark.long
def test_a_consumer_of_what_is_current_holds_what_is_current(spark: SparkSession, lake: Lake, postgres: str) -> None:
    delivery = Delivery("sums", by_id, Postgres("sums", connection=postgres), "current")
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 2)], [reading("a", 30, 3)])
    courier = Courier(spark, lake, delivery)
    courier.deliver()
    ingested(spark, lake, [reading("a", 3, 10)])
    correct(spark, lake, by_id, [date(2026, 1, 1)], lambda: NOW)
    assert contents(spark, lake, delivery).holds, "the correction is not sent yet"
    courier.deliver()
    assert rows(postgres, "select id, total from sums order by 1") == [("a", 11), ("b", 2)]
    assert (contents(spark, lake, delivery).checked, contents(spark, lake, delivery).broken) == (2, 0)
    run(postgres, "update sums set total = 1 where id = 'a'")
    assert contents(spark, lake, delivery).broken == 1


@pytest.mark.long
def test_what_is_still_to_be_delivered_is_told_of_rows_and_of_results_that_a_correction_has_changed(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    delivery = Delivery("sums", by_id, Postgres("sums", connection=postgres), "current")
    lines = Delivery("lines", readings, JsonLines("out", by="none"), select=("value",), batch=2, where="value <> 3")

    def waiting(of: Delivery) -> list[int]:
        return [finding.waiting for finding in reconcile(spark, lake, of)]

    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 2)], [reading("a", 30, 3)])
    assert (waiting(delivery), waiting(lines)) == ([2], [2])
    courier, other = Courier(spark, lake, delivery), Courier(spark, lake, lines)
    courier.deliver()
    other.deliver()
    assert (waiting(delivery), waiting(lines)) == ([0, 0, 0], [0, 0, 0])
    ingested(spark, lake, [reading("a", 3, 10)])
    correct(spark, lake, by_id, [date(2026, 1, 1)], lambda: NOW)
    first, *others = reconcile(spark, lake, delivery)
    assert first.compared == "rows of the table up to where it is = rows sent; 1 row still to be delivered"
    assert (first.waiting, waiting(lines)[0], [finding.holds for finding in others]) == (1, 1, [True, True])
    courier.deliver()
    assert waiting(delivery) == [0, 0, 0]


def test_rows_that_were_sent_before_a_delivery_began_anew_are_told_of(spark: SparkSession, lake: Lake) -> None:
    lines = Delivery("lines", readings, JsonLines("out", by="none"), select=("value",))
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 2)])
    courier = Courier(spark, lake, lines)
    courier.deliver()
    courier.runtime.begin_anew(again=True)
    courier.deliver()
    _, count, _ = reconcile(spark, lake, lines)
    assert (count.checked, count.compared) == (4, "rows sent = rows in the target, of which 2 before it began anew")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", [JsonLines, CsvFiles, ParquetFiles])
def test_a_changed_file_is_found_by_its_folder(kind: type[FileTarget], spark: SparkSession, lake: Lake) -> None:
    delivery = Delivery("out", readings, kind("out", by="hour"), select=("id", "value", "at"), batch=2)
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 3600, 2), reading("c", 3601, 3), reading("a", 2, 4)])
    Courier(spark, lake, delivery).deliver()
    assert (contents(spark, lake, delivery).checked, contents(spark, lake, delivery).broken) == (4, 0)
    other = replace(delivery, to=kind("out", by="none"))
    assert contents(spark, lake, other).holds, "the same rows, by an older layout"
    first, *_, last = sorted(path for path in Path(lake.root, "out").rglob("readings-out-*"))
    last.write_bytes(first.read_bytes())
    finding = contents(spark, lake, delivery)
    assert (finding.checked, finding.broken) == (4, 1)
    assert finding.advice.startswith("not as sent: 1 folder of out, such as 2026-01-01--01. ")


@pytest.mark.long
def test_a_changed_object_is_found_and_of_a_new_generation_only_its_own_are_read(
    spark: SparkSession, lake: Lake, bucket: Bucket
) -> None:
    delivery = Delivery("out", readings, bucket.objects(), select=("id", "value"))
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 2)])
    courier = Courier(spark, lake, delivery)
    courier.deliver()
    assert contents(spark, lake, delivery).holds
    (key,) = bucket.names()
    bucket.put(key, bucket.content(key).replace(b'"value":2', b'"value":3'))
    assert contents(spark, lake, delivery).broken == 1
    courier.runtime.begin_anew(again=True)
    courier.deliver()
    assert (contents(spark, lake, delivery).checked, contents(spark, lake, delivery).broken) == (2, 0)


@pytest.mark.long
def test_a_record_of_a_topic_that_came_twice_is_found_and_those_of_others_are_passed_over(
    spark: SparkSession, lake: Lake, kafka: Broker
) -> None:
    kafka.create("audited", 2)
    to = KafkaTopic(kafka.servers, "audited", key=("id",), partition="part")
    delivery = Delivery("out", readings, to, select={"id": "id", "value": "value", "part": "value % 2"})
    ingested(spark, lake, [reading("a", 2, 1), reading("a", 1, 2)], [reading("far", 3, 3), reading("b", 4, 4)])
    courier = Courier(spark, lake, delivery)
    courier.deliver()
    kafka.send("audited", [Message(b"whatever", b"a")])
    assert (contents(spark, lake, delivery).checked, contents(spark, lake, delivery).broken) == (4, 0)
    ingested(spark, lake, [reading("c", 5, 5)])
    assert courier.deliver() == 1, "an audit shuts no process out"

    (again,) = (record for record in received(kafka, "audited") if record.key == b"far")
    kafka.send("audited", [Message(again.value, again.key)], partition=1)
    finding = contents(spark, lake, delivery)
    assert (finding.checked, finding.broken) == (5, 1)
    assert "1 record of" in finding.advice and "such as far" in finding.advice
    kafka.remove_before("audited", 1, 1)
    assert "the target cannot be read back" in contents(spark, lake, delivery).compared


@pytest.mark.long
def test_a_consumer_of_a_topic_of_what_is_current_holds_what_is_current(
    spark: SparkSession, lake: Lake, kafka: Broker
) -> None:
    kafka.create("audited-sums")
    delivery = Delivery("sums", by_id, KafkaTopic(kafka.servers, "audited-sums"), "current")
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 2)], [reading("a", 30, 3)])
    courier = Courier(spark, lake, delivery)
    courier.deliver()
    ingested(spark, lake, [reading("a", 3, 10)])
    correct(spark, lake, by_id, [date(2026, 1, 1)], lambda: NOW)
    courier.deliver()
    assert (contents(spark, lake, delivery).checked, contents(spark, lake, delivery).broken) == (2, 0)
    last = received(kafka, "audited-sums")[-1]
    kafka.send("audited-sums", [Message(None, last.key, headers=[("_revision", b"99999999")])])
    finding = contents(spark, lake, delivery)
    assert (finding.checked, finding.broken) == (2, 1)
    assert "1 key of" in finding.advice


@pytest.mark.long
def test_what_cannot_be_compared_is_told_with_the_reason(
    spark: SparkSession, lake: Lake, postgres: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 2)])
    table = Delivery("out", readings, Postgres("r", connection=postgres), select=("id",))
    courier = Courier(spark, lake, table)
    assert [finding.compared for finding in reconcile(spark, lake, table)] == ["nothing is delivered yet"]
    courier.deliver()

    def why(delivery: Delivery) -> str:
        return [finding.compared for finding in reconcile(spark, lake, delivery)][-1]

    assert "the selection is not the one that older rows" in why(replace(table, select={"id": "upper(id)"}))
    courier.runtime.begin_anew(again=True)
    courier.deliver()
    assert "the target cannot be read back, or not for this generation alone" in why(table)
    run(postgres, "drop table r")
    assert why(table).startswith("not compared: the target is away")
    console = Delivery("lines", readings, Console(), select=("id",))
    Courier(spark, lake, console).deliver()
    assert why(console) == "not compared: what is there cannot be told apart"
