"""Whole extracts as revisions for histories: rows that are new, changed or gone, each with the time of its extract."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import ADDED, BATCH, INGESTED_AT, ORIGIN, STAMP
from streaming.declare import History, Stream
from streaming.keyed import HASH, hash_of
from streaming.log import Batch, retraction_of
from streaming.revisions.fold import CONCERNS, DELETES, RETRACTED_TIMES, SEQUENCE
from streaming.revisions.history_fold import GONE, SINCE, TOLD_AT
from streaming.revisions.steps import PLACE, concerns_a_row

_TAKEN_AT = "_taken_at"


def changes_as_revisions(changes: DataFrame, came: DataFrame, history: History) -> DataFrame:
    """The changes of a stream of extracts as revisions that tasks fold; `came` are the rows of the same batches.

    A row that is added is one, with the time that the history asks for; one that is taken back and not replaced in its
    batch says that its key is gone, at the time of the extract.
    """
    stream, origin = history.of, F.col(ORIGIN)
    keys = [F.col(f"`{name}`") for name in stream.key]
    replaced = F.max(origin["change"]).over(SortedBy.partitionBy(BATCH, *keys))
    rows = changes.withColumn("_replaced", replaced).where(origin["change"] == F.col("_replaced"))
    rows = _with_times_taken(rows, came, stream)
    gone = origin["change"] < 0
    return rows.select(
        hash_of(keys).alias(HASH),
        BATCH,
        F.col(BATCH).alias(SEQUENCE),
        gone.alias(DELETES),
        F.lit(0).alias(RETRACTED_TIMES),
        F.when(gone, F.md5(F.concat_ws(" ", origin["identity"], BATCH))).otherwise(origin["identity"]).alias(ADDED),
        F.lit(True).alias(CONCERNS),
        # There is one of a key in a batch.
        F.lit(0).alias(PLACE),
        *(f"`{name}`" for name in stream.columns),
        ORIGIN,
        INGESTED_AT,
        STAMP,
        _time(history, rows, gone).alias(SINCE),
        F.coalesce(_by_hand(rows), F.col(_TAKEN_AT), F.col(INGESTED_AT)).alias(TOLD_AT),
    )


def extracts_as_revisions(
    came: DataFrame, batches: Sequence[Batch], refused: Collection[int], history: History
) -> DataFrame:
    """The revisions with `SINCE`, `SEQUENCE` and `GONE` that follow from what `came`, computed from all of it at once.

    `batches` are those of the log of revisions, of which the extracts in `refused` change nothing.
    """
    stream = history.of
    keys = [f"`{name}`" for name in stream.key]
    place = stream.source.order_of(F.col(ORIGIN))
    rows = came.where(concerns_a_row(stream) & ~F.col(BATCH).isin(sorted(refused)))
    # Of several rows of a key in an extract the first counts.
    first = F.row_number().over(SortedBy.partitionBy(*keys, BATCH).orderBy(place))
    rows = rows.withColumns({"_first": first, "_again": retraction_of(came)}).where("_first = 1")
    rows = _with_times_taken(rows, came, stream)
    whole = _whole(batches, refused)
    in_order = SortedBy.partitionBy(*keys).orderBy(BATCH)
    following = F.coalesce(F.lead(BATCH).over(in_order), F.lit(1 << 62))
    wholes = F.array(*map(F.lit, whole)).cast("array<bigint>")
    between = F.filter(wholes, lambda number: (number > F.col(BATCH)) & (number < F.col("_following")))
    rows = rows.withColumn("_following", following).withColumn("_gone_in", F.get(between, F.lit(0)))
    odd = F.col("_again") % 2 == 1
    stood = ~F.lag(odd | F.col("_gone_in").isNotNull(), 1, True).over(in_order)
    differs = reduce(
        lambda one, other: one | other,
        (
            ~_comparable(rows, name).eqNullSafe(F.lag(_comparable(rows, name)).over(in_order))
            for name in stream.compared
        ),
        F.lit(False),
    )
    times = came.groupBy(F.col(BATCH).alias("_gone_in")).agg(
        F.coalesce(F.max(_taken_at(stream)), F.max(INGESTED_AT)).alias("_gone_at")
    )
    rows = rows.withColumns({"_stood": stood, "_differs": differs}).join(times, "_gone_in", "left")
    # What somebody takes back by hand is gone as well, once it is said.
    rows = rows.withColumn(
        "_was_gone_at", F.lag(F.when(odd, F.col(INGESTED_AT)).otherwise(F.col("_gone_at"))).over(in_order)
    )
    is_new = F.when(F.col("_again") > 0, odd | ~F.col("_stood")).otherwise(~F.col("_stood") | F.col("_differs"))
    changed = rows.where(is_new)
    named, there_again = _time(history, changed, odd), _time(replace(history, since=None), changed, odd)
    is_older = ~F.col("_stood") & (named < F.col("_was_gone_at"))
    since = F.when(is_older, F.greatest(there_again, "_was_gone_at")).otherwise(named)
    told = changed.withColumns({GONE: odd, SEQUENCE: F.col(BATCH), SINCE: since})
    ended = rows.where(F.col("_gone_at").isNotNull() & ~odd)
    ended = ended.withColumns({GONE: F.lit(True), SEQUENCE: F.col("_gone_in"), SINCE: F.col("_gone_at")})
    return told.unionByName(ended)


def without_row(numbers: Collection[int], batches: Sequence[Batch], refused: Collection[int]) -> list[int]:
    """The extracts that say that a key is gone, of which the batches `numbers` have a row: the next one after each."""
    gone = set[int]()
    whole, last = _whole(batches, refused), -1
    for number in (*sorted(numbers), 1 << 62):
        gone |= {*[each for each in whole if last < each < number][:1]} if last >= 0 else set()
        last = number
    return sorted(gone)


def _whole(batches: Sequence[Batch], refused: Collection[int]) -> list[int]:
    """The batches that are a whole extract, so that it tells what is gone."""
    return [
        batch.number
        for batch in batches
        if batch.cause == "source" and batch.summary.rows > batch.rejected == 0 and batch.number not in refused
    ]


def _with_times_taken(rows: DataFrame, came: DataFrame, stream: Stream) -> DataFrame:
    """The rows with the time at which the extract of their batch was taken, null where it does not say."""
    if stream.snapshots is None or stream.snapshots.taken_at is None:
        return rows.withColumn(_TAKEN_AT, F.lit(None).cast("timestamp"))
    return rows.join(came.groupBy(BATCH).agg(F.max(_taken_at(stream)).alias(_TAKEN_AT)), BATCH, "left")


def _taken_at(stream: Stream) -> Column:
    taken_at = None if stream.snapshots is None else stream.snapshots.taken_at
    return (F.lit(None) if taken_at is None else F.expr(f"({taken_at}\n)")).cast("timestamp")


def _time(history: History, rows: DataFrame, gone: Column) -> Column:
    """The time of a revision: that of its row where one is named, else of the extract, else when it came."""
    named = F.lit(None).cast("timestamp") if history.since is None else F.col(f"`{history.since}`")
    return F.coalesce(_by_hand(rows), F.when(~gone, named), F.col(_TAKEN_AT), F.col(INGESTED_AT))


def _by_hand(rows: DataFrame) -> Column:
    """The time at which somebody takes a row back by hand, or puts it back, who tells no other; null of all others."""
    return F.when(retraction_of(rows) > 0, F.col(INGESTED_AT))


def _comparable(rows: DataFrame, name: str) -> Column:
    """A column as values that Spark can compare."""
    column = F.col(f"`{name}`")
    return F.to_json(F.struct(column)) if "map" in rows.schema[name].dataType.simpleString() else column
