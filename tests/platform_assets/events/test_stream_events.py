"""What Dagster is told of a running stream; the clock is the test's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from typing import Any

import dagster as dg
import pytest

from platform_assets import keys
from platform_assets.events.alerts import alert_sensor, report_alerts
from platform_assets.events.evaluations import last_evaluation
from platform_assets.events.stream_events import REPORTED_EVERY, StreamEvents
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.pipeline.stream import next_run, stream_job_name
from platform_assets.resources import LakeResource, default_resources
from streaming import Freshness, Lake, Pipeline
from streaming.base.intervals import utc_now
from streaming.service.alerts import ALERTS
from streaming.service.overview import Overview
from streaming.service.status import (
    SUPERVISOR,
    ControlFolder,
    LateValue,
    ProcessStatus,
    QueryStatus,
    State,
    SupervisorStatus,
    ValuesStatus,
)
from streaming.sources.source import SourceBacklog
from tests.support.instants import at
from tests.support.pipelines.beats import by_id, pipeline

RUNNING = ProcessStatus(
    pid=1,
    started=at(0),
    at=at(0),
    passed=at(0),
    queries={
        "log": QueryStatus(rows=100, rejected=20, last_seconds=0.7, warned={"usual": 8, "short": 0}),
        "by_id": QueryStatus(
            rows=3, last_seconds=0.4, state_rows=7, state_bytes=2**20, behind=3, watermark=at(0) - timedelta(seconds=30)
        ),
    },
    watermark=at(0),
    watermark_moved=at(0),
    input_rate=5.0,
    latency=(0.5, 0.95, 0.99),
    rejected=2,
    rejected_share=0.02,
    backlog=(SourceBacklog(7, "files"),),
)


def seen(state: Any = "running", process: ProcessStatus | None = RUNNING, why: str = "") -> Overview:
    return Overview(pipeline, state, at(0), why, None, 1, (), process)


def materialized(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[dict[str, Any]]:
    """The metadata of each materialization, newest first."""
    records = instance.fetch_materializations(key, limit=1000).records
    return [
        {name: value.value for name, value in record.asset_materialization.metadata.items()}
        for record in records
        if record.asset_materialization is not None
    ]


def test_every_table_of_a_running_stream_is_told_with_what_concerns_it(
    instance: dg.DagsterInstance, lake: Lake
) -> None:
    StreamEvents(instance, lake, pipeline).report(seen(), at(60))
    (log,) = materialized(instance, keys.log_key(pipeline.stream))
    assert log["state"] == "running"
    assert log["input_rows_per_second"] == 5.0
    assert log["latency_p95_seconds"] == 0.95
    assert log["watermark_lag_seconds"] == 60
    assert log["restarts"] == 1
    (view,) = materialized(instance, keys.table_key(by_id))
    assert (view["state_rows"], view["state_megabytes"], view["batch_seconds"]) == (7, 1.0, 0.4)
    assert (view["batches_behind"], view["watermark_lag_seconds"]) == (3, 90)
    current = materialized(instance, keys.current_keys(by_id)[0])
    assert [(metadata["state"], metadata["batch_seconds"]) for metadata in current] == [("running", 0.4)]
    (waiting,) = instance.fetch_observations(keys.source_key(pipeline.stream), limit=10).records
    assert waiting.event_log_entry.asset_observation is not None
    assert waiting.event_log_entry.asset_observation.metadata["backlog_files"].value == 7
    (rejected,) = instance.fetch_observations(keys.rejected_key(pipeline.stream), limit=10).records
    observation = rejected.event_log_entry.asset_observation
    assert observation is not None
    assert observation.metadata["rejected_share"].value == 0.02
    # Of the 80 valid ones.
    assert observation.metadata["warned_share_usual"].value == 0.1
    assert observation.metadata["warned_share_short"].value == 0.0


def test_a_day_of_a_stream_that_restarts_all_the_time_is_at_most_300_events_a_table(
    instance: dg.DagsterInstance, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [at(0)]
    monkeypatch.setattr("platform_assets.events.stream_events.utc_now", lambda: now[0])
    events = StreamEvents(instance, lake, pipeline)
    times: list[datetime] = []
    monkeypatch.setattr(events, "report", lambda overview, now: times.append(now))
    while now[0] < at(86_400):
        if (now[0] - at(0)) % timedelta(minutes=2) == timedelta():
            status = SupervisorStatus(state="running", since=now[0], supervisor=1, host="vm")
            events.on_state(status)
        events.look(now[0])
        now[0] += timedelta(seconds=30)
    assert timedelta() < max(later - earlier for earlier, later in pairwise(times)) <= REPORTED_EVERY
    assert 288 <= len(times) <= 300


def test_an_alert_is_told_when_it_is_raised_and_when_it_is_over_and_not_in_between(
    instance: dg.DagsterInstance,
) -> None:
    failed = seen("failed", None, "division by zero")
    # Once, so that a check that was never due does not count as missing.
    assert [(entry.name, entry.passed) for entry in report_alerts(instance, seen(), at(0))] == [
        (name, True) for name in ALERTS
    ]
    assert report_alerts(instance, seen(), at(1)) == []
    assert [(entry.name, entry.passed) for entry in report_alerts(instance, failed, at(2))] == [("stream_is_up", False)]
    assert report_alerts(instance, failed, at(3)) == []
    assert [(entry.name, entry.passed) for entry in report_alerts(instance, seen(), at(4))] == [("stream_is_up", True)]
    assert report_alerts(instance, seen(), at(5)) == []


def test_an_alert_tells_its_numbers_which_dagster_plots(instance: dg.DagsterInstance) -> None:
    report_alerts(instance, seen(), at(60))
    numbers: dict[str, float] = {}
    for name in ALERTS:
        evaluation = last_evaluation(instance, dg.AssetCheckKey(keys.log_key(pipeline.stream), name))
        assert evaluation is not None
        for label, entry in evaluation.metadata.items():
            assert isinstance(entry, dg.IntMetadataValue | dg.FloatMetadataValue) and entry.value is not None
            numbers[label] = entry.value
    assert numbers == {
        "seconds_since_it_moved": 60.0,
        "rejected_share": 0.02,
        "backlog_files": 7,
        "paused_views": 0,
        "batches_behind": 3,
        "deliveries_that_wait": 0,
    }


def test_a_stream_that_has_started_is_told_again_once_it_has_rates(
    instance: dg.DagsterInstance, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform_assets.events.stream_events.utc_now", lambda: at(0))
    events = StreamEvents(instance, lake, pipeline)
    times: list[datetime] = []
    monkeypatch.setattr(events, "report", lambda overview, now: times.append(now))
    events.on_state(SupervisorStatus(state="running", since=at(0), supervisor=1, host="vm"))
    for second in range(10, 600, 10):
        events.look(at(second))
    assert times == [at(0), at(60), at(360)]


class Chat(HTTPServer):
    """Takes posts as a chat does, or is out of order."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.posted: list[dict[str, Any]] = []
        self.answer = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Post(BaseHTTPRequestHandler):
    server: Chat

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.answer == 200:
            self.server.posted.append(body)
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def chat() -> Iterator[Chat]:
    with Chat() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def test_an_alert_is_posted_once_even_if_the_run_of_the_stream_told_dagster_first_and_again_where_it_was_not_taken(
    instance: dg.DagsterInstance, lake: Lake, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_ALERTS_TO", chat.url)
    cursor: list[str | None] = [None]

    def tick(state: State) -> list[tuple[str, bool]]:
        """What is posted in an evaluation of the sensor while the stream is in this state."""
        status = SupervisorStatus(state=state, since=at(0), supervisor=1, host="vm")
        ControlFolder(lake, pipeline.stream).write(SUPERVISOR, status)
        before = len(chat.posted)
        resources = {"lake": LakeResource(home=lake.root)}
        with dg.build_sensor_context(instance, cursor=cursor[0], resources=resources) as context:
            cursor[0] = alert_sensor(pipeline).evaluate_tick(context).cursor
        return [(post["alert"], post["raised"]) for post in chat.posted[before:]]

    assert tick("stopped") == []
    report_alerts(instance, seen("failed", None, "division by zero"), at(1))
    chat.answer = 503
    with pytest.raises(Exception, match="503"):
        tick("failed")
    chat.answer = 200
    assert tick("failed") == [("stream_is_up", True)]
    assert tick("failed") == []
    assert tick("stopped") == [("stream_is_up", False)]
    assert (
        chat.posted[0]["asset"] == "/assets/beats/log"
        and "beats: alert stream_is_up is raised" in chat.posted[0]["text"]
    )


def keeper(
    instance: dg.DagsterInstance, lake: Lake, status: dg.DagsterRunStatus | None, seconds: float = 61
) -> dg.RunRequest | str:
    """What the keeper does so many seconds after the beginning of a run that is in this status."""
    last = None
    if status is not None:
        last = instance.create_run_for_job(_job(), status=status)
    return decision_after(instance, lake, last, seconds)


def decision_after(
    instance: dg.DagsterInstance, lake: Lake, last: dg.DagsterRun | None, seconds: float
) -> dg.RunRequest | str:
    """What the keeper does so many seconds from now."""
    decision = next_run(instance, LakeResource(home=lake.root), pipeline, last, utc_now() + timedelta(seconds=seconds))
    return decision if isinstance(decision, dg.RunRequest) else str(decision.skip_message)


def _job() -> dg.JobDefinition:
    @dg.op
    def nothing() -> None: ...

    @dg.job(name=stream_job_name(pipeline))
    def stream() -> None:
        nothing()

    return stream


def test_the_keeper_starts_what_died_and_nothing_else(instance: dg.DagsterInstance, lake: Lake) -> None:
    assert "never started" in str(keeper(instance, lake, None))
    assert "terminated" in str(keeper(instance, lake, dg.DagsterRunStatus.CANCELED))
    assert "ended as asked" in str(keeper(instance, lake, dg.DagsterRunStatus.SUCCESS))
    assert "STARTING" in str(keeper(instance, lake, dg.DagsterRunStatus.STARTING))
    assert isinstance(keeper(instance, lake, dg.DagsterRunStatus.FAILURE), dg.RunRequest)


def test_a_run_whose_supervisor_is_gone_is_marked_as_failed_and_followed(
    instance: dg.DagsterInstance, lake: Lake
) -> None:
    assert isinstance(keeper(instance, lake, dg.DagsterRunStatus.STARTED), dg.RunRequest)
    (run,) = instance.get_runs()
    assert run.status == dg.DagsterRunStatus.FAILURE


def test_a_run_that_has_just_begun_is_left_alone(instance: dg.DagsterInstance, lake: Lake) -> None:
    assert "is STARTED" in str(keeper(instance, lake, dg.DagsterRunStatus.STARTED, seconds=50))
    (run,) = instance.get_runs()
    assert run.status == dg.DagsterRunStatus.STARTED


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED])
def test_the_keeper_starts_no_stream_that_was_ended_after_the_last_run_began_whoever_ran_it(
    instance: dg.DagsterInstance, lake: Lake, status: dg.DagsterRunStatus
) -> None:
    last = instance.create_run_for_job(_job(), status=status)

    def tell(state: State, since: datetime) -> None:
        supervised = SupervisorStatus(state=state, since=since, supervisor=1, host="vm")
        ControlFolder(lake, pipeline).write(SUPERVISOR, supervised)

    tell("stopped", utc_now())
    assert "ended as asked" in str(decision_after(instance, lake, last, 100))
    assert [run.status for run in instance.get_runs()] == [status]
    tell("failed", utc_now())
    assert "has failed" in str(decision_after(instance, lake, last, 100))
    tell("running", utc_now())
    assert isinstance(decision_after(instance, lake, last, 100), dg.RunRequest)


def test_a_run_that_died_without_a_word_is_followed_though_the_stream_was_ended_before_it(
    instance: dg.DagsterInstance, lake: Lake
) -> None:
    ended = SupervisorStatus(state="stopped", since=utc_now(), supervisor=1, host="vm")
    ControlFolder(lake, pipeline).write(SUPERVISOR, ended)
    assert isinstance(keeper(instance, lake, dg.DagsterRunStatus.STARTED), dg.RunRequest)


def test_a_view_whose_watermark_is_too_old_is_observed_so_that_its_policy_turns_it_late(
    instance: dg.DagsterInstance, lake: Lake
) -> None:
    fresh = replace(by_id, fresh_within="20 minutes")
    declared = replace(pipeline, operators=(fresh,))
    merged = dg.Definitions.merge(pipeline_definitions(declared), dg.Definitions(resources=default_resources()))
    policy = merged.resolve_asset_graph().get(keys.table_key(fresh)).freshness_policy
    assert policy == dg.FreshnessPolicy.time_window(fail_window=2 * REPORTED_EVERY)

    events = StreamEvents(instance, lake, declared)
    running = Overview(declared, "running", at(0), "", None, 0, (), RUNNING)
    # The log's watermark is half a minute ahead of where the view is.
    events.report(running, at(20 * 60 - 30))
    assert len(materialized(instance, keys.table_key(fresh))) == 1
    events.report(running, at(20 * 60 - 29))
    assert len(materialized(instance, keys.table_key(fresh))) == 1
    (observed,) = instance.fetch_observations(keys.table_key(fresh), limit=10).records
    observation = observed.event_log_entry.asset_observation
    assert observation is not None
    assert observation.metadata["watermark_lag_seconds"].value == 20 * 60 + 1


def test_a_log_of_which_a_value_is_late_is_observed_with_its_name(instance: dg.DagsterInstance, lake: Lake) -> None:
    stream = replace(pipeline.stream, fresh_within=Freshness("20 minutes", by=("id",)))
    declared = Pipeline(stream, (replace(by_id, of=stream),))
    merged = dg.Definitions.merge(pipeline_definitions(declared), dg.Definitions(resources=default_resources()))
    policy = merged.resolve_asset_graph().get(keys.log_key(stream)).freshness_policy
    assert policy == dg.FreshnessPolicy.time_window(fail_window=2 * REPORTED_EVERY)

    now = at(22 * 60)
    late = ValuesStatus(at=now, known=2, late=1, named=(LateValue(value="id=a", newest=at(60)),))
    for values, told in ((ValuesStatus(at=now, known=2, late=0), 1), (late, 1)):
        process = RUNNING.model_copy(update={"values": {"beats/log": values}, "watermarks": {"beats": now}})
        StreamEvents(instance, lake, declared).report(
            Overview(declared, "running", at(0), "", None, 0, (), process), now
        )
        assert len(materialized(instance, keys.log_key(stream))) == told
    (observed,) = instance.fetch_observations(keys.log_key(stream), limit=10).records
    observation = observed.event_log_entry.asset_observation
    assert observation is not None
    assert "nothing of id=a for 21 min: 1 of 2 values late" in str(observation.metadata["late"].value)


def test_a_dagster_that_cannot_be_reached_ends_no_stream(
    instance: dg.DagsterInstance, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise ConnectionError("the database is away")

    events = StreamEvents(instance, lake, pipeline)
    monkeypatch.setattr(instance, "report_runless_asset_event", away)
    events.look(at(0))
    events.on_state(SupervisorStatus(state="failed", since=at(1), supervisor=1, host="vm"))
