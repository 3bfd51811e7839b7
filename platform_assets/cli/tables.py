"""The tables and reads of a pipeline that `tidemark show` prints."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession

from streaming.corrections import read_corrections
from streaming.errors import ViewError
from streaming.lake import Lake
from streaming.late import late_pairs
from streaming.log import read_log, rejected
from streaming.pipeline import Pipeline
from streaming.views import current, read_first
from streaming.windowed import Windowed


class Table(StrEnum):
    """What `tidemark show` can show of a pipeline."""

    log = "log"
    rejected = "rejected"
    late = "late"
    first = "first"
    corrections = "corrections"
    current = "current"


def frame_of(spark: SparkSession, lake: Lake, pipeline: Pipeline, view: Windowed, table: Table) -> DataFrame:
    """The rows of `table`, in an order for people.

    Raises:
        LogError, ViewError: there is no such table yet.
    """
    match table:
        case Table.log:
            return read_log(spark, lake, pipeline.stream).orderBy("_batch", "_origin.position")
        case Table.rejected:
            columns = ("_batch", "_rejected", "_raw", "_origin")
            return rejected(read_log(spark, lake, pipeline.stream)).select(*columns).orderBy("_batch")
        case Table.late:
            return late_pairs(read_log(spark, lake, pipeline.stream), view).select(
                "window_start", "window_end", "_watermark", "_batch", *pipeline.stream.columns
            )
        case Table.first:
            return read_first(spark, lake, view).orderBy("window_start", *view.by)
    corrections = read_corrections(spark, lake, view)
    if table is Table.current:
        return current(read_first(spark, lake, view), corrections, view).orderBy("window_start", *view.by)
    if corrections is None:
        raise ViewError(f"view {view.name!r} has no corrections yet; run `tidemark correct {pipeline.name}` first.")
    return corrections.orderBy("window_start", *view.by)
