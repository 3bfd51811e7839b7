"""A key that half of all rows have: it is kept in parts of bounded size, and compared with what is near it in time."""

from __future__ import annotations

from functools import reduce
from operator import and_

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming import BoundedOutOfOrderness, Files, Joined, Json, Stream
from streaming.joins import frame
from tests.support.instants import T0

ROWS, KEPT = 10_000, 500
left, right = (
    Stream(
        name,
        Files(f"landing/{name}"),
        Json("n bigint not null, key string, at timestamp not null"),
        "at",
        BoundedOutOfOrderness("10 seconds"),
    )
    for name in ("left_rows", "right_rows")
)
near = Joined("near", left, right, ("key",), ("-4 seconds", "4 seconds"))


def side_of(spark: SparkSession, side: frame.Side) -> DataFrame:
    """A row a second, of which every other one has the hot key and all others one of their own."""
    key = F.when(F.col("id") % 2 == 0, "hot").otherwise(F.concat(F.lit("k"), F.col("id")))
    at = F.timestamp_seconds(F.col("id") + int(T0.timestamp()))
    log = spark.range(ROWS).select(
        F.col("id").alias("n"),
        key.alias("key"),
        at.alias("at"),
        F.lit(None).cast("timestamp").alias("_watermark"),
        F.lit(0).cast("bigint").alias("_batch"),
        F.struct(F.col("id").alias("position")).alias("_origin"),
    )
    return frame.side_rows(near, side, log)


def test_a_key_that_half_the_rows_have_is_kept_in_small_parts_and_met_only_by_what_is_near_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "_KEPT", KEPT)
    lefts, rights = side_of(spark, "left"), side_of(spark, "right")
    looking, partner_rows = frame._near(near, "left", lefts, "right", rights)
    kept = frame._kept(near, "left", looking, ROWS)
    parts = kept.groupBy(F.spark_partition_id()).count().collect()
    # Each row is there for two stretches of time; a hash gives some parts more than others.
    assert len(parts) == ROWS // KEPT
    assert max(part["count"] for part in parts) < 2 * KEPT * 1.5

    # A hot row has five partners but at the edges; the others have one.
    pairs = sum(len(partners(n)) for n in range(ROWS))
    assert frame.pairs(near, lefts, rights, "left", ROWS).count() == pairs
    meeting = zip(*(frame._meeting_at(near, side) for side in frame.OTHER), strict=True)
    candidates = partner_rows.join(kept, reduce(and_, (one == other for one, other in meeting))).count()
    assert pairs < candidates < 2 * pairs


def test_rows_without_a_partner_are_the_same_however_their_possible_partners_are_kept(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "_KEPT", KEPT)
    lefts, some = side_of(spark, "left"), side_of(spark, "right").where("right_n % 7 = 0")
    frames = [frame.unmatched(near, "left", lefts, some, count) for count in (ROWS, None)]
    lonely = {n for n in range(ROWS) if not any(other % 7 == 0 for other in partners(n))}
    assert [{row.left_n for row in rows.select("left_n").collect()} for rows in frames] == [lonely, lonely]


def partners(n: int) -> list[int]:
    """The numbers of the right rows that a left row meets."""
    if n % 2:
        return [n]
    return [other for other in range(n - 4, n + 5, 2) if 0 <= other < ROWS]
