"""What a view cannot compute, where that goes to a side output: rows, and windows for which its function fails.

Such rows and windows are a read of the log, as late ones are. All that is counted goes by `failure`, so that a row is
either told of here or counted, in first results, corrections and the audit alike.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, DAY, ORIGIN, WINDOW, literal
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.log import valid
from streaming.operators import can_be_compared, whole_since
from streaming.spark import as_json
from streaming.views.functions import ERROR, errors_of
from streaming.views.position import Position
from streaming.views.results import failure, group, members, pairs


def failed(log: DataFrame, lake: Lake, view: Windowed, at: Position) -> DataFrame:
    """The rows of a read of the log that the view cannot compute, and the closed windows that its function cannot.

    `error`, `row` as JSON (of a window its key), `window_start` and `window_end` (null for a row), `_at`, `_batch` and
    `_origin` (null for a window), `_day`. A window is of its rows in time, or of all where late ones are corrected;
    `at` is how far the view is.
    """
    rows = _rows(log, view)
    if view.function is None or at.watermark is None:
        return rows
    return rows.unionByName(_windows(log, lake, view, at))


def _rows(log: DataFrame, view: Windowed) -> DataFrame:
    error = failure(view)
    instant = F.lit(None).cast("timestamp")
    told = valid(log).select(
        (F.lit(None).cast("string") if error is None else error).alias("error"),
        as_json(F.col(f"`{name}`") for name in view.of.columns).alias("row"),
        instant.alias("window_start"),
        instant.alias("window_end"),
        F.col(f"`{view.of.event_time}`").alias(AT),
        BATCH,
        ORIGIN,
        DAY,
    )
    return told.where(F.col("error").isNotNull())


def _windows(log: DataFrame, lake: Lake, view: Windowed, at: Position) -> DataFrame:
    assert view.function is not None and at.watermark is not None
    counted = pairs(log.where(F.col(BATCH) <= at.batch), view)
    closed = F.col(f"{WINDOW}.end") <= literal(view.window.closed_by(at.watermark))
    parts = [counted.where("not _late"), *([counted] if view.corrected else [])]
    keys = (*view.by, WINDOW)
    errors = [
        errors_of(view.function, members(group(part, view).where(closed), view).where("_copy = 1"), keys)
        for part in parts
    ]
    told = reduce(DataFrame.unionByName, errors).select(
        F.col(ERROR).alias("error"),
        as_json(F.col(f"`{name}`") for name in view.by).alias("row"),
        F.col(f"{WINDOW}.start").alias("window_start"),
        F.col(f"{WINDOW}.end").alias("window_end"),
        F.lit(None).cast("timestamp").alias(AT),
        F.lit(None).cast("bigint").alias(BATCH),
        F.lit(None).cast(log.schema[ORIGIN].dataType).alias(ORIGIN),
        F.to_date(f"{WINDOW}.start").alias(DAY),
    )
    return told.where(can_be_compared(whole_since(lake, view))).distinct()
