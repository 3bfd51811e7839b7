"""The flights once more, through a real broker into a real database, both started for it on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row
from rich.console import Console

from platform_assets.demo.feeds.flights_topic import send_flights
from platform_assets.demo.feeds.local_kafka import LocalKafka
from platform_assets.demo.feeds.local_postgres import LocalPostgres
from platform_assets.demo.steps import DAYS, DIRTY, FIRST_DAY, step
from platform_assets.errors import PlatformError
from platform_assets.instance import open_instance
from platform_assets.pipeline.jobs import drain_config
from platform_assets.pipeline.location import definitions
from platform_assets.running import run_job
from platform_assets.tags import LAUNCHED_BY_TAG
from streaming import Lake, Pipeline, Settings, find_pipeline

PIPELINES, NAME = "platform_assets.demo.kafka_pipelines", "flights_topic"

_BY_AIRPORT = """
    select origin, sum(flights)::bigint as flights,
           sum(mean_dep_delay * (flights - cancelled)) / nullif(sum(flights - cancelled), 0) as mean_dep_delay
    from departures_by_origin group by origin order by origin
"""


@dataclass(frozen=True)
class ThroughKafka:
    """The database's rows of airports: `first` before the corrections, `current` after them."""

    lake: Lake
    pipeline: Pipeline
    servers: str
    connection: str
    first: list[dict[str, Any]]
    current: list[dict[str, Any]]
    seconds: dict[str, float]


@contextmanager
def through_kafka(console: Console) -> Iterator[ThroughKafka]:
    """Send a week of flights to a broker, drain, correct and deliver; broker and database run until the block ends.

    Their data stays in the lake's folder, so that the next run goes on with it: it finds nothing new, and changes
    nothing. The runs share one JVM, which the caller may go on using.

    Raises:
        FeedError: broker or database does not start.
        PlatformError: the lake is not on this machine, or a run failed.
    """
    lake = Settings().lake
    folder = lake.local()
    if folder is None:
        raise PlatformError(
            f"the demo keeps a broker and a database beside the lake, but TIDEMARK_HOME is {lake.root!r}",
            "point it to a local folder.",
        )
    seconds: dict[str, float] = {}
    with ExitStack() as ending:
        with step(console, seconds, "services", "a Kafka broker and a Postgres, each on a free port of this machine"):
            kafka, postgres = _start(folder / "_services", ending)
        os.environ |= {
            "TIDEMARK_PIPELINES": PIPELINES,
            "TIDEMARK_PARAMETER_DEMO_KAFKA": kafka.servers,
            "TIDEMARK_PARAMETER_DEMO_POSTGRES": postgres.connection(),
        }
        pipeline = find_pipeline(NAME)
        with step(console, seconds, "feed", f"{DAYS} days of real departures into a topic, a partition per airport"):
            sent = send_flights(kafka.servers, "flights", FIRST_DAY, DAYS, DIRTY)
        console.print(f"  {sent:,} new records")
        _run(console, seconds, pipeline, "drain", "from the topic to the log, first results, and the database")
        first = _by_airport(postgres)
        _run(console, seconds, pipeline, "corrections", "the days that have late rows, recomputed")
        _run(console, seconds, pipeline, "drain", "what the corrections changed, to the database")
        yield ThroughKafka(lake, pipeline, kafka.servers, postgres.connection(), first, _by_airport(postgres), seconds)


def _start(folder: Path, ending: ExitStack) -> tuple[LocalKafka, LocalPostgres]:
    postgres, kafka = LocalPostgres(folder / "postgres"), LocalKafka(folder / "kafka")
    # Before they start: Ctrl-C does not reach them, and may come while they do.
    ending.callback(postgres.stop)
    postgres.start()
    ending.callback(kafka.stop)
    kafka.start()
    return kafka, postgres


def _run(console: Console, seconds: dict[str, float], pipeline: Pipeline, job: str, what: str) -> None:
    config = drain_config(pipeline) if job == "drain" else {}
    with step(console, seconds, f"{pipeline.name}_{job}", what), open_instance() as instance:
        name = f"{pipeline.name}_{job}"
        run_job(instance, definitions([pipeline.name]), name, config, {LAUNCHED_BY_TAG: "tidemark demo --kafka"})


def _by_airport(postgres: LocalPostgres) -> list[dict[str, Any]]:
    with psycopg.connect(postgres.connection(), row_factory=dict_row) as connection:
        return connection.execute(_BY_AIRPORT).fetchall()
