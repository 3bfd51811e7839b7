"""The audit of a view: what is published of it, at versions of one moment, against the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import reduce

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from streaming.base import WINDOW, literal
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.log import Batch
from streaming.operators import (
    Finding,
    Law,
    LogAtVersion,
    Progress,
    can_be_compared,
    comparable,
    of_kept_days,
    open_beside,
    whole_in,
)
from streaming.tables import delta
from streaming.views.corrections import correction, days_of_session, plan, read_corrections
from streaming.views.current import current_results, read_first
from streaming.views.kept import kept_days
from streaming.views.kinds import kind_of
from streaming.views.late import in_lateness
from streaming.views.recount import Recount, Scope, Unsupported
from streaming.views.results import aggregate, group, late_pairs_in, pairs
from streaming.views.updates import read_updates, updated_through, updates_between

_UNKNOWN_ROUNDING = 1e-9
"""The relative error that is allowed of an aggregate that does not tell how its doubles are rounded."""


@dataclass(frozen=True)
class PinnedView:
    """The tables of a view at versions of one moment, `delta.BEFORE` for those that are not there."""

    view: Windowed
    first: int
    updates: int
    corrections: int

    @classmethod
    def now(cls, lake: Lake, view: Windowed) -> PinnedView:
        """As it is now."""
        first = delta.open_table(lake.first(view))
        sides = (open_beside(first, uri) for uri in (lake.updates(view), lake.corrections(view)))
        return cls(view, *(delta.BEFORE if table is None else table.version() for table in (first, *sides)))


def audit_view(
    spark: SparkSession,
    lake: Lake,
    tables: PinnedView,
    log: LogAtVersion,
) -> Iterator[Finding]:
    """The laws of a view: its `tables` against a version of the log.

    Raises:
        ViewError: the view is not built yet.
    """
    view, rows, batches = tables.view, log.rows, log.batches
    watermark = batches[-1].after.watermark if batches else None
    counted = pairs(rows, view)
    # Batches before the view was declared, or while it was declared otherwise, did not count its late pairs.
    unaware = max((batch.number for batch in batches if late_pairs_in(batch, view) is None), default=-1)
    # Where windows merge, a late row may well belong to a session that is still open.
    closed = F.lit(True) if kind_of(view).merges else F.col(f"{WINDOW}.end") <= literal(watermark)
    counts = counted.agg(
        F.count(F.lit(1)).alias("pairs"),
        F.count_if("_late").alias("late"),
        F.count_if(~F.col("_late")).alias("on_time"),
        F.count_if(F.col("_late") & ~closed).alias("late_in_open"),
        F.count_if(F.col("_late") & (F.col("_batch") > unaware)).alias("counted"),
    ).first()
    assert counts is not None
    aware = [batch for batch in batches if batch.number > unaware]
    counted_late = sum((batch.late or {}).get(view.name, 0) - batch.gone_late(view.name) for batch in aware)
    broken = (
        abs(counts["pairs"] - counts["late"] - counts["on_time"])
        + abs(counted_late - counts["counted"])
        + counts["late_in_open"]
    )
    yield Finding("partition", view.name, counts["pairs"], broken, "(row, window) pairs: on time or late")

    def closed_results(of: DataFrame) -> DataFrame:
        return aggregate(of, view).where(published)

    first = read_first(spark, lake, view, tables.first)
    updates_through = updated_through(lake, view, tables.updates)
    updated = [batch for batch in batches if batch.number <= updates_through]
    updates = read_updates(spark, lake, view, tables.updates)
    corrections = read_corrections(spark, lake, view, tables.corrections)
    # The view may be some batches behind the log.
    there = Progress.of(view, delta.open_table(lake.first(view), tables.first)).watermark
    clock = there if lake.cut is None else watermark
    closed_by = None if clock is None else view.window.closed_by(clock)
    published = F.col("window_end") <= literal(closed_by)
    kept = kept_days(delta.open_table(lake.first(view), tables.first))
    since = whole_in(lake, view, {view.of.name: log})
    compared_days = can_be_compared(since) & (~F.col("_day").isin(*kept) if kept else F.lit(True))
    published = published & compared_days
    behind = ("" if clock == watermark else f"; the view is at {_told(clock)}") + of_kept_days(since)
    if kept:
        behind += f"; {len(kept)} days keep numbers of erased rows"
    on_time = closed_results(counted.where("not _late"))
    description = f"windows: stream = batch, on-time rows{behind}"
    yield _compare("first result", view, first.where(compared_days), on_time, view.columns, description, counted)
    settled_scope: Scope | None = None
    if view.late == "drop":
        yield Finding(
            "convergence", view.name, 0, 0, f"not promised: {counts['late']:,} late pairs dropped as declared"
        )
    else:
        # As of an older batch corrections are computed for it, so that none waits.
        planned = plan(spark, lake, view, log.version, tables.corrections) if lake.cut is None else []
        waiting = {backlog.day for backlog in planned}
        if view.late == "update":
            waiting |= _not_updated(counted, view, updated)
        settled = ~F.col("_day").isin(*waiting) if waiting else F.lit(True)
        unsettled = (f"; {len(waiting)} days wait" if waiting else "") + of_kept_days(since)
        settled_scope = Scope(closed_by, since, kept | waiting, unsettled)
        yield _compare(
            "convergence",
            view,
            current_results(first, corrections, view, updates).where(settled & published),
            closed_results(counted).where(settled),
            view.columns,
            f"windows: current = batch, all rows{unsettled}",
            counted,
        )
    if lake.cut is None:
        yield from _counted_again(lake, tables, log, Scope(closed_by, since, kept, behind), settled_scope)
    if updates is not None and updated:
        yield _compare(
            "idempotence",
            view,
            updates.where(compared_days),
            updates_between(rows, view, Progress.of(view, None), updated).where(compared_days),
            (*view.columns, "_batch", "_retracted"),
            "updates: computed again, equal",
            counted,
            "_batch",
        )
    if corrections is not None and lake.cut is None:
        yield _compare(
            "idempotence",
            view,
            corrections.where(compared_days),
            _recomputed(rows, corrections.where(compared_days), view, batches).where(compared_days),
            (*view.columns, "_late_rows", "_retracted", "_through_batch"),
            "corrections: computed again, equal",
            counted,
        )


def _counted_again(
    lake: Lake, tables: PinnedView, log: LogAtVersion, published: Scope, settled: Scope | None
) -> Iterator[Finding]:
    """The findings of another engine on the first results and, where `settled` is given, on the current ones."""
    view = tables.view
    rows, first = (
        delta.open_table(uri, version)
        for uri, version in ((lake.log(view.of), log.version), (lake.first(view), tables.first))
    )
    updates, corrections = (
        None if version == delta.BEFORE else delta.open_table(uri, version)
        for uri, version in ((lake.updates(view), tables.updates), (lake.corrections(view), tables.corrections))
    )
    assert rows is not None and first is not None
    try:
        recount = Recount(view, rows)
        yield recount.first(first, published)
        current = None if settled is None else recount.current(first, updates, corrections, settled)
        if current is not None:
            yield current
    except Unsupported as error:
        yield Finding("first result", view.name, 0, 0, f"windows: not counted by DataFusion: {error}")
    except (DeltaError, pa.ArrowException) as error:
        yield Finding("first result", view.name, 0, 0, f"windows: not counted by DataFusion, which fails: {error}")


def _not_updated(counted: DataFrame, view: Windowed, updated: Sequence[Batch]) -> set[date]:
    """Days of windows with late pairs that the stream itself has yet to count; `updated` are those that it has."""
    through = Progress.of(view, None).after({view.of.name: updated})
    end = F.col(f"{WINDOW}.end")
    if kind_of(view).merges:
        newest = F.max(F.when(F.col("_late"), F.col("_batch")))
        late = group(counted, view, extra={"_newest_late": newest}).where(F.col("_newest_late").isNotNull())
        closed = literal(None if through.watermark is None else view.window.closed_by(through.watermark))
        is_open = F.coalesce(end > closed, F.lit(True))
        days = late.where((F.col("_newest_late") > through.batch) | is_open).select(days_of_session().alias("day"))
    else:
        in_time = in_lateness(view, end, F.col("_watermark"))
        late = counted.where((F.col("_batch") > through.batch) & F.col("_late") & in_time)
        days = late.select(F.to_date(f"{WINDOW}.start").alias("day"))
    return {row["day"] for row in days.distinct().collect()}


def _told(instant: datetime | None) -> str:
    return "its beginning" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"


def _recomputed(rows: DataFrame, corrections: DataFrame, view: Windowed, batches: Sequence[Batch]) -> DataFrame:
    numbered = {batch.number: batch for batch in batches}
    days: list[tuple[date, int]] = [
        (row["_day"], row["_through_batch"])
        for row in corrections.select("_day", "_through_batch").distinct().collect()
    ]
    parts = [correction(rows, view, day, numbered[through]) for day, through in days]
    return reduce(DataFrame.unionByName, parts) if parts else corrections.limit(0)


def _compare(
    law: str,
    view: Windowed,
    stored: DataFrame,
    truth: DataFrame,
    columns: tuple[str, ...],
    compared: str,
    pairs: DataFrame,
    *per: str,
) -> Finding:
    """Compare `stored` with the `truth` in `columns`, result by result; those that differ break the `law`.

    A result is identified by the view's keys and window, and by the columns `per`. As the order in which doubles are
    added is not fixed, those of aggregates may differ by what this may make of their summands, which are among `pairs`.
    """
    if view.function is not None:
        # A window may have many results: what is there once too often or too rarely is told by bag difference.
        return Law(law, view.name, stored.select(*columns), truth.select(*columns), compared).finding()
    left, right = (
        frame.select(*(comparable(frame, name) for name in columns), F.lit(1).alias("_there")).alias(side)
        for side, frame in (("stored", stored), ("truth", truth))
    )
    joined = left.join(
        right,
        [F.col(f"stored.{name}").eqNullSafe(F.col(f"truth.{name}")) for name in (*view.identity, *per)],
        "full_outer",
    )
    equal = {name: F.col(f"stored.{name}").eqNullSafe(F.col(f"truth.{name}")) for name in (*columns, "_there")}
    same = reduce(Column.__and__, equal.values())
    counts = joined.agg(F.count(F.lit(1)).alias("checked"), F.count_if(~same).alias("broken")).first()
    assert counts is not None
    broken = counts["broken"]
    types = {field.name: field.dataType for field in truth.schema.fields}
    doubles = [name for name in view.aggregates if isinstance(types[name], DoubleType | FloatType)]
    if broken and doubles:
        # Of the few results that are not the same to the last digit their rows are looked at once more.
        broken = _beyond_rounding(joined.where(~same), view, pairs, doubles, equal)
    return Finding(law, view.name, counts["checked"], broken, compared)


def _beyond_rounding(
    differing: DataFrame, view: Windowed, pairs: DataFrame, doubles: Sequence[str], equal: Mapping[str, Column]
) -> int:
    """The number of `differing` results that the order in which their doubles were added does not explain."""
    told = {name: view.aggregates[name].rounding for name in doubles}
    extra = {f"_rounding_{name}": F.expr(sql) for name, sql in told.items() if sql is not None}
    groups = group(pairs, replace(view, distinct=()), extra=extra)
    keys = [F.col(key).alias(f"_key_{key}") for key in view.by]
    summed = groups.select(
        *keys, F.col(f"{WINDOW}.start").alias("_start"), F.col(f"{WINDOW}.end").alias("_end"), *extra
    )
    of_result = [F.col(f"truth.{key}").eqNullSafe(F.col(f"_key_{key}")) for key in view.by]
    start, end = F.col("truth.window_start"), F.col("truth.window_end")
    if kind_of(view).merges:
        # A session of some of the rows lies within one of all of them.
        of_result += [F.col("_start") <= start, end <= F.col("_end")]
    else:
        of_result += [F.col("_start") == start, F.col("_end") == end]
    near = []
    for name, sql in told.items():
        stored, truth = F.col(f"stored.{name}"), F.col(f"truth.{name}")
        relative = F.lit(_UNKNOWN_ROUNDING) * F.abs(truth)
        allowed = relative if sql is None else F.col(f"_rounding_{name}")
        # Of infinite summands everything would be near.
        finite = allowed < F.lit(float("inf"))
        near.append(equal[name] | F.coalesce(finite & (F.abs(stored - truth) <= allowed), F.lit(False)))
    others = [column for name, column in equal.items() if name not in told]
    rounded = reduce(Column.__and__, [*others, *near])
    return differing.join(summed, of_result, "left").where(~rounded).count()
