"""Running a pipeline in a test, and reading a lake as plain tuples."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.service.drain import Drained, drain
from streaming.views.corrections import read_corrections
from streaming.views.current import current_results
from streaming.views.first_results import read_first
from streaming.views.updates import read_updates
from tests.support.feeds import Payload, land_all
from tests.support.instants import NOW


def run(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *batches: Iterable[Payload],
    end_of_input: bool = False,
) -> Drained:
    """Land the batches and drain the pipeline at the instant NOW."""
    land_all(lake, pipeline.stream, *batches)
    return drain(spark, lake, pipeline, end_of_input=end_of_input, now=lambda: NOW)


def tuples(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows as plain tuples of `columns` (all by default), instants in UTC, sorted; nulls come first."""
    rows = (frame.select(*columns) if columns else frame).collect()
    plain = [tuple(_in_utc(value) for value in row) for row in rows]
    return sorted(plain, key=lambda row: [(value is not None, str(value)) for value in row])


def _in_utc(value: Any) -> Any:
    # Spark hands over instants as local time without a zone.
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def read_current(spark: SparkSession, lake: Lake, view: Windowed) -> DataFrame:
    """First results overlaid with corrections."""
    corrections, updates = read_corrections(spark, lake, view), read_updates(spark, lake, view)
    return current_results(read_first(spark, lake, view), corrections, view, updates)
