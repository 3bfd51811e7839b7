"""Updates: late pairs within the allowed lateness, corrected by the stream process right after their batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import FIRST_INSTANT, MICROSECOND, WINDOW, from_micros, interval, literal
from streaming.declare import UPDATES, Windowed
from streaming.lake import Lake
from streaming.log import head, read_log
from streaming.operators import create_table, open_side
from streaming.tables import commit_history, delta
from streaming.views.results import aggregate, pairs, possibly_in_windows_after

_APP = "updates"


def in_lateness(view: Windowed, window_end: Column) -> Column:
    """Whether the stamp had not yet passed the window's end by the allowed lateness when the row came.

    Semantics of Flink's `allowedLateness`, on the stamp: `stamp < window_end + lateness`.
    """
    assert view.allowed_lateness is not None
    micros = interval(view.allowed_lateness) // MICROSECOND
    return F.unix_micros("_watermark") < F.unix_micros(window_end) + F.lit(micros)


def updates_between(log: DataFrame, view: Windowed, after: int, through: int) -> DataFrame:
    """The updates of the batches `after` < batch <= `through`, as a pure function of the log.

    One row per key, window and batch that brought a late pair in time: the view's columns, computed from all rows up to
    that batch, `_batch` and `_day`.
    """
    counted = pairs(log.where(F.col("_batch") <= through), view)
    brought = (
        counted.where((F.col("_batch") > after) & F.col("_late") & in_lateness(view, F.col(f"{WINDOW}.end")))
        .select(*(F.col(name).alias(f"_its_{name}") for name in (*view.by, WINDOW)), F.col("_batch").alias("_brought"))
        .distinct()
    )
    same = [counted[name].eqNullSafe(brought[f"_its_{name}"]) for name in (*view.by, WINDOW)]
    until = counted.join(F.broadcast(brought), [*same, counted["_batch"] <= brought["_brought"]])
    return aggregate(until, view, "_brought").withColumnRenamed("_brought", "_batch")


def update(spark: SparkSession, lake: Lake, view: Windowed, now: Callable[[], datetime]) -> int:
    """Append the updates of every batch that has none yet, in one commit; returns how many rows they were.

    Idempotent: the commit carries the batch up to which it goes.
    """
    newest = head(lake, view.of)
    if newest is None or view.late != "update":
        return 0
    uri, done = lake.updates(view), updated_through(lake, view)
    if done >= newest.number:
        return 0
    log = possibly_in_windows_after(read_log(spark, lake, view.of), view, _closed_for_good(lake, view))
    rows = updates_between(log, view, done, newest.number).withColumn("_written_at", literal(now()))
    create_table(lake, view, UPDATES, rows.schema)
    return delta.append(
        rows,
        uri,
        txn=delta.Txn(_APP, newest.number),
        metadata=lambda: {
            "through": newest.number,
            "view": view.name,
            "watermark": newest.after.to_json()["watermark"],
        },
        statistics=("window_start", "_batch"),
    )


def _closed_for_good(lake: Lake, view: Windowed) -> datetime | None:
    """No window that ends here or before is ever updated again, as the last updates tell; None where nobody knows."""
    assert view.allowed_lateness is not None
    commits = commit_history(lake.updates(view), 1)
    described = commits[0]["userMetadata"] if commits else None
    if not isinstance(described, dict) or described.get("watermark") is None:
        return None
    watermark, lateness = from_micros(described["watermark"]), interval(view.allowed_lateness)
    return watermark - lateness if watermark - FIRST_INSTANT > lateness else None


def updated_through(lake: Lake, view: Windowed, version: int | None = None) -> int:
    """The batch up to which the updates go, at one Delta `version` or the newest; -1 where there are none."""
    table = open_side(lake, view, UPDATES, version)
    written = None if table is None else table.transaction_version(_APP)
    return -1 if written is None else written


def read_updates(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame | None:
    """The updates as a batch frame, at one Delta `version` or the newest, or None while there is no such table."""
    table = open_side(lake, view, UPDATES, version)
    return None if table is None else delta.read(spark, lake.updates(view), table.version())


def emitted(first: DataFrame, updates: DataFrame | None, view: Windowed) -> DataFrame:
    """All that the stream process said of a view: its columns, `_day`, and `_kind`, which is `first` or `update`."""
    columns = [*view.columns, "_day"]
    results = first.select(*columns, F.lit("first").alias("_kind"))
    return results if updates is None else results.unionByName(updates.select(*columns, F.lit("update").alias("_kind")))
