"""Runs as Dagster launches them: a worker process each, whose traps no run in process shows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.instance import open_instance
from quality import verdicts_for
from streaming import delta
from streaming.corrections import plan
from streaming.drain import drain
from streaming.lake import Lake
from streaming.pipelines.flights import departures_by_origin, pipeline
from tests.support.departures import CLOSING, FIRST, LATE_ON_1, LATE_ON_3, SECOND, THIRD
from tests.support.feeds import land_all

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE = 240


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def dagster_dev(home: Path, lake: Lake, output: Path, port: int) -> Iterator[None]:
    """What `tidemark ui` starts, until the body ends."""
    script = f"from rich.console import Console; from platform_assets.ui import start_ui; start_ui(Console(), {port})"
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "TIDEMARK_HOME": lake.root,
        "TIDEMARK_MASTER": "local[2]",
        "PYTHONPATH": str(PROJECT),
    }
    with output.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", script], env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(condition: Callable[[], object], what: str, output: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {DEADLINE} s:\n{output.read_text()[-4000:]}"
        time.sleep(0.5)


def test_late_data_are_corrected_and_the_report_follows_without_anybody_asking(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_all(lake, pipeline.stream, FIRST, SECOND, THIRD, CLOSING, LATE_ON_1, LATE_ON_3)
    drain(spark, lake, pipeline, end_of_input=True)
    home, output = tmp_path / "dagster", tmp_path / "ui.log"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with open_instance() as instance, dagster_dev(home, lake, output, free_port()):

        def finished(job: str) -> list[dg.DagsterRun]:
            runs = instance.get_runs(dg.RunsFilter(job_name=job))
            failed = [run for run in runs if run.status == dg.DagsterRunStatus.FAILURE]
            assert not failed, output.read_text()[-4000:]
            return [run for run in runs if run.status == dg.DagsterRunStatus.SUCCESS]

        wait_for(lambda: finished("flights_corrections"), "correction", output)
        wait_for(lambda: finished("on_time_performance"), "report", output)
        (corrected,) = finished("flights_corrections")

    assert plan(spark, lake, departures_by_origin) == []
    assert delta.version_of(lake.report("on_time_performance")) == 0
    # Great Expectations ran in the worker: its verdicts carry the worker's run.
    version = delta.version_of(lake.corrections(departures_by_origin))
    assert version is not None
    verdicts = verdicts_for(lake, "flights/departures_by_origin_corrections", version)
    assert {(verdict.outcome, verdict.run_id) for verdict in verdicts.values()} == {("passed", corrected.run_id)}
