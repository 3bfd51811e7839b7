"""The audit: every law of the design, checked on a lake as it stands, with plain batch reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming import delta, log
from streaming.audit_source import changed_files
from streaming.bootstrap import Bootstrap
from streaming.clock import ClockState
from streaming.corrections import correction, plan, read_corrections
from streaming.findings import Finding, compare
from streaming.intervals import literal
from streaming.lake import Lake
from streaming.log import Batch
from streaming.pipeline import Pipeline
from streaming.updates import in_lateness, read_updates, updated_through, updates_between
from streaming.views import closed_through, current, dropped_ever, not_built, read_first
from streaming.windowed import WINDOW, Windowed


@dataclass(frozen=True)
class _Published:
    """The tables of a view at versions of one moment; `closed_through` is the clock of its first results."""

    view: Windowed
    first: int
    updates: int
    corrections: int
    closed_through: datetime | None

    @classmethod
    def now(cls, spark: SparkSession, lake: Lake, view: Windowed) -> _Published:
        first = delta.version_of(lake.first(view))
        if first is None:
            raise not_built(view)
        later = (delta.version_of(uri) for uri in (lake.updates(view), lake.corrections(view)))
        updates, corrections = (delta.BEFORE if version is None else version for version in later)
        return cls(view, first, updates, corrections, closed_through(spark, lake, view, first))


def audit(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Iterator[Finding]:
    """Check the laws of a pipeline one after the other; each finding comes as soon as it is known.

    The lake is looked at as it is when the audit begins, whatever stream and corrections do meanwhile.

    Raises:
        LogError: nothing has been ingested yet.
        ViewError: a view is not built yet, or its checkpoint does not tell how far it goes.
    """
    stream = pipeline.stream
    # Where there is no log, no view is to blame.
    log.read_log(spark, lake, stream)
    # The log last: everything that is published follows from what is in it by then.
    published = [_Published.now(spark, lake, view) for view in pipeline.views]
    version = delta.version_of(lake.log(stream))
    rows = log.read_log(spark, lake, stream, version).persist()
    try:
        newest = rows.agg(F.max("_batch")).first()
        assert newest is not None
        batches = sorted(
            (batch for batch in log.batches(lake, stream) if batch.number <= newest[0]), key=lambda batch: batch.number
        )
        yield _conservation_by_batch(rows, batches, stream.name)
        yield _conservation_by_file(spark, lake, pipeline)
        yield _stamps(rows, batches, pipeline)
        yield _once(batches, stream.name)
        if any(batch.cause == "repair" for batch in batches):
            yield _repairs(rows, stream.name)
        for tables in published:
            yield from _view(spark, lake, tables, rows, batches, version)
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


def _view(
    spark: SparkSession,
    lake: Lake,
    tables: _Published,
    rows: DataFrame,
    batches: list[Batch],
    log_version: int | None,
) -> Iterator[Finding]:
    view = tables.view
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
        return view.aggregate(of).where(published)

    first = read_first(spark, lake, view, tables.first)
    updates = read_updates(spark, lake, view, tables.updates)
    corrections = read_corrections(spark, lake, view, tables.corrections)
    # The stream may be some batches behind the log.
    published = F.col("window_end") <= literal(tables.closed_through)
    behind = "" if tables.closed_through == watermark else f"; the view is at {_told(tables.closed_through)}"
    on_time = closed_results(pairs.where("not _late"))
    yield compare("first result", view, first, on_time, view.columns, f"windows: stream = batch, on-time rows{behind}")
    if view.late == "drop":
        yield Finding(
            "convergence", view.name, 0, 0, f"not promised: {counts['late']:,} late pairs dropped as declared"
        )
    else:
        waiting = {backlog.day for backlog in plan(spark, lake, view, log_version, tables.corrections)}
        if view.late == "update":
            waiting |= _not_updated(pairs, view, updated_through(lake, view, tables.updates))
        settled = ~F.col("_day").isin(*waiting) if waiting else F.lit(True)
        yield compare(
            "convergence",
            view,
            current(first, corrections, view, updates).where(settled & published),
            closed_results(pairs).where(settled),
            view.columns,
            "windows: current = batch, all rows" + (f"; {len(waiting)} days wait" if waiting else ""),
        )
    if updates is not None:
        yield compare(
            "idempotence",
            view,
            updates,
            updates_between(rows, view, -1, updated_through(lake, view, tables.updates)),
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


def _not_updated(pairs: DataFrame, view: Windowed, through: int) -> set[date]:
    """Days of windows with late pairs that the stream itself has yet to count."""
    late = pairs.where((F.col("_batch") > through) & F.col("_late") & in_lateness(view, F.col(f"{WINDOW}.end")))
    return {row["day"] for row in late.select(F.to_date(f"{WINDOW}.start").alias("day")).distinct().collect()}


def _told(instant: datetime | None) -> str:
    return "its beginning" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"


def _recomputed(rows: DataFrame, corrections: DataFrame, view: Windowed, batches: list[Batch]) -> DataFrame:
    numbered = {batch.number: batch for batch in batches}
    days: list[tuple[date, int]] = [
        (row["_day"], row["_through_batch"])
        for row in corrections.select("_day", "_through_batch").distinct().collect()
    ]
    parts = [correction(rows, view, day, numbered[through]) for day, through in days]
    return reduce(DataFrame.unionByName, parts) if parts else corrections.limit(0)
