"""Runs as Dagster launches them: a worker process each, with real signals, whose traps no run in process shows.

Dagster is started once for all of them; each has a pipeline of its own, and what sensors are to find lies there from
the start: while one test waits for its sensors, those of the others get on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import psycopg
import pytest
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import SparkSession

from platform_assets.demo.feeds import free_port
from platform_assets.demo.pipelines.flights import departures_by_origin
from platform_assets.demo.pipelines.flights import pipeline as flights
from platform_assets.events.delivered import report_deliveries
from platform_assets.home import dagster_home
from platform_assets.instance import open_instance
from platform_assets.keys import delivery_key, log_key
from platform_assets.tags import LOCATION
from quality import verdicts_for
from streaming.lake.lake import Lake
from streaming.log.batches import read_batches
from streaming.service.drain import drain
from streaming.service.overview import look
from streaming.tables import delta
from streaming.views.corrections import plan
from tests.support.departures import CLOSING, FIRST, LATE_ON_1, LATE_ON_3, SECOND, THIRD
from tests.support.feeds import land_all
from tests.support.instants import at
from tests.support.pipelines.beats import pipeline as beats
from tests.support.pipelines.shipped import pipeline as shipped
from tests.support.pipelines.shipped import to_table
from tests.support.postgres import Server, rows, run
from tests.support.processes import short_lived

pytestmark = pytest.mark.processes

PROJECT = Path(__file__).resolve().parents[3]
DEADLINE = 240


@dataclass(frozen=True)
class Dagster:
    """A running Dagster on a lake, and the database that the third pipeline delivers to."""

    lake: Lake
    database: str
    instance: dg.DagsterInstance
    client: DagsterGraphQLClient
    output: Path

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Until it holds, within the deadline."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, f"no {what} after {DEADLINE} s:\n{self.output.read_text()[-4000:]}"
            time.sleep(0.5)

    def launch(self, job: str, **more: Any) -> str:
        """The id of a run of a job, which is launched as soon as the pages answer."""
        runs: list[str] = []

        def launched() -> bool:
            try:
                runs.append(self.client.submit_job_execution(job, repository_location_name=LOCATION, **more))
            except DagsterGraphQLClientError:
                return False
            return True

        self.wait_for(launched, "run")
        return runs[0]


@pytest.fixture(scope="module")
def dagster(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, postgres_running: Server
) -> Iterator[Dagster]:
    """What `tidemark ui` starts, with the pipelines of all tests; flights have late pairs, which nobody corrected."""
    folder, database = tmp_path_factory.mktemp("launched"), postgres_running.database()
    lake, port, output = Lake(str(folder / "lake")), free_port(), folder / "ui.log"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DAGSTER_HOME", str(folder / "dagster"))
        environment.setenv("TIDEMARK_HOME", lake.root)
        environment.setenv("TIDEMARK_MASTER", "local[2]")
        for name, value in short_lived().items():
            environment.setenv(name, value)
        environment.setenv("TIDEMARK_PIPELINES", "platform_assets.demo.pipelines,tests.support.pipelines")
        environment.setenv("PYTHONPATH", str(PROJECT))
        for name, given in conninfo_to_dict(database).items():
            environment.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(given))
        with open_instance() as instance:
            # Whether a worker is alive Dagster asks rarely, which is waited for.
            config = dagster_home() / "dagster.yaml"
            config.write_text(config.read_text().replace("poll_interval_seconds: 30", "poll_interval_seconds: 5"))
            with _ui(port, output):
                land_all(lake, flights.stream, FIRST, SECOND, THIRD, CLOSING, LATE_ON_1, LATE_ON_3)
                drain(spark, lake, flights, end_of_input=True)
                yield Dagster(lake, database, instance, DagsterGraphQLClient("127.0.0.1", port_number=port), output)


@contextmanager
def _ui(port: int, output: Path) -> Iterator[None]:
    script = (
        f"from rich.console import Console; from platform_assets.demo.ui import start_ui; start_ui(Console(), {port})"
    )
    with output.open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", script], stdout=log, stderr=log, start_new_session=True)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.long
def test_a_stream_is_launched_kept_and_ended_from_dagster(dagster: Dagster) -> None:
    lake, instance, client = dagster.lake, dagster.instance, dagster.client
    land_all(lake, beats.stream, [_beat(0)])

    def ingested(files: int) -> bool:
        return len([batch for batch in read_batches(lake, beats.stream) if batch.cause == "source"]) == files

    dagster.launch("beats_stream")
    dagster.wait_for(lambda: ingested(1), "first batch")
    process = look(lake, beats).process
    assert process is not None
    stream = psutil.Process(process.pid)
    worker = stream.parent()
    assert worker is not None
    family = [worker, stream, *stream.children(recursive=True)]

    os.kill(worker.pid, signal.SIGKILL)
    dagster.wait_for(lambda: not [member for member in family if _alive(member)], "end of what the worker left")
    land_all(lake, beats.stream, [_beat(10)])
    dagster.wait_for(lambda: ingested(2), "second batch, by the run that the keeper asked for")
    runs = instance.get_runs(dg.RunsFilter(job_name="beats_stream"))
    assert [run.status for run in runs] == [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE]

    client.terminate_run(runs[0].run_id)
    dagster.wait_for(lambda: look(lake, beats).holder is None, "end")

    def status() -> dg.DagsterRunStatus | None:
        run = instance.get_run_by_id(runs[0].run_id)
        return None if run is None else run.status

    dagster.wait_for(lambda: status() == dg.DagsterRunStatus.CANCELED, "cancel")
    (record,) = instance.fetch_materializations(log_key(beats.stream), limit=1).records
    assert record.asset_materialization is not None
    assert record.asset_materialization.metadata["state"].value == "stopped"


@pytest.mark.long
def test_late_data_are_corrected_and_the_report_follows_without_anybody_asking(
    spark: SparkSession, dagster: Dagster
) -> None:
    lake, instance = dagster.lake, dagster.instance

    def finished(job: str) -> list[dg.DagsterRun]:
        runs = instance.get_runs(dg.RunsFilter(job_name=job))
        failed = [run for run in runs if run.status == dg.DagsterRunStatus.FAILURE]
        assert not failed, dagster.output.read_text()[-4000:]
        return [run for run in runs if run.status == dg.DagsterRunStatus.SUCCESS]

    dagster.wait_for(lambda: finished("flights_corrections"), "correction")
    dagster.wait_for(lambda: finished("on_time_performance"), "report")
    # More than one where the hour has just begun: the schedule asks, too.
    workers = {run.run_id for run in finished("flights_corrections")}

    assert plan(spark, lake, departures_by_origin) == []
    assert delta.version_of(lake.report("on_time_performance")) == 0
    # Great Expectations ran in the worker: its verdicts carry the worker's run.
    version = delta.version_of(lake.corrections(departures_by_origin))
    assert version is not None
    verdicts = verdicts_for(lake, "flights/departures_by_origin_corrections", version)
    assert {verdict.outcome for verdict in verdicts.values()} == {"passed"}
    assert {verdict.run_id for verdict in verdicts.values()} <= workers


@pytest.mark.long
def test_a_run_that_delivers_days_again_is_killed_in_mid_batch_launched_again_and_each_row_is_there_once(
    spark: SparkSession, dagster: Dagster
) -> None:
    """Eight rows of two days, two in a batch; somebody damages all of them, and holds a row of the third batch."""
    lake, instance, database = dagster.lake, dagster.instance, dagster.database
    hours = [{"number": number, "at": at(3600 * 6 * number).isoformat(), "place": "here"} for number in range(8)]
    land_all(lake, shipped.stream, hours)
    assert drain(spark, lake, shipped).waiting == {}
    report_deliveries(instance, lake, shipped, {})
    delivered = rows(database, "select number, place from shipped order by 1")
    assert delivered == [(number, "here") for number in range(8)]
    run(database, "update shipped set place = 'lost'")
    before = rows(database, "select batch from tidemark_progress")[0][0]

    waits = "select client_port from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    damaged = "select count(*) from shipped where place = 'lost'"
    with psycopg.connect(database) as holder:
        holder.execute("select number from shipped where number = 5 for update")
        first, last = (at(86_400 * day).date().isoformat() for day in (0, 1))
        launched = dagster.launch(
            "__ASSET_JOB",
            tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
            asset_selection=[delivery_key(to_table)],
        )
        dagster.wait_for(lambda: rows(database, waits), "third batch")
        worker = _client_at(rows(database, waits)[0][0])
        family = [worker, *worker.children(recursive=True)]
        os.kill(worker.pid, signal.SIGKILL)
        dagster.wait_for(lambda: not [member for member in family if _alive(member)], "end of the worker")
        assert rows(database, damaged) == [(4,)], "it is killed in the middle"

    def ended(status: dg.DagsterRunStatus) -> list[str]:
        runs = instance.get_runs(dg.RunsFilter(job_name="__ASSET_JOB", statuses=[status]))
        return [run.run_id for run in runs if delivery_key(to_table) in (run.asset_selection or ())]

    dagster.wait_for(lambda: ended(dg.DagsterRunStatus.SUCCESS), "run that Dagster launches in its place")
    assert ended(dg.DagsterRunStatus.FAILURE) == [launched]
    assert rows(database, "select number, place from shipped order by 1") == delivered
    sent = rows(database, "select batch from tidemark_progress")[0][0] - before
    assert sent == 4, "no batch was sent twice"


def _client_at(port: int) -> psutil.Process:
    """The process whose connection has this port on its own side."""
    (pid,) = {each.pid for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port}
    assert pid is not None
    return psutil.Process(pid)


def _beat(second: int) -> dict[str, object]:
    return {"id": "a", "at": at(second).isoformat(), "value": 1}


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
