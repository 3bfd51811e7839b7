"""Streams under their supervisor: real processes, real signals. A start costs seconds, so each test is a long life."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.laws import audit
from streaming.base.errors import LeaseError, SupervisorError
from streaming.base.intervals import utc_now
from streaming.service import progress
from streaming.service.drain import drain
from streaming.service.overview import look, request
from streaming.service.progress_table import read_progress
from streaming.views.results import read_first
from tests.streaming.service.streams import (
    STREAM,
    Feeder,
    family,
    ingested,
    jvm,
    process_of,
    supervised,
    until,
)
from tests.support.feeds import land_all
from tests.support.instants import at
from tests.support.pipelines.beats import by_id, pipeline
from tests.support.pipelines.gated import pipeline as gated
from tidemark.pytest_plugin import JVM_OPTIONS

pytestmark = pytest.mark.processes


@pytest.mark.long
def test_o12_failover_with_one_writer(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisor, driver and JVM killed, process frozen: one successor each time, nothing lost, nothing twice."""
    feeder, killed = Feeder(lake), []
    feeder.beat()
    first = subprocess.Popen(
        [sys.executable, "-m", "streaming.service", "supervise", "beats"],
        env={**os.environ, "TIDEMARK_HOME": lake.root},
        start_new_session=True,
    )
    until(lambda: ingested(lake) == 1, "ingested", lake)
    process = look(lake, pipeline).process
    assert process is not None
    left = family(process.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    until(lambda: not [member for member in left if member.is_running()], "gone", lake, within=15)
    assert look(lake, pipeline).state == "stopped"
    assert "is gone" in look(lake, pipeline).why

    with supervised(lake) as supervisor:
        feeder.beat()
        until(lambda: ingested(lake) == 2, "taken over", lake)
        with pytest.raises(LeaseError, match=r"'beats' is already held by process \d+ on .* \(stream, since"):
            drain(spark, lake, pipeline)

        def kill(number: int, victim: Callable[[int], int]) -> None:
            pid = process_of(supervisor)
            killed.extend(family(pid))
            os.kill(victim(pid), number)
            feeder.beat()
            until(lambda: ingested(lake) == feeder.landed, "committing again", lake)
            assert process_of(supervisor) != pid

        kill(signal.SIGKILL, lambda pid: pid)
        assert supervisor.status.failures[-1].error == "the process was killed by signal 9"
        kill(signal.SIGKILL, lambda pid: jvm(pid).pid)
        assert supervisor.status.failures[-1].error == "the JVM ended with code -9"
        monkeypatch.setattr(progress, "SILENT_AFTER", timedelta(seconds=10))
        kill(signal.SIGSTOP, lambda pid: pid)
        assert "it has given no sign of life for" in supervisor.status.failures[-1].error
        monkeypatch.undo()

        assert supervisor.status.restarts == 3
        assert not [member for member in killed if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]
        killed.extend(family(process_of(supervisor)))
    assert not [member for member in killed if member.is_running()]
    assert supervisor.status.state == "stopped"

    drain(spark, lake, pipeline, end_of_input=True)
    assert [finding for finding in audit(spark, lake, pipeline) if finding.broken] == []
    assert ingested(lake) == feeder.landed


@pytest.mark.long
def test_o13_a_pipeline_that_is_flooded_gets_stuck_and_is_killed_holds_up_no_other(lake: Lake, tmp_path: Path) -> None:
    """Each pipeline is a process of its own: a hundred thousand rows at once and a step that waits are one's alone."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    flood = [
        {"id": "a", "at": at(1).isoformat(), "gate": str(gate) if number == 0 else None} for number in range(100_000)
    ]
    land_all(lake, gated.stream, flood, [{"id": "a", "at": at(30).isoformat()}])
    feeder = Feeder(lake)
    feeder.beat()
    with supervised(lake, gated) as hungry, supervised(lake) as other:
        until(lambda: ingested(lake) == 1, "ingested by the other", lake)
        undisturbed = process_of(other)

        def stuck() -> bool:
            process = look(lake, gated).process
            return process is not None and process.queries["counts"].running_since is not None

        until(stuck, "stuck", lake)
        for _ in range(3):
            feeder.beat()
            until(lambda: ingested(lake) == feeder.landed, "ingested meanwhile", lake, within=30)
        # As the kernel does with a process that takes all the memory.
        os.kill(process_of(hungry), signal.SIGKILL)
        until(lambda: hungry.status.state == "failed", "failed", lake)
        feeder.beat()
        until(lambda: ingested(lake) == feeder.landed, "ingested afterwards", lake, within=30)
        assert (process_of(other), other.status.restarts, other.status.failures) == (undisturbed, 0, ())
        assert look(lake, pipeline).state == "running"


@pytest.mark.long
def test_a_process_that_others_than_its_supervisor_tell_to_stop_is_gone_within_the_deadline_of_a_stop(
    lake: Lake, tmp_path: Path
) -> None:
    """The step that it is in waits at a gate, which is held and never opened."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    waiting = {"id": "a", "at": at(1).isoformat(), "gate": str(gate)}
    land_all(lake, gated.stream, [waiting], [{"id": "a", "at": at(30).isoformat()}])
    with supervised(lake, gated) as supervisor:
        held: list[int] = []

        def at_the_gate() -> bool:
            # Only where somebody reads, which the step does once it has come to the gate.
            with suppress(OSError):
                held.append(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
            return bool(held)

        until(at_the_gate, "at the gate", lake)
        members = family(process_of(supervisor))
        os.kill(members[0].pid, signal.SIGTERM)
        until(lambda: not any(member.is_running() for member in members), "gone", lake, within=10)
        os.close(held[0])
        until(lambda: supervisor.status.state == "failed", "failed", lake)
    assert supervisor.status.failures[-1].error == (
        "it was told to stop and did not end in time (stop_within is '5 seconds')"
    )


@pytest.mark.long
def test_a_stream_does_what_is_asked_and_fails_for_good_on_a_batch_that_crashes_again_and_again(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused, resumed, restarted by requests of other processes; a hanging batch is killed; all before the crash is
    published."""
    feeder = Feeder(lake)
    feeder.beat()
    with pytest.raises(SupervisorError, match=r"'beats' is not running in the lake '.+'. `tidemark up beats`"):
        request(lake, pipeline, "pause", "0", utc_now())
    # The first batch of a process takes a quarter of a minute where the machine has much else to do.
    with supervised(lake, replace(pipeline, hangs_after="45 seconds")) as supervisor:
        until(lambda: ingested(lake) == 1, "ingested", lake)
        request(lake, pipeline, "pause", "1", utc_now())
        until(lambda: supervisor.status.state == "paused", "paused", lake)
        assert supervisor.status.process is None
        feeder.beat()
        request(lake, pipeline, "resume", "2", utc_now())
        until(lambda: ingested(lake) == 2, "resumed", lake)
        first = process_of(supervisor)
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{JVM_OPTIONS} -Dbeats.hang=600000")
        request(lake, pipeline, "restart", "3", utc_now())
        request(lake, pipeline, "restart", "3", utc_now())
        until(lambda: supervisor.status.state == "running" and process_of(supervisor) != first, "restarted", lake)
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", JVM_OPTIONS)
        second = process_of(supervisor)
        feeder.beat()
        until(lambda: ingested(lake) == 3, "ingested after the restart", lake)
        assert (process_of(supervisor), supervisor.status.restarts, supervisor.status.failures) == (second, 0, ())
        feeder.beat(value=-1)  # its batch hangs in this process
        until(lambda: ingested(lake) == 4, "ingested by the process after it", lake)
        (hung,) = supervisor.status.failures
        assert (hung.batch, hung.origins.endswith("landing/beats/0003.json")) == ("beats.log 3", True)
        assert hung.error.startswith("the batch hangs: it has been running since")
        landing = Path(STREAM.source.location(lake))
        landing.rename(landing.with_name("away"))
        until(lambda: supervisor.status.state == "restarting", "restarting without its source", lake)
        assert "landing/beats' does not exist; create it" in look(lake, pipeline).why
        landing.with_name("away").rename(landing)
        feeder.beat()
        until(lambda: ingested(lake) == 5, "going on with its source", lake)
        feeder.damage()
        until(lambda: supervisor.status.state == "failed", "failed", lake)

    last = supervisor.status.failures[-1]
    assert [failure.batch for failure in supervisor.status.failures[-3:]] == ["", "beats.log 5", "beats.log 5"]
    assert last.origins.endswith("landing/beats/0005.json.snappy")
    assert re.search(r"FAILED_READ_FILE.*0005\.json\.snappy", last.error)
    overview = look(lake, pipeline)
    assert (overview.state, overview.running, overview.why) == ("failed", False, last.error)
    assert ingested(lake) == 5
    # The watermark after the fifth beat, at 40 s with 5 s of delay, has closed three windows, and no more.
    assert read_first(spark, lake, by_id).count() == 3
    measures = read_progress(lake, STREAM, utc_now() - timedelta(hours=1))
    # Batch 2 is of the process that was killed, perhaps before it wrote.
    assert {measure.batch for measure in measures if measure.query == "log"} - {2} == {0, 1, 3, 4}
    assert {measure.query for measure in measures} == {"log", "by_id"}
