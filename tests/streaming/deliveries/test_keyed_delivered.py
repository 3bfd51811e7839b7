"""What a keyed function emits is delivered as anything else is: each output by itself, each row once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Delivery, Files, Json, JsonLines, Keyed, Lake, Pipeline, Stream
from streaming.audit.deliveries import audit_deliveries
from streaming.base.errors import DeclarationError
from streaming.keyed import Key
from tests.streaming.keyed.functions import payloads, readings, sorted_out
from tests.support.runs import run

pipeline = Pipeline(
    readings,
    (sorted_out,),
    deliveries=(
        Delivery("results", sorted_out, JsonLines("results", by="none"), select=("id", "temperature")),
        Delivery("negatives", sorted_out, JsonLines("negatives", by="none"), output="negative"),
        Delivery("failures", sorted_out, JsonLines("failures", by="none"), output="failed", select=("id", "error")),
    ),
)


def arrived(lake: Lake, folder: str) -> list[dict[str, Any]]:
    """The rows of all files, in the order of their names."""
    return [
        json.loads(line)
        for path in sorted(Path(lake.root, folder).glob("*.json"))
        for line in path.read_text().splitlines()
    ]


@pytest.mark.long
def test_each_output_arrives_once_in_the_order_of_steps_and_times(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, payloads("a@1=2, a@2=-1, b@3=13"))
    assert arrived(lake, "results") == [{"id": "a", "temperature": 2.0}]

    # The clock passes the timer of a, which was moved to 0:16.
    run(spark, lake, pipeline, payloads("b@20=1, a@4=5"))
    run(spark, lake, pipeline)
    assert [(row["id"], row["temperature"]) for row in arrived(lake, "results")] == [
        ("a", 2.0),
        ("a", 5.0),
        ("a", 6.0),
        ("b", 1.0),
    ]
    assert arrived(lake, "negatives") == [{"id": "a", "temperature": -1.0, "late": False}]
    ((failed, error),) = (row.values() for row in arrived(lake, "failures"))
    assert failed == "b" and "thirteen" in error
    findings = list(audit_deliveries(spark, lake, pipeline))
    assert findings and all(finding.holds for finding in findings)


def _say(key: Key, row: Any) -> None:
    key.emit(value=row.value)


def test_results_that_a_microsecond_tells_apart_are_each_delivered_under_an_id_of_their_own(
    spark: SparkSession, lake: Lake
) -> None:
    precise = Stream(
        "precise",
        Files("landing/precise"),
        Json("id string, at timestamp not null, value timestamp"),
        "at",
        BoundedOutOfOrderness("0 seconds"),
    )
    echo = Keyed("echo", precise, ("id",), "", "value timestamp", _say, order="event", idle="1 hour")
    select = {"id": "id", "at": "_at", "value": "value"}
    out = Delivery("out", echo, JsonLines("out", by="none"), "current", select=select)
    instants = [f"2026-01-01T00:00:00.{fraction}Z" for fraction in ("000001", "000002", "001000")]
    sent = [{"id": "a", "at": at, "value": value} for at in instants for value in instants]
    run(spark, lake, Pipeline(precise, (echo,), deliveries=(out,)), sent, end_of_input=True)
    rows = arrived(lake, "out")
    told = [(row["at"], row["value"]) for row in rows]
    assert sorted(told) == sorted((row["at"], row["value"]) for row in sent)
    assert len({row["_result_id"] for row in rows}) == len(sent)


def test_state_is_no_output() -> None:
    with pytest.raises(DeclarationError, match="'state' of delivery 'kept' is no side output of 'sorted_out'"):
        Delivery("kept", sorted_out, JsonLines("kept"), output="state")
