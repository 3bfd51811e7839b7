"""The audit of a window join or a co-group: what is published, at versions of one moment, against the logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import literal
from streaming.declare import CORRECTIONS, TwoSided
from streaming.joins.windows_corrections import correction, numbered, read_corrections
from streaming.joins.windows_first import read_first
from streaming.joins.windows_late import counted_by
from streaming.joins.windows_plan import pending
from streaming.joins.windows_results import finish
from streaming.joins.windows_rows import LATE, SIDE, group, pairs
from streaming.lake import Lake
from streaming.log import Batch
from streaming.operators import (
    Corrected,
    Finding,
    Law,
    LogAtVersion,
    PinnedTables,
    Progress,
    can_be_compared,
    of_kept_days,
    whole_in,
)
from streaming.tables import delta
from streaming.views import current_results


def audit_two_sided(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[TwoSided], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """The laws: pairs are on time or late, first results are of those on time, current ones of all, corrections repeat.

    Raises:
        ViewError: nothing is published yet.
    """
    operator = pinned.operator
    first = read_first(spark, lake, operator, pinned.versions[""])
    rows = {name: log.rows for name, log in logs.items()}
    counted = pairs(operator, rows)
    yield _partition(operator, counted, logs)
    # It may be some batches behind its logs.
    clock = Progress.of(operator, delta.open_table(lake.table(operator), pinned.versions[""])).watermark
    closed = literal(None if clock is None else operator.window.closed_by(clock))
    since = whole_in(lake, operator, logs)
    kept = can_be_compared(since)
    published = (F.col("window_end") <= closed) & kept

    def results(of: DataFrame) -> DataFrame:
        return finish(group(of, operator), operator).where(published)

    columns = operator.columns
    on_time = results(counted.where("not _late")).select(*columns)
    words = f"rows: stream = batch, on-time rows{of_kept_days(since)}"
    yield Law("first result", operator.name, first.where(kept).select(*columns), on_time, words).finding()
    corrections = read_corrections(spark, lake, operator, pinned.versions[CORRECTIONS])
    if operator.late == "drop":
        yield Finding("convergence", operator.name, 0, 0, "not promised: late rows are dropped as declared")
    else:
        heads = Progress.of(operator, None).after({name: log.batches for name, log in logs.items()})
        table = delta.open_table(lake.corrections(operator), pinned.versions[CORRECTIONS])
        # As of older batches corrections are computed for them, so that none waits.
        waiting = {entry.day for entry in pending(rows, operator, heads, table)} if lake.cut is None else set()
        waiting = {day for day in waiting if since is None or day >= since}
        settled = ~F.col("_day").isin(*waiting) if waiting else F.lit(True)
        current = current_results(first, numbered(corrections), operator).where(settled & published).select(*columns)
        every = results(counted).where(settled).select(*columns)
        compared = "rows: current = batch, all rows" + (f"; {len(waiting)} days wait" if waiting else "")
        compared += of_kept_days(since)
        yield Law("convergence", operator.name, current, every, compared).finding()
    if corrections is not None and lake.cut is None:
        stored = corrections.drop("_corrected_at").where(kept)
        again = _recomputed(rows, operator, stored, logs, lake, pinned).select(*stored.columns)
        yield Law("idempotence", operator.name, stored, again, "corrections: computed again, equal").finding()


def _partition(operator: TwoSided, counted: DataFrame, logs: Mapping[str, LogAtVersion]) -> Finding:
    """Each pair is on time or late, and the commits of the logs have counted those that are late."""
    streams = {stream.name: stream for stream in operator.reads}
    in_commits: dict[str, int] = {}
    aware = F.lit(False)
    for name, log in logs.items():
        by = counted_by(operator, streams[name])
        unaware = max((batch.number for batch in log.batches if _late_in(batch, operator, by) is None), default=-1)
        batches = [batch for batch in log.batches if batch.number > unaware]
        in_commits[name] = sum((_late_in(each, operator, by) or 0) - each.gone_late(operator.name) for each in batches)
        sides = [side.name for side in operator.sides if side.stream.name == name]
        aware = aware | (F.col(SIDE).isin(*sides) & (F.col("_batch") > unaware))
    row = counted.agg(
        F.count(F.lit(1)).alias("pairs"),
        F.count_if(LATE).alias("late"),
        F.count_if(~F.col(LATE)).alias("on_time"),
        F.count_if(F.col(LATE) & aware).alias("counted"),
    ).first()
    assert row is not None
    broken = abs(row["pairs"] - row["late"] - row["on_time"]) + abs(row["counted"] - sum(in_commits.values()))
    return Finding("partition", operator.name, row["pairs"], broken, "(row, window) pairs: on time or late")


def _late_in(batch: Batch, operator: TwoSided, by: str) -> int | None:
    """The number of late pairs that a batch brought; None where they were not counted, or by another declaration."""
    if not batch.summary.rows:
        return 0
    return (batch.late or {}).get(operator.name) if (batch.counted_by or {}).get(operator.name) == by else None


def _recomputed(
    rows: Mapping[str, DataFrame],
    operator: TwoSided,
    corrections: DataFrame,
    logs: Mapping[str, LogAtVersion],
    lake: Lake,
    pinned: PinnedTables[TwoSided],
) -> DataFrame:
    table = delta.open_table(lake.corrections(operator), pinned.versions[CORRECTIONS])
    parts = []
    for row in corrections.select("_day").distinct().collect():
        through = Corrected.of(operator, row["_day"], table).through
        newest: dict[str, Sequence[Batch]] = {
            name: [batch for batch in log.batches if batch.number <= through[name]] for name, log in logs.items()
        }
        parts.append(correction(rows, operator, row["_day"], Progress.of(operator, None).after(newest)))
    return reduce(DataFrame.unionByName, parts) if parts else corrections.limit(0)
