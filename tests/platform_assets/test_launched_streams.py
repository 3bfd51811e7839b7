"""A stream as Dagster runs it: launched, kept alive and ended from outside, with real workers and real signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError

from platform_assets.instance import LOCATION, open_instance
from platform_assets.keys import log_key
from streaming.always_on.overview import look
from streaming.lake import Lake
from streaming.log import batches
from streaming.pipelines.flights import pipeline
from tests.platform_assets.test_launched_runs import dagster_dev, free_port, wait_for
from tests.support.departures import FIRST, SECOND
from tests.support.feeds import land_all


def test_a_stream_is_launched_kept_and_ended_from_dagster(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_all(lake, pipeline.stream, FIRST)
    home, output, port = tmp_path / "dagster", tmp_path / "ui.log", free_port()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with open_instance() as instance, dagster_dev(home, lake, output, port):
        client = DagsterGraphQLClient("127.0.0.1", port_number=port)

        def launched() -> str | None:
            try:
                return client.submit_job_execution("flights_stream", repository_location_name=LOCATION)
            except DagsterGraphQLClientError:
                return None

        def ingested(files: int) -> bool:
            return len([batch for batch in batches(lake, pipeline.stream) if batch.cause == "source"]) == files

        wait_for(launched, "run", output)
        wait_for(lambda: ingested(1), "first batch", output)
        process = look(lake, pipeline).process
        assert process is not None
        stream = psutil.Process(process.pid)
        worker = stream.parent()
        assert worker is not None
        family = [worker, stream, *stream.children(recursive=True)]

        os.kill(worker.pid, signal.SIGKILL)
        wait_for(lambda: not [member for member in family if _alive(member)], "end of what the worker left", output)
        land_all(lake, pipeline.stream, SECOND)
        wait_for(lambda: ingested(2), "second batch, by the run that the keeper asked for", output)
        runs = instance.get_runs(dg.RunsFilter(job_name="flights_stream"))
        assert [run.status for run in runs] == [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE]

        client.terminate_run(runs[0].run_id)
        wait_for(lambda: look(lake, pipeline).holder is None, "end", output)
        wait_for(
            lambda: instance.get_run_by_id(runs[0].run_id).status == dg.DagsterRunStatus.CANCELED, "cancel", output
        )
        (told,) = instance.fetch_materializations(log_key(pipeline), limit=1).records
        assert told.asset_materialization is not None
        assert told.asset_materialization.metadata["state"].value == "stopped"


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
