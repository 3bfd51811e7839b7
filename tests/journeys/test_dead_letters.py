"""Golden tests of dead letters: what cannot be used is set aside whole, and stops nothing."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from docs.examples import records, sensors
from streaming import log
from streaming.lake.lake import Lake
from tests.support.runs import run, tuples


def places(rows: DataFrame) -> list[tuple[str, int]]:
    """Where the rows come from: file and position."""
    return [(path, position) for path, position in tuples(rows, "_origin.path", "_origin.position")]


def raw(rows: DataFrame) -> list[bytes]:
    """The payloads of the rows in the order in which they came."""
    return [bytes(row["_raw"]) for row in rows.orderBy("_batch", "_origin.position").collect()]


def test_d2_every_row_is_valid_or_rejected_never_both_never_neither(spark: SparkSession, lake: Lake) -> None:
    good = ['{"id":"a","timestamp":1767225600000,"temperature":20.5}', '{"id":"b","timestamp":0,"temperature":0}']
    bad = [
        '{"id":"a","timestamp":1767225600000,"temperature":null}',
        '{ "temperature" : "hot",\t"id":"a", "timestamp":1767225600000 } ',
        '{"id":"\\u00e9ß\U0001f30a","timestamp":-62135596800001,"temperature":1e400}',
        '["id","a"]',
        "",
    ]

    run(spark, lake, sensors.pipeline, [good[0], *bad[:3]], [*bad[3:], good[1]])

    rows = log.read_log(spark, lake, sensors.sensors).where("_origin is not null")
    valid, rejected = places(log.valid(rows)), places(log.rejected(rows))
    assert (len(valid), len(rejected)) == (2, 5)
    assert sorted(valid + rejected) == sorted(set(places(rows)))
    assert raw(log.rejected(rows)) == [line.encode() for line in bad]
    # Valid and rejected are told apart by the same columns everywhere.
    assert rows.where("(_day is null) = (_rejected is null)").count() == 0


@pytest.mark.long
def test_d3_the_parser_sends_good_records_to_one_sink_and_bad_ones_with_their_text_to_another(
    spark: SparkSession, lake: Lake
) -> None:
    bad = ['{"id":"b","ts":', '{"id":"c","ts":1} {"id":"d","ts":2}', '{"id":"e","ts":1.5}']
    run(spark, lake, records.pipeline, ['{"id":"a","ts":1}', *bad])

    rows = log.read_log(spark, lake, records.records)
    log.valid(rows).select("id", "ts").write.format("delta").save(lake.path("sinks", "good"))
    log.rejected(rows).selectExpr("cast(_raw as string) text").write.text(lake.path("sinks", "bad"))

    assert tuples(spark.read.format("delta").load(lake.path("sinks", "good"))) == [("a", 1)]
    assert tuples(spark.read.text(lake.path("sinks", "bad"))) == [(line,) for line in sorted(bad)]


def test_d6_a_poison_record_restarts_nothing_and_its_neighbours_arrive(spark: SparkSession, lake: Lake) -> None:
    poison = b"\x80\xff\x00{\xfe"

    drained = run(
        spark,
        lake,
        records.pipeline,
        ['{"id":"a","ts":1}', '{"id":"b","ts":2}', '{"id":"c","ts":3}', poison],
        ['{"id":"d","ts":4}', '{"id":"e","ts":5}', '{"id":"f","ts":6}'],
    )

    rows = log.read_log(spark, lake, records.records)
    assert [row[0] for row in tuples(log.valid(rows), "id")] == ["a", "b", "c", "d", "e", "f"]
    assert raw(log.rejected(rows)) == [poison]
    # One run, each batch once: nothing failed and came again.
    sources = [(batch.query, batch.query_batch) for batch in log.read_batches(lake, records.records) if batch.query]
    assert [number for _, number in reversed(sources)] == [0, 1]
    assert len({query for query, _ in sources}) == 1
    assert (drained.queries["log"].batches, drained.queries["log"].rejected) == (2, 1)
