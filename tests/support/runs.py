"""Running a pipeline in a test, and reading a lake as plain tuples."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from streaming.service.drain import Drained
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
    """First results overlaid with updates and corrections."""
    return runtime_of(view, lake).readable["current"](spark)
