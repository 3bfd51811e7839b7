"""The project's own instance, and runs that a process executes by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from platform_assets.definitions import defs
from platform_assets.errors import InstanceError, RunFailed, UnknownJob
from platform_assets.home import dagster_home
from platform_assets.instance import open_instance
from platform_assets.running import run_job
from platform_assets.tags import LAUNCHED_BY_TAG, PROCESS_TAG
from streaming.lake.lake import Lake


@pytest.fixture(autouse=True)
def own_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    return tmp_path / "dagster"


def test_a_new_instance_is_configured_and_an_own_configuration_stays(own_instance: Path) -> None:
    assert dagster_home() == own_instance
    with open_instance() as instance:
        assert not instance.telemetry_enabled
    (own_instance / "dagster.yaml").write_text("telemetry: {enabled: true}")
    assert (dagster_home() / "dagster.yaml").read_text() == "telemetry: {enabled: true}"


def test_an_instance_that_cannot_be_written_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "dagster").write_text("a file")
    with pytest.raises(InstanceError, match="point DAGSTER_HOME to another one"):
        dagster_home()


def test_an_unknown_job_is_answered_with_those_there_are() -> None:
    with (
        open_instance() as instance,
        pytest.raises(UnknownJob, match="'flights_drian'; declared are: flights_control, flights_corrections, fl"),
    ):
        run_job(instance, defs, "flights_drian")


@pytest.mark.usefixtures("spark")
def test_a_failed_run_says_which_step_and_why_and_belongs_to_the_code_location_and_to_who_launched_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", lake.root)
    with open_instance() as instance:
        with pytest.raises(RunFailed, match=r"step 'flights_drain_step': .*landing/flights"):
            run_job(instance, defs, "flights_drain", tags={LAUNCHED_BY_TAG: "tidemark demo"})
        (run,) = instance.get_runs()
    assert run.status == dg.DagsterRunStatus.FAILURE
    assert run.tags[".dagster/repository"] == "__repository__@tidemark"
    assert run.tags["user"] == "tidemark demo"  # what the UI shows, where it would say "manually launched"


@pytest.mark.long
def test_a_run_whose_process_is_gone_is_marked_as_failed() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    job = defs.resolve_job_def("flights_corrections")
    with open_instance() as instance:
        for process in (dead.pid, 1):
            instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags={PROCESS_TAG: str(process)})
    with open_instance() as instance:
        statuses = {run.tags[PROCESS_TAG]: run.status for run in instance.get_runs()}
    assert statuses == {str(dead.pid): dg.DagsterRunStatus.FAILURE, "1": dg.DagsterRunStatus.STARTED}
