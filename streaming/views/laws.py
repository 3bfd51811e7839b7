"""The audit of an operator over windows: what is published, at versions of one moment, against the logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import reduce
from typing import Generic, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from streaming.base import DAY, RETRACTED, WINDOW, literal
from streaming.declare import CORRECTIONS, UPDATES, OverWindows, Windowed
from streaming.lake import Lake
from streaming.log import Batch
from streaming.operators import (
    Finding,
    Law,
    LogAtVersion,
    PinnedTables,
    Progress,
    can_be_compared,
    comparable,
    kept_days,
    of_kept_days,
    whole_in,
)
from streaming.tables import delta
from streaming.views.computation import computation_of
from streaming.views.corrections import (
    correction,
    current_results,
    days_of_session,
    parted_from,
    pending,
    read_corrections,
)
from streaming.views.recount import Recount, Scope, Unsupported
from streaming.views.results import group, in_lateness, kind_of, late_pairs_in, read_first
from streaming.views.updates import read_updates, updated_through, updates_between

_UNKNOWN_ROUNDING = 1e-9
"""The relative error that is allowed of an aggregate that does not tell how its doubles are rounded."""


Of = TypeVar("Of", bound=OverWindows)


class WindowLaws(Generic[Of]):
    """The laws of an operator over windows: its tables at versions of one moment, against versions of its logs.

    Pairs are on time or late, first results are of those on time, current ones of all, corrections repeat.

    Raises:
        OperatorError: nothing is published yet.
    """

    of = "rows"
    """The noun for what is compared."""

    def __init__(
        self, spark: SparkSession, lake: Lake, pinned: PinnedTables[Of], logs: Mapping[str, LogAtVersion]
    ) -> None:
        self.operator = pinned.operator
        self.lake = lake
        self.versions = pinned.versions
        self.logs = logs
        self.rows = {name: log.rows for name, log in logs.items()}
        self.batches = {name: log.batches for name, log in logs.items()}
        self.computation = computation_of(self.operator)
        self.parted = parted_from(lake, self.operator)
        self.counted = self.computation.pairs(self.rows)
        self.first = read_first(spark, lake, self.operator, self.versions[""])
        self.updates = read_updates(spark, lake, self.operator, self.versions.get(UPDATES, delta.BEFORE))
        self.corrections = read_corrections(spark, lake, self.operator, self.versions[CORRECTIONS])
        own = delta.open_table(lake.table(self.operator), self.versions[""])
        self.heads = Progress.of(self.operator, None).after(self.batches)
        # It may be some batches behind its logs.
        clock = Progress.of(self.operator, own).watermark if lake.cut is None else self.heads.watermark
        self.since, self.kept = whole_in(lake, self.operator, logs), kept_days(own)
        self.compared = can_be_compared(self.since) & (~F.col(DAY).isin(*self.kept) if self.kept else F.lit(True))
        self.closed_by = None if clock is None else self.operator.window.closed_by(clock)
        self.published = (F.col("window_end") <= literal(self.closed_by)) & self.compared
        self.behind = "" if clock == self.heads.watermark else f"; the {self.operator.kind_name} is at {_told(clock)}"
        self.behind += of_kept_days(self.since)
        if self.kept:
            self.behind += f"; {len(self.kept)} days keep numbers of erased rows"

    def findings(self) -> Iterator[Finding]:
        """All of them."""
        operator, columns = self.operator, self.operator.columns
        partition, late = self._partition()
        yield partition
        on_time = self._closed_results(self.counted.where("not _late"))
        words = f"{self.of}: stream = batch, on-time rows{self.behind}"
        yield self._compared("first result", self.first.where(self.compared), on_time, columns, words)
        settled: Scope | None = None
        if not operator.corrected:
            dropped = f"not promised: {late:,} late pairs dropped as declared"
            yield Finding("convergence", operator.name, 0, 0, dropped)
        else:
            waiting = self._waiting()
            unsettled = (f"; {len(waiting)} days wait" if waiting else "") + of_kept_days(self.since)
            settled = Scope(self.closed_by, self.since, self.kept | waiting, unsettled)
            is_settled = ~F.col(DAY).isin(*waiting) if waiting else F.lit(True)
            current = current_results(self.first, self.corrections, operator, self.updates, self.parted)
            every = self._closed_results(self.counted).where(is_settled)
            words = f"{self.of}: current = batch, all rows{unsettled}"
            yield self._compared("convergence", current.where(is_settled & self.published), every, columns, words)
        yield from self._more(settled)
        if self.corrections is not None and self.lake.cut is None:
            columns = (*columns, "_late_rows", RETRACTED, *operator.counted_through)
            corrections = self.corrections.where(self.compared)
            words = "corrections: computed again, equal"
            yield self._compared("idempotence", corrections, self._corrected_again(corrections), columns, words)

    def _partition(self) -> tuple[Finding, int]:
        """Each pair is on time or late, and the commits of the logs have counted those that are late; how many are."""
        operator, in_commits, is_counted = self.operator, 0, F.lit(False)
        for stream in operator.reads:
            batches, by = self.batches[stream.name], self.computation.counted_by(stream)
            # Batches before it was declared, or while it was declared otherwise, did not count its late pairs.
            counts = {batch.number: late_pairs_in(batch, operator, by) for batch in batches}
            unaware = max((number for number, count in counts.items() if count is None), default=-1)
            aware = [batch for batch in batches if batch.number > unaware]
            in_commits += sum((counts[batch.number] or 0) - batch.gone_late(operator.name) for batch in aware)
            is_counted |= self.computation.is_of(stream) & (F.col("_batch") > unaware)
        # Where windows merge, a late row may well belong to one that is open, and so it may by its own clock alone.
        may_be_open = kind_of(operator).merges or operator.joins_clocks
        closed = F.lit(True) if may_be_open else F.col(f"{WINDOW}.end") <= literal(self.heads.watermark)
        row = self.counted.agg(
            F.count(F.lit(1)).alias("pairs"),
            F.count_if("_late").alias("late"),
            F.count_if(~F.col("_late")).alias("on_time"),
            F.count_if(F.col("_late") & ~closed).alias("late_in_open"),
            F.count_if(F.col("_late") & is_counted).alias("counted"),
        ).first()
        assert row is not None
        broken = abs(row["pairs"] - row["late"] - row["on_time"]) + abs(row["counted"] - in_commits)
        broken += row["late_in_open"]
        words = "(row, window) pairs: on time or late"
        return Finding("partition", operator.name, row["pairs"], broken, words), row["late"]

    def _closed_results(self, pairs: DataFrame) -> DataFrame:
        return self.computation.results(pairs).where(self.published)

    def _waiting(self) -> set[date]:
        """Days of which not all late pairs are counted yet."""
        if self.lake.cut is not None:
            # As of older batches corrections are computed for them, so that none waits.
            return set()
        table = delta.open_table(self.lake.corrections(self.operator), self.versions[CORRECTIONS])
        days = {entry.day for entry in pending(self.rows, self.operator, self.heads, table)}
        return {day for day in days if self.since is None or day >= self.since}

    def _more(self, settled: Scope | None) -> Iterator[Finding]:
        """The findings of a kind's own laws; `settled`: the current results that are compared, if any are."""
        yield from ()

    def _corrected_again(self, corrections: DataFrame) -> DataFrame:
        through = self.operator.counted_through
        parts = []
        for row in corrections.select(DAY, *through).distinct().collect():
            batches = {
                stream.name: [each for each in self.batches[stream.name] if each.number <= row[name]]
                for name, stream in through.items()
            }
            at = Progress.of(self.operator, None).after(batches)
            parts.append(correction(self.rows, self.operator, row[DAY], at, self.parted))
        return reduce(DataFrame.unionByName, parts) if parts else corrections.limit(0)

    def _compared(
        self, law: str, stored: DataFrame, truth: DataFrame, columns: tuple[str, ...], words: str, *per: str
    ) -> Finding:
        """The finding on `stored` and the `truth` in `columns`: a key and window, and `per`, may have many results."""
        return Law(law, self.operator.name, stored.select(*columns), truth.select(*columns), words).finding()


class ViewLaws(WindowLaws[Windowed]):
    """The laws of a view, which another engine looks at, too: updates repeat, and doubles may be rounded otherwise."""

    of = "windows"

    def _waiting(self) -> set[date]:
        waiting = super()._waiting()
        return (
            waiting | _not_updated(self.counted, self.operator, self._updated()) if self.operator.updated else waiting
        )

    def _updated(self) -> Sequence[Batch]:
        """The batches of which the late pairs are counted in updates."""
        through = updated_through(self.lake, self.operator, self.versions[UPDATES])
        return [batch for batch in self.batches[self.operator.of.name] if batch.number <= through]

    def _more(self, settled: Scope | None) -> Iterator[Finding]:
        view, updated = self.operator, self._updated()
        if self.lake.cut is None:
            yield from self._counted_again(Scope(self.closed_by, self.since, self.kept, self.behind), settled)
        if self.updates is not None and updated:
            again = updates_between(self.rows[view.of.name], view, Progress.of(view, None), updated)
            stored, truth = self.updates.where(self.compared), again.where(self.compared)
            columns = (*view.columns, "_batch", RETRACTED)
            words = "updates: computed again, equal"
            yield self._compared("idempotence", stored, truth, columns, words, "_batch")

    def _counted_again(self, published: Scope, settled: Scope | None) -> Iterator[Finding]:
        """The findings of another engine on the first results and, where `settled` is given, on the current ones."""
        view, lake = self.operator, self.lake
        rows = delta.open_table(lake.log(view.of), self.logs[view.of.name].version)
        first, updates, corrections = (
            delta.open_table(lake.table(view, suffix), self.versions[suffix]) for suffix in ("", UPDATES, CORRECTIONS)
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

    def _compared(
        self, law: str, stored: DataFrame, truth: DataFrame, columns: tuple[str, ...], words: str, *per: str
    ) -> Finding:
        """Compare result by result; those that differ break the `law`.

        A result is identified by the view's keys and window, and by the columns `per`. As the order in which doubles
        are added is not fixed, those of aggregates may differ by what this may make of their summands.
        """
        view = self.operator
        if view.function is not None:
            # A window may have many results: what is there once too often or too rarely is told by bag difference.
            return super()._compared(law, stored, truth, columns, words)
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
            broken = _beyond_rounding(joined.where(~same), view, self.counted, doubles, equal)
        return Finding(law, view.name, counts["checked"], broken, words)


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
