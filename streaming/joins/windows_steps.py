"""One step of a window join or a co-group: from where it is to a batch of each log.

Windows with fixed bounds need no state: those that the joint clock closes on the way are computed from the logs. Of
sessions what is open is a table. Whatever kills a step, the next one goes on from what the tables say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from streaming.base import WINDOW, constant
from streaming.declare import STATE, TwoSided
from streaming.joins.windows_results import finish
from streaming.joins.windows_rows import ROWS, group, pairs
from streaming.lake import Lake
from streaming.log import LogFiles
from streaming.operators import Batches, Outputs, Progress, StateCleaner, Written, can_be_compared, create_table
from streaming.spark import function_errors, remembered
from streaming.tables import delta, storage
from streaming.views import ends_within, merged_sessions, publish


class WindowSteps:
    """The steps of one window join or co-group in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, operator: TwoSided) -> None:
        self._spark = spark
        self._lake = lake
        self._operator = operator
        self._logs = {stream.name: LogFiles(lake, stream) for stream in operator.reads}
        logs = tuple(log.columns() for log in self._logs.values())
        groups, self._columns = remembered(spark, ("joined windows", operator, logs), self._groups_and_results)
        self._open = OpenJointSessions(spark, lake, operator, groups) if operator.window.merging else None
        self._outputs = Outputs(lake, operator)
        self._cleaner = StateCleaner()

    def _groups_and_results(self) -> tuple[StructType, StructType]:
        """The columns that groups and results have."""
        rows = {name: log.none(self._spark) for name, log in self._logs.items()}
        groups = group(pairs(self._operator, rows), self._operator)
        return groups.schema, finish(groups, self._operator).schema

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log."""
        return self._outputs.pieces(most_rows)

    def repair(self) -> None:
        """Make state fit to what is published, whatever became of either; before the first step of a process."""
        if self._open is None:
            return
        published = self._outputs.position()
        kept = self._open.repaired(published)
        if kept != published:
            self._open.write_open(self._sessions(self._open, kept, published), kept, published)

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the published results in order and without a gap, in one go.

        Raises:
            FencedError: another process has taken over.
            FunctionError: the function raised.
        """
        before = self._outputs.position()
        after = before.after(batches)
        if self._open is None:
            return Written(self._publish(self._closed(before, after), before, after, now()))
        sessions = self._sessions(self._open, before, after).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            closed = finish(self._open.closed(sessions, after), self._operator)
            rows = self._publish(closed, before, after, now())
            written = Written(rows, self._open.write_open(sessions, before, after), self._open.size())
        finally:
            sessions.unpersist()
        self._cleaner.after_step(self._lake.table(self._operator, STATE), now())
        return written

    def _closed(self, before: Progress, after: Progress) -> DataFrame | None:
        """Results of the windows that the joint clock closes on the way; None where there can be none.

        A row of a later batch is late for all of them, because its stamp is not below its own log's clock, and that is
        not below the joint one.
        """
        window = self._operator.window
        if after.watermark is None or after.watermark == before.watermark:
            return None
        since = None if before.watermark is None else window.closed_by(before.watermark)
        by = window.closed_by(after.watermark)
        if since is not None and not window.ends_between(since, by):
            return None
        times = window.times_for_ends(since, by)
        rows = {name: log.with_times(self._spark, *times, after.through[name]) for name, log in self._logs.items()}
        on_time = pairs(self._operator, rows).where(ends_within(since, by)).where("not _late")
        return finish(group(on_time, self._operator), self._operator)

    def _sessions(self, open_: OpenJointSessions, before: Progress, after: Progress) -> DataFrame:
        rows = {
            name: log.with_batches(self._spark, before.through[name], after.through[name])
            for name, log in self._logs.items()
        }
        return open_.with_rows(pairs(self._operator, rows).where("not _late"), before)

    def _publish(self, results: DataFrame | None, before: Progress, after: Progress, now: datetime) -> int:
        dropped = [day for log in self._logs.values() if (day := log.dropped_before()) is not None]
        if results is not None and dropped:
            # One that is new on old logs has not all rows of windows that begin before.
            results = results.where(can_be_compared(self._operator.window.whole_since(max(dropped))))
        with function_errors():
            return publish(
                self._lake,
                self._operator,
                results,
                self._columns,
                now,
                says={"through": dict(after.through), "after": dict(before.through)},
                numbers=after.numbers(),
                fence=lambda table: before.fence(self._operator, table),
            )


class OpenJointSessions:
    """The table of the sessions that the joint clock has not closed yet; a row of either side prolongs one."""

    def __init__(self, spark: SparkSession, lake: Lake, operator: TwoSided, groups: StructType) -> None:
        self._spark = spark
        self._lake = lake
        self._operator = operator
        self._uri = lake.table(operator, STATE)
        self._columns = groups.names

    def position(self) -> Progress:
        """The progress of the table."""
        return Progress.of(self._operator, delta.open_table(self._uri))

    def repaired(self, published: Progress) -> Progress:
        """The progress of the table, once what is ahead of the first results, or of another generation, is removed.

        That is state of first results that are there no more; it follows from the logs once more.
        """
        kept = self.position()
        if published.is_behind(kept) or kept.generation != published.generation:
            storage.remove_folder(self._uri)
            kept = self.position()
        # A table that is not there yet will be of the generation of the first results.
        return kept if kept.has_begun else replace(kept, generation=published.generation)

    def size(self) -> int:
        """Bytes that the table takes."""
        return delta.size(self._uri)

    def with_rows(self, on_time: DataFrame, position: Progress) -> DataFrame:
        """The sessions of the table, which is at `position`, merged with the pairs `on_time` that came since.

        None of these touches a session that was closed at the position: its event time is not before the clock of its
        log then, and that is not before the joint one.
        """
        sessions = group(on_time, self._operator).select(*self._columns)
        if position.has_begun:
            sessions = delta.read(self._spark, self._uri).select(*self._columns).unionByName(sessions)
        rows = [F.flatten(F.collect_list(column)).alias(column) for column in ROWS.values()]
        return merged_sessions(sessions, self._operator.by, rows)

    def closed(self, sessions: DataFrame, after: Progress) -> DataFrame:
        """Those of the `sessions` that are closed at `after`."""
        return sessions.where(self._is_closed(after))

    def write_open(self, sessions: DataFrame, before: Progress, after: Progress) -> int:
        """Put those that are still open at `after` in place of what the table holds; returns how many they are.

        Raises:
            FencedError: the table is not where it was `before`.
        """
        still_open = sessions.where(~self._is_closed(after))
        return delta.replace_all(
            still_open,
            create_table(self._lake, self._operator, STATE, still_open.schema),
            says={"through": dict(after.through)},
            numbers=after.numbers(),
            fence=lambda table: before.fence(self._operator, table),
        )

    def _is_closed(self, at: Progress) -> Column:
        by = None if at.watermark is None else self._operator.window.closed_by(at.watermark)
        return F.lit(False) if by is None else F.col(f"{WINDOW}.end") <= constant(by, f"{WINDOW}.end")
