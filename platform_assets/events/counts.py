"""Rejected rows and late pairs as numbers: both are reads of the log, so they are counted and never copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_assets.events.backlog import backlog_metadata
from platform_assets.events.metadata import counted
from platform_assets.partitions import add_days
from streaming import Lake, Stream, Windowed, plan
from streaming.base import WINDOW
from streaming.declare import FAILED, LATE, Operator, TwoSided
from streaming.log import Batch, head, read_batches, read_log, rejected
from streaming.operators import runtime_of
from streaming.tables import days_of, delta
from streaming.views import corrected_through, possible_pairs


def count_rejected(spark: SparkSession, lake: Lake, stream: Stream) -> dict[str, Any]:
    """The rejected rows that are not repaired, as metadata: how many, and how many of them each rule refused."""
    reasons: dict[str, int] = {}
    numbers = rejected_numbers(read_batches(lake, stream))
    if numbers["dagster/row_count"]:
        rows = rejected(read_log(spark, lake, stream))
        rules = rows.select(F.explode("_rejected").alias("reason")).groupBy(F.split("reason", ": ")[0]).count()
        reasons = {row[0]: row[1] for row in rules.orderBy(F.desc("count")).collect()}
    return {
        **numbers,
        "dagster/uri": dg.MetadataValue.path(lake.log(stream)),
        "reasons": counted("rule", reasons),
    }


def rejected_numbers(batches: Iterable[Batch]) -> dict[str, Any]:
    """The rejected rows of a log that are not repaired, and their share of all rows, as its commits tell."""
    total = read = 0
    for batch in batches:
        # Repaired rows are in the log twice: once rejected, once valid.
        total += batch.rejected_left - (batch.rows_left if batch.cause == "repair" else 0)
        read += 0 if batch.cause == "repair" else batch.rows_left
    return {"dagster/row_count": total, "rejected_share": total / read if read else 0.0}


def count_failed(spark: SparkSession, lake: Lake, operator: Operator) -> dict[str, Any]:
    """The rows that the operator cannot be computed for, as metadata: how many, and how many of them by each error."""
    errors: dict[str, int] = {}
    if all(delta.exists(lake.log(stream)) for stream in operator.reads):
        rows = runtime_of(operator, lake).readable[FAILED](spark)
        told = rows.groupBy("error").count().orderBy(F.desc("count"), "error")
        errors = {row["error"]: row["count"] for row in told.collect()}
    return {
        "dagster/row_count": sum(errors.values()),
        "dagster/uri": dg.MetadataValue.path(lake.log(operator.reads[0])),
        "errors": counted("error", errors),
    }


def count_late(instance: dg.DagsterInstance, spark: SparkSession, lake: Lake, operator: Operator) -> dict[str, Any]:
    """Count the late rows, make their days partitions of the corrections, and say which wait for a correction."""
    if isinstance(operator, Windowed):
        return _count_late_pairs(instance, spark, lake, operator)
    return _count_late_rows(instance, spark, lake, operator)


def _count_late_rows(
    instance: dg.DagsterInstance, spark: SparkSession, lake: Lake, operator: Operator
) -> dict[str, Any]:
    """The late rows of an operator over several streams, those of each side by day, as metadata."""
    runtime = runtime_of(operator, lake)
    counts: dict[str, int] = {}
    if all(delta.exists(lake.log(stream)) for stream in operator.reads):
        # What cannot be computed of a row stops no count: the correction of its day tells it.
        told = replace(operator, on_error="side") if isinstance(operator, TwoSided) else operator
        rows = runtime_of(told, lake).readable[LATE](spark)
        time = "window_start" if "window_start" in rows.columns else "_at"
        side = next(name for name in ("_side", "_stream", "stream") if name in rows.columns)
        groups = rows.groupBy(F.to_date(time).alias("day"), F.col(side).alias("of")).count().orderBy("day", "of")
        counts = {f"{row['day'].isoformat()} {row['of']}": row["count"] for row in groups.collect()}
    backlog = runtime.plan(spark)
    if operator.corrected:
        add_days(instance, operator, (*(entry.day for entry in backlog), *days_of(lake.corrections(operator))))
    return {
        "dagster/row_count": sum(counts.values()),
        "dagster/uri": dg.MetadataValue.path(lake.log(operator.reads[0])),
        "late_rows": counted("day and side", counts),
        "days_to_correct": len(backlog),
        "late_policy": str(getattr(operator, "late", "")),
    }


def _count_late_pairs(instance: dg.DagsterInstance, spark: SparkSession, lake: Lake, view: Windowed) -> dict[str, Any]:
    newest = head(lake, view.of)
    backlog = [] if newest is None else plan(spark, lake, view)
    per_day = {} if newest is None else _late_per_day(spark, lake, view)
    # Those that are corrected, too: an instance of Dagster that is new has never heard of them.
    corrected = corrected_through(lake, view, map(date.fromisoformat, per_day))
    add_days(instance, view, (*(entry.day for entry in backlog), *corrected))
    return {
        "dagster/row_count": sum(per_day.values()),
        "dagster/uri": dg.MetadataValue.path(lake.log(view.of)),
        "late_pairs": counted("day", per_day),
        "days_to_correct": len(backlog),
        "late_policy": f"{view.late}, within {view.allowed_lateness}" if view.allowed_lateness else view.late,
        **backlog_metadata(lake, view, backlog, None if newest is None else newest.number),
    }


def _late_per_day(spark: SparkSession, lake: Lake, view: Windowed) -> dict[str, int]:
    late = possible_pairs(read_log(spark, lake, view.of), view).where("_late")
    days = late.groupBy(F.to_date(f"{WINDOW}.start").alias("day")).count()
    return {row["day"].isoformat(): row["count"] for row in days.orderBy("day").collect()}
