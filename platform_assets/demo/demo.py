"""The whole path once, through Dagster: a week of real flights, from landing files to the gated report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console

from platform_assets.definitions import defs
from platform_assets.demo.feeds import FeedReport, feed_flights
from platform_assets.demo.pipelines.flights import pipeline
from platform_assets.demo.steps import DAYS, DIRTY, FIRST_DAY, step
from platform_assets.errors import PlatformError
from platform_assets.instance import open_instance
from platform_assets.pipeline.jobs import drain_config
from platform_assets.running import run_job
from platform_assets.tags import LAUNCHED_BY_TAG
from streaming import Lake, Settings

REPORT = "on_time_performance"


@dataclass(frozen=True)
class Demonstrated:
    """The outcome of a demo: what was fed, the ids of the runs by job in their order, seconds per step."""

    lake: Lake
    fed: FeedReport
    runs: dict[str, str]
    seconds: dict[str, float]


def run_demo(console: Console) -> Demonstrated:
    """Feed, drain, correct, and publish behind the gate; the runs share one JVM, which the caller may go on using.

    Run again, it finds nothing new and leaves the same tables.

    Raises:
        PlatformError: the lake is not on this machine, or a run failed.
    """
    lake = Settings().lake
    landing = lake.local(pipeline.stream.source.location(lake))
    if landing is None:
        raise PlatformError(
            f"the demo feeds a folder of this machine, but TIDEMARK_HOME is {lake.root!r}",
            "point it to a local folder.",
        )
    seconds: dict[str, float] = {}
    runs: dict[str, str] = {}
    with step(console, seconds, "feed", f"{DAYS} days of real departures, told when each flight leaves"):
        fed = feed_flights(landing, FIRST_DAY, DAYS, DIRTY)
    console.print(f"  {fed}")
    steps: tuple[tuple[str, str, dict[str, Any]], ...] = (
        (f"{pipeline.name}_drain", "event log and first results", drain_config(pipeline)),
        (f"{pipeline.name}_corrections", "the days that have late rows, recomputed", {}),
        (REPORT, "the gate, then the report", {}),
    )
    with open_instance() as instance:
        for job, what, config in steps:
            with step(console, seconds, job, what):
                runs[job] = run_job(instance, defs, job, config, {LAUNCHED_BY_TAG: "tidemark demo"})
    return Demonstrated(lake, fed, runs, seconds)
