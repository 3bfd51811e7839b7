"""Rejected rows and late pairs as numbers: both are reads of the log, so they are counted and never copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_assets.events.backlog import backlog_metadata
from platform_assets.events.metadata import counted, place_metadata
from platform_assets.lineage import lineage_metadata, lineage_of_rejected, lineage_of_table
from platform_assets.partitions import add_days
from streaming import Lake, Stream
from streaming.declare import FAILED, LATE, MASKED_LABELS, Operator
from streaming.log import Batch, batches_after, read_batches, read_log, rejected
from streaming.operators import LateCount, plan_corrections, runtime_of, settled_at
from streaming.service import sums
from streaming.tables import days_of, delta


def count_rejected(spark: SparkSession, lake: Lake, stream: Stream) -> dict[str, Any]:
    """The rejected rows that are not repaired, as metadata: how many, and how many of them each rule refused."""
    stream = stream.revisions
    reasons: dict[str, int] = {}
    numbers = rejected_numbers(read_batches(lake, stream))
    if numbers["dagster/row_count"]:
        rows = rejected(read_log(spark, lake, stream))
        labels = rows.select(F.explode("_rejected").alias("reason")).select(F.split("reason", ": ")[0].alias("label"))
        rules = labels.where(~F.col("label").isin(*MASKED_LABELS)).groupBy("label").count()
        reasons = {row[0]: row[1] for row in rules.orderBy(F.desc("count")).collect()}
    return {
        **numbers,
        **place_metadata(lake.log(stream)),
        **lineage_metadata(lineage_of_rejected(stream)),
        "reasons": counted("rule", reasons),
    }


def rejected_numbers(batches: Iterable[Batch]) -> dict[str, Any]:
    """The rejected rows of a log that are not repaired, and their share of all rows that came, as its commits tell.

    Of each rule that only warns also the share of valid rows that break it, since there is that rule.
    """
    total = read = 0
    warned: dict[str, int] = {}
    valid: dict[str, int] = {}
    for batch in batches:
        valid = sums(valid, dict.fromkeys(batch.warned, batch.summary.rows - batch.rejected))
        warned = sums(warned, batch.warned)
        # Repaired rows are in the log twice: once rejected, once valid.
        total += batch.rejected_left - (batch.rows_left if batch.cause == "repair" else 0)
        read += 0 if batch.cause in ("repair", "retraction") else batch.rows_left + batch.rows_dropped
    shares = {f"warned_share_{rule}": number / valid[rule] if valid[rule] else 0.0 for rule, number in warned.items()}
    return {"dagster/row_count": total, "rejected_share": total / read if read else 0.0, **shares}


def rows_since(lake: Lake, stream: Stream, batch: int) -> int:
    """The rows that the log of a stream got after a batch of it, but for those that were erased since."""
    return sum(each.rows_left for each in batches_after(lake, stream, batch))


def count_failed(spark: SparkSession, lake: Lake, operator: Operator) -> dict[str, Any]:
    """The rows that the operator cannot be computed for, as metadata: how many, and how many of them by each error."""
    errors: dict[str, int] = {}
    if all(delta.exists(lake.log(stream)) for stream in operator.reads):
        rows = runtime_of(operator, lake).readable[FAILED](spark)
        told = rows.groupBy("error").count().orderBy(F.desc("count"), "error")
        errors = {row["error"]: row["count"] for row in told.collect()}
    return {
        "dagster/row_count": sum(errors.values()),
        **place_metadata(lake.log(operator.reads[0])),
        **lineage_metadata(lineage_of_table(operator, FAILED)),
        "errors": counted("error", errors),
    }


def count_late(instance: dg.DagsterInstance, spark: SparkSession, lake: Lake, operator: Operator) -> dict[str, Any]:
    """Count what came late, make its days partitions of the corrections, and say which wait for a correction."""
    runtime = runtime_of(operator, lake)
    newest = settled_at(lake, operator)
    counts = {} if newest is None else runtime.late_per_day(spark)
    backlog = [] if newest is None else plan_corrections(spark, lake, operator)
    days = [day for day, _ in counts]
    done = runtime.corrected_through(days)
    if operator.corrected:
        # Those that are corrected, too: an instance of Dagster that is new has never heard of them.
        corrected = days_of(lake.corrections(operator)) if done is None else done
        add_days(instance, operator, (*(entry.day for entry in backlog), *corrected))
    by = "day" if len(operator.reads) == 1 else "day and side"
    within = f", within {operator.allowed_lateness}" if operator.allowed_lateness else ""
    through = None if newest is None else max(newest.values())
    return {
        "dagster/row_count": sum(counts.values()),
        **place_metadata(lake.log(operator.reads[0])),
        **lineage_metadata(lineage_of_table(operator, LATE)),
        operator.late_name.replace(" ", "_"): counted(
            by, {f"{day.isoformat()} {of}".strip(): count for (day, of), count in counts.items()}
        ),
        "days_to_correct": len(backlog),
        "late_policy": f"{operator.late_policy}{within}",
        **({} if done is None else backlog_metadata(LateCount.of(lake, operator, backlog, through))),
    }
