"""What a join cannot compute, where that goes to a side output: a read of the logs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import BATCH, DAY, ORIGIN, literal
from streaming.declare import LEFT_AT, RIGHT_AT, Joined
from streaming.joins.frame import ERROR, OTHER, Side, alone, failed_alone, failed_pairs, side_rows, unmatched
from streaming.joins.waiting import is_due
from streaming.log import valid
from streaming.operators import Reached
from streaming.spark import as_json


def failed(joined: Joined, logs: Mapping[str, DataFrame], at: Reached) -> DataFrame:
    """Of the `logs`, by stream, up to where the join is: pairs that it cannot compute, and rows without one in time.

    `error`, `row` (both rows as JSON, null for one that is not there), `_left_batch`, `_right_batch`, `_origin` of
    both, `_day`.
    """
    streams = {"left": joined.left, "right": joined.right}
    rows: dict[Side, DataFrame] = {}
    for side in OTHER:
        name = streams[side].name
        rows[side] = side_rows(joined, side, valid(logs[name]).where(F.col(BATCH) <= at.through[name]))
    parts = [failed_pairs(joined, rows["left"], rows["right"])]
    for side in joined.outer_sides:
        due, others = rows[side].where(is_due(joined, side, literal(at.watermark))), rows[OTHER[side]]
        parts.append(failed_alone(joined, alone(joined, side, unmatched(joined, side, due, others), others)))
    sides = (_row(joined.pair.left, LEFT_AT).alias("left"), _row(joined.pair.right, RIGHT_AT).alias("right"))
    return reduce(DataFrame.unionByName, parts).select(
        F.col(ERROR).alias("error"),
        as_json(sides).alias("row"),
        "_left_batch",
        "_right_batch",
        F.struct(F.col("_left_origin").alias("left"), F.col("_right_origin").alias("right")).alias(ORIGIN),
        F.to_date(F.greatest(LEFT_AT, RIGHT_AT)).alias(DAY),
    )


def _row(names: Mapping[str, str], at: str) -> Column:
    """The row of one side of a pair, by the `names` that its columns have there; null where it has none."""
    fields = [F.col(f"`{alias}`").alias(name) for name, alias in names.items()]
    return F.when(F.col(at).isNotNull(), F.struct(*fields) if fields else F.struct(at))
