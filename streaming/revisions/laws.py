"""The laws of a stream with a key: its changes, and what stands, follow from the revisions in its log alone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import ADDED, BATCH, INGESTED_AT, MICROSECOND, ORIGIN, STAMP, interval, optional_micros
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log import ever_rejected, retraction_of, valid
from streaming.operators import Finding, Law, LogAtVersion
from streaming.revisions.fold import Counts
from streaming.revisions.steps import (
    concerns_a_row,
    followed_by,
    forgotten_in,
    identity_of_revision,
    is_gone,
    net,
    sequence_of,
    standing_rows,
)


def audit_revisions(
    spark: SparkSession,
    lake: Lake,
    stream: Stream,
    came: LogAtVersion,
    changes: LogAtVersion,
    standing: DeltaTable | None,
) -> Iterator[Finding]:
    """Check the `changes` of a stream with a key against what `came`, which is no older, and what stands with both.

    `standing` is no older than the changes.
    """
    yield _conservation(stream, came, changes)
    yield _one_clock(stream, came, changes)
    through = changes.batches[-1].number if changes.batches else -1
    columns = [f"`{name}`" for name in stream.columns]
    stands = net(changes.rows).select(*columns)
    revisions = valid(came.rows).where(F.col(BATCH) <= through)
    if stream.snapshots is not None:
        revisions = _extracts(revisions, came, changes)
    words = "rows that stand: the newest revision of each key that is not gone"
    compared = [f"`{name}`" for name in stream.compared]
    if stream.forget is not None:
        revisions = _remembered(revisions, stream, came, changes)
    newest = newest_revisions(revisions, stream).select(*compared)
    yield Law("newest", stream.name, stands.select(*compared), newest, words).finding()
    if standing is None or followed_by(standing) != through or lake.cut is not None:
        gone = "the table is gone, and the next run makes it anew from the log"
        reason = f"not compared: {gone if standing is None else 'the stream has gone on meanwhile'}"
        yield Finding("newest", f"{stream.name} standing", 0, 0, reason)
    else:
        stored = standing_rows(spark, lake, stream, standing.version())
        words = "rows that stand: what the changes add and do not take back"
        yield Law("newest", f"{stream.name} standing", stored, stands, words).finding()


def _conservation(stream: Stream, came: LogAtVersion, changes: LogAtVersion) -> Finding:
    """The finding that every revision has become something, and that the changes have the rows which they count."""
    found = {row[BATCH]: row["count"] for row in changes.rows.groupBy(BATCH).count().collect()}
    valid_rows = {batch.number: batch.summary.rows - batch.rejected for batch in came.batches}
    broken = 0
    for batch in changes.batches:
        counts = Counts.from_json(batch.revised)
        rows = batch.summary.rows - sum(each["valid"] for each in batch.erased.values())
        broken += counts.revisions != valid_rows.get(batch.number) or counts.rows != batch.summary.rows
        broken += found.get(batch.number, 0) != rows
    compared = "batches: revisions = added + gone + superseded + passed over"
    return Finding("conservation", f"{stream.name} changes", len(changes.batches), broken, compared)


def _one_clock(stream: Stream, came: LogAtVersion, changes: LogAtVersion) -> Finding:
    """The finding that each batch of changes has the stamp and the clock of the revisions that it follows from."""
    clocks = {batch.number: (batch.state, batch.after, batch.end_of_input) for batch in came.batches}
    broken = sum(
        clocks.get(batch.number) != (batch.state, batch.after, batch.end_of_input) or batch.number != place
        for place, batch in enumerate(changes.batches)
    )
    compared = "batches: stamped as the revisions that they follow from"
    return Finding("one clock", f"{stream.name} changes", len(changes.batches), broken, compared)


def _extracts(revisions: DataFrame, came: LogAtVersion, changes: LogAtVersion) -> DataFrame:
    """The rows of extracts since the newest whole one that was taken: nothing stands that it does not have."""
    refused = {batch.number for batch in changes.batches if batch.revised.get("refused")}
    taken = {batch.number for batch in changes.batches} - refused
    whole = (
        batch.number for batch in came.batches if batch.cause == "source" and batch.summary.rows > batch.rejected == 0
    )
    since = max((number for number in whole if number in taken), default=0)
    return revisions.where((F.col(BATCH) >= since) & ~F.col(BATCH).isin(sorted(refused)))


def _remembered(revisions: DataFrame, stream: Stream, came: LogAtVersion, changes: LogAtVersion) -> DataFrame:
    """The revisions of each key since a delete of it was last forgotten, without those that are told as forgotten."""
    keys = [f"`{name}`" for name in stream.key]
    after = interval(stream.forget or "") // MICROSECOND
    through = changes.batches[-1].number if changes.batches else -1
    followed = [batch for batch in came.batches if batch.number <= through]
    clocks = {batch.number + 1: optional_micros(batch.after.watermark) for batch in followed}
    rows = revisions.where(concerns_a_row(stream)).withColumn(ADDED, identity_of_revision())
    rows = rows.join(forgotten_in(ever_rejected(changes.rows)), ADDED, "left_anti")
    of_key = SortedBy.partitionBy(*keys)
    time = F.greatest(STAMP, F.coalesce(F.col(f"`{stream.event_time}`"), F.col(INGESTED_AT)))
    placed = rows.select(
        *keys,
        ADDED,
        BATCH,
        F.row_number().over(of_key.orderBy(BATCH, stream.source.order_of(F.col(ORIGIN)))).alias("_place"),
        F.dense_rank().over(of_key.orderBy(sequence_of(stream))).alias("_rank"),
        is_gone(rows, stream).alias("_gone"),
        retraction_of(rows).alias("_times"),
        F.unix_micros(time).alias("_time"),
    )

    def last_life(of_one: pa.Table) -> pa.Table:
        known: tuple[int, bool, int] | None = None
        life: list[str] = []

        def is_forgotten(batch: int) -> bool:
            clock = clocks.get(batch)
            return known is not None and known[1] and clock is not None and known[2] + after < clock

        for row in sorted(of_one.to_pylist(), key=lambda each: each["_place"]):
            if is_forgotten(row[BATCH]):
                known, life = None, []
            life.append(row[ADDED])
            takes = known is None or row["_rank"] > known[0]
            if row["_times"]:
                takes = known is not None and row["_rank"] >= known[0] and (row["_times"] % 2 == 0) == known[1]
            if takes:
                known = row["_rank"], row["_gone"], row["_time"]
        return pa.table({ADDED: pa.array([] if is_forgotten(through + 1) else life, pa.string())})

    return rows.join(placed.groupBy(*keys).applyInArrow(last_life, f"{ADDED} string"), ADDED, "left_semi")


def newest_revisions(revisions: DataFrame, stream: Stream) -> DataFrame:
    """The newest of the revisions of each key, without those that say that their key is gone.

    `revisions` are valid rows of the log of a stream with a key. Values that were not sent are those of the one before.
    """
    keys = [f"`{name}`" for name in stream.key]
    sequence, place = sequence_of(stream), stream.source.order_of(F.col(ORIGIN))
    of_rows = revisions.where(concerns_a_row(stream)).withColumns(
        {"_gone": is_gone(revisions, stream), "_times": retraction_of(revisions)}
    )
    # Of two with one sequence the first one stands, so it comes last; what takes it back comes after it.
    rising = (sequence.asc(), F.asc("_times"), F.col(BATCH).desc(), place.desc())
    if stream.as_before:
        times_gone = F.count_if("_gone").over(SortedBy.partitionBy(*keys).orderBy(*rising))
        of_rows = of_rows.withColumn("_times_gone", times_gone)
        since = SortedBy.partitionBy(*keys, "_times_gone").orderBy(*rising)
        unsent = F.coalesce(F.col(stream.as_before), F.array().cast("array<string>"))
        values = {
            name: F.last(
                F.when(~F.arrays_overlap(unsent, F.array(*map(F.lit, sorted(made_of)))), F.struct(f"`{name}`")),
                ignorenulls=True,
            ).over(since)[name]
            for name, made_of in stream.made_of.items()
            if name in stream.columns and name not in stream.key and name != stream.as_before
        }
        of_rows = of_rows.withColumns(values)
    falling = SortedBy.partitionBy(*keys).orderBy(sequence.desc(), F.desc("_times"), F.col(BATCH).asc(), place.asc())
    newest = of_rows.withColumn("_newest", F.row_number().over(falling)).where("_newest = 1")
    return newest.where(~F.col("_gone"))
