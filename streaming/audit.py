"""The audit: every law of the design, checked on a lake as it stands, with plain batch reads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming import log
from streaming.audit_source import changed_files
from streaming.bootstrap import Bootstrap
from streaming.clock import ClockState
from streaming.corrections import correction, plan, read_corrections
from streaming.findings import Finding, compare
from streaming.intervals import literal
from streaming.lake import Lake
from streaming.log import Batch
from streaming.pipeline import Pipeline
from streaming.updates import read_updates, updated_through, updates_between
from streaming.views import current, dropped_ever, read_first
from streaming.windowed import WINDOW, Windowed


def audit(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Iterator[Finding]:
    """Check the laws of a pipeline one after the other; each finding comes as soon as it is known.

    Raises:
        LogError: nothing has been ingested yet.
        ViewError: a view is not built yet.
    """
    stream = pipeline.stream
    rows = log.read_log(spark, lake, stream).persist()
    try:
        batches = sorted(log.batches(lake, stream), key=lambda batch: batch.number)
        yield _conservation_by_batch(rows, batches, stream.name)
        yield _conservation_by_file(spark, lake, pipeline)
        yield _stamps(rows, batches, pipeline)
        yield _once(batches, stream.name)
        if any(batch.cause == "repair" for batch in batches):
            yield _repairs(rows, stream.name)
        for view in pipeline.views:
            yield from _view(spark, lake, view, rows, batches)
    finally:
        rows.unpersist()


def _conservation_by_batch(rows: DataFrame, batches: list[Batch], name: str) -> Finding:
    valid, rejected = F.col("_day").isNotNull(), F.col("_rejected").isNotNull()
    counted = {
        row["_batch"]: (row["valid"], row["rejected"], row["unclear"])
        for row in rows.where(F.col("_origin").isNotNull())
        .groupBy("_batch")
        .agg(
            F.count_if(valid & ~rejected).alias("valid"),
            F.count_if(~valid & rejected).alias("rejected"),
            F.count_if(valid == rejected).alias("unclear"),
        )
        .collect()
    }
    broken = sum(
        counted.get(batch.number, (0, 0, 0)) != (batch.summary.rows - batch.rejected, batch.rejected, 0)
        for batch in batches
    )
    return Finding("conservation", name, len(batches), broken, "batches: rows read = valid + rejected")


def _conservation_by_file(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Finding:
    stream = pipeline.stream
    findings = [finding for finding in changed_files(spark, lake, stream) if finding.kind == "changed"]
    files = log.read_log(spark, lake, stream).where("_origin is not null").select("_origin.path").distinct().count()
    return Finding("conservation", stream.name, files, len(findings), "files ingested: not changed since")


def _stamps(rows: DataFrame, batches: list[Batch], pipeline: Pipeline) -> Finding:
    stream = pipeline.stream
    stamped = {
        row["_batch"]: (row["stamps"], row["micros"])
        for row in rows.groupBy("_batch")
        .agg(
            F.count_distinct(F.coalesce(F.unix_micros("_watermark"), F.lit(-1))).alias("stamps"),
            F.unix_micros(F.max("_watermark")).alias("micros"),
        )
        .collect()
    }
    broken, before = 0, None
    for batch in batches:
        # By the clock that was declared then: a delay that was changed later judges later batches only.
        expected = ClockState() if before is None else batch.clock.advance(before.state, before.summary)
        if batch.cause == "heartbeat":
            expected = batch.clock.advance(expected, batch.summary)
        watermark = batch.state.to_json()["watermark"]
        replayed = _not_before(batch.state, expected) if batch.end_of_input else expected == batch.state
        written = stamped.get(batch.number, (1, watermark)) == (1, watermark)
        broken += not (replayed and written)
        before = batch
    return Finding("one clock", stream.name, len(batches), broken, "batches: stamp = the clock replayed")


def _not_before(state: ClockState, expected: ClockState) -> bool:
    return expected.watermark is None or (state.watermark is not None and state.watermark >= expected.watermark)


def _once(batches: list[Batch], name: str) -> Finding:
    sources = [(batch.query, batch.query_batch) for batch in batches if batch.query]
    numbers = [batch.number for batch in batches]
    broken = len(sources) - len(set(sources)) + sum(number != index for index, number in enumerate(numbers))
    return Finding("idempotence", name, len(batches), broken, "batches: once each, without a gap")


def _repairs(rows: DataFrame, name: str) -> Finding:
    origin = [F.col("_origin.path").alias("path"), F.col("_origin.position").alias("position")]
    repairs = log.repaired(rows).select(*origin, F.col("_origin.repairs").alias("batch"), F.col("_batch").alias("by"))
    originals = log.ever_rejected(rows).select(*origin, F.col("_batch").alias("batch"), F.lit(1).alias("original"))
    counts = (
        repairs.join(originals, ["path", "position", "batch"], "left")
        .groupBy("path", "position", "batch")
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


def _view(spark: SparkSession, lake: Lake, view: Windowed, rows: DataFrame, batches: list[Batch]) -> Iterator[Finding]:
    watermark = max((batch.state.watermark for batch in batches if batch.state.watermark), default=None)
    pairs = view.pairs(rows)
    # Batches before the view did not count its late pairs.
    since = Bootstrap.of(lake, view)
    unaware = -1 if since is None else since.batch
    # Where windows merge, a late row may well belong to a session that is still open.
    closed = F.lit(True) if view.window.merging else F.col(f"{WINDOW}.end") <= literal(watermark)
    counts = pairs.agg(
        F.count(F.lit(1)).alias("pairs"),
        F.count_if("_late").alias("late"),
        F.count_if(~F.col("_late")).alias("on_time"),
        F.count_if(F.col("_late") & ~closed).alias("late_in_open"),
        F.count_if(F.col("_late") & (F.col("_batch") > unaware)).alias("counted"),
    ).first()
    assert counts is not None
    told = sum((batch.late or {}).get(view.name, 0) for batch in batches if batch.number > unaware)
    broken = (
        abs(counts["pairs"] - counts["late"] - counts["on_time"])
        + abs(told - counts["counted"])
        + counts["late_in_open"]
    )
    yield Finding("partition", view.name, counts["pairs"], broken, "(row, window) pairs: on time or late")

    def closed_results(of: DataFrame) -> DataFrame:
        return view.aggregate(of).where(F.col("window_end") <= literal(watermark))

    first, updates = read_first(spark, lake, view), read_updates(spark, lake, view)
    corrections = read_corrections(spark, lake, view)
    on_time = closed_results(pairs.where("not _late"))
    yield compare("first result", view, first, on_time, view.columns, "windows: stream = batch, on-time rows")
    if view.late == "drop":
        yield Finding(
            "convergence", view.name, 0, 0, f"not promised: {counts['late']:,} late pairs dropped as declared"
        )
    else:
        waiting = {backlog.day for backlog in plan(spark, lake, view)}
        settled = ~F.col("_day").isin(*waiting) if waiting else F.lit(True)
        yield compare(
            "convergence",
            view,
            current(first, corrections, view, updates).where(settled),
            closed_results(pairs).where(settled),
            view.columns,
            "windows: current = batch, all rows" + (f"; {len(waiting)} days wait" if waiting else ""),
        )
    if updates is not None:
        yield compare(
            "idempotence",
            view,
            updates,
            updates_between(rows, view, -1, updated_through(lake, view)),
            (*view.columns, "_batch"),
            "updates: computed again, equal",
            "_batch",
        )
    if corrections is not None:
        yield compare(
            "idempotence",
            view,
            corrections,
            _recomputed(rows, corrections, view, batches),
            (*view.columns, "_late_rows", "_retracted", "_through_batch"),
            "corrections: computed again, equal",
        )
    yield Finding(
        "zero native drops", view.name, counts["pairs"], dropped_ever(lake, view), "pairs: none dropped by Spark itself"
    )


def _recomputed(rows: DataFrame, corrections: DataFrame, view: Windowed, batches: list[Batch]) -> DataFrame:
    numbered = {batch.number: batch for batch in batches}
    days: list[tuple[date, int]] = [
        (row["_day"], row["_through_batch"])
        for row in corrections.select("_day", "_through_batch").distinct().collect()
    ]
    parts = [correction(rows, view, day, numbered[through]) for day, through in days]
    return reduce(DataFrame.unionByName, parts) if parts else corrections.limit(0)
