"""One step of an operator over windows: from where it is to a batch of each log.

Windows with fixed bounds need no state: those that the clock closes on the way are computed from the logs, or from
panes into which rows are folded that would be read too often. A *pane* is a stretch of time whose rows are all in the
same windows. What is folded is a cache of the log: a step makes its results of the panes and of the rows that are not
folded yet, wherever the border between the two lies. Of sessions what is open is a table. Each commit says how
far its table is. Whatever kills a step, the next one goes on from what the tables say; what was published is never
published again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Generic, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType
from pyspark.storagelevel import StorageLevel

from streaming.base import DAY, FIRST_INSTANT, STAMP, WINDOW, WRITTEN_AT, constant, date_literal, pc
from streaming.clocks import latest
from streaming.declare import CORRECTIONS, STATE, UPDATES, OverWindows, Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, batches_after
from streaming.operators import Batches, Progress, StateCleaner, Written, can_be_compared, create_table, in_pieces
from streaming.spark import function_errors
from streaming.tables import delta, forget_days, storage
from streaming.views.arrow_results import ArrowResults
from streaming.views.computation import WindowAnalysis, is_closed
from streaming.views.partial_results import PartialColumns
from streaming.views.results import SESSION, ends_within, has_windows, kind_of, with_order, with_sessions

FOLDED_FROM = 1_000_000
"""Rows that wait for windows to close are folded once they are so many; a row counts once per window that it is in."""
GATHERED_FROM = 4
"""The number of windows of a row from which on it pays to put the rows of a pane together before anything else."""
_PANE, _CLOSED = "_pane", "_closed"
_BOUNDS = ("window_start", "window_end")
_INSTANT = pa.timestamp("us", "UTC")
Of = TypeVar("Of", bound=OverWindows)


def repaired(lake: Lake, operator: OverWindows, published: Progress) -> Progress:
    """The progress of an operator's state, once state that is of other first results is removed.

    Such state is ahead of the first results that are there, or of another generation; it follows from the logs again.
    """
    uri = lake.table(operator, STATE)
    kept = Progress.of(operator, delta.open_table(uri))
    if published.is_behind(kept) or kept.generation != published.generation:
        storage.remove_folder(uri)
        kept = Progress.of(operator, None)
    # A table that is not there yet will be of the generation of the first results.
    return kept if kept.has_begun else replace(kept, generation=published.generation)


class _OpenSessions:
    """The table of the sessions that no clock has closed yet, with what is kept of each."""

    def __init__(self, spark: SparkSession, lake: Lake, logs: Mapping[str, LogFiles], analysis: WindowAnalysis) -> None:
        self._spark = spark
        self._lake = lake
        self._operator = analysis.of
        self._logs = logs
        self._computation = analysis.computation
        self._uri = lake.table(analysis.of, STATE)
        self._sessions_may_part = analysis.sessions_may_part
        self._kept = analysis.kept
        self._schema = analysis.sessions

    def size(self) -> int:
        """Bytes that the table takes."""
        return delta.size(self._uri)

    def forget_others(self) -> None:
        """Remove state with other columns; the logs make it anew.

        It was kept before a stream got a column, or before a row of a log was first taken back.
        """
        _forget_others(self._uri, self._schema)

    def until(self, position: Progress, after: Progress) -> DataFrame:
        """The sessions of all rows up to `after`, without those that were closed at `position`, where the table is.

        Rows that came since never touch one of those, because they are not before the watermark that closed it.
        """
        between = {name: (position.through[name], after.through[name]) for name in self._logs}
        kept = None
        if position.has_begun:
            kept = delta.read(self._spark, self._uri).select(*self._schema.names)
            if not any(log.has_rows(*between[name]) for name, log in self._logs.items()):
                return kept
        new = {name: log.with_batches(self._spark, *between[name]) for name, log in self._logs.items()}
        on_time = self._computation.pairs(new).where("not _late")
        if self._sessions_may_part:
            return self._in_order(self._computation.standing(on_time, kept))
        sessions = self._grouped(on_time)
        return self._merged(sessions if kept is None else kept.unionByName(sessions))

    def closed(self, sessions: DataFrame, after: Progress) -> DataFrame:
        """Those of the `sessions` that are closed at `after`, in the form that `finish` takes."""
        closed = sessions.where(is_closed(self._operator, after))
        if not self._kept.wholes:
            return closed
        return closed.select(*self._operator.by, WINDOW, *self._kept.wholes)

    def write_open(self, sessions: DataFrame, before: Progress, after: Progress) -> int:
        """Put those that are still open at `after` in place of what the table holds; returns how many they are.

        Raises:
            FencedError: the table is not where it was `before`.
        """
        still_open = sessions.where(~is_closed(self._operator, after))
        return delta.replace_all(
            still_open,
            create_table(self._lake, self._operator, STATE, still_open.schema),
            says=after.told_from(before),
            numbers=after.numbers(),
            statistics=(),
            fence=lambda table: before.fence(self._operator, table),
        )

    def _grouped(self, of: DataFrame) -> DataFrame:
        return kind_of(self._operator).group(of, self._operator.by, list(self._kept.of_rows))

    def _merged(self, sessions: DataFrame) -> DataFrame:
        """One row for those of a key that overlap or touch."""
        merged = _merged_sessions(sessions, self._operator.by, self._kept.merged)
        return self._in_order(merged)

    def _in_order(self, sessions: DataFrame) -> DataFrame:
        # A sum of decimals is a wider decimal each time, and the table keeps its types.
        return sessions.select(*(F.col(field.name).cast(field.dataType) for field in self._schema.fields))


def _forget_others(uri: str, columns: StructType) -> None:
    """Remove a table of state that has other columns than these; whether they may be null does not count."""
    table = delta.open_table(uri)
    if table is not None and delta.columns_of(table).simpleString() != columns.simpleString():
        storage.remove_folder(uri)


def _merged_sessions(sessions: DataFrame, keys: Sequence[str], kept: Sequence[Column]) -> DataFrame:
    """One row for the sessions of a key that overlap or touch: the keys, `_window`, and the aggregates `kept`."""
    start, end = F.col(f"{WINDOW}.start"), F.col(f"{WINDOW}.end")
    window = F.struct(F.min(start).alias("start"), F.max(end).alias("end")).alias(WINDOW)
    numbered = with_sessions(sessions, keys, start, end)
    return numbered.groupBy(*keys, SESSION).agg(window, *kept).drop(SESSION)


class WindowSteps(ABC, Generic[Of]):
    """The steps of one operator over windows in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, operator: Of) -> None:
        self.spark = spark
        self.lake = lake
        self.operator = operator
        self.logs = {stream.name: LogFiles(lake, stream) for stream in operator.reads}
        self.analysis = analysis_over(spark, operator, self.logs)
        self.computation = self.analysis.computation
        self._cleaner = StateCleaner()

    def position(self) -> Progress:
        """The batches after which the next step begins."""
        return Progress.now(self.lake, self.operator)

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log."""
        through = self.position().through
        behind = {each.name: batches_after(self.lake, each, through[each.name]) for each in self.operator.reads}
        return in_pieces(behind, most_rows)

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the position in order and without a gap, in one go.

        Raises:
            FencedError: another process has taken over.
            FunctionError: the operator's function raised.
        """
        before = self.position()
        written = self._step(before, before.after(batches), batches, now())
        self._cleaner.after_step(self.lake.table(self.operator, STATE), now())
        return written

    def repair(self) -> None:
        """Make state fit to what is published, whatever became of either; before the first step of a process."""
        for suffix in ("", CORRECTIONS, UPDATES):
            table = delta.open_table(self.lake.table(self.operator, suffix))
            if table is not None:
                # A struct may have another field by now, and the tables are read together.
                delta.widen_open(table, self.analysis.results)
        self._repair_state()

    def _repair_state(self) -> None:
        repaired(self.lake, self.operator, self.position())

    @abstractmethod
    def _step(self, before: Progress, after: Progress, batches: Batches, now: datetime) -> Written: ...

    def _publish(self, results: DataFrame | pa.Table | None, before: Progress, after: Progress, now: datetime) -> int:
        """Append `results`, None for none, in one commit that also says how far the operator is; returns their rows.

        A commit without results, or with those that are in memory, starts no Spark.
        """
        columns = StructType([*self.analysis.results.fields, StructField(WRITTEN_AT, TimestampType())])
        uri = create_table(self.lake, self.operator, "", columns)
        says, numbers = after.told_from(before), after.numbers()

        def fence(table: DeltaTable) -> None:
            before.fence(self.operator, table)

        dropped = [day for log in self.logs.values() if (day := log.dropped_before()) is not None]
        # An operator that is new on old logs has not all rows of windows that begin before.
        since = self.operator.window.whole_since(max(dropped)) if dropped else None
        if isinstance(results, pa.Table):
            kept = results if since is None else results.filter(pc.greater_equal(results[DAY], pa.scalar(since)))
            written = kept.append_column(WRITTEN_AT, pa.repeat(pa.scalar(now, _INSTANT), kept.num_rows))
            staged = delta.stage_rows(uri, written, columns, statistics=_BOUNDS) if written.num_rows else None
        elif results is not None:
            written = results.where(can_be_compared(since)).withColumn(WRITTEN_AT, constant(now, "window_end"))
            with function_errors():
                staged = delta.stage(written, uri, statistics=_BOUNDS)
        else:
            staged = None
        if staged is None:
            delta.note(uri, says=says, numbers=numbers, fence=fence)
            return 0
        return staged.commit(says, numbers, fence=fence)


def analysis_over(spark: SparkSession, operator: OverWindows, logs: Mapping[str, LogFiles]) -> WindowAnalysis:
    """The analysis of the operator over its logs as they are now."""
    return WindowAnalysis.once(spark, operator, {name: log.columns() for name, log in logs.items()})


class FixedSteps(WindowSteps[Of]):
    """Windows whose bounds follow from the row alone: each is computed from its rows, once it is closed."""

    def _step(self, before: Progress, after: Progress, batches: Batches, now: datetime) -> Written:
        return Written(self._publish(self._closed(before, after), before, after, now))

    def _closed(self, before: Progress, after: Progress) -> DataFrame | pa.Table | None:
        """Results of the windows that close between `before` and `after`; None where there can be none.

        A row of a later batch is late for all of them, because its stamp is not below its own log's clock, and that is
        not below the joint one.
        """
        window = self.operator.window
        if after.watermark is None or after.watermark == before.watermark:
            return None
        since = None if before.watermark is None else window.closed_by(before.watermark)
        by = window.closed_by(after.watermark)
        if since is not None and not window.ends_between(since, by):
            return None
        return self._results(since, by, after)

    def _results(self, since: datetime | None, by: datetime, after: Progress) -> DataFrame | pa.Table:
        """Results of the windows that end in (since, by], of the batches up to `after`."""
        return self._results_of(self._rows(since, by, after), since, by)

    def _rows(self, since: datetime | None, by: datetime, after: Progress) -> dict[str, DataFrame]:
        times = self.operator.window.times_for_ends(since, by)
        return {name: log.with_times(self.spark, *times, after.through[name]) for name, log in self.logs.items()}

    def _results_of(self, rows: Mapping[str, DataFrame], since: datetime | None, by: datetime) -> DataFrame:
        return self.computation.results(self.computation.pairs(rows).where(ends_within(since, by)).where("not _late"))


class FoldedSteps(FixedSteps[Windowed]):
    """Fixed windows of a view: rows that would be read too often, or too many at once, are folded into panes."""

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed) -> None:
        super().__init__(spark, lake, view)
        (self._log,) = self.logs.values()
        kept = self.analysis.kept
        # Parts of aggregates do not tell which rows they are of, so rows that may be taken back are read again.
        folds = can_fold(view, kept) and not self._log.can_retract()
        self._panes = Panes(spark, lake, view, self._log, kept) if folds else None
        self._by_arrow = ArrowResults(self._log, self.analysis)
        self._waiting: list[Batch] | None = None

    def _step(self, before: Progress, after: Progress, batches: Batches, now: datetime) -> Written:
        written = super()._step(before, after, batches, now)
        if self._panes is None:
            return written
        view = self.operator
        if self._waiting is None:
            # Of an earlier process; a view that begins has followed nothing that could wait.
            folded = self._panes.position().batch
            left = waiting_at(self.lake, view, self._log, folded, before) if before.batch >= 0 else []
            self._waiting = [batch for batch in left if batch.number <= before.batch]
        self._waiting = still_waiting(view, [*self._waiting, *batches[view.of.name]], after)
        if reads_of(view, self._waiting) < FOLDED_FROM:
            return written
        self._panes.fold(after)
        self._waiting = []
        return Written(written.rows, state_bytes=delta.size(self._panes.uri))

    def _repair_state(self) -> None:
        if self._panes is not None:
            self._panes.forget_others()
        super()._repair_state()

    def _results(self, since: datetime | None, by: datetime, after: Progress) -> DataFrame | pa.Table:
        folded = -1 if self._panes is None else self._panes.position().batch
        if self._panes is not None and folded >= 0:
            return self.computation.finish(self._panes.closing(folded, since, by, after.batch))
        of_few_rows = self._by_arrow.of(since, by, after.batch)
        if of_few_rows is not None:
            return of_few_rows
        if self._panes is None:
            return super()._results(since, by, after)
        rows = self._rows(since, by, after)
        if self.operator.window.overlap >= GATHERED_FROM:
            return self.computation.finish(self._panes.gathered(rows[self.operator.of.name], since, by))
        return self._results_of(rows, since, by)


def waiting_at(lake: Lake, view: Windowed, log: LogFiles, folded: int, at: Progress) -> list[Batch]:
    """The batches after `folded`, the newest that is in panes, that may have rows in a window still open at `at`.

    Files whose rows are all in closed windows tell which commits need not be read.
    """
    since = first_open(view, at)
    oldest = 0 if since is None else log.first_batch(since, None, at.batch)
    return still_waiting(view, batches_after(lake, view.of, max(folded, oldest - 1)), at)


def still_waiting(view: Windowed, batches: Iterable[Batch], at: Progress) -> list[Batch]:
    """Those of the `batches` that may have rows in a window which is still open where the view is."""
    since = first_open(view, at) or FIRST_INSTANT
    newest = [(batch, latest(FIRST_INSTANT, *batch.summary.greatest.values())) for batch in batches]
    return [batch for batch, instant in newest if instant is not None and instant >= since]


def reads_of(view: Windowed, batches: Iterable[Batch]) -> int:
    """The number of rows that would be read, each as often as it is in a window."""
    return sum(batch.summary.rows for batch in batches) * view.window.overlap


class SessionSteps(WindowSteps[Of]):
    """Windows that merge: what is kept of the open ones is carried from step to step in a table."""

    def __init__(self, spark: SparkSession, lake: Lake, operator: Of) -> None:
        super().__init__(spark, lake, operator)
        self._open = _OpenSessions(spark, lake, self.logs, self.analysis)

    def _step(self, before: Progress, after: Progress, batches: Batches, now: datetime) -> Written:
        sessions = self._open.until(before, after).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            results = self.computation.finish(self._open.closed(sessions, after))
            rows = self._publish(results, before, after, now)
            return Written(rows, self._open.write_open(sessions, before, after), self._open.size())
        finally:
            sessions.unpersist()

    def _repair_state(self) -> None:
        """Also write the second commit of a step of which there is only the first."""
        self._open.forget_others()
        published = self.position()
        kept = repaired(self.lake, self.operator, published)
        if kept != published:
            self._open.write_open(self._open.until(kept, published), kept, published)


class Panes:
    """The table of a view's panes: per key and pane the parts of its aggregates, of the batches up to `position()`.

    `_closed` is the end of the last window over the pane that was closed when the rows came, null for none: they are
    late for that window and those before it, and on time for the others.
    """

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles, kept: PartialColumns) -> None:
        self._spark = spark
        self._lake = lake
        self._view = view
        self._log = log
        self._kept = kept
        self.uri = lake.table(view, STATE)

    def position(self) -> Progress:
        """Up to where rows are folded."""
        return Progress.of(self._view, delta.open_table(self.uri))

    def fold(self, position: Progress) -> None:
        """Fold the rows up to where the view is, and forget the panes of which every window is published."""
        folded, first = self.position(), first_open(self._view, position)
        written = self._folded(self._log.with_times(self._spark, first, None, position.batch, after=folded.batch))
        delta.append(
            written,
            create_table(self._lake, self._view, STATE, written.schema),
            says={"through": position.batch},
            statistics=(_PANE,),
            numbers=position.numbers(),
            fence=lambda table: folded.fence(self._view, table),
        )
        if first is not None:
            forget_days(self.uri, first.date())

    def forget_others(self) -> None:
        """Remove panes with other columns, of before a struct of the stream got a field; the log makes them anew."""
        if delta.exists(self.uri):
            _forget_others(self.uri, self._folded(self._log.none(self._spark)).schema)

    def _folded(self, rows: DataFrame) -> DataFrame:
        """The panes of `rows` of the log, as the table has them."""
        last = F.struct(self._view.window.last_end(F.col(_PANE)).alias("end"))
        # A row that is late for all of its windows, or is in none, makes no result here.
        counts = last["end"].isNotNull() & ~self._view.window.late(last, F.col(STAMP))
        closed = self._parts(rows).where(counts).withColumn(_CLOSED, self._closed_before())
        parts = closed.groupBy(*self._view.by, _PANE, _CLOSED).agg(*self._kept.merged)
        return parts.withColumn(DAY, F.to_date(_PANE))

    def closing(self, folded_through: int, since: datetime | None, by: datetime, through: int) -> DataFrame:
        """The groups of the windows that end in (since, by], of the batches up to `through`, as `finish` takes them.

        Up to `folded_through` they are of the panes, which go as far, and from there on of the log.
        """
        first, before = self._view.window.times_for_ends(since, by)
        rows = self._log.with_times(self._spark, first, before, through, after=folded_through)
        panes = delta.read(self._spark, self.uri).where(F.col(_PANE) < constant(by, _PANE))
        if first is not None:
            panes = panes.where((F.col(DAY) >= date_literal(first.date())) & (F.col(_PANE) >= constant(first, _PANE)))
        folded = panes.withColumn(WINDOW, F.explode(self._windows())).where(self._is_on_time(F.col(WINDOW)))
        unfolded = self._on_time(rows)
        return self._merged(folded.select(unfolded.columns).unionByName(unfolded), since, by)

    def gathered(self, rows: DataFrame, since: datetime | None, by: datetime) -> DataFrame:
        """The groups of windows that end in (since, by], of the log's `rows` alone, put together by pane first."""
        return self._merged(self._on_time(rows), since, by)

    def _on_time(self, rows: DataFrame) -> DataFrame:
        """The parts of the aggregates of `rows` that came in time, once for each window."""
        paired = self._parts(rows).withColumn(WINDOW, F.explode(self._windows()))
        return paired.where(~self._view.window.late(F.col(WINDOW), F.col(STAMP))).drop(_PANE, STAMP)

    def _parts(self, rows: DataFrame) -> DataFrame:
        """The parts of the aggregates of `rows` of the log per pane and stamp, which are late for the same windows."""
        pane = self._view.window.pane(F.col(self._view.of.event_time))
        assert pane is not None
        paned = with_order(rows.where(has_windows(self._view)), self._view).withColumn(_PANE, pane)
        return paned.groupBy(*self._view.by, _PANE, STAMP).agg(*self._kept.of_rows)

    def _merged(self, parts: DataFrame, since: datetime | None, by: datetime) -> DataFrame:
        ended = parts.where(ends_within(since, by))
        merged = kind_of(self._view).group(ended, self._view.by, list(self._kept.merged))
        return merged.select(*self._view.by, WINDOW, *self._kept.wholes)

    def _windows(self) -> Column:
        """The windows of a pane, which are those of each of its rows."""
        return self._view.window.bounds(F.col(_PANE))

    def _closed_before(self) -> Column:
        late = F.filter(self._windows(), lambda window: self._view.window.late(window, F.col(STAMP)))
        return F.array_max(F.transform(late, lambda window: window["end"]))

    @staticmethod
    def _is_on_time(window: Column) -> Column:
        return F.col(_CLOSED).isNull() | (window["end"] > F.col(_CLOSED))


def can_fold(view: Windowed, kept: PartialColumns) -> bool:
    """True if rows of the view can be folded: aggregates have parts, and it is known which rows share their windows."""
    return bool(kept.wholes) and view.window.pane(F.lit(None).cast("timestamp")) is not None


def first_open(view: Windowed, position: Progress) -> datetime | None:
    """The instant before which no row is in a window that the view has yet to publish; None where nobody knows."""
    if position.watermark is None:
        return None
    closed = view.window.closed_by(position.watermark)
    return view.window.times_for_ends(closed, closed)[0]
