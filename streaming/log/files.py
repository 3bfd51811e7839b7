"""Reads of the event log by steps: only the files that may hold what is asked for, known without a Spark job."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import FIRST_INSTANT, LAST_MILLISECOND, literal
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.tables import FileIndex, read_files


class LogFiles:
    """The files of one stream's log. It is kept for as long as steps go on, so that each looks at new commits only."""

    def __init__(self, lake: Lake, stream: Stream) -> None:
        self._uri = lake.log(stream)
        self._time = stream.event_time
        self._index = FileIndex(self._uri, stream.event_time)

    def with_times(
        self, spark: SparkSession, since: datetime | None, before: datetime | None, through: int
    ) -> DataFrame:
        """The valid rows with event times in [since, before), null for no bound, of the batches up to `through`."""
        table = self._index.refresh()
        paths = self._index.with_times(since or FIRST_INSTANT, before or LAST_MILLISECOND, through)
        rows = self._valid(read_files(spark, table, self._uri, paths), through)
        if since is not None:
            rows = rows.where(F.col(self._time) >= literal(since))
        return rows if before is None else rows.where(F.col(self._time) < literal(before))

    def with_batches(self, spark: SparkSession, after: int, through: int) -> DataFrame:
        """The valid rows of the batches after `after` and up to `through`."""
        table = self._index.refresh()
        paths = self._index.with_batches(after, through)
        return self._valid(read_files(spark, table, self._uri, paths), through).where(F.col("_batch") > after)

    def none(self, spark: SparkSession) -> DataFrame:
        """No row, with the log's columns."""
        return read_files(spark, self._index.refresh(), self._uri, ())

    @staticmethod
    def _valid(rows: DataFrame, through: int) -> DataFrame:
        return rows.where(F.col("_day").isNotNull() & (F.col("_batch") <= through))
