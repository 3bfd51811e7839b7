"""The audit of a join: what is stored, against both logs joined once more as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, EPOCH, WRITTEN_AT, OperatorError, literal
from streaming.declare import UNMATCHED, Joined
from streaming.joins.current import current_rows
from streaming.joins.frame import OTHER, Side, alone, pairs, results, side_rows, unmatched
from streaming.joins.waiting import is_due
from streaming.lake import Lake
from streaming.log import valid
from streaming.operators import (
    Finding,
    Law,
    LogAtVersion,
    PinnedTables,
    Progress,
    can_be_compared,
    of_kept_days,
    whole_in,
)
from streaming.tables import delta


def audit_joined(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Joined], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """The laws: each pair once, each row told of alone that had none in time, and what is current is one outer join.

    Raises:
        OperatorError: nothing is joined yet.
    """
    joined = pinned.operator
    if pinned.versions[""] == delta.BEFORE:
        raise OperatorError(
            f"join {joined.name!r} has joined nothing yet at {lake.table(joined)!r}; run `tidemark run "
            f"{joined.folder}` first."
        )
    at = Progress.of(joined, delta.open_table(lake.table(joined), pinned.versions[""]))
    sides = {side: _followed(joined, side, logs, at) for side in OTHER}
    since = whole_in(lake, joined, logs)
    kept, whole = can_be_compared(since), of_kept_days(since)
    met = _comparable(delta.read(spark, lake.table(joined), pinned.versions[""])).where(kept)
    expected = _computed(joined, pairs(joined, sides["left"], sides["right"], "left")).where(kept)
    yield Law("cuts", joined.name, met, expected, f"pairs: joined again, equal{whole}").finding()
    if not joined.outer_sides:
        return
    stored = delta.read(spark, lake.table(joined, UNMATCHED), pinned.versions[UNMATCHED])
    # Written before the pairs, so it may be a step ahead of them.
    unmatched_rows = _comparable(stored.where(F.col(BATCH) <= at.batch)).where(kept)
    alone_in_time = _alone(joined, sides, at, only_in_time=True).where(kept)
    words = f"rows without a partner in time: found again, equal{whole}"
    yield Law("first result", joined.table_name(UNMATCHED), unmatched_rows, alone_in_time, words).finding()
    current = current_rows(met, unmatched_rows, joined.outer_sides)
    every = expected.unionByName(_alone(joined, sides, at, only_in_time=False).where(kept))
    yield Law("convergence", joined.name, current, every, f"rows: current = one join of both logs{whole}").finding()


def _followed(joined: Joined, side: Side, logs: Mapping[str, LogAtVersion], at: Progress) -> DataFrame:
    stream = joined.left if side == "left" else joined.right
    rows = valid(logs[stream.name].rows).where(F.col(BATCH) <= at.through[stream.name])
    return side_rows(joined, side, rows)


def _alone(joined: Joined, sides: Mapping[Side, DataFrame], at: Progress, *, only_in_time: bool) -> DataFrame:
    """The rows that are due and have no pair; `only_in_time`: none with a partner that came in time."""
    watermark = at.watermark
    parts = []
    for side in joined.outer_sides:
        rows, others = sides[side].where(is_due(joined, side, literal(watermark))), sides[OTHER[side]]
        lonely = unmatched(joined, side, rows, others, only_in_time=only_in_time)
        parts.append(alone(joined, side, lonely, others))
    return _computed(joined, reduce(DataFrame.unionByName, parts))


def _computed(joined: Joined, rows: DataFrame) -> DataFrame:
    return _comparable(results(joined, rows, 0, EPOCH))


def _comparable(rows: DataFrame) -> DataFrame:
    """Without the number of the step, which depends on how the logs go on side by side."""
    return rows.drop(BATCH, WRITTEN_AT)
