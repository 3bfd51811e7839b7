"""Tables say themselves what their columns mean, in which unit, and which of them are the key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Json, Lake, Pipeline, agg
from streaming.catalogs import lake_entries
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from tests.support.delivering import by_id, reading, readings
from tests.support.instants import NOW
from tests.support.runs import run

MEASURED = "id string comment 'Which sensor', at timestamp, value bigint comment 'Warmth of the air [K]'"
TOTALS = {"readings": agg.count(), "mean": agg.mean("value"), "share": agg.share("value > 0")}

measured = replace(readings, format=Json(MEASURED))
by_sensor = replace(by_id, of=measured, aggregates=TOTALS)
shop = Pipeline(measured, (by_sensor,))


def said(uri: str) -> dict[str, dict[str, Any]]:
    """The metadata of each column, as any program that reads Delta has it."""
    return {field.name: field.metadata for field in DeltaTable(uri).schema().fields}


def key_of(uri: str) -> str | None:
    return DeltaTable(uri).metadata().configuration.get("tidemark.key")


def test_tables_tell_meaning_unit_and_key_of_their_columns(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, shop, [reading("a", 1, 5), reading("a", 40, 1)])

    in_log = said(lake.log(measured))
    assert in_log["id"] == {"comment": "Which sensor"}
    assert in_log["value"] == {"comment": "Warmth of the air [K]", "tidemark.unit": "K"}
    assert in_log["at"]["comment"].startswith("Event time.")
    for suffix in ("", "current", "changes"):
        columns = said(lake.table(by_sensor, suffix))
        assert columns["id"] == {"comment": "Key. Which sensor"}
        assert columns["mean"] == {"comment": "Mean of value: `avg(value)` [K].", "tidemark.unit": "K"}
        assert "tidemark.unit" not in columns["readings"] | columns["share"]
        assert all(metadata.get("comment") for metadata in columns.values()), columns
    assert key_of(lake.table(by_sensor)) == key_of(lake.table(by_sensor, "current")) == "id, window_start, window_end"
    assert key_of(lake.log(measured)) is key_of(lake.table(by_sensor, "changes")) is None
    shown = spark.sql(f"describe delta.`{lake.table(by_sensor, 'current')}`").collect()
    assert {row["col_name"]: row["comment"] for row in shown}["id"] == "Key. Which sensor"


def test_a_catalog_is_told_what_tables_say_of_themselves(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, shop, [reading("a", 1, 5), reading("a", 40, 1)])
    entries = {entry.name: entry for entry in lake_entries(lake, shop)}
    assert {"readings_log", by_sensor.name, f"{by_sensor.name}_changes", f"{by_sensor.name}_current"} <= {*entries}
    for entry in entries.values():
        uri = entry.location.removeprefix("file://")
        comments = {name: metadata.get("comment", "") for name, metadata in said(uri).items()}
        assert {column.name: column.comment for column in entry.columns} == comments, entry.name
        assert entry.properties.get("tidemark.key") == key_of(uri)


def test_maintenance_writes_down_what_is_said_by_now(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, shop, [reading("a", 1, 5), reading("a", 40, 1)])
    renamed = replace(measured, format=Json(MEASURED.replace("Which sensor", "Number of the sensor")))
    later = Pipeline(renamed, (replace(by_sensor, of=renamed),))

    maintain(lake, later, now=lambda: NOW)

    assert said(lake.log(measured))["id"] == {"comment": "Number of the sensor"}
    assert said(lake.table(by_sensor, "current"))["id"] == {"comment": "Key. Number of the sensor"}
    version = DeltaTable(lake.log(measured)).version()
    maintain(lake, later, now=lambda: NOW)
    assert DeltaTable(lake.log(measured)).version() == version


@pytest.mark.long
def test_what_is_said_outlives_a_rebuild_and_new_columns(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, shop, [reading("a", 1, 5), reading("a", 40, 1)])
    more = replace(by_sensor, aggregates={**TOTALS, "highest": agg.maximum("value")})
    before = said(lake.table(by_sensor))

    rebuild(spark, lake, Pipeline(measured, (more,)), more)

    after = said(lake.table(more))
    assert {name: after[name] for name in before} == before
    assert after["highest"]["tidemark.unit"] == "K"
