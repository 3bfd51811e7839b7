"""Sessions over two streams in steps: what is kept of those still open is a table, with the rows of both sides."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming.base import WINDOW, constant
from streaming.declare import STATE, TwoSided
from streaming.joins.windows_rows import ROWS, group
from streaming.lake import Lake
from streaming.operators import Reached, create_table
from streaming.tables import delta, storage
from streaming.views import merged_sessions


class OpenJointSessions:
    """The table of the sessions that the joint clock has not closed yet; a row of either side prolongs one."""

    def __init__(self, spark: SparkSession, lake: Lake, operator: TwoSided, groups: StructType) -> None:
        self._spark = spark
        self._lake = lake
        self._operator = operator
        self._uri = lake.table(operator, STATE)
        self._columns = groups.names

    def position(self) -> Reached:
        """How far the table is."""
        return Reached.of(self._operator, delta.open_table(self._uri))

    def repaired(self, published: Reached) -> Reached:
        """How far the table is, once what is ahead of the first results, or of another generation, is removed.

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

    def with_rows(self, on_time: DataFrame, position: Reached) -> DataFrame:
        """The sessions of the table, which is at `position`, merged with the pairs `on_time` that came since.

        None of these touches a session that was closed at the position: its event time is not before the clock of its
        log then, and that is not before the joint one.
        """
        sessions = group(on_time, self._operator).select(*self._columns)
        if position.has_begun:
            sessions = delta.read(self._spark, self._uri).select(*self._columns).unionByName(sessions)
        rows = [F.flatten(F.collect_list(column)).alias(column) for column in ROWS.values()]
        return merged_sessions(sessions, self._operator.by, rows)

    def closed(self, sessions: DataFrame, after: Reached) -> DataFrame:
        """Those of the `sessions` that are closed at `after`."""
        return sessions.where(self._is_closed(after))

    def write_open(self, sessions: DataFrame, before: Reached, after: Reached) -> int:
        """Put those that are still open at `after` in place of what the table holds; returns how many they are.

        Raises:
            FencedError: the table is not where it was `before`.
        """
        still_open = sessions.where(~self._is_closed(after))
        return delta.replace_all(
            still_open,
            create_table(self._lake, self._operator, STATE, still_open.schema),
            metadata={"through": dict(after.through)},
            numbers=after.numbers(),
            fence=lambda table: before.fence(self._operator, table),
        )

    def _is_closed(self, at: Reached) -> Column:
        by = None if at.watermark is None else self._operator.window.closed_by(at.watermark)
        return F.lit(False) if by is None else F.col(f"{WINDOW}.end") <= constant(by, f"{WINDOW}.end")
