"""Everything at once and on and on: a fed stream under its supervisor, with Dagster beside it, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime

import dagster as dg
import psutil
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from platform_assets.demo.feeds import feed_flights
from platform_assets.demo.pipelines.flights import pipeline
from platform_assets.demo.ui import HOST, dagster_dev
from platform_assets.errors import PlatformError
from platform_assets.instance import open_instance
from platform_assets.pipeline.stream import stream_job_name
from platform_assets.tags import LAUNCHED_BY_TAG, LOCATION
from platform_assets.texts.status import length, status_table
from streaming import Lake, Settings
from streaming.base import SupervisorError, utc_now
from streaming.service import look, request

_FIRST_DAY, _DAYS, _DIRTY, _FILES_A_DAY = date(2013, 1, 1), 365, 0.005, 20
_UI_WITHIN, _ENDS_WITHIN, _DAGSTER_ENDS_WITHIN = 120.0, 90.0, 20.0
_RUNS_SHOWN = 8


def run_live(console: Console, *, seconds_a_day: float, port: int) -> None:
    """Feed a year of flights, one day every `seconds_a_day`, to a stream that Dagster runs; back after an interrupt.

    Raises:
        PlatformError: the lake is not on this machine, or Dagster did not start.
    """
    lake = Settings().lake
    if lake.local() is None:
        raise PlatformError(
            f"the feed writes to a folder of this machine, but TIDEMARK_HOME is {lake.root!r}",
            "point it to a local one.",
        )
    over = threading.Event()
    # A terminal that is closed ends all as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with _dagster(port), open_instance() as instance:
        with console.status("starting Dagster"):
            run_id = _launch(port)
        feeder = threading.Thread(target=_feed, args=(lake, seconds_a_day / _FILES_A_DAY, over), daemon=True)
        feeder.start()
        started = time.time()
        console.print(f"Dagster on http://{HOST}:{port}, run {run_id[:8]} supervises {pipeline.name}; Ctrl-C ends all.")
        try:
            with Live(console=console, refresh_per_second=2) as live:
                while True:
                    live.update(Group(status_table([look(lake, pipeline)], utc_now()), _runs(instance, started)))
                    time.sleep(1)
        except KeyboardInterrupt:
            over.set()
            with console.status("ending the stream at the boundary of a batch"):
                _end(lake)
    console.print("Ended: no process is left. The lake is as it was published last.")


@contextmanager
def _dagster(port: int) -> Iterator[None]:
    command, environment = dagster_dev(port)
    # A group of its own: Ctrl-C is for this process, which ends the stream before Dagster.
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        # Dagster leaves its runs to themselves; what they have not committed is done by the next ones.
        dagster = psutil.Process(process.pid)
        members = [dagster, *dagster.children(recursive=True)]
        for member in members:
            with suppress(psutil.NoSuchProcess):
                member.terminate()
        _, left = psutil.wait_procs(members, _DAGSTER_ENDS_WITHIN)
        for member in left:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.wait()


def _launch(port: int) -> str:
    """Start the stream's run, as the Launch button does, once Dagster answers."""
    client, deadline = DagsterGraphQLClient(HOST, port_number=port), time.monotonic() + _UI_WITHIN
    while True:
        try:
            return client.submit_job_execution(
                stream_job_name(pipeline),
                repository_location_name=LOCATION,
                tags={LAUNCHED_BY_TAG: "tidemark live"},
            )
        except DagsterGraphQLClientError as error:
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"Dagster did not start {pipeline.name} within {_UI_WITHIN:.0f} s: {error}"
                ) from error
        time.sleep(1)


def _feed(lake: Lake, pace: float, over: threading.Event) -> None:
    landing = lake.local(pipeline.stream.source.location(lake))
    assert landing is not None

    def wait(done: int, total: int) -> None:
        if over.wait(pace):
            sys.exit()

    feed_flights(landing, _FIRST_DAY, _DAYS, _DIRTY, wait)


def _end(lake: Lake) -> None:
    try:
        request(lake, pipeline, "stop", f"live-{os.getpid()}", utc_now())
    except SupervisorError:
        return
    deadline = time.monotonic() + _ENDS_WITHIN
    while look(lake, pipeline).holder is not None and time.monotonic() < deadline:
        time.sleep(0.2)


def _runs(instance: dg.DagsterInstance, started: float) -> Table:
    """The runs of Dagster since the start, newest first."""
    table = Table(box=None, title="runs", title_justify="left")
    for name in ("at", "job", "took", "what came of it"):
        table.add_column(name)
    after = datetime.fromtimestamp(started, UTC)
    for record in instance.get_run_records(dg.RunsFilter(created_after=after), limit=_RUNS_SHOWN):
        run, ended = record.dagster_run, record.end_time
        took = "" if record.start_time is None else length((ended or time.time()) - record.start_time)
        style = {"SUCCESS": "green", "FAILURE": "red"}.get(run.status.value, "")
        table.add_row(
            f"{record.create_timestamp:%H:%M:%S}", run.job_name, took, Text(run.status.value.lower(), style=style)
        )
    return table
