"""The failures of a window join or a co-group, where these go to a side output: a read of the logs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from streaming.base import BATCH, DAY, ORDER, ORIGIN
from streaming.declare import CoGrouped, InputSide, TwoSided, WindowJoined
from streaming.joins.windows_function import ERROR
from streaming.joins.windows_plan import is_closed, until
from streaming.joins.windows_results import failed_groups, failed_pairs
from streaming.joins.windows_rows import LEFT, RIGHT, failure, group, pairs
from streaming.lake import Lake
from streaming.operators import Progress, can_be_compared, whole_since
from streaming.spark import as_json


def failed(logs: Mapping[str, DataFrame], lake: Lake, operator: TwoSided, at: Progress) -> DataFrame:
    """The closed windows, or their pairs, and rows that fail, of the `logs`, by stream, up to where the operator is.

    `error`, `row` (both rows, or the key, as JSON), `window_start` and `window_end` (null for a row), `_left_batch`,
    `_right_batch` and `_origin` of both (null for a window), `_day`. A window is of its rows in time, or of all where
    late ones are corrected.
    """
    rows = until(logs, at)
    origins: dict[str, DataType] = {
        side.name: rows[side.stream.name].schema[ORIGIN].dataType for side in operator.sides
    }
    parts = [_rows(side, operator, rows[side.stream.name], origins) for side in operator.sides]
    counted = pairs(operator, rows)
    for part in (counted.where("not _late"), *([counted] if operator.corrected else [])):
        groups = group(part, operator).where(is_closed(operator, at))
        if isinstance(operator, WindowJoined):
            parts.append(_pairs(failed_pairs(groups, operator), operator))
        if isinstance(operator, CoGrouped):
            parts.append(_groups(failed_groups(groups, operator), operator, origins))
    told = reduce(DataFrame.unionByName, [part for part in parts if part is not None])
    return told.where(can_be_compared(whole_since(lake, operator))).distinct()


def _rows(side: InputSide, operator: TwoSided, log: DataFrame, origins: Mapping[str, DataType]) -> DataFrame | None:
    error = failure(side, operator)
    if error is None:
        return None
    row = F.struct(*(F.col(f"`{name}`") for name in side.stream.columns)).alias(side.name)
    instant = F.lit(None).cast("timestamp")
    return log.where(F.col(DAY).isNotNull() & error.isNotNull()).select(
        error.alias("error"),
        as_json([row]).alias("row"),
        instant.alias("window_start"),
        instant.alias("window_end"),
        *_places({side.name: (F.col(BATCH), F.col(ORIGIN))}, origins),
        DAY,
    )


def _pairs(told: DataFrame, operator: WindowJoined) -> DataFrame:
    sides = {side.name: (F.col(column), side) for column, side in zip((LEFT, RIGHT), operator.sides, strict=True)}
    rows = (
        F.when(row.isNotNull(), F.struct(*(row[name].alias(name) for name in side.stream.columns))).alias(name)
        for name, (row, side) in sides.items()
    )
    return told.select(
        F.col(ERROR).alias("error"),
        as_json(rows).alias("row"),
        "window_start",
        "window_end",
        *_places({name: (row[ORDER][BATCH], row[ORDER][ORIGIN]) for name, (row, _) in sides.items()}, {}),
        F.to_date("window_start").alias(DAY),
    )


def _groups(told: DataFrame, operator: CoGrouped, origins: Mapping[str, DataType]) -> DataFrame:
    return told.select(
        F.col(ERROR).alias("error"),
        as_json(F.col(f"`{name}`") for name in operator.by).alias("row"),
        "window_start",
        "window_end",
        *_places({}, origins),
        F.to_date("window_start").alias(DAY),
    )


def _places(known: Mapping[str, tuple[Column, Column]], origins: Mapping[str, DataType]) -> list[Column]:
    """The batches and origins of both rows, null for one that is not `known`; `origins` are the types of the latter."""
    nothing = {name: (F.lit(None).cast("bigint"), F.lit(None).cast(kind)) for name, kind in origins.items()}
    of = {**nothing, **known}
    batches = [of[name][0].alias(f"_{name}_batch") for name in ("left", "right")]
    return [*batches, F.struct(*(of[name][1].alias(name) for name in ("left", "right"))).alias(ORIGIN)]
