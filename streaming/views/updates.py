"""Updates: results that late pairs within the allowed lateness change, corrected by the stream process.

Of a window they follow right after the batch of the late pair, of an open session after the batch that closes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from streaming.base import EPOCH, RETRACTED, WINDOW, earlier, literal
from streaming.declare import UPDATES, Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, batches_after
from streaming.operators import create_table, open_side
from streaming.spark import remembered
from streaming.tables import delta
from streaming.views.kinds import kind_of
from streaming.views.late import in_lateness
from streaming.views.position import Position, moved_on
from streaming.views.results import finish_or_retract, group, late_pairs_in, pairs
from streaming.views.session_updates import (
    OpenWithLateRows,
    first_time,
    published,
    sessions_with_late_rows,
    still_open,
)

_APP = "updates"
_BATCH = "_batch"


def updates_between(log: DataFrame, view: Windowed, before: Position, batches: Sequence[Batch]) -> DataFrame:
    """The updates of `batches`, which follow the position `before` without a gap, as a pure function of the log.

    The view's columns, computed from all rows up to a batch, that `_batch`, `_retracted` and `_day`. One row per key,
    window and batch that brought a late pair in time; for sessions see `sessions_with_late_rows`. A retracted row has
    no values: it stands for results that are void, of a window for which the function gives none.
    """
    counted = pairs(log.where(F.col(_BATCH) <= batches[-1].number), view)
    if kind_of(view).merges:
        return published(sessions_with_late_rows(counted, view, before, batches), view)
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


class Updates(ABC):
    """The updates of one view in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> None:
        self._spark = spark
        self._lake = lake
        self._view = view
        self._log = log
        self._uri = lake.updates(view)
        self._schema = remembered(spark, ("updates", view, log.columns()), self._columns)

    def _columns(self) -> StructType:
        nothing = group(pairs(self._log.none(self._spark), self._view), self._view, _BATCH)
        return _written(finish_or_retract(nothing, self._view, _BATCH), EPOCH).schema

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
        before = Position() if done < 0 else Position().after(recent_batches[0])
        brought = any(late_pairs_in(batch, self._view) != 0 for batch in batches)
        return self._follow(table, before, batches, brought, now())

    @abstractmethod
    def _follow(
        self, table: DeltaTable | None, before: Position, batches: Sequence[Batch], brought: bool, now: datetime
    ) -> int:
        """Append the updates of `batches`, which follow `before`; `brought`: whether some may have late pairs.

        `table` is that of the updates so far.
        """

    def _append(
        self, rows: DataFrame | None, before: Position, through: Batch, now: datetime, numbers: Mapping[str, int]
    ) -> int:
        """Append updates, None for none, and keep `numbers`, in the commit that says up to which batch they go."""
        metadata = {"through": through.number, "view": self._view.name}

        def fence(table: DeltaTable) -> None:
            if _through(table) != before.batch:
                raise moved_on(self._view, before.batch, _through(table))

        if rows is None:
            delta.note(self._uri, metadata=metadata, numbers={_APP: through.number, **numbers}, fence=fence)
            return 0
        return delta.append(
            _written(rows, now),
            self._uri,
            txn=delta.Txn(_APP, through.number),
            metadata=lambda: metadata,
            statistics=("window_start", _BATCH),
            numbers=lambda: numbers,
            fence=fence,
        )


class FixedUpdates(Updates):
    """Windows whose bounds follow from the row alone: those with late pairs, from all their rows."""

    def _follow(
        self, table: DeltaTable | None, before: Position, batches: Sequence[Batch], brought: bool, now: datetime
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
        self, table: DeltaTable | None, before: Position, batches: Sequence[Batch], brought: bool, now: datetime
    ) -> int:
        view, newest = self._view, batches[-1]
        waiting = OpenWithLateRows.of(table)
        may_close = waiting.may_close(view, before.after(newest))
        if not brought and not may_close:
            return self._append(None, before, newest, now, {})
        since = first_time(self._spark, self._log, view, before, newest.number) if brought else waiting.since
        if may_close and since is not None:
            since = min(since, waiting.since)
        rows = self._log.with_times(self._spark, since, None, newest.number)
        sessions = sessions_with_late_rows(pairs(rows, view), view, before, batches).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        try:
            left = still_open(sessions)
            # What cannot be closed yet was perhaps not read.
            numbers = (left if may_close else left.and_those_of(waiting)).numbers()
            return self._append(published(sessions, view), before, newest, now, numbers)
        finally:
            sessions.unpersist()


def updates_of(spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> Updates:
    """What keeps the updates of the view, as its windows ask for."""
    kind = SessionUpdates if kind_of(view).merges else FixedUpdates
    return kind(spark, lake, view, log)


def _written(rows: DataFrame, now: datetime) -> DataFrame:
    return rows.withColumn("_written_at", literal(now))


def updated_through(lake: Lake, view: Windowed, version: int | None = None) -> int:
    """The batch up to which the updates go, at one Delta `version` or the newest; -1 where there are none."""
    return _through(open_side(lake, view, UPDATES, version))


def _through(table: DeltaTable | None) -> int:
    written = None if table is None else table.transaction_version(_APP)
    return -1 if written is None else written


def read_updates(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame | None:
    """The updates as a batch frame, at one Delta `version` or the newest, or None while there is no such table."""
    table = open_side(lake, view, UPDATES, version)
    if table is None:
        return None
    rows, newest = delta.read(spark, lake.updates(view), table.version()), lake.batch_read(view.of)
    retracted = F.col(RETRACTED) if RETRACTED in rows.columns else F.lit(None).cast("boolean")
    shown = rows.withColumn(RETRACTED, F.coalesce(retracted, F.lit(False)))
    return shown if newest is None else shown.where(F.col(_BATCH) <= newest)
