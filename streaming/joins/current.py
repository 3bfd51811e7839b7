"""The current results of a join: its pairs and, of rows that had no partner in time, those that have none until now."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import ORIGIN
from streaming.joins.frame import Side

_PLACE, _WAS_ALONE = "_place", "_was_alone"


def current_rows(pairs: DataFrame, unmatched: DataFrame, outer_sides: tuple[Side, ...]) -> DataFrame:
    """`pairs` and `unmatched` are the tables as they are; a row is known by where its source had it."""
    return reduce(
        DataFrame.unionByName, [pairs, *(_parted(pairs, unmatched, side, "left_anti") for side in outer_sides)]
    )


def voided_rows(pairs: DataFrame, unmatched: DataFrame, outer_sides: tuple[Side, ...]) -> DataFrame:
    """Those of the `unmatched` that are not current any more, because they are in one of the `pairs`."""
    return reduce(DataFrame.unionByName, [_parted(pairs, unmatched, side, "left_semi") for side in outer_sides])


def with_reasons(current: DataFrame, unmatched: DataFrame, outer_sides: tuple[Side, ...]) -> DataFrame:
    """With `_reason`: `correction` for a pair of a row that was told of alone, else `first`."""
    corrects = F.lit(False)
    for side in outer_sides:
        origin, was_alone = F.col(ORIGIN)[side], f"{_WAS_ALONE}_{side}"
        alone = unmatched.where(origin.isNotNull()).select(origin.alias(was_alone)).distinct()
        current = current.join(alone, current[ORIGIN][side] == alone[was_alone], "left")
        corrects |= F.col(was_alone).isNotNull()
    is_pair = F.col(ORIGIN)["left"].isNotNull() & F.col(ORIGIN)["right"].isNotNull()
    reason = F.when(is_pair & corrects, F.lit("correction")).otherwise(F.lit("first"))
    return current.withColumn("_reason", reason).drop(*(f"{_WAS_ALONE}_{side}" for side in outer_sides))


def _parted(pairs: DataFrame, unmatched: DataFrame, side: Side, how: str) -> DataFrame:
    """The unmatched rows of a side that are in one of the pairs, or in none."""
    origin = F.col(ORIGIN)[side]
    matched = pairs.select(origin.alias(_PLACE))
    own = unmatched.where(origin.isNotNull())
    return own.join(matched, own[ORIGIN][side] == matched[_PLACE], how)
