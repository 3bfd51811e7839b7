"""One step of a view: from where it is to a batch of its log, each table in a commit that says how far it is.

Whatever kills a step, the next one goes on from what the tables say; what was published is never published again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from streaming.base import WINDOW, literal
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles
from streaming.operators import Written, create_table
from streaming.tables import delta
from streaming.views.position import Position
from streaming.views.results import aggregate, finish, pairs
from streaming.views.sessions import OpenSessions

_CLEANED_EVERY = timedelta(minutes=10)


class ViewSteps(ABC):
    """The steps of one view in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> None:
        self.spark = spark
        self.lake = lake
        self.view = view
        self.log = log
        # No row, but the columns that results have.
        self._nothing = aggregate(pairs(log.none(spark), view), view)

    def position(self) -> Position:
        """The batch after which the next step begins."""
        return Position.of(delta.open_table(self.lake.first(self.view)))

    @abstractmethod
    def step(self, batches: Sequence[Batch], now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the position in order and without a gap, in one go.

        Raises:
            FencedError: another process has taken over.
        """

    def _publish(self, results: DataFrame | None, before: Position, after: Position, now: datetime) -> int:
        """Append first results, null for none, in one commit that also says how far the view is; returns their rows."""
        written = (self._nothing if results is None else results).withColumn("_written_at", literal(now))
        uri = create_table(self.lake, self.view, "", written.schema)
        metadata = {"through": after.batch, "after": before.batch}
        if results is None:
            delta.note(uri, metadata=metadata, numbers=after.numbers(), fence=lambda t: before.fence(self.view, t))
            return 0
        return delta.append(
            written,
            uri,
            txn=None,
            metadata=lambda: metadata,
            statistics=("window_start", "window_end"),
            numbers=after.numbers,
            fence=lambda table: before.fence(self.view, table),
        )


class FixedSteps(ViewSteps):
    """Windows whose bounds follow from the row alone: each is computed from its rows, once it is closed."""

    def step(self, batches: Sequence[Batch], now: Callable[[], datetime]) -> Written:
        before, after = self.position(), position_after(batches[-1])
        return Written(self._publish(self._closed(before, after), before, after, now()))

    def _closed(self, before: Position, after: Position) -> DataFrame | None:
        """Results of the windows that close on the way; None where there can be none.

        A row of a later batch is late for all of them, because its stamp is not below the watermark that closes them.
        """
        window = self.view.window
        if after.watermark is None or after.watermark == before.watermark:
            return None
        since = None if before.watermark is None else window.closed_by(before.watermark)
        by = window.closed_by(after.watermark)
        if since is not None and not window.ends_between(since, by):
            return None
        rows = self.log.with_times(self.spark, *window.times_for_ends(since, by), after.batch)
        end = F.col(f"{WINDOW}.end")
        closes = end <= literal(by) if since is None else (end <= literal(by)) & (end > literal(since))
        return aggregate(pairs(rows, self.view).where(closes).where("not _late"), self.view)


class SessionSteps(ViewSteps):
    """Windows that merge: what is kept of the open ones is carried from step to step in a table."""

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> None:
        super().__init__(spark, lake, view, log)
        self._open = OpenSessions(spark, lake, view, log)
        self._cleaned_at: datetime | None = None

    def step(self, batches: Sequence[Batch], now: Callable[[], datetime]) -> Written:
        written = self._step(batches, now)
        self._cleaned_at = self._cleaned_at or now()
        if now() - self._cleaned_at >= _CLEANED_EVERY:
            self._open.clean(now())
            self._cleaned_at = now()
        return written

    def _step(self, batches: Sequence[Batch], now: Callable[[], datetime]) -> Written:
        before, after = self.position(), position_after(batches[-1])
        self._repair_state(before)
        sessions = self._open.until(before, after).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            results = finish(self._open.closed(sessions, after), self.view)
            rows = self._publish(results, before, after, now())
            return Written(rows, self._open.write_open(sessions, before, after), self._open.size())
        finally:
            sessions.unpersist()

    def _repair_state(self, published: Position) -> None:
        """Where a process died between the two commits of a step, write the second one."""
        kept = self._open.position()
        if kept != published:
            self._open.write_open(self._open.until(kept, published), kept, published)


def position_after(batch: Batch) -> Position:
    """Where a view is that has followed the log up to `batch`."""
    return Position(batch.number, batch.after.watermark)
