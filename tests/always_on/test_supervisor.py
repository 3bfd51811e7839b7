"""Streams under their supervisor: real processes, real signals. A start costs seconds, so each test is a long life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.always_on import supervisor as supervising
from streaming.always_on.overview import look, request
from streaming.always_on.progress_table import read_progress
from streaming.always_on.supervisor import Supervisor
from streaming.audit import audit
from streaming.drain import drain, utc_now
from streaming.errors import LeaseError, SupervisorError
from streaming.log import batches
from streaming.views import read_first
from tests.support.feeds import land
from tests.support.instants import at
from tests.support.pipelines.beats import by_id, pipeline

PROJECT = Path(__file__).parents[2]
STREAM = pipeline.stream


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stream process inherits."""
    monkeypatch.setenv("TIDEMARK_PIPELINES", "tests.support.pipelines")
    monkeypatch.setenv("TIDEMARK_MASTER", "local[2]")
    monkeypatch.setenv("TIDEMARK_SPARK_DRIVER_MEMORY", "1g")
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    # A JVM of seconds has no use for its second compiler.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


class Feeder:
    """Lands one beat per file, ten seconds of event time apart, so that each closes the window before."""

    def __init__(self, lake: Lake) -> None:
        self._folder = Path(lake.landing(STREAM))
        self.landed = 0

    def beat(self, value: int | None = 1) -> None:
        reading = {"id": "a", "at": at(10 * self.landed).isoformat(), "value": value}
        land(self._folder, [reading], name=f"{self.landed:04}.json")
        self.landed += 1


@contextmanager
def supervised(lake: Lake) -> Iterator[Supervisor]:
    """A supervisor in a thread of its own, asked to stop at the end."""
    supervisor = Supervisor(lake, pipeline)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.ask("stop")
        thread.join(60)
        assert not thread.is_alive()


def until(condition: Callable[[], object], what: str, lake: Lake, within: float = 120) -> None:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            output = Path(lake.checkpoint(STREAM, ".control")) / "stream.log"
            pytest.fail(f"not {what} after {within} s:\n{output.read_text()[-3000:]}")
        time.sleep(0.1)


def ingested(lake: Lake) -> int:
    """Rows in the log, as its commits tell."""
    return sum(batch.summary.rows for batch in batches(lake, STREAM))


def family(pid: int) -> list[psutil.Process]:
    """The stream process and whatever it started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def jvm(pid: int) -> psutil.Process:
    return next(member for member in psutil.Process(pid).children(recursive=True) if "java" in member.name())


def process_of(supervisor: Supervisor) -> int:
    assert supervisor.status.process is not None
    return supervisor.status.process


def test_o12_failover_with_one_writer(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisor, driver and JVM killed, process frozen: one successor each time, nothing lost, nothing twice."""
    feeder, killed = Feeder(lake), []
    feeder.beat()
    first = subprocess.Popen(
        [sys.executable, "-m", "streaming.always_on.supervise", "beats"],
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
        monkeypatch.setattr(supervising, "_SILENT_AFTER", timedelta(seconds=10))
        kill(signal.SIGSTOP, lambda pid: pid)
        assert "it has said nothing since" in supervisor.status.failures[-1].error
        monkeypatch.undo()

        assert supervisor.status.restarts == 3
        assert not [member for member in killed if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]
        killed.extend(family(process_of(supervisor)))
    assert not [member for member in killed if member.is_running()]
    assert supervisor.status.state == "stopped"

    drain(spark, lake, pipeline, end_of_input=True)
    assert [finding for finding in audit(spark, lake, pipeline) if finding.broken] == []
    assert ingested(lake) == feeder.landed


def test_a_stream_does_what_is_asked_and_fails_for_good_on_a_batch_that_crashes_again_and_again(
    spark: SparkSession, lake: Lake
) -> None:
    """Paused, resumed and restarted by requests of other processes; all before the crash is published."""
    feeder = Feeder(lake)
    feeder.beat()
    with pytest.raises(SupervisorError, match=r"'beats' is not running. `tidemark up beats` starts it"):
        request(lake, pipeline, "pause", "0", utc_now())
    with supervised(lake) as supervisor:
        until(lambda: ingested(lake) == 1, "ingested", lake)
        request(lake, pipeline, "pause", "1", utc_now())
        until(lambda: supervisor.status.state == "paused", "paused", lake)
        assert supervisor.status.process is None
        feeder.beat()
        request(lake, pipeline, "resume", "2", utc_now())
        until(lambda: ingested(lake) == 2, "resumed", lake)
        first = process_of(supervisor)
        request(lake, pipeline, "restart", "3", utc_now())
        request(lake, pipeline, "restart", "3", utc_now())
        until(lambda: supervisor.status.state == "running" and process_of(supervisor) != first, "restarted", lake)
        second = process_of(supervisor)
        feeder.beat()
        until(lambda: ingested(lake) == 3, "ingested after the restart", lake)
        assert (process_of(supervisor), supervisor.status.restarts, supervisor.status.failures) == (second, 0, ())
        landing = Path(lake.landing(STREAM))
        landing.rename(landing.with_name("away"))
        until(lambda: supervisor.status.state == "restarting", "restarting without its source", lake)
        assert "landing/beats' does not exist; create it" in look(lake, pipeline).why
        landing.with_name("away").rename(landing)
        feeder.beat()
        until(lambda: ingested(lake) == 4, "going on with its source", lake)
        feeder.beat(value=0)  # crashes its batch
        until(lambda: supervisor.status.state == "failed", "failed", lake)

    last = supervisor.status.failures[-1]
    assert [failure.batch for failure in supervisor.status.failures[-3:]] == ["", "beats.log 4", "beats.log 4"]
    assert last.origins.endswith("landing/beats/0004.json")
    assert "Division by zero" in last.error
    seen = look(lake, pipeline)
    assert (seen.state, seen.running, seen.why) == ("failed", False, last.error)
    assert ingested(lake) == 4
    # The watermark after the fourth beat, at 30 s with 5 s of delay, has closed two windows, and no more.
    assert read_first(spark, lake, by_id).count() == 2
    measures = read_progress(lake, STREAM, utc_now() - timedelta(hours=1))
    assert sum(measure.rows for measure in measures if measure.query == "log") == 4
    assert sum(measure.rows for measure in measures if measure.query == "by_id") == 2
