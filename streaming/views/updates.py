"""Updates: results that late pairs within the allowed lateness change, corrected by the stream process.

Of a window they follow right after the batch of the late pair, of an open session after the batch that closes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, reduce

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from streaming.base import (
    EPOCH,
    FIRST_INSTANT,
    LAST_MILLISECOND,
    RETRACTED,
    WINDOW,
    constant,
    earlier,
    from_micros,
    literal,
    to_micros,
)
from streaming.declare import UPDATES, OverWindows, Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, batches_after
from streaming.operators import Progress, create_table, moved_on, open_side
from streaming.spark import Analysis
from streaming.tables import delta
from streaming.views.results import (
    SESSION,
    counted_by,
    finish_or_retract,
    group,
    in_lateness,
    kind_of,
    late_pairs_in,
    pairs,
    with_sessions,
)

_APP = "updates"
_BATCH = "_batch"
_BROUGHT, _CLOSED, _PUBLISHED = "_brought", "_closed", "_batch"
_NEWEST_LATE, _STAMP = "_newest_late", "_stamp"
_START, _END = f"{WINDOW}.start", f"{WINDOW}.end"
_SINCE, _UNTIL = "open_since", "open_until"


def updates_between(log: DataFrame, view: Windowed, before: Progress, batches: Sequence[Batch]) -> DataFrame:
    """The updates of `batches`, which follow the position `before` without a gap, as a pure function of the log.

    The view's columns, computed from all rows up to a batch, that `_batch`, `_retracted` and `_day`. One row per key,
    window and batch that brought a late pair in time; for sessions see `_sessions_with_late_rows`. A retracted row has
    no values: it stands for results that are void, of a window for which the function gives none, or of which all rows
    are taken back.
    """
    counted = pairs(log.where(F.col(_BATCH) <= batches[-1].number), view)
    if kind_of(view).merges:
        return _published(_sessions_with_late_rows(counted, view, before, batches), view)
    in_time = in_lateness(view, F.col(f"{WINDOW}.end"), F.col("_watermark"))
    brought = (
        counted.where((F.col(_BATCH) > before.batch) & F.col("_late") & in_time)
        .select(*(F.col(name).alias(f"_its_{name}") for name in (*view.by, WINDOW)), F.col(_BATCH).alias("_brought"))
        .distinct()
    )
    same = [counted[name].eqNullSafe(brought[f"_its_{name}"]) for name in (*view.by, WINDOW)]
    until = counted.join(F.broadcast(brought), [*same, counted[_BATCH] <= brought["_brought"]])
    groups = group(until, view, "_brought")
    return finish_or_retract(groups, view, "_brought").withColumnRenamed("_brought", _BATCH)


class _UpdatesAnalysis(Analysis[Windowed]):
    """A view that corrects late rows as they come, over its log, as Spark sees it."""

    @cached_property
    def schema(self) -> StructType:
        """The columns of updates."""
        nothing = group(pairs(self.inputs[self.of.of.name], self.of), self.of, _BATCH)
        return _written(finish_or_retract(nothing, self.of, _BATCH), EPOCH).schema


class Updates(ABC):
    """The updates of one view in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> None:
        self._spark = spark
        self._lake = lake
        self._view = view
        self._log = log
        self._uri = lake.updates(view)
        self._schema = _UpdatesAnalysis.once(spark, view, {view.of.name: log.columns()}).schema

    def follow(self, newest: Batch, now: Callable[[], datetime]) -> int:
        """Append the updates of every batch up to the `newest` that has none yet, in one commit; returns their rows.

        Idempotent: the commit carries the batch up to which it goes.

        Raises:
            FencedError: another process has taken over.
        """
        table = open_side(self._lake, self._view, UPDATES)
        done = _through(table)
        if done >= newest.number:
            return 0
        # The last batch that has them tells where the clock was after it.
        recent_batches = batches_after(self._lake, self._view.of, max(done, 0) - 1)
        batches = [batch for batch in recent_batches if done < batch.number <= newest.number]
        create_table(self._lake, self._view, UPDATES, self._schema)
        # Older versions had no `_retracted`.
        delta.widen(self._uri, self._schema)
        followed = recent_batches[:1] if done >= 0 else ()
        before = Progress.of(self._view, None).after({self._view.of.name: followed})
        brought = any(late_pairs_in(batch, self._view, counted_by(self._view)) != 0 for batch in batches)
        return self._follow(table, before, batches, brought, now())

    @abstractmethod
    def _follow(
        self, table: DeltaTable | None, before: Progress, batches: Sequence[Batch], brought: bool, now: datetime
    ) -> int:
        """Append the updates of `batches`, which follow `before`; `brought`: whether some may have late pairs.

        `table` is that of the updates so far.
        """

    def _append(
        self, rows: DataFrame | None, before: Progress, through: Batch, now: datetime, numbers: Mapping[str, int]
    ) -> int:
        """Append updates, None for none, and keep `numbers`, in the commit that says up to which batch they go."""
        metadata = {"through": through.number, "view": self._view.name}

        def fence(table: DeltaTable) -> None:
            if _through(table) != before.batch:
                raise moved_on(self._view, f"batch {before.batch:,}", f"batch {_through(table):,}")

        if rows is None:
            delta.note(self._uri, says=metadata, numbers={_APP: through.number, **numbers}, fence=fence)
            return 0
        return delta.append(
            _written(rows, now),
            self._uri,
            says=metadata,
            statistics=("window_start", _BATCH),
            numbers={_APP: through.number, **numbers},
            fence=fence,
        )


class FixedUpdates(Updates):
    """Windows whose bounds follow from the row alone: those with late pairs, from all their rows."""

    def _follow(
        self, table: DeltaTable | None, before: Progress, batches: Sequence[Batch], brought: bool, now: datetime
    ) -> int:
        if not brought:
            return self._append(None, before, batches[-1], now, {})
        # No window that ends by then is updated any more.
        past = earlier(before.watermark, self._view.lateness)
        since = earlier(past, self._view.window.reach)
        rows = self._log.with_times(self._spark, since, None, batches[-1].number)
        return self._append(updates_between(rows, self._view, before, batches), before, batches[-1], now, {})


class SessionUpdates(Updates):
    """Sessions: those that late rows are part of, once they are closed."""

    def _follow(
        self, table: DeltaTable | None, before: Progress, batches: Sequence[Batch], brought: bool, now: datetime
    ) -> int:
        view, newest = self._view, batches[-1]
        waiting = _OpenWithLateRows.of(table)
        may_close = waiting.may_close(view, before.after({view.of.name: [newest]}))
        if not brought and not may_close:
            return self._append(None, before, newest, now, {})
        since = first_time(self._spark, self._log, view, before, newest.number) if brought else waiting.since
        if may_close and since is not None:
            since = min(since, waiting.since)
        rows = self._log.with_times(self._spark, since, None, newest.number)
        sessions = _sessions_with_late_rows(pairs(rows, view), view, before, batches).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        try:
            left = _still_open(sessions)
            # What cannot be closed yet was perhaps not read.
            numbers = (left if may_close else left.and_those_of(waiting)).numbers()
            return self._append(_published(sessions, view), before, newest, now, numbers)
        finally:
            sessions.unpersist()


def updates_of(spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> Updates:
    """The keeper of the view's updates that its windows ask for."""
    kind = SessionUpdates if kind_of(view).merges else FixedUpdates
    return kind(spark, lake, view, log)


def _written(rows: DataFrame, now: datetime) -> DataFrame:
    return rows.withColumn("_written_at", literal(now))


def updated_through(lake: Lake, view: OverWindows, version: int | None = None) -> int:
    """The batch up to which the updates go, at one Delta `version` or the newest; -1 where there are none."""
    return _through(open_side(lake, view, UPDATES, version))


def _through(table: DeltaTable | None) -> int:
    written = None if table is None else table.transaction_version(_APP)
    return -1 if written is None else written


def read_updates(spark: SparkSession, lake: Lake, view: OverWindows, version: int | None = None) -> DataFrame | None:
    """The updates as a batch frame, at one Delta `version` or the newest, or None while there is no such table."""
    table = open_side(lake, view, UPDATES, version)
    if table is None:
        return None
    rows, newest = delta.read(spark, lake.updates(view), table.version()), lake.batch_read(view.reads[0])
    retracted = F.col(RETRACTED) if RETRACTED in rows.columns else F.lit(None).cast("boolean")
    shown = rows.withColumn(RETRACTED, F.coalesce(retracted, F.lit(False)))
    return shown if newest is None else shown.where(F.col(_BATCH) <= newest)


@dataclass(frozen=True)
class _OpenWithLateRows:
    """Sessions with late rows that are published once they are closed: none begins before `since`.

    None ends before `until`; a session that goes on ends later. Both are far in the future where there is none.
    """

    since: datetime = LAST_MILLISECOND
    until: datetime = LAST_MILLISECOND

    @classmethod
    def of(cls, updates: DeltaTable | None) -> _OpenWithLateRows:
        """The bounds of the sessions that the open table of updates records."""
        kept = [] if updates is None else [updates.transaction_version(name) for name in (_SINCE, _UNTIL)]
        return cls(*(from_micros(number) for number in kept if number is not None))

    def numbers(self) -> dict[str, int]:
        """The bounds of the sessions as the numbers that a table keeps."""
        return {_SINCE: to_micros(self.since), _UNTIL: to_micros(self.until)}

    def may_close(self, view: Windowed, at: Progress) -> bool:
        """True if one of the sessions may be closed `at` a position."""
        return at.watermark is not None and self.until <= view.window.closed_by(at.watermark)

    def and_those_of(self, other: _OpenWithLateRows) -> _OpenWithLateRows:
        """These and the `other` ones."""
        return _OpenWithLateRows(min(self.since, other.since), min(self.until, other.until))


def _sessions_with_late_rows(
    counted: DataFrame, view: Windowed, before: Progress, batches: Sequence[Batch]
) -> DataFrame:
    """The sessions with late rows, as a pure function of the pairs `counted`, up to the last of `batches`.

    Groups in the form that `finish` takes, one for each session and batch that brought it late rows in time, and
    `_batch`: the batch that publishes it, null while it is open. `batches` are those that follow the position `before`;
    what was published by then is left out.
    """
    late = counted.where("_late").select(*view.by).distinct()
    counted = _of_keys(counted, late, view) if view.by else counted
    numbered = with_sessions(counted, view.by, F.col(_START), F.col(_END))
    followed = constant(before.batch, _PUBLISHED)
    # What came before is one lot, however many batches brought it: all that is still to be published of it is what was
    # open then.
    late_batch = F.when(F.col("_late"), F.greatest("_batch", followed))
    same_session = SortedBy.partitionBy(*view.by, SESSION)
    brought = F.collect_set(late_batch).over(same_session)
    # Of the rows that came later, a session takes in those on time, as long as it is open. The late ones are counted
    # with the batch that brought them.
    batches_with_row = F.filter(brought, lambda batch: (F.col("_batch") <= batch) | ~F.col("_late"))
    rows = numbered.withColumn("_known", batches_with_row).withColumn(_BROUGHT, F.explode("_known"))
    extra = {_NEWEST_LATE: F.max(late_batch), _STAMP: F.max(F.when(F.col("_late"), F.col("_watermark")))}
    sessions = group(rows, view, SESSION, _BROUGHT, extra=extra).where(F.col(_NEWEST_LATE) == F.col(_BROUGHT))
    sessions = _with_publication(sessions, view, before, batches)
    all_of_them = F.collect_list(F.struct(_BROUGHT, WINDOW)).over(same_session)
    sessions = sessions.withColumn("_outdated", F.exists(all_of_them, _replaces)).where("not _outdated")
    new = F.col(_PUBLISHED).isNull() | (F.col(_PUBLISHED) > followed)
    return sessions.where(new & in_lateness(view, F.col(_END), F.col(_STAMP)))


def _replaces(other: Column) -> Column:
    """True where late rows joined the session before it was published, so that it is published with them."""
    before = other[_BROUGHT] <= F.coalesce(F.col(_PUBLISHED), other[_BROUGHT])
    touches = (other[WINDOW]["start"] <= F.col(_END)) & (other[WINDOW]["end"] >= F.col(_START))
    return (other[_BROUGHT] > F.col(_BROUGHT)) & before & touches


def _with_publication(sessions: DataFrame, view: Windowed, before: Progress, batches: Sequence[Batch]) -> DataFrame:
    """`sessions` with the batch that publishes each: the one that brought its late rows or, later, that closed it."""
    ends: list[tuple[int, int, int]] = []
    since = FIRST_INSTANT
    for number, watermark in [(before.batch, before.watermark), *((b.number, b.after.watermark) for b in batches)]:
        by = since if watermark is None else view.window.closed_by(watermark)
        if by > since:
            ends.append((to_micros(since), to_micros(by), number))
            since = by
    closing = sessions.sparkSession.createDataFrame(ends, f"_after bigint, _by bigint, {_CLOSED} bigint")
    closed = (F.unix_micros(_END) > F.col("_after")) & (F.unix_micros(_END) <= F.col("_by"))
    with_closing = sessions.join(F.broadcast(closing), closed, "left").drop("_after", "_by")
    publication = F.when(F.col(_CLOSED).isNotNull(), F.greatest(_BROUGHT, _CLOSED))
    return with_closing.withColumn(_PUBLISHED, publication).drop(_CLOSED)


def _published(sessions: DataFrame, view: Windowed) -> DataFrame:
    """The updates that `_sessions_with_late_rows` are: the view's columns, `_batch`, `_retracted` and `_day`."""
    return finish_or_retract(sessions.where(F.col(_PUBLISHED).isNotNull()), view, _PUBLISHED)


def _still_open(sessions: DataFrame) -> _OpenWithLateRows:
    """Those of `_sessions_with_late_rows` that are not published yet."""
    row = (
        sessions.where(F.col(_PUBLISHED).isNull())
        .agg(F.unix_micros(F.min(_START)).alias("since"), F.unix_micros(F.min(_END)).alias("until"))
        .first()
    )
    return _OpenWithLateRows() if row is None or row[0] is None else _OpenWithLateRows(*map(from_micros, row))


def first_time(spark: SparkSession, log: LogFiles, view: Windowed, before: Progress, through: int) -> datetime | None:
    """No row before it is in a session that the late rows of the batches in (before, through] update.

    It is looked for further and further back, until no such session begins just behind it. None where that is the
    beginning of the log, or where sessions have gaps of their own, so that nobody knows.
    """
    reach = view.window.reach
    if before.watermark is None or reach is None:
        return None
    # A session that ends there or before is not updated any more, and another one has a row within its reach.
    past = earlier(before.watermark, view.lateness)
    newest = earlier(past, reach)
    late = pairs(log.with_batches(spark, before.batch, through), view).where("_late")
    keys = late.select(*view.by).distinct().persist(StorageLevel.MEMORY_AND_DISK)
    try:
        back = 2 * reach
        while (since := earlier(newest, back)) is not None:
            rows = _of_keys(pairs(log.with_times(spark, since, None, through), view), keys, view)
            sessions = kind_of(view).group(rows, view.by, [])
            begun = (F.col(_END) > literal(past)) & (F.col(_START) <= literal(since + reach))
            if sessions.where(begun).isEmpty():
                return since
            back *= 4
        return None
    finally:
        keys.unpersist()


def _of_keys(counted: DataFrame, keys: DataFrame, view: Windowed) -> DataFrame:
    """The pairs of these `keys`; of a view without any, all if there is a row in `keys`."""
    wanted = keys.select(F.lit(True).alias("_wanted"), *(F.col(name).alias(f"_its_{name}") for name in view.by))
    same = [counted[name].eqNullSafe(wanted[f"_its_{name}"]) for name in view.by]
    return counted.join(F.broadcast(wanted), reduce(Column.__and__, same, F.lit(True)), "left_semi")
