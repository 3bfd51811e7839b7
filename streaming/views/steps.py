"""One step of a view: from where it is to a batch of its log, each table in a commit that says how far it is.

Whatever kills a step, the next one goes on from what the tables say; what was published is never published again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from streaming.base import FIRST_INSTANT
from streaming.clocks import latest
from streaming.declare import STATE, Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, batches_after
from streaming.operators import Progress, StateCleaner, Written, can_be_compared
from streaming.spark import remembered
from streaming.tables import delta, storage
from streaming.views.kept import kept_of
from streaming.views.panes import Panes, can_fold, first_open
from streaming.views.publishing import publish
from streaming.views.results import aggregate, ends_within, finish, pairs, results_columns
from streaming.views.sessions import OpenSessions

FOLDED_FROM = 1_000_000
"""From how many rows on, counted as often as they would be read, what waits for a window to close is folded."""
GATHERED_FROM = 4
"""In how many windows a row is at least where it pays to put the rows of a pane together before anything else."""


class ViewSteps(ABC):
    """The steps of one view in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> None:
        self.spark = spark
        self.lake = lake
        self.view = view
        self.log = log
        self._columns = results_columns(spark, view, log)
        self.kept = remembered(spark, ("kept", view, log.columns()), lambda: kept_of(view, self._columns))
        self._cleaner = StateCleaner()

    def position(self) -> Progress:
        """The batch after which the next step begins."""
        return Progress.now(self.lake, self.view)

    def step(self, batches: Sequence[Batch], now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the position in order and without a gap, in one go.

        Raises:
            FencedError: another process has taken over.
        """
        written = self._step(batches, now())
        self._cleaner.after_step(self.lake.table(self.view, STATE), now())
        return written

    def repair(self) -> None:
        """Make state fit to what is published, whatever became of either; before the first step of a process.

        State that is ahead, or of another generation, is of first results that are there no more, and follows from the
        log once more.
        """
        uri = self.lake.table(self.view, STATE)
        kept, published = Progress.of(self.view, delta.open_table(uri)), self.position()
        if kept.batch > published.batch or (kept.batch >= 0 and kept.generation != published.generation):
            storage.remove_folder(uri)

    @abstractmethod
    def _step(self, batches: Sequence[Batch], now: datetime) -> Written: ...

    def _publish(self, results: DataFrame | None, before: Progress, after: Progress, now: datetime) -> int:
        dropped = self.log.dropped_before()
        if results is not None and dropped is not None:
            # A view that is new on an old log has not all rows of windows that begin before.
            results = results.where(can_be_compared(self.view.window.whole_since(dropped)))
        return publish(
            self.lake,
            self.view,
            results,
            self._columns,
            now,
            says=after.told_from(before),
            numbers=after.numbers(),
            fence=lambda table: before.fence(self.view, table),
        )


class FixedSteps(ViewSteps):
    """Windows whose bounds follow from the row alone: each is computed from its rows, once it is closed.

    Rows that would be read too often, or too many at once, are folded into panes on the way.
    """

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> None:
        super().__init__(spark, lake, view, log)
        self._panes = Panes(spark, lake, view, log, self.kept) if can_fold(view, self.kept) else None
        self._waiting: list[Batch] | None = None

    def _step(self, batches: Sequence[Batch], now: datetime) -> Written:
        before = self.position()
        after = before.after({self.view.of.name: batches})
        rows = self._publish(self._closed(before, after), before, after, now)
        if self._panes is None:
            return Written(rows)
        if self._waiting is None:
            # Of an earlier process; a view that begins has followed nothing that could wait.
            folded = self._panes.position().batch
            left = waiting_at(self.lake, self.view, self.log, folded, before) if before.batch >= 0 else []
            self._waiting = [batch for batch in left if batch.number <= before.batch]
        self._waiting = still_waiting(self.view, [*self._waiting, *batches], after)
        if reads_of(self.view, self._waiting) < FOLDED_FROM:
            return Written(rows)
        self._panes.fold(after)
        self._waiting = []
        return Written(rows, state_bytes=delta.size(self._panes.uri))

    def _closed(self, before: Progress, after: Progress) -> DataFrame | None:
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
        folded = Progress.of(self.view, None) if self._panes is None else self._panes.position()
        if self._panes is not None and folded.batch >= 0:
            return finish(self._panes.closing(folded.batch, since, by, after.batch), self.view)
        rows = self.log.with_times(self.spark, *window.times_for_ends(since, by), after.batch)
        if self._panes is not None and window.overlap >= GATHERED_FROM:
            return finish(self._panes.gathered(rows, since, by), self.view)
        return aggregate(pairs(rows, self.view).where(ends_within(since, by)).where("not _late"), self.view)


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


class SessionSteps(ViewSteps):
    """Windows that merge: what is kept of the open ones is carried from step to step in a table."""

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles) -> None:
        super().__init__(spark, lake, view, log)
        self._open = OpenSessions(spark, lake, view, log, self.kept)

    def _step(self, batches: Sequence[Batch], now: datetime) -> Written:
        before = self.position()
        after = before.after({self.view.of.name: batches})
        sessions = self._open.until(before, after).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            results = finish(self._open.closed(sessions, after), self.view)
            rows = self._publish(results, before, after, now)
            return Written(rows, self._open.write_open(sessions, before, after), self._open.size())
        finally:
            sessions.unpersist()

    def repair(self) -> None:
        """Also write the second commit of a step of which there is only the first."""
        super().repair()
        kept, published = self._open.position(), self.position()
        if kept != published:
            self._open.write_open(self._open.until(kept, published), kept, published)
