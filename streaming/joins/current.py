"""What is current of a join: its pairs and, of rows that had no partner in time, those that have none until now."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import ORIGIN
from streaming.joins.frame import Side

_PLACE = "_place"


def current_rows(pairs: DataFrame, unmatched: DataFrame, outer_sides: tuple[Side, ...]) -> DataFrame:
    """`pairs` and `unmatched` are the tables as they are; a row is known by where its source had it."""
    rows = pairs
    for side in outer_sides:
        origin = F.col(ORIGIN)[side]
        matched = pairs.select(origin.alias(_PLACE))
        own = unmatched.where(origin.isNotNull())
        rows = rows.unionByName(own.join(matched, own[ORIGIN][side] == matched[_PLACE], "left_anti"))
    return rows
