"""Latest values over HTTP, as they are in the tables: of a keyed function's state, and of a view's results."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from docs.examples.dashboard import last_temperature, line, max_temperature, measured, pipeline
from streaming.base.access import Access
from streaming.base.intervals import utc_now
from streaming.declare.pipeline import Pipeline
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from streaming.queryable.windowed import current_rows, newest_windows
from streaming.service.serving import LatestValues, serve
from tests.support.feeds import readings
from tests.support.instants import NOW, at
from tests.support.runs import run, tuples
from tidemark import testing


@pytest.fixture(scope="module")
def served(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, httpx.Client]]:
    """A lake with two sensors in it, and a server that was there before its stream first ran."""
    lake = Lake(str(tmp_path_factory.mktemp("served") / "lake"))
    pipelines = {"measured": pipeline, "other": Pipeline(measured, (max_temperature,))}
    latest = LatestValues(lake, lambda: pipelines, utc_now)
    server = serve(0, CollectorRegistry(), latest, Access("metrics"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}") as client:
            nothing = client.get("/latest/measured/max_temperature")
            assert nothing.status_code == 404 and "has computed nothing yet" in nothing.json()["error"]
            assert line(client, ["a"]) == "-"
            run(spark, lake, pipeline, readings("a@1=10, a@9=30.5, a@12=20, b@3=7"), end_of_input=True)
            yield lake, client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answered(client: httpx.Client, path: str, **key: str) -> Any:
    answer = client.get(path, params=key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_o6_latest_maximum_and_last_temperature_of_each_sensor(served: tuple[Lake, httpx.Client]) -> None:
    _, client = served
    answer = answered(client, "/latest/measured/max_temperature", id="a")
    assert [(row["window_end"], row["temperature"]) for row in answer["rows"]] == [("2026-01-01T00:00:20Z", 20.0)]
    assert line(client, ["a", "b", "c"]) == "20.000\t| 7.000\t| -"
    last = answered(client, "/latest/measured/last_temperature", id="a")
    assert last["rows"][0]["newest"]["temperature"] == 20.0
    assert (answer["batch"], answer["watermark"]) == (last["batch"], last["watermark"])
    assert (answer["batch"], answer["watermark"]) == (1, "2026-01-01T00:00:20.001000Z")
    assert answer["age_seconds"] >= 0


def test_all_keys_are_answered_at_once_and_cut_where_there_are_more(served: tuple[Lake, httpx.Client]) -> None:
    _, client = served
    answer = answered(client, "/latest/measured/last_temperature")
    assert sorted(row["id"] for row in answer["rows"]) == ["a", "b"] and answer["more"] is False
    cut = answered(client, "/latest/measured/last_temperature", _limit="1")
    assert (len(cut["rows"]), cut["more"]) == (1, True)


def test_what_is_served_is_what_show_reads_of_the_same_table(
    spark: SparkSession, served: tuple[Lake, httpx.Client]
) -> None:
    lake, client = served
    shown = tuples(runtime_of(last_temperature, lake).readable["state"](spark), "id", "newest.temperature")
    rows = answered(client, "/latest/measured/last_temperature")["rows"]
    assert sorted((row["id"], row["newest"]["temperature"]) for row in rows) == shown


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/latest/measured/max_temperature?id=z", 404, "'max_temperature' has no value for id='z' at batch 1"),
        ("/latest/measured/max_temperature?id=a'%20or%20'1'='1", 404, "has no value for"),
        ("/latest/measured/heat", 404, "nothing at /latest/measured/heat; there are: /latest/measured/max_temperature"),
        ("/latest/measured/..%2f..%2fetc%2fpasswd", 404, "there is nothing at"),
        ("/latest/nobody/max_temperature", 404, "there is nothing at"),
        ("/latest/nobody", 404, "there is nothing at"),
        ("/latest/measured/max_temperature/_delta_log", 404, "there is nothing at"),
        ("/latest/measured/max_temperature?sensor=a", 400, "'sensor' is no column of the key; its columns are: id"),
        ("/latest/measured/max_temperature?id=a&id=b", 400, "'id' is asked for more than once"),
        ("/latest/measured/max_temperature?_limit=many", 400, "_limit='many' is no number of rows"),
    ],
)
def test_what_is_not_there_or_cannot_be_meant_is_told(
    served: tuple[Lake, httpx.Client], path: str, status: int, error: str
) -> None:
    answer = served[1].get(path)
    assert (answer.status_code, error in answer.json()["error"]) == (status, True), answer.text


def test_it_lists_what_it_has_only_reads_and_only_for_this_machine(served: tuple[Lake, httpx.Client]) -> None:
    _, client = served
    tables = answered(client, "/latest")["tables"]
    assert {"pipeline": "measured", "operator": "last_temperature", "keys": ["id"]}.items() <= tables[1].items()
    assert [table["path"] for table in answered(client, "/latest/other")["tables"]] == ["/latest/other/max_temperature"]
    assert client.post("/latest/measured/max_temperature").status_code == 400
    assert client.get("/latest", headers={"Host": "example.org:9464"}).status_code == 400
    assert client.get("/metrics").status_code == 200


def test_a_commit_that_is_no_step_makes_no_value_younger(served: tuple[Lake, httpx.Client]) -> None:
    lake, client = served
    before = answered(client, "/latest/measured/max_temperature", id="a")
    table = DeltaTable(lake.first(max_temperature))
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 8 days"})
    after = answered(client, "/latest/measured/max_temperature", id="a")
    assert table.history(1)[0]["operation"] != "WRITE"
    assert (after["written_at"], after["batch"], after["rows"]) == (
        before["written_at"],
        before["batch"],
        before["rows"],
    )


def test_a_late_row_is_in_the_latest_value_once_it_is_corrected(
    spark: SparkSession, served: tuple[Lake, httpx.Client]
) -> None:
    lake, client = served
    run(spark, lake, pipeline, readings("b@4=9"))
    assert line(client, ["b"]) == "7.000"
    testing.correct(spark, lake, max_temperature, now=lambda: NOW)
    assert line(client, ["b"]) == "9.000"
    assert answered(client, "/latest/measured/max_temperature", id="b")["rows"][0]["_reason"] == "correction"


def test_of_each_window_the_result_that_has_seen_most_counts_and_of_each_key_the_newest_window() -> None:
    def row(end: int, value: float, **added: Any) -> dict[str, Any]:
        window = {"window_start": at(end) - timedelta(seconds=10), "window_end": at(end)}
        return {"id": "a", **window, "temperature": value, **added}

    layers = {
        "first": [row(10, 1.0), row(20, 2.0), row(30, 3.0)],
        "update": [row(20, 2.5, _batch=4), row(20, 2.75, _batch=6)],
        "correction": [
            row(20, 2.6, _through_batch=5, _retracted=False),
            row(30, 0.0, _through_batch=5, _retracted=True),
        ],
    }
    rows = current_rows(layers, max_temperature)
    assert [(each["temperature"], each["_reason"]) for each in rows] == [(1.0, "first"), (2.75, "update")]
    assert [each["temperature"] for each in newest_windows(rows, ("id",))] == [2.75]
