"""What a supervisor does when it is asked, or fails itself, with a stand-in for the stream process: real pipes and
signals."""

from __future__ import annotations

import os
import shutil
import signal
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path

import pytest

from streaming import Lake
from streaming.base.intervals import utc_now
from streaming.declare.pipeline import Pipeline
from streaming.declare.restarts import FixedDelay, NoRestart
from streaming.service import progress
from streaming.service import supervisor as supervising
from streaming.service.alerts import evaluate
from streaming.service.overview import look, request
from streaming.service.status import State
from streaming.service.supervisor import Child, Supervisor
from tests.streaming.service.streams import process_of, supervised, until
from tests.support.disks import fill, mounted
from tests.support.pipelines.beats import by_id
from tests.support.pipelines.beats import pipeline as beats

PIPELINE = Pipeline(beats.stream, (by_id,), restart=NoRestart(), stop_within="2 seconds", hangs_after="1 hour")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Child, "module", ("tests.support.stand_in",))


@pytest.mark.parametrize("behaviour", ["hanging", "deaf"])
def test_a_stop_during_a_drain_takes_effect_within_the_deadline_of_a_stop(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setenv("STAND_IN", behaviour)
    with supervised(lake, PIPELINE) as supervisor:
        until(lambda: supervisor.status.state == "running", "running", lake)
        request(lake, PIPELINE, "drain", "1", utc_now())
        until(lambda: supervisor.status.state == "draining", "draining", lake)
        request(lake, PIPELINE, "stop", "2", utc_now())
        until(lambda: supervisor.status.state == "stopped", "stopped", lake, within=20)
    assert supervisor.status.failures == ()


def test_a_drain_that_hangs_is_ended_and_has_failed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "hanging")
    with supervised(lake, replace(PIPELINE, hangs_after="1 second")) as supervisor:
        until(lambda: supervisor.status.process is not None, "started", lake)
        supervisor.ask("drain")
        until(lambda: supervisor.status.state in ("failed", "stopped"), "ended", lake, within=20)
    assert supervisor.status.state == "failed"
    assert look(lake, PIPELINE).why.startswith("its drain did not end: its drain has not got on since")


def test_a_drain_that_fails_has_failed_and_is_not_begun_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "crashing")
    with supervised(lake, replace(PIPELINE, restart=beats.restart)) as supervisor:
        until(lambda: supervisor.status.process is not None, "started", lake)
        supervisor.ask("drain")
        until(lambda: supervisor.status.state in ("failed", "stopped"), "ended", lake, within=20)
    assert (supervisor.status.state, supervisor.status.restarts) == ("failed", 0)
    assert look(lake, PIPELINE).why == "its drain did not end: the view is broken"


def test_a_drain_asked_for_before_the_process_listens_is_carried_out(lake: Lake) -> None:
    with supervised(lake, PIPELINE) as supervisor:
        until(lambda: supervisor.status.process is not None, "started", lake)
        supervisor.ask("drain")
        until(lambda: supervisor.status.state in ("failed", "stopped"), "ended", lake, within=20)
    assert (supervisor.status.state, supervisor.status.failures) == ("stopped", ())


@pytest.mark.parametrize("behaviour", ["", "crashing"])
def test_a_drain_of_a_paused_stream_starts_a_process_that_drains(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setenv("STAND_IN", behaviour)
    with supervised(lake, PIPELINE) as supervisor:
        until(lambda: supervisor.status.state == "running", "running", lake)
        supervisor.ask("pause")
        until(lambda: supervisor.status.state == "paused", "paused", lake)
        told = states(monkeypatch, supervisor)
        supervisor.ask("drain")
        until(lambda: supervisor.status.state in ("failed", "stopped"), "ended", lake, within=20)
    assert told == ["starting", "running", "draining", "failed" if behaviour else "stopped"]


def test_a_drain_of_a_stream_that_waits_for_its_restart_is_carried_out_after_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with supervised(lake, replace(PIPELINE, restart=FixedDelay(5, "1 second"))) as supervisor:
        until(lambda: supervisor.status.state == "running", "running", lake)
        os.kill(process_of(supervisor), signal.SIGKILL)
        until(lambda: supervisor.status.state == "restarting", "restarting", lake)
        told = states(monkeypatch, supervisor)
        supervisor.ask("drain")
        until(lambda: supervisor.status.state in ("failed", "stopped"), "ended", lake, within=20)
    assert told == ["starting", "running", "draining", "stopped"]
    assert supervisor.status.restarts == 1


def test_a_stop_takes_the_place_of_a_drain_that_waits_for_the_restart(lake: Lake) -> None:
    with supervised(lake, replace(PIPELINE, restart=FixedDelay(5, "1 hour"))) as supervisor:
        until(lambda: supervisor.status.state == "running", "running", lake)
        os.kill(process_of(supervisor), signal.SIGKILL)
        until(lambda: supervisor.status.state == "restarting", "restarting", lake)
        request(lake, PIPELINE, "drain", "1", utc_now())
        until(lambda: supervisor.status.handled == "1", "asked", lake)
        assert supervisor.status.state == "restarting"
        supervisor.ask("stop")
        until(lambda: supervisor.status.state == "stopped", "stopped", lake, within=20)


@pytest.mark.long
def test_a_stream_that_is_resumed_while_it_ends_is_started_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "deaf")
    with supervised(lake, PIPELINE) as supervisor:
        until(lambda: supervisor.status.state == "running", "running", lake)
        first = process_of(supervisor)
        monkeypatch.setenv("STAND_IN", "")
        request(lake, PIPELINE, "pause", "1", utc_now())
        until(lambda: supervisor.status.handled == "1", "told to end", lake)
        request(lake, PIPELINE, "resume", "2", utc_now())
        until(lambda: supervisor.status.process not in (None, first), "started again", lake, within=20)
    assert supervisor.status.failures == ()


@pytest.mark.long
def test_a_process_that_kills_itself_at_the_deadline_of_its_stop_has_not_failed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor looks too seldom to kill it before."""
    monkeypatch.setenv("STAND_IN", "belated")
    with supervised(lake, PIPELINE) as supervisor:
        until(lambda: supervisor.status.state == "running", "running", lake)
        first = process_of(supervisor)
        monkeypatch.setenv("STAND_IN", "")
        monkeypatch.setattr(supervising, "_LOOKS_EVERY", 1.5)
        supervisor.ask("restart")
        until(lambda: supervisor.status.process not in (None, first), "started again", lake, within=20)
        os.kill(process_of(supervisor), signal.SIGKILL)
        until(lambda: supervisor.status.state == "failed", "failed", lake, within=20)
    assert [failure.error for failure in supervisor.status.failures] == ["the process was killed by signal 9"]


def test_a_process_that_gives_no_sign_of_life_is_killed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENT_AFTER", progress.SILENT_AFTER / 60)
    with supervised(lake, PIPELINE) as supervisor:
        until(lambda: supervisor.status.state == "running", "running", lake)
        os.kill(process_of(supervisor), signal.SIGSTOP)
        until(lambda: supervisor.status.state == "failed", "failed", lake, within=20)
    assert "it has given no sign of life for" in supervisor.status.failures[-1].error


@pytest.mark.parametrize(
    ("error", "state", "why", "raised"),
    [
        (RuntimeError("a bug"), "failed", "its supervisor has failed: a bug", ["stream_is_up"]),
        (KeyboardInterrupt(), "stopped", "", []),
    ],
)
def test_a_supervisor_that_fails_leaves_word_of_it_and_one_that_is_interrupted_stops(
    lake: Lake, error: BaseException, state: str, why: str, raised: list[str]
) -> None:
    supervisor, children = Supervisor(lake, PIPELINE), []

    def fail_once_it_runs() -> None:
        if supervisor.status.state == "running":
            children.append(process_of(supervisor))
            raise error

    with pytest.raises(type(error)):
        # The run that it begins is in the logs of its context from then on, and would be in those of later tests.
        copy_context().run(supervisor.run, each=fail_once_it_runs)
    overview = look(lake, PIPELINE)
    assert (overview.state, overview.why, overview.running) == (state, why, False)
    assert [failure.final for failure in overview.failures] == [True] * bool(why)
    assert [alert.name for alert in evaluate(overview, PIPELINE.limits, utc_now()) if not alert.passed] == raised
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.killpg(child, 0)


def test_a_stream_whose_output_does_not_fit_twice_on_the_disk_goes_on_with_the_room_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervising, "_OUTPUT_LIMIT", 1_000_000)
    lake = Lake(str(tmp_path / "disk" / "lake"))
    with mounted(tmp_path / "disk") as disk, supervised(lake, PIPELINE) as supervisor:
        until(lambda: supervisor.status.state == "running", "running", lake, within=20)
        filler = fill(disk, free=3_000_000)
        (output,) = disk.rglob("stream.log")
        grow(output)
        until(lambda: "could not begin anew" in caplog.text, "tried", lake, within=20)
        until(lambda: shutil.disk_usage(disk).free > 500_000, "given back", lake, within=20)
        filler.unlink()
        grow(output)
        until(lambda: output.stat().st_size == 0, "begun anew", lake, within=20)
        assert output.with_suffix(".old.log").stat().st_size == 4_000_000
        assert (supervisor.status.state, supervisor.status.failures) == ("running", ())


def states(monkeypatch: pytest.MonkeyPatch, supervisor: Supervisor) -> list[State]:
    """The states that a supervisor goes over to from now on, as it tells them."""
    told: list[State] = []
    monkeypatch.setattr(supervisor._state, "_on_state", lambda status: told.append(status.state))
    return told


def grow(output: Path) -> None:
    """Append what a process says in months."""
    with output.open("ab") as appended:
        appended.write(bytes(2_000_000))
