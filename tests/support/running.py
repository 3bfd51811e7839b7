"""A run in this process, of which a test calls one part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from pyspark.sql import SparkSession

from streaming import Lake, Pipeline
from streaming.service.lease import take_lease
from streaming.service.observer import Observer
from streaming.service.query_errors import await_queries
from streaming.service.run import Run
from tests.support.instants import NOW


@contextmanager
def running(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Iterator[Run]:
    """A run that holds the lease of the pipeline; its clock stands at `NOW`."""
    with (
        take_lease(lake, pipeline),
        closing(Run(spark, lake, pipeline, Observer(lambda: NOW))) as run,
    ):
        yield run


def ingest(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> None:
    """Take what has landed to the logs, and step nothing."""
    with running(spark, lake, pipeline) as run:
        await_queries([*run.start_ingest(availableNow=True).values()], run.explain)
