"""The commands on streams as they are typed, on what streams have said of themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from platform_assets.cli import streams
from platform_assets.cli.status_documents import QueryDocument
from platform_assets.texts.status import drain_line
from streaming.base.intervals import utc_now
from streaming.declare.restarts import Failure
from streaming.lake.lake import Lake
from streaming.service.lease import take_lease
from streaming.service.overview import Overview
from streaming.service.status import (
    PROCESS,
    REQUEST,
    SUPERVISOR,
    ControlFolder,
    ProcessStatus,
    QueryStatus,
    Request,
    SupervisorStatus,
)
from streaming.sources.source import SourceBacklog
from tests.platform_assets.conftest import Tidemark
from tests.support.feeds import land_all
from tests.support.pipelines.beats import pipeline
from tests.support.runs import run

STREAM = pipeline.stream
PROJECT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def pipelines_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINES", "tests.support.pipelines")


def told(lake: Lake, supervisor: SupervisorStatus, process: ProcessStatus | None = None) -> None:
    control = ControlFolder(lake, STREAM)
    control.write(SUPERVISOR, supervisor)
    if process is not None:
        control.write(PROCESS, process)


def test_a_lake_where_nothing_ever_ran_is_named_and_says_how_to_begin(lake: Lake, tidemark: Tidemark) -> None:
    code, text = tidemark("status")
    assert (
        code,
        f"`tidemark up` has never started it here, in the lake '{lake.root}'" in text,
        "Next: tidemark up beats" in text,
    ) == (0, True, True)
    code, text = tidemark("down")
    assert (code, f"no stream is running in the lake '{lake.root}'; `tidemark up NAME` starts" in text) == (1, True)
    code, text = tidemark("logs beats")
    assert (code, f"stream 'beats' was never started here, in the lake '{lake.root}'" in text) == (1, True)
    code, text = tidemark("up beets")
    assert (code, "there is no pipeline 'beets'; declared are: beats" in text) == (1, True)


def test_a_stream_that_single_runs_bring_on_tells_its_batch_its_watermark_and_what_waits(
    spark: SparkSession, lake: Lake, tidemark: Tidemark
) -> None:
    run(spark, lake, pipeline, [{"id": "a", "at": "2025-12-01T09:00:05Z", "value": 1}])
    land_all(lake, STREAM, [{"id": "a", "at": "2025-12-01T09:00:09Z", "value": 1}])
    code, text = tidemark("status")
    assert code == 0
    assert "beats: stream beats is at batch 0, watermark 2025-12-01 09:00:00; 1 files wait" in text
    (log,) = json.loads(tidemark("status --json")[1])["logs"]
    assert (log["newest_batch"], log["watermark"], log["waiting"]) == (0, "2025-12-01T09:00:00Z", "1 files wait")
    # Of one that runs its row tells, which has the least watermark of its streams.
    with take_lease(lake, STREAM, "stream"):
        assert "is at batch" not in tidemark("status")[1]


def test_a_running_stream_is_one_row_and_one_that_failed_says_why(lake: Lake, tidemark: Tidemark) -> None:
    now = utc_now()
    supervisor = SupervisorStatus(
        state="running", since=now - timedelta(hours=2), supervisor=1, host="vm", process=7, restarts=3
    )
    process = ProcessStatus(
        pid=7,
        started=now,
        at=now,
        passed=now,
        newest_batch=1234,
        rejected=56,
        input_rate=789.0,
        backlog=(
            SourceBacklog(5, "files", warning="a.json is odd."),
            SourceBacklog(1_003, "rows", partitions={"orders-0": 3, "orders-1": 1_000}),
        ),
    )
    told(lake, supervisor, process)
    with take_lease(lake, STREAM, "stream"):
        code, text = tidemark("status")
    assert code == 0
    for part in (
        "beats",
        "running",
        "2 h 0 min",
        "1,234",
        "789",
        "56",
        "5 files",
        "beats: a.json is odd.",
        "1,003 rows",
        "beats: rows wait in orders-1 (1,000), orders-0 (3).",
        "Next: tidemark status --watch",
    ):
        assert part in text

    failure = Failure(at=now, ran=timedelta(seconds=1), error="division by zero", batch="beats.log 17")
    told(lake, supervisor.model_copy(update={"state": "failed", "failures": (failure,), "process": None}))
    code, text = tidemark("status")
    assert (code, "beats: division by zero" in text, "Next: tidemark logs beats" in text) == (0, True, True)


def test_a_stream_whose_supervisor_was_killed_is_told_to_be_stopped(lake: Lake, tidemark: Tidemark) -> None:
    told(lake, SupervisorStatus(state="running", since=utc_now(), supervisor=4711, host="vm", process=7))
    _, text = tidemark("status")
    assert "stopped" in text
    assert "its supervisor, process 4711 on vm, is gone" in text


def test_why_a_stream_that_is_waited_for_does_not_start_is_said_while_one_waits(
    lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = utc_now()
    failure = Failure(at=now, ran=timedelta(seconds=1), error="the landing folder 'landing/[b]' does not exist.")
    restarting = SupervisorStatus(state="restarting", since=now, supervisor=1, host="vm", failures=(failure,))
    told(lake, restarting)
    monkeypatch.setattr(streams, "_STARTS_WITHIN", 0.3)
    with take_lease(lake, STREAM, "stream"):
        code, text = tidemark("resume beats")
    assert code == 1
    assert text.count("beats is restarting: the landing folder 'landing/[b]' does not exist.") == 1
    assert "stream 'beats' is 'restarting' after 0 s (the landing folder 'landing/[b]' does not exist.)" in text
    assert "`tidemark down beats` ends it" in text


@contextmanager
def draining(lake: Lake, **query: Any) -> Iterator[subprocess.Popen[str]]:
    """The command that waits for a drain, once it has told how far that is; the drain ends with the context."""
    now = utc_now()
    queries = {"by_id": QueryStatus(rows=1200, batches=3, **query)}
    process = ProcessStatus(pid=7, started=now, at=now, passed=now, phase="draining", queries=queries)
    told(lake, SupervisorStatus(state="draining", since=now, supervisor=1, host="vm", process=7), process)
    with take_lease(lake, pipeline, "stream"):
        command = subprocess.Popen(
            [sys.executable, "-c", "from platform_assets.cli import main; main()", "down", "beats", "--drain"],
            env={**os.environ, "TIDEMARK_HOME": lake.root, "PYTHONPATH": str(PROJECT)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert command.stdout is not None
        assert "beats: draining; by_id 1,200 rows in 3 batches" in command.stdout.readline()
        yield command


def test_ctrl_c_while_a_drain_is_waited_for_leaves_it_draining_and_says_so(lake: Lake) -> None:
    with draining(lake, running_batch=4, running_since=utc_now()) as command:
        command.send_signal(signal.SIGINT)
        text = " ".join(command.communicate(timeout=60)[0].split())
    assert command.returncode == 130
    assert "beats goes on draining. `tidemark status` shows how far it is, `tidemark down beats` ends it" in text
    assert "Traceback" not in text
    asked = ControlFolder(lake, pipeline).read(REQUEST, Request)
    assert asked is not None and asked.action == "drain"


def test_a_drain_that_waits_for_a_restart_is_shown_with_its_reason() -> None:
    waiting = Overview(pipeline, "restarting", utc_now(), "the disk is full", None, 1, (), None)
    assert drain_line(waiting, utc_now()) == "beats: restarting, the disk is full"


def test_a_drain_that_left_out_a_paused_operator_exits_with_5_and_says_why(lake: Lake) -> None:
    with draining(lake, paused="division by zero") as command:
        told(lake, SupervisorStatus(state="stopped", since=utc_now(), supervisor=1, host="vm"))
    text = command.communicate(timeout=60)[0]
    assert (command.returncode, "beats: by_id is paused: division by zero" in text) == (5, True)


@pytest.mark.long
def test_a_drain_that_failed_exits_with_5_and_says_why(
    lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(at=utc_now(), ran=timedelta(seconds=1), error="its drain did not end: the view is broken")
    status = SupervisorStatus(state="failed", since=utc_now(), supervisor=1, host="vm", failures=(failure,))
    told(lake, status)
    monkeypatch.setattr("platform_assets.cli.streams.ask", lambda action, names: [pipeline])
    code, text = tidemark("down beats --drain")
    assert (code, "beats: its drain did not end: the view is broken" in text) == (5, True)
    assert "Next: tidemark logs beats" in text


def test_the_document_tells_of_a_query_all_that_its_status_does() -> None:
    assert QueryDocument.model_fields.keys() == QueryStatus.model_fields.keys()
    told = QueryDocument.model_validate(QueryStatus(waiting="no route", failures=2), from_attributes=True)
    assert (told.waiting, told.waiting_since, told.failures, told.failed_at) == ("no route", None, 2, None)
