"""The audit: every law of the design, checked on a lake as it stands, with plain batch reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from streaming import log
from streaming.audit.deliveries import audit_delivery
from streaming.base import WARNED, date_literal
from streaming.changes import Publishing
from streaming.clocks import ClockState
from streaming.declare import MASKED_LABELS, Pipeline, Stream
from streaming.lake import Lake
from streaming.log import Batch, came
from streaming.operators import Finding, LogAtVersion, runtime_of
from streaming.revisions import audit_revisions
from streaming.tables import delta

_NAMED = 5


def audit(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Iterator[Finding]:
    """Check the laws of a pipeline one after the other; each finding comes as soon as it is known.

    The lake is looked at as it is when the audit begins, whatever stream and corrections do meanwhile, or as of the
    batches of its cut. A target is asked what it holds while nothing arrives there.

    Raises:
        LogError: nothing has been ingested yet.
        OperatorError: a view is not built yet.
    """
    runtimes = [runtime_of(operator, lake) for operator in pipeline.operators]
    # Pin the operators before the logs: every published row was computed from log rows committed earlier, so a log
    # version read afterwards holds them all.
    pinned = [runtime.pin(spark) for runtime in runtimes]
    logs: dict[str, LogAtVersion] = {}
    for stream in pipeline.streams:
        if stream in pipeline.control_streams and not delta.exists(lake.log(stream)):
            # Nobody has set a rule yet.
            continue
        logs[stream.name] = _pin_log(spark, lake, stream)
        if not stream.revised:
            yield from _laws_of_log(spark, lake, stream, logs[stream.name])
            continue
        standing, came = delta.open_table(lake.standing(stream)), _pin_log(spark, lake, stream.revisions)
        yield from _laws_of_log(spark, lake, stream.revisions, came)
        yield from audit_revisions(spark, lake, stream, came, logs[stream.name], standing)
    for runtime, tables in zip(runtimes, pinned, strict=True):
        read = {stream.name: logs[stream.name] for stream in runtime.operator.reads if stream.name in logs}
        yield from runtime.laws(spark, tables, read)
        if runtime.operator.published and lake.cut is None:
            yield from Publishing(lake, runtime.operator).laws(spark)
    for delivery in pipeline.deliveries:
        if lake.cut is None:
            yield from audit_delivery(spark, lake, delivery)
        else:
            yield Finding("delivery", delivery.name, 0, 0, "not compared: a target holds what was delivered up to now")


def _pin_log(spark: SparkSession, lake: Lake, stream: Stream) -> LogAtVersion:
    table = delta.open_table(lake.log(stream))
    version = None if table is None else table.version()
    # Read again by each law, which takes a few of its columns: kept in memory, ten million rows are too many for it.
    rows = log.read_log(spark, lake, stream, version)
    batches = log.read_batches(lake, stream, version)[::-1]
    return LogAtVersion(version, rows, batches, log.dropped_before(table))


def _laws_of_log(spark: SparkSession, lake: Lake, stream: Stream, pinned: LogAtVersion) -> Iterator[Finding]:
    rows, batches = pinned.rows, pinned.batches
    counts = _counts(rows)
    yield _conservation_by_batch(counts, batches, stream.name)
    if pinned.dropped is not None:
        gone = sum(batch.dropped.get("valid", 0) for batch in batches)
        compared = (
            f"laws are checked from {pinned.dropped} on; {gone:,} rows of days before were dropped, views keep theirs"
        )
        yield Finding("retention", stream.name, gone, _rows_of_dropped_days(rows, pinned.dropped), compared)
    yield _source_unchanged(spark, lake, stream, pinned)
    yield _stamps(counts, batches, stream)
    yield _once(batches, stream.name)
    if any(batch.warned or batch.reasons for batch in batches):
        yield _by_rule(rows, batches, stream.name)
    if any(batch.cause == "repair" for batch in batches):
        yield _repairs(rows, stream.name)
    if any(batch.retraction for batch in batches):
        yield _retractions(rows, batches, stream)


def _counts(rows: DataFrame) -> dict[int, Row]:
    """The valid, rejected and unclear rows of each batch, its number of stamps and the greatest of these."""
    valid, rejected = F.col("_day").isNotNull(), F.col("_rejected").isNotNull()
    has_come = F.col("_origin").isNotNull()
    counted = rows.groupBy("_batch").agg(
        F.count_if(has_come & valid & ~rejected).alias("valid"),
        F.count_if(has_come & ~valid & rejected).alias("rejected"),
        F.count_if(has_come & (valid == rejected)).alias("unclear"),
        F.count_distinct(F.coalesce(F.unix_micros("_watermark"), F.lit(-1))).alias("stamps"),
        F.unix_micros(F.max("_watermark")).alias("micros"),
    )
    return {row["_batch"]: row for row in counted.collect()}


def _conservation_by_batch(counts: Mapping[int, Row], batches: Sequence[Batch], name: str) -> Finding:
    counted = {number: (row["valid"], row["rejected"], row["unclear"]) for number, row in counts.items()}
    expected = {batch.number: (batch.valid_left, batch.rejected_left, 0) for batch in batches}
    broken = sum(counted.get(number, (0, 0, 0)) != rows for number, rows in expected.items())
    erased = sum(batch.erased_valid + batch.erased_rejected for batch in batches)
    dropped = sum(batch.dropped.get("valid", 0) + batch.dropped.get("rejected", 0) for batch in batches)
    compared = "batches: rows read = valid + rejected"
    compared += f" + {erased:,} erased" if erased else ""
    compared += f" + {dropped:,} dropped" if dropped else ""
    return Finding("conservation", name, len(batches), broken, compared)


def _by_rule(rows: DataFrame, batches: Sequence[Batch], name: str) -> Finding:
    """The finding that each batch has as many warnings of each rule, and reasons against rows, as its commit says.

    Batches of which rows were erased or dropped since have fewer, and are left out.
    """
    told = {
        (batch.number, column, label): number
        for batch in batches
        if not batch.erased and not batch.dropped
        for column, counts in ((WARNED, batch.warned), ("_rejected", batch.reasons))
        for label, number in counts.items()
        if number and label not in MASKED_LABELS
    }
    numbers = {number for number, _, _ in told}
    found: dict[tuple[int, str, str], int] = {}
    for column in (each for each in (WARNED, "_rejected") if each in rows.columns):
        texts = rows.where(F.col(column).isNotNull()).select("_batch", F.explode(column).alias("text"))
        label = F.substring_index("text", ": ", 1).alias("label")
        for row in texts.where(~label.isin(*MASKED_LABELS)).groupBy("_batch", label).count().collect():
            found[row["_batch"], column, row["label"]] = row["count"]
    counted = {place: number for place, number in found.items() if place[0] in numbers}
    broken = sum(told.get(place) != counted.get(place) for place in told.keys() | counted.keys())
    return Finding("conservation", name, len(told), broken, "batches: warnings and reasons by rule as counted")


def _rows_of_dropped_days(rows: DataFrame, before: date) -> int:
    return rows.where(F.col("_day") < date_literal(before)).count()


def _stamps(counts: Mapping[int, Row], batches: Sequence[Batch], stream: Stream) -> Finding:
    stamped = {number: (row["stamps"], row["micros"]) for number, row in counts.items()}
    broken, before = 0, None
    for batch in batches:
        expected = ClockState() if before is None else before.after
        if batch.cause == "heartbeat":
            expected = batch.clock.advance(expected, batch.summary)
        watermark = batch.state.to_json()["watermark"]
        replayed = _not_before(batch.state, expected) if batch.end_of_input else expected == batch.state
        written = stamped.get(batch.number, (1, watermark)) == (1, watermark)
        # By the clock that was declared then: a delay that was changed later judges later batches only.
        followed = batch.after == batch.clock.advance(batch.state, batch.summary)
        broken += not (replayed and written and followed)
        before = batch
    return Finding("one clock", stream.name, len(batches), broken, "batches: stamp = the clock replayed")


def _not_before(state: ClockState, expected: ClockState) -> bool:
    return expected.watermark is None or (state.watermark is not None and state.watermark >= expected.watermark)


def _once(batches: Sequence[Batch], name: str) -> Finding:
    sources = [(batch.query, batch.query_batch) for batch in batches if batch.query]
    numbers = [batch.number for batch in batches]
    broken = len(sources) - len(set(sources)) + sum(number != index for index, number in enumerate(numbers))
    return Finding("idempotence", name, len(batches), broken, "batches: once each, without a gap")


def _repairs(rows: DataFrame, name: str) -> Finding:
    origin = F.col("_origin")
    place = log.place(origin).alias("place")
    repairs = log.repaired(rows).select(place, origin[log.REPAIRS].alias("batch"), F.col("_batch").alias("by"))
    originals = log.ever_rejected(rows).select(place, F.col("_batch").alias("batch"), F.lit(1).alias("original"))
    counts = (
        repairs.join(originals, ["place", "batch"], "left")
        .groupBy("place", "batch")
        .agg(F.count("by").alias("repairs"), F.count("original").alias("originals"), F.min("by").alias("by"))
        .agg(
            F.sum("repairs").alias("checked"),
            F.count_if((F.col("repairs") != 1) | (F.col("originals") != 1) | (F.col("by") <= F.col("batch"))).alias(
                "broken"
            ),
        )
        .first()
    )
    assert counts is not None
    return Finding("conservation", name, counts["checked"], counts["broken"], "repairs: one rejected row each, once")


def _retractions(rows: DataFrame, batches: Sequence[Batch], stream: Stream) -> Finding:
    """The finding that rows are taken back and put back in turn, each with its own values, as commits have counted."""
    retraction, batch = log.retraction_of(rows), F.col("_batch")
    values = F.md5(F.to_json(F.struct(*(f"`{name}`" for name in stream.columns))))
    signed = log.valid(rows).select(
        F.to_json(log.identity_of_row(rows)).alias("_identity"),
        retraction.alias("_number"),
        batch,
        values.alias("_row"),
    )
    taken = signed.where("_number > 0").select("_identity").distinct()
    # Values that the source did not send stand in the row that takes a revision back, and not in the revision.
    same = F.lit(True) if stream.as_before else F.count_distinct("_row") == 1
    in_turn = F.sort_array(F.collect_list(F.struct(batch, "_number")))["_number"]
    numbers = F.sequence(F.lit(0), F.max("_number"))
    each = signed.join(taken, "_identity", "left_semi").groupBy("_identity")
    counted = each.agg((same & (in_turn == numbers)).alias("_holds"))
    row = counted.agg(F.count(F.lit(1)).alias("checked"), F.count_if(~F.col("_holds")).alias("broken")).first()
    assert row is not None
    found = {each["_batch"]: each["count"] for each in signed.where("_number > 0").groupBy("_batch").count().collect()}
    broken = sum(found.get(each.number, 0) != (each.valid_left if each.retraction else 0) for each in batches)
    compared = "retractions: of one row each, taken back and put back in turn"
    return Finding("conservation", stream.name, row["checked"], row["broken"] + broken, compared)


def _source_unchanged(spark: SparkSession, lake: Lake, stream: Stream, log: LogAtVersion) -> Finding:
    """The finding that the source still holds what the rows of the log were made from; what it does not is named."""
    if log.dropped is not None and any(part.counts_rows for part in stream.source.parts):
        reason = f"not compared: the source counts rows, and those of days before {log.dropped} are gone"
        return Finding("conservation", stream.name, 0, 0, reason)
    comparison = stream.source.compare(spark, lake, came(log.rows).select("_origin"))
    texts = [change.text for change in comparison.changed]
    more = [f"... and {len(texts) - _NAMED:,} more"] if len(texts) > _NAMED else []
    compared = f"{comparison.unit} ingested: not changed since"
    return Finding(
        "conservation", stream.name, comparison.ingested, len(texts), compared, "\n".join(texts[:_NAMED] + more)
    )
