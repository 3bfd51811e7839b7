"""Sessions in steps: what is kept of those that are still open is a table, merged with the rows that came since."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import WINDOW, constant
from streaming.declare import STATE, Windowed
from streaming.lake import Lake
from streaming.log import LogFiles
from streaming.operators import Progress, create_table
from streaming.spark import remembered
from streaming.tables import delta, nullable
from streaming.views.kept import Kept
from streaming.views.kinds import SESSION, kind_of, with_sessions
from streaming.views.results import pairs


class OpenSessions:
    """The table of a view's sessions that no watermark has closed yet, with what is kept of each."""

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles, kept: Kept) -> None:
        self._spark = spark
        self._lake = lake
        self._view = view
        self._log = log
        self.uri = lake.table(view, STATE)
        self._kept = kept
        key = ("sessions", view, log.columns())
        self._schema = remembered(spark, key, lambda: nullable(self._grouped(pairs(log.none(spark), view)).schema))

    def position(self) -> Progress:
        """The progress of the table."""
        return Progress.of(self._view, delta.open_table(self.uri))

    def size(self) -> int:
        """Bytes that the table takes."""
        return delta.size(self.uri)

    def until(self, position: Progress, after: Progress) -> DataFrame:
        """The sessions of all rows up to `after`, without those that were closed at `position`, where the table is.

        Rows that came since never touch one of those, because they are not before the watermark that closed it.
        """
        kept = None
        if position.batch >= 0:
            kept = delta.read(self._spark, self.uri).select(*self._schema.names)
            if not self._log.has_rows(position.batch, after.batch):
                return kept
        new = pairs(self._log.with_batches(self._spark, position.batch, after.batch), self._view).where("not _late")
        sessions = self._grouped(new)
        return self._merged(sessions if kept is None else kept.unionByName(sessions))

    def closed(self, sessions: DataFrame, after: Progress) -> DataFrame:
        """Those of the `sessions` that are closed at `after`, in the form that `finish` takes."""
        closed = sessions.where(self._is_closed(after))
        if not self._kept.wholes:
            return closed
        return closed.select(*self._view.by, WINDOW, *self._kept.wholes)

    def write_open(self, sessions: DataFrame, before: Progress, after: Progress) -> int:
        """Put those that are still open at `after` in place of what the table holds; returns how many they are.

        Raises:
            FencedError: the table is not where it was `before`.
        """
        still_open = sessions.where(~self._is_closed(after))
        return delta.replace_all(
            still_open,
            create_table(self._lake, self._view, STATE, still_open.schema),
            says={"through": after.batch},
            numbers=after.numbers(),
            fence=lambda table: before.fence(self._view, table),
        )

    def _grouped(self, of: DataFrame) -> DataFrame:
        return kind_of(self._view).group(of, self._view.by, list(self._kept.of_rows))

    def _merged(self, sessions: DataFrame) -> DataFrame:
        """One row for those of a key that overlap or touch."""
        merged = merged_sessions(sessions, self._view.by, self._kept.merged)
        # A sum of decimals is a wider decimal each time, and the table keeps its types.
        return merged.select(*(F.col(field.name).cast(field.dataType) for field in self._schema.fields))

    def _is_closed(self, at: Progress) -> Column:
        by = None if at.watermark is None else self._view.window.closed_by(at.watermark)
        return F.lit(False) if by is None else F.col(f"{WINDOW}.end") <= constant(by, f"{WINDOW}.end")


def merged_sessions(sessions: DataFrame, keys: Sequence[str], kept: Sequence[Column]) -> DataFrame:
    """One row for the sessions of a key that overlap or touch: the keys, `_window`, and the aggregates `kept`."""
    start, end = F.col(f"{WINDOW}.start"), F.col(f"{WINDOW}.end")
    window = F.struct(F.min(start).alias("start"), F.max(end).alias("end")).alias(WINDOW)
    numbered = with_sessions(sessions, keys, start, end)
    return numbered.groupBy(*keys, SESSION).agg(window, *kept).drop(SESSION)
