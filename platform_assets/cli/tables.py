"""The tables and reads of a pipeline that `tidemark show` prints."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession

from streaming.base import LogError, ViewError
from streaming.declare import Pipeline, Windowed
from streaming.lake import Lake
from streaming.log import clock_history, read_batches, read_log, rejected
from streaming.views import (
    current_results,
    duplicates,
    late_pairs,
    read_corrections,
    read_first,
    read_open,
    read_updates,
    unassigned,
)


class Table(StrEnum):
    """What `tidemark show` can show of a pipeline."""

    log = "log"
    clock = "clock"
    rejected = "rejected"
    late = "late"
    first = "first"
    corrections = "corrections"
    updates = "updates"
    open = "open"
    unassigned = "unassigned"
    duplicates = "duplicates"
    current = "current"


def frame_of(spark: SparkSession, lake: Lake, pipeline: Pipeline, view: Windowed, table: Table) -> DataFrame:
    """The rows of `table`, in an order for people.

    Raises:
        LogError, ViewError: there is no such table yet.
    """
    match table:
        case Table.log:
            return read_log(spark, lake, pipeline.stream).orderBy("_batch", "_origin")
        case Table.clock:
            return _clock_frame(spark, lake, pipeline)
        case Table.rejected:
            columns = ("_batch", "_rejected", "_raw", "_origin")
            return rejected(read_log(spark, lake, pipeline.stream)).select(*columns).orderBy("_batch")
        case Table.late:
            return late_pairs(read_log(spark, lake, pipeline.stream), view).select(
                "window_start", "window_end", "_watermark", "_batch", *pipeline.stream.columns
            )
        case Table.first:
            return read_first(spark, lake, view).orderBy("window_start", *view.by)
        case Table.open:
            return read_open(spark, lake, view).orderBy("window_start", *view.by)
        case Table.unassigned:
            return unassigned(read_log(spark, lake, pipeline.stream), view)
        case Table.duplicates:
            return duplicates(read_log(spark, lake, pipeline.stream), view).orderBy("window_start", *view.by)
    corrections, updates = read_corrections(spark, lake, view), read_updates(spark, lake, view)
    if table is Table.current:
        return current_results(read_first(spark, lake, view), corrections, view, updates).orderBy(
            "window_start", *view.by
        )
    if table is Table.updates:
        if updates is None:
            raise ViewError(
                f"view {view.name!r} has no updates at {lake.updates(view)!r}; they are what late='update' makes of "
                f"late pairs, and it has late={view.late!r}."
            )
        return updates.orderBy("window_start", *view.by, "_batch")
    if corrections is None:
        raise ViewError(
            f"view {view.name!r} has no corrections at {lake.corrections(view)!r} yet; run `tidemark correct "
            f"{pipeline.name}` first, or point TIDEMARK_HOME to the lake that has them."
        )
    return corrections.orderBy("window_start", *view.by)


def _clock_frame(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> DataFrame:
    """The history of the stream's watermark, a row per batch, oldest first."""
    readings = clock_history(read_batches(lake, pipeline.stream))
    if not readings:
        raise LogError(
            f"stream {pipeline.stream.name!r} has no event log at {lake.log(pipeline.stream)!r} yet; run `tidemark run "
            f"{pipeline.name}` first, or point TIDEMARK_HOME to the lake that has it."
        )
    views = [view.name for view in pipeline.views]
    unknown = ", unknown_fields map<string, bigint>" if any(reading.unknown for reading in readings) else ""
    rows = [
        (
            reading.batch,
            reading.cause,
            reading.stamp,
            reading.greatest,
            reading.rows,
            reading.rejected,
            *(reading.late.get(name, 0) for name in views),
            reading.processed_at,
            *([dict(reading.unknown)] if unknown else []),
        )
        for reading in readings
    ]
    late = "".join(f"late_{name} bigint, " for name in views)
    schema = "batch bigint, cause string, stamp timestamp, greatest timestamp, rows bigint, rejected bigint, "
    return spark.createDataFrame(rows, f"{schema}{late}processed_at timestamp{unknown}")
