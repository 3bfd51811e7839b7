"""The rows of both sides with their windows, and what of them belongs together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import DAY, EVENT_TIME, ORDER, ORIGIN, WINDOW
from streaming.declare import InputSide, TwoSided
from streaming.spark import first_failure
from streaming.views import has_days, kind_of, possible_bounds

LEFT, RIGHT, SIDE, LATE = "_left", "_right", "_side", "_late"
ROWS = {"left": LEFT, "right": RIGHT}
"""The columns that hold the row of a pair, or in a group the rows, of either side."""


def pairs(operator: TwoSided, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The (valid row, window) pairs of both sides, of the `rows` of each stream's log.

    The keys, `_window`, `_late`, `_side`, `_left` or `_right` with the row (null in the other), `_batch`, `_watermark`.

    A pair is late by the clock of the row's own log, whichever log is ahead: by its stamp it is known for certain.
    """
    return _paired(operator, rows, operator.window.bounds)


def possible_pairs(operator: TwoSided, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The pairs, and those that there may be of rows of which the window cannot be computed; it raises for no row."""
    return _paired(operator, rows, partial(possible_bounds, operator.window))


def group(of: DataFrame, operator: TwoSided, **extra: Column) -> DataFrame:
    """One row per key and window of the pairs `of`: the keys, `_window`, the rows of each side, `extra` aggregates."""
    rows = [F.collect_list(column).alias(column) for column in ROWS.values()]
    extras = [column.alias(name) for name, column in extra.items()]
    return kind_of(operator).group(of, operator.by, [*rows, *extras])


def is_counted(side: InputSide, operator: TwoSided) -> Column:
    """True for the valid rows of a side's log at a time around which there are days; false or null for all others.

    Where rows of which the window cannot be computed go to a side output, it is false for these.
    """
    fails = failure(side, operator)
    return _is_timed(side) if fails is None else _is_timed(side) & fails.isNull()


def failure(side: InputSide, operator: TwoSided) -> Column | None:
    """Why the window of a row of a side's log cannot be computed, in words, null where it can; None where all can."""
    window, event_time = operator.window, F.col(f"`{side.stream.event_time}`")
    if not operator.diverts or not window.expressions:
        return None
    bounds = F.when(_is_timed(side), window.bounds(event_time))
    return first_failure([("window", ", ".join(window.expressions), bounds)], DAY)


def _is_timed(side: InputSide) -> Column:
    return F.col(DAY).isNotNull() & has_days(F.col(f"`{side.stream.event_time}`"))


def _paired(operator: TwoSided, rows: Mapping[str, DataFrame], bounds: Callable[[Column], Column]) -> DataFrame:
    left, right = (_of_side(side, operator, rows[side.stream.name], bounds) for side in operator.sides)
    return left.unionByName(right, allowMissingColumns=True)


def _of_side(side: InputSide, operator: TwoSided, rows: DataFrame, bounds: Callable[[Column], Column]) -> DataFrame:
    event_time = F.col(f"`{side.stream.event_time}`")
    # Not over every row: what made a row rejected may make a window overflow.
    windows = F.explode(F.when(is_counted(side, operator), bounds(event_time)))
    row = F.struct(
        *(f"`{name}`" for name in side.stream.columns),
        event_time.alias(EVENT_TIME),
        F.struct(event_time.alias("at"), "_batch", ORIGIN).alias(ORDER),
    )
    paired = rows.select(
        *(F.col(f"`{theirs}`").alias(ours) for ours, theirs in zip(operator.by, side.keys, strict=True)),
        row.alias(ROWS[side.name]),
        F.lit(side.name).alias(SIDE),
        "_batch",
        "_watermark",
        windows.alias(WINDOW),
    )
    return paired.withColumn(LATE, operator.window.late(F.col(WINDOW), F.col("_watermark")))
