"""Reads of the event log by steps: only the files that may hold what is asked for, known without a Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import FIRST_INSTANT, LAST_MILLISECOND, constant
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log.read import ever_rejected
from streaming.tables import FileIndex, TimeRange, occupied, read_files, storage

_BATCH = "_batch"


class LogFiles:
    """The files of one stream's log. It is kept for as long as steps go on, so that each looks at new commits only."""

    def __init__(self, lake: Lake, stream: Stream) -> None:
        self._uri = lake.log(stream)
        self._time = stream.event_time
        self._index = FileIndex(self._uri, stream.event_time)

    def with_times(
        self,
        spark: SparkSession,
        since: datetime | None,
        before: datetime | None,
        through: int,
        after: int = -1,
    ) -> DataFrame:
        """The valid rows with event times in [since, before), null for no bound, of the batches in (after, through]."""
        table = self._index.refresh()
        paths = self._index.with_times(since or FIRST_INSTANT, before or LAST_MILLISECOND, through)
        rows = self._valid(read_files(spark, table, self._uri, paths), after, through)
        if since is not None:
            rows = rows.where(F.col(self._time) >= constant(since, _BATCH))
        return rows if before is None else rows.where(F.col(self._time) < constant(before, _BATCH))

    def first_batch(self, since: datetime | None, before: datetime | None, through: int) -> int:
        """No row with an event time between the two, of the batches up to `through`, is of an earlier batch."""
        self._index.refresh()
        paths = self._index.with_times(since or FIRST_INSTANT, before or LAST_MILLISECOND, through)
        return self._index.first_batch(paths, through)

    def with_batches(self, spark: SparkSession, after: int, through: int) -> DataFrame:
        """The valid rows of the batches in (after, through]."""
        table = self._index.refresh()
        return self._valid(
            read_files(spark, table, self._uri, self._index.with_batches(after, through)), after, through
        )

    def occupied(self, after: int, through: int, width: timedelta) -> list[TimeRange]:
        """Ranges of whole `width`s that hold the event times of all valid rows of the batches in (after, through].

        It reads the two columns that tell, and starts no Spark.
        """
        table = self._index.refresh()
        paths = self._index.with_batches(after, through)
        return occupied(storage.files_of(table), paths, self._time, after, through, width)

    def within(
        self, spark: SparkSession, ranges: Sequence[TimeRange], through: int, after: int = -1
    ) -> DataFrame | None:
        """Valid rows of the batches in (after, through], among them all with event times in one of the merged `ranges`.

        None where no file can have such a row.
        """
        table = self._index.refresh()
        paths = self._index.with_ranges(ranges, after, through)
        return self._valid(read_files(spark, table, self._uri, paths), after, through) if paths else None

    def rejected(self, spark: SparkSession, after: int, through: int) -> DataFrame:
        """The rows of the batches in (after, through] that were rejected, also those that were repaired since."""
        table = self._index.refresh()
        paths = self._index.with_batches(after, through, dated=False)
        batch = F.col(_BATCH)
        newer, older = batch > constant(after, _BATCH), batch <= constant(through, _BATCH)
        return ever_rejected(read_files(spark, table, self._uri, paths)).where(newer & older)

    def none(self, spark: SparkSession) -> DataFrame:
        """No row, with the log's columns."""
        return read_files(spark, self._index.refresh(), self._uri, ())

    @staticmethod
    def _valid(rows: DataFrame, after: int, through: int) -> DataFrame:
        batch = F.col(_BATCH)
        newer, older = batch > constant(after, _BATCH), batch <= constant(through, _BATCH)
        return rows.where(F.col("_day").isNotNull() & newer & older)
