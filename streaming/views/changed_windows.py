"""Windows that rows to come would change, each with its values before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, counted
from streaming.declare import OverWindows, Stream
from streaming.lake import Lake
from streaming.operators import ChangedWindow, Coming, Effect, Progress, comparable, whole_since
from streaming.views.computation import computation_of, until
from streaming.views.corrections import late_days


def effect_on_windows(spark: SparkSession, lake: Lake, operator: OverWindows, coming: Coming) -> Effect | None:
    """The effect that rows to come would have on windows; None while another stream of the operator has no log."""
    before = coming.logs(spark, lake, operator.reads)
    if before is None:
        return None
    after = {**before, coming.stream.name: coming.after}
    windows = changed_windows(operator, coming.stream, before, after, coming.batch)
    due = _days_due(lake, operator, coming, after) if operator.corrected else None
    summary = f"{counted(len(windows), 'window')} would change"
    return Effect(operator.name, summary, {"windows": len(windows)}, windows=windows, due=due)


def _days_due(lake: Lake, operator: OverWindows, coming: Coming, after: Mapping[str, DataFrame]) -> tuple[date, ...]:
    """The days that need a correction for the rows to come, by the plan of corrections once they have come."""
    heads, name = Progress.at_heads(lake, operator), coming.stream.name
    at = replace(
        heads,
        through={**heads.through, name: coming.batch},
        watermarks={**heads.watermarks, name: coming.watermark},
    )
    since = whole_since(lake, operator)
    days = late_days(until(after, at), operator, at).where(F.col("newest")[name] == coming.batch).collect()
    return tuple(row["day"] for row in days if since is None or row["day"] >= since)


def changed_windows(
    operator: OverWindows,
    stream: Stream,
    before: Mapping[str, DataFrame],
    after: Mapping[str, DataFrame],
    number: int,
) -> tuple[ChangedWindow, ...]:
    """The windows of which results differ `before` and after more rows of a stream's log came, in order.

    `before` and `after` are the logs that the operator reads, by stream; the rows that come are of batch `number`.
    """
    computation = computation_of(operator)
    added = {"_added": F.count_if((F.col(BATCH) == number) & computation.is_of(stream))}
    groups = computation.group(computation.pairs(after), added)
    changed = _outer(
        _whole(operator, computation.results(computation.pairs(before)), "_before"),
        _whole(operator, computation.finish(groups, *added), "_after", *added),
        operator,
    ).where((F.col("_added") > 0) | F.col("_after").isNull())
    if computation.sessions_may_part(after):
        # Sessions that have fallen apart are told the rows of all that were ever one with them.
        changed = changed.where(~F.col("_before").eqNullSafe(F.col("_after")))
    return tuple(
        ChangedWindow(
            key=tuple(row[name] for name in operator.by),
            start=row["window_start"].astimezone(UTC),
            end=row["window_end"].astimezone(UTC),
            rows_added=row["_added"] or 0,
            before=None if row["_before"] is None else row["_before"].asDict(),
            after=None if row["_after"] is None else row["_after"].asDict(),
        )
        for row in changed.orderBy("window_start", "window_end", *operator.by).collect()
    )


def _whole(operator: OverWindows, results: DataFrame, name: str, *extra: str) -> DataFrame:
    """One row per window with all its values in one struct, as lists where one may have several results."""
    if not operator.gives_many:
        return results.select(*operator.identity, F.struct(*operator.values).alias(name), *extra)
    values = operator.values
    lists = F.struct(*(F.sort_array(F.collect_list(comparable(results, value))).alias(value) for value in values))
    return results.groupBy(*operator.identity).agg(
        lists.alias(name), *(F.max(column).alias(column) for column in extra)
    )


def _outer(left: DataFrame, right: DataFrame, operator: OverWindows) -> DataFrame:
    """Every window of either side, with the columns of both; keys may be null."""
    left, right = left.alias("left"), right.alias("right")
    same = [F.col(f"left.{name}").eqNullSafe(F.col(f"right.{name}")) for name in operator.identity]
    others = [name for name in (*left.columns, *right.columns) if name not in operator.identity]
    return left.join(right, same, "full_outer").select(
        *(F.coalesce(f"left.{name}", f"right.{name}").alias(name) for name in operator.identity), *others
    )
