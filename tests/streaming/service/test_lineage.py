"""Lineage of runs: real ones tell it to a file or a server, and each event is what OpenLineage's schemas say."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from streaming import Delivery, DeltaTable, DimensionLookup, Enriched, JsonLines, Lake, Pipeline, agg
from streaming.base import Dataset, QueryFailed, SettingsError
from streaming.lake import Settings
from streaming.operations.rebuild import rebuild
from streaming.service import lineage
from streaming.service.drain import drain, drain_unpaused
from streaming.service.lineage import LineageSender, StreamLineage, is_configured
from streaming.service.lineage_jobs import corrections_of, jobs_of
from streaming.service.status import PROCESS, ControlFolder, ProcessStatus, QueryStatus
from streaming.service.watch import Watch
from streaming.tables import delta
from tests.streaming.service.streams import Feeder, ingested, supervised, until
from tests.support import waiting
from tests.support.collector import collecting
from tests.support.feeds import land_all
from tests.support.http_server import http_server
from tests.support.instants import at
from tests.support.lineage import Told, computed_from, to_file
from tests.support.pipelines.beats import beats, by_id
from tests.support.pipelines.beats import pipeline as of_beats

sums = JsonLines("out/sums")
pipeline = Pipeline(beats, (by_id,), deliveries=(Delivery("sent", by_id, sums, select={"who": "id", "n": "beats"}),))


@pytest.fixture
def told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which events go, as OpenLineage's own variables say."""
    return to_file(tmp_path, monkeypatch)


def land(lake: Lake) -> None:
    """Three beats, one of which is rejected, and one that closes their window."""
    rows = [("a", 1, 5), ("a", 2, 6), ("b", 3, None), ("a", 30, 1)]
    land_all(lake, beats, [{"id": key, "at": at(second).isoformat(), "value": value} for key, second, value in rows])


@pytest.mark.long
def test_a_drain_tells_versions_rows_and_columns_of_all_that_it_reads_and_writes(
    spark: SparkSession, lake: Lake, told_to: Path
) -> None:
    land(lake)
    drain(spark, lake, pipeline)
    told = Told.in_file(told_to)
    for job in ("beats", "beats.log", "beats.by_id", "beats.sent"):
        assert told.kinds(job) == ["START", "COMPLETE"], job

    log = told.output("beats.log", "beats/log")
    assert log["outputFacets"]["outputStatistics"]["rowCount"] == 4
    assert log["facets"]["version"]["datasetVersion"] == str(delta.version_of(lake.log(beats)))
    (quality,) = log["facets"]["dataQualityMetrics"]["columnMetrics"].values()
    assert (quality["count"], quality["nullCount"]) == (1, 3)
    assert computed_from(log, "value") == {("beats", "value")}
    (source,) = told.last("beats.log")["inputs"]
    assert (source["namespace"], source["name"]) == ("file", f"{lake.root}/landing/beats")

    view = told.output("beats.by_id", "beats/by_id")
    assert view["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert computed_from(view, "sum") == {("log", "value")}
    types = {field["name"]: field["type"] for field in view["facets"]["schema"]["fields"]}
    assert (types["sum"], types["window_end"]) == ("bigint", "timestamp")

    sent = told.output("beats.sent", "out/sums")
    assert sent["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert computed_from(sent, "who") == {("by_id", "id")}

    run = told.last("beats")["run"]["runId"]
    assert {event["run"]["runId"] for event in told.events if event["job"]["name"] == "beats"} == {run}
    assert told.last("beats.log")["run"]["facets"]["parent"]["run"]["runId"] == run
    assert told.last("beats.log")["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def test_a_drain_that_fails_says_why_and_a_paused_operator_fails_alone(
    spark: SparkSession, lake: Lake, told_to: Path
) -> None:
    land(lake)
    watch = Watch(lambda: at(0))
    watch.stopping.add("by_id")
    with pytest.raises(QueryFailed):
        drain(spark, lake, of_beats, watch=watch)
    told = Told.in_file(told_to)
    assert [told.kinds(job)[-1] for job in ("beats", "beats.log", "beats.by_id")] == ["FAIL", "ABORT", "ABORT"]
    assert "was stopped before its next step" in told.last("beats")["run"]["facets"]["errorMessage"]["message"]

    told_to.unlink()
    drain(spark, lake, of_beats)
    other = replace(by_id, aggregates={"beats": agg.count()})
    drain_unpaused(spark, lake, Pipeline(beats, (other,)))
    told = Told.in_file(told_to)
    assert [told.kinds(job)[-1] for job in ("beats", "beats.log", "beats.by_id")] == ["COMPLETE", "COMPLETE", "FAIL"]
    assert "errorMessage" in told.last("beats.by_id")["run"]["facets"]


@pytest.mark.long
def test_a_rebuild_tells_that_it_writes_every_table_of_the_operator(
    spark: SparkSession, lake: Lake, told_to: Path
) -> None:
    land(lake)
    drain(spark, lake, of_beats)
    rebuild(spark, lake, of_beats, by_id)
    told = Told.in_file(told_to)
    assert told.kinds("beats.by_id.rebuild") == ["START", "COMPLETE"]
    written = {dataset["name"].rpartition("/")[2] for dataset in told.last("beats.by_id.rebuild")["outputs"]}
    assert written == {by_id.table_name(table.suffix) for table in by_id.tables}
    rebuilt = told.output("beats.by_id.rebuild", "beats/by_id")
    assert rebuilt["outputFacets"]["outputStatistics"]["rowCount"] == 1


def test_a_correction_publishes_what_is_current_and_says_so() -> None:
    (job,) = corrections_of(Lake("/lake"), of_beats, by_id)
    assert (job.name, job.query) == ("beats.by_id.correct", "by_id")
    assert [table.dataset.name for table in job.writes] == [
        f"/lake/beats/by_id_{suffix}" for suffix in ("corrections", "changes", "current")
    ]
    assert {column for _, column in job.writes[0].origins["sum"]} == {"value"}
    _, changes, current = ({column.name for column in table.columns} for table in job.writes)
    assert changes - current == {"_change", "_clock"}


def test_an_enrichment_reads_its_log_and_the_table_in_which_it_looks_up() -> None:
    rooms = DimensionLookup("s3://bucket/rooms", {"id": "sensor"}, ("room",))
    enriched = Enriched("with_room", beats, rooms, {"room": "string"}, key=("id",))
    (_, job) = jobs_of(Lake("/lake"), Pipeline(beats, (enriched,)))
    assert [table.dataset for table in job.reads] == [
        Dataset("file", "/lake/beats/log"),
        Dataset("s3://bucket", "rooms"),
    ]


def test_a_delta_table_that_is_delivered_to_is_told_with_its_version_and_types(lake: Lake, told_to: Path) -> None:
    write_deltalake(lake.path("out/sums"), pa.table({"who": ["a"], "n": pa.array([2], pa.int64())}))
    sent = Delivery("sent", by_id, DeltaTable("out/sums"), select={"who": "id", "n": "beats"})
    stream = StreamLineage(lake, Pipeline(beats, (by_id,), deliveries=(sent,)), lambda: at(0))
    stream.begin(7)
    stream.close()
    facets = Told.in_file(told_to).output("beats.sent", "out/sums")["facets"]
    assert facets["version"]["datasetVersion"] == "0"
    assert {field["name"]: field["type"] for field in facets["schema"]["fields"]} == {"who": "string", "n": "bigint"}


def status(rows: int, rejected: int, pid: int = 7) -> ProcessStatus:
    queries = {"log": QueryStatus(rows=rows, rejected=rejected), "by_id": QueryStatus(rows=rows // 2)}
    return ProcessStatus(pid=pid, started=at(0), at=at(0), passed=at(0), queries=queries)


def test_a_stream_tells_once_in_five_minutes_that_it_runs_and_at_its_end_what_it_has_brought(
    lake: Lake, told_to: Path
) -> None:
    now = at(0)
    stream, control = StreamLineage(lake, of_beats, lambda: now), ControlFolder(lake, of_beats)
    control.write(PROCESS, status(99, 9, pid=1))
    stream.begin(7)
    for minute in range(1, 12):
        now = at(0) + timedelta(minutes=minute)
        stream.go_on()
        if minute == 7:
            control.write(PROCESS, status(10, 2))
    stream.end("COMPLETE")
    stream.end("ABORT")
    stream.close()
    told = Told.in_file(told_to)
    kinds = ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert (told.kinds("beats"), told.kinds("beats.by_id")) == (kinds, kinds)
    logs = [event for event in told.events if event["job"]["name"] == "beats.log"]
    # The first of them is from before the process has said anything: what there was is another process's.
    rows = [event["outputs"][0].get("outputFacets", {}).get("outputStatistics") for event in logs]
    assert [each and each["rowCount"] for each in rows] == [None, None, 10, 10]
    assert [event["eventTime"][14:16] for event in logs] == ["00", "05", "10", "11"]
    assert {event["job"]["facets"]["jobType"]["processingType"] for event in logs} == {"STREAMING"}


def test_the_query_in_which_a_stream_failed_is_told_with_the_error_and_the_others_as_aborted(
    lake: Lake, told_to: Path
) -> None:
    stream = StreamLineage(lake, of_beats, lambda: at(0))
    stream.begin(7)
    stream.end("FAIL", "the disk is full", "log")
    stream.close()
    told = Told.in_file(told_to)
    assert [told.kinds(job)[-1] for job in ("beats", "beats.log", "beats.by_id")] == ["FAIL", "FAIL", "ABORT"]
    assert told.last("beats.log")["run"]["facets"]["errorMessage"]["message"] == "the disk is full"


def test_a_server_that_is_away_holds_up_nothing_and_what_it_missed_is_counted(
    lake: Lake, told_to: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server takes the connection and answers nothing; the queue is full after two events."""
    asked, answered = Event(), Event()
    with http_server() as server:

        def answer(posted: object) -> int:
            asked.set()
            answered.wait(20)
            return 200

        server.answer = answer
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps({"type": "http", "url": server.url}))
        for name in ("TYPE", "LOG_FILE_PATH", "APPEND"):
            monkeypatch.delenv(f"OPENLINEAGE__TRANSPORT__{name}")
        sender = LineageSender(most=2)
        monkeypatch.setattr(lineage, "_sender", lambda: sender)
        stream = StreamLineage(lake, of_beats, lambda: at(0))
        stream.begin(7)
        waiting.until(asked.is_set, "asked")
        stream.end("COMPLETE")
        # Of six events one is being sent and two wait, once the thread has taken the first.
        waiting.until(lambda: sender.lost == 3, "told that the queue is full")
        monkeypatch.setattr(lineage, "_ALL_SENT_WITHIN", 0.01)
        sender.close()
        assert sender.lost == 6
        answered.set()
    assert "events were not sent" in caplog.text
    assert sum("lineage is not sent, which stops nothing" in line for line in caplog.messages) == 1


def to_server(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Events go to a URL from now on, and to no file."""
    for name in ("TYPE", "LOG_FILE_PATH", "APPEND"):
        monkeypatch.delenv(f"OPENLINEAGE__TRANSPORT__{name}")
    monkeypatch.setenv("OPENLINEAGE_URL", url)
    # What its client makes of the variable, which it writes to the environment itself.
    for name in ("TYPE", "URL"):
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}", "")
        monkeypatch.delenv(f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}")


def test_user_and_password_of_the_transport_are_in_no_warning(
    lake: Lake, told_to: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with http_server() as server:
        server.answer = lambda _: 401
        to_server(monkeypatch, server.url.removesuffix("/rows").replace("//", "//acme:s3cr3t@"))
        stream = StreamLineage(lake, of_beats, lambda: at(0))
        stream.begin(7)
        stream.close()
    assert "HTTPError: 401 Client Error" in caplog.text
    assert "127.0.0.1" in caplog.text and "acme" not in caplog.text and "s3cr3t" not in caplog.text


def test_events_of_a_run_arrive_at_a_server(lake: Lake, told_to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server() as server:
        to_server(monkeypatch, server.url.removesuffix("/rows"))
        stream = StreamLineage(lake, of_beats, lambda: at(0))
        stream.begin(7)
        stream.end("COMPLETE")
        stream.close()
        events: list[Any] = [posted.rows for posted in server.taken]
    assert Told.of(events).kinds("beats.by_id") == ["START", "COMPLETE"]


def test_each_table_is_opened_once_for_an_event_of_all_jobs_and_the_end_of_the_pipeline_is_told_first(
    lake: Lake, told_to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_table(uri: str) -> None:
        opened.append(uri)

    monkeypatch.setattr(lineage.delta, "open_table", open_table)
    stream = StreamLineage(lake, of_beats, lambda: at(0))
    stream.begin(7)
    stream.end("COMPLETE")
    stream.close()
    assert Counter(opened)[lake.log(beats)] == 2
    assert set(Counter(opened).values()) == {2}
    ends = [event["job"]["name"] for event in Told.in_file(told_to).events if event["eventType"] == "COMPLETE"]
    assert ends == ["beats", "beats.log", "beats.by_id"]


@pytest.mark.long
def test_the_end_of_a_run_waits_longer_the_more_events_wait(
    lake: Lake, told_to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending them takes longer than is waited for one alone."""

    def answer(posted: object) -> int:
        sleep(0.45)
        return 200

    with http_server() as server:
        server.answer = answer
        to_server(monkeypatch, server.url.removesuffix("/rows"))
        stream = StreamLineage(lake, pipeline, lambda: at(0))
        stream.begin(7)
        stream.end("COMPLETE")
        stream.close()
        assert len(server.taken) == 8


def test_nothing_is_sent_where_openlineage_is_not_configured_or_not_installed(
    lake: Lake, told_to: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_configured()
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert not is_configured()
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    for name in ("TYPE", "LOG_FILE_PATH", "APPEND"):
        monkeypatch.delenv(f"OPENLINEAGE__TRANSPORT__{name}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "acme")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert not is_configured()
    (tmp_path / "openlineage.yml").write_text("transport: {type: console}")
    assert is_configured()
    monkeypatch.setattr("streaming.base.extras._is_there", lambda package: package != "openlineage.client")
    assert lineage._sender() is None
    assert "pip install 'tidemark-lakehouse[lineage]'" in caplog.text


def test_a_source_that_cannot_say_where_it_is_ends_no_stream(
    lake: Lake, told_to: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Lost(JsonLines):
        def datasets(self, lake: Lake) -> tuple[()]:
            raise RuntimeError("nobody knows")

    lost = Pipeline(beats, (by_id,), deliveries=(Delivery("sent", by_id, Lost("out")),))
    with pytest.raises(RuntimeError):
        jobs_of(lake, lost)
    stream = StreamLineage(lake, lost)
    stream.begin(7)
    stream.end("COMPLETE")
    stream.close()
    assert "no lineage of beats is sent: RuntimeError: nobody knows" in caplog.text
    assert Told.in_file(told_to).events == []


@pytest.mark.parametrize("value", ["now and then", "0 seconds"])
def test_an_interval_of_lineage_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_LINEAGE_EVERY", value)
    with pytest.raises(SettingsError) as refused:
        Settings()
    assert (refused.value.field, refused.value.value) == ("TIDEMARK_LINEAGE_EVERY", value)


@pytest.mark.processes
@pytest.mark.long
def test_a_real_stream_tells_of_its_start_its_rows_its_crash_and_its_end_and_sends_its_metrics(
    lake: Lake, told_to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_LINEAGE_EVERY", "1 second")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    feeder = Feeder(lake)
    feeder.beat()
    feeder.beat()
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with supervised(lake) as supervisor:
            until(lambda: ingested(lake) == 2, "ingested", lake)

            def running() -> bool:
                # The newest line may not be whole yet.
                lines = told_to.read_text().splitlines(keepends=True)
                events = [json.loads(line) for line in lines if line.endswith("\n")]
                logs = [event for event in events if event["job"]["name"] == "beats.log"]
                of_rows = [event["outputs"][0].get("outputFacets", {}).get("outputStatistics") for event in logs]
                return any(rows and rows["rowCount"] == 2 for rows in of_rows)

            until(running, "told of its rows", lake)
            of_log = frozenset({("pipeline", "beats"), ("query", "log")})
            until(lambda: collector.values().get(("tidemark_query_rows_total", of_log)) == 2, "sent", lake)
            assert collector.values()["tidemark_stream_up", frozenset({("pipeline", "beats")})] == 1
            process = supervisor.status.process
            assert process is not None
            os.kill(process, 9)
            until(lambda: supervisor.status.restarts == 1, "restarted", lake)
            until(lambda: supervisor.status.state == "running", "running again", lake)
        # What it sends at its end is that it has ended.
        assert collector.values()["tidemark_stream_up", frozenset({("pipeline", "beats")})] == 0
    told = Told.in_file(told_to)
    kinds = [kind for kind in told.kinds("beats.by_id") if kind != "RUNNING"]
    assert kinds == ["START", "ABORT", "START", "COMPLETE"]
    assert "signal 9" in next(
        event["run"]["facets"]["errorMessage"]["message"]
        for event in told.events
        if event["eventType"] == "FAIL" and event["job"]["name"] == "beats"
    )
