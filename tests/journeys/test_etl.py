"""Golden tests of stateless applications on readings: filters, outputs, conversion, validation, event time."""

from __future__ import annotations

from decimal import Decimal

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from docs.examples import iso_events, records, sensors, shop_orders
from streaming import Pipeline, log
from streaming.declare.operator import Operator
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from tests.support.feeds import readings
from tests.support.instants import T0, at, ms
from tests.support.runs import run, tuples


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after readings around two thresholds, one without a value, and those that are converted and split."""
    lake = Lake(str(tmp_path_factory.mktemp("measured")))
    threshold, conversion = readings("e2@1=24.9, e2@2=25.0, e2@3"), readings("e9@1=32, e9@2=50, e9@3=212, e9@4=-40")
    others = readings("a@0=70, d1@1=31.9, d1@2=32.0, sensor_7@1=80")
    run(spark, lake, Pipeline(sensors.sensors, (sensors.warm, sensors.monitored)), threshold, conversion, others)
    return lake


def output(spark: SparkSession, lake: Lake, of: Operator, side: str = "current") -> DataFrame:
    return runtime_of(of, lake).readable[side](spark)


def test_e1_each_reading_becomes_its_id(spark: SparkSession, measured: Lake) -> None:
    ids = output(spark, measured, sensors.monitored, "ids")
    assert tuples(ids.where("id = 'a'"), "id") == [("a",)]
    assert ids.count() == output(spark, measured, sensors.monitored).count() == 10


def test_e2_a_threshold_filter_keeps_the_threshold_and_reports_rows_in_kept_and_removed(
    spark: SparkSession, measured: Lake
) -> None:
    kept = output(spark, measured, sensors.warm)
    assert tuples(kept.where("id = 'e2'"), "id", "temperature") == [("e2", 25.0)]
    counts = runtime_of(sensors.warm, measured).filtered()[""]
    assert (counts.rows_in, counts.kept, counts.removed) == (10, 8, 2)
    # 24.9 is removed, not rejected; the reading without a value is rejected, not removed.
    rejected = log.rejected(log.read_log(spark, measured, sensors.sensors))
    assert tuples(rejected, "event_time", "_rejected") == [
        (at(3), ["temperature_present: not (temperature is not null)"])
    ]


def test_e9_fahrenheit_becomes_celsius(spark: SparkSession, measured: Lake) -> None:
    rows = log.read_log(spark, measured, sensors.sensors).where("id = 'e9'").orderBy("event_time").collect()

    assert [row["temperature"] for row in rows] == [32, 50, 212, -40]
    assert [row["celsius"] for row in rows] == pytest.approx([0, 10, 100, -40], abs=1e-9)


def test_e14_an_id_is_split_at_its_underscore(spark: SparkSession, measured: Lake) -> None:
    assert tuples(output(spark, measured, sensors.monitored, "parts"), "kind", "number") == [("sensor", 7)]


def test_d1_a_reading_below_freezing_raises_an_alarm_and_all_readings_go_on(
    spark: SparkSession, measured: Lake
) -> None:
    main = output(spark, measured, sensors.monitored).where("id = 'd1'")
    assert tuples(main, "temperature") == [(31.9,), (32.0,)]
    alarms = output(spark, measured, sensors.monitored, "freezing")
    assert tuples(alarms.where("alarm like '%d1'"), "alarm", "_at") == [("Freezing Alarm for d1", at(1))]


def test_d4_one_pass_over_the_log_fills_outputs_of_different_types_each_in_one_commit(
    spark: SparkSession, measured: Lake
) -> None:
    sides = ("current", "freezing", "ids", "parts")
    columns = [output(spark, measured, sensors.monitored, side).columns for side in sides]
    values = [[name for name in names if not name.startswith("_")] for names in columns]
    assert values == [list(sensors.sensors.columns), ["alarm"], ["id"], ["kind", "number"]]
    tables = [DeltaTable(measured.table(sensors.monitored, spec.suffix)) for spec in sensors.monitored.tables]
    writes = [[commit["operation"] for commit in table.history()] for table in tables]
    assert [names.count("WRITE") for names in writes] == [1, 1, 1, 1]


def test_e18_a_payload_is_valid_or_rejected_with_all_its_reasons_and_its_bytes(spark: SparkSession, lake: Lake) -> None:
    lines = ['{"id":"a","ts":1}', '{"id":"a"}', '{"id":1,"ts":"x"}', "{oops"]

    drained = run(spark, lake, records.pipeline, lines)

    rows = log.read_log(spark, lake, records.records)
    assert tuples(log.valid(rows), "id", "ts", "_rejected") == [("a", 1, None)]
    rejections = log.rejected(rows).orderBy("_origin.position").collect()
    assert [(bytes(row["_raw"]).decode(), row["_rejected"]) for row in rejections] == [
        ('{"id":"a"}', ["required: ts is missing"]),
        (
            '{"id":1,"ts":"x"}',
            [
                "type: id is not a JSON string, got 1",
                'type: ts is not a whole number within bigint, got "x"',
            ],
        ),
        ("{oops", ["json: the payload is not one JSON object"]),
    ]
    assert [row["_origin"]["path"].endswith("/landing/records/0000.json") for row in rejections] == [True] * 3
    assert len({row["_origin"]["position"] for row in rejections}) == 3
    assert (drained.queries["log"].rows, drained.queries["log"].rejected) == (4, 3)


def test_e19_event_time_is_text_with_an_offset_and_any_other_text_is_rejected(spark: SparkSession, lake: Lake) -> None:
    texts = [
        "2026-01-01T05:30:00+05:30",
        "2025-12-31T19:00:00.001-05:00",
        "2026-01-01T00:00:00",  # names no instant
        "2026-01-01",
        "yesterday",
        "2026-02-30T00:00:00Z",
    ]

    run(spark, lake, iso_events.pipeline, [{"event_timestamp": text} for text in texts])

    rows = log.read_log(spark, lake, iso_events.iso_events)
    assert tuples(log.valid(rows), "event_timestamp", "epoch_ms") == [(T0, ms(T0)), (at(0.001), ms(T0) + 1)]
    rejected = log.rejected(rows).select(
        F.get_json_object(F.col("_raw").cast("string"), "$.event_timestamp").alias("text"),
        F.size("_rejected").alias("reasons"),
    )
    assert tuples(rejected) == [(text, 1) for text in sorted(texts[2:])]


@pytest.mark.long
def test_e20_an_order_is_normalised_and_comes_once_and_a_copy_or_a_bad_one_does_not_vanish(
    spark: SparkSession, lake: Lake
) -> None:
    def order(order_id: str, country: str | None, amount: str) -> dict[str, str | None]:
        return {
            "order_id": order_id,
            "customer": "c",
            "country": country,
            "amount": amount,
            "ordered_at": T0.isoformat(),
        }

    first, again = order("o1", " de", "10.50"), order("o1", "DE", "10.50")
    run(spark, lake, shop_orders.pipeline, [first, order("o2", "xx", "-1")])
    run(spark, lake, shop_orders.pipeline, [again, order("o3", None, "ten")])
    columns = ("order_id", "iso_country", "total")
    assert tuples(output(spark, lake, shop_orders.each_order), *columns) == [("o1", "DE", Decimal("10.50"))]
    duplicates = output(spark, lake, shop_orders.each_order, "duplicates")
    assert tuples(duplicates, *columns) == [("o1", "DE", Decimal("10.50"))]
    rejected = log.rejected(log.read_log(spark, lake, shop_orders.shop_orders))
    reasons = {row["order_id"]: [reason.partition(":")[0] for reason in row["_rejected"]] for row in rejected.collect()}
    assert reasons == {order_id: ["country_known", "amount_payable"] for order_id in ("o2", "o3")}
