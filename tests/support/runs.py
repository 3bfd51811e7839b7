"""Running a pipeline in a test, and reading a lake as plain tuples."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.service.drain import Drained
from streaming.views.corrections import read_corrections
from streaming.views.current import current_results
from streaming.views.first_results import read_first
from streaming.views.updates import read_updates
from tests.support.instants import NOW
from tidemark import testing
from tidemark.testing import Payload
from tidemark.testing import rows as tuples

__all__ = ["read_current", "run", "tuples"]


def run(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *batches: Iterable[Payload],
    end_of_input: bool = False,
) -> Drained:
    """Land the batches and drain the pipeline at the instant NOW."""
    return testing.run(spark, lake, pipeline, *batches, end_of_input=end_of_input, now=lambda: NOW)


def read_current(spark: SparkSession, lake: Lake, view: Windowed) -> DataFrame:
    """First results overlaid with corrections."""
    corrections, updates = read_corrections(spark, lake, view), read_updates(spark, lake, view)
    return current_results(read_first(spark, lake, view), corrections, view, updates)
