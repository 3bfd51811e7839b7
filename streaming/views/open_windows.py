"""Early results: the windows that are still open, as they stand. Provisional, and replaced whole each time."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import ViewError, interval, literal
from streaming.declare import EACH_BATCH, OPEN, Windowed
from streaming.lake import Lake
from streaming.log import Batch, read_log
from streaming.operators import create_table, open_side
from streaming.tables import delta
from streaming.views.kinds import kind_of
from streaming.views.results import aggregate, pairs, possibly_in_windows_after


class OpenWindows:
    """Keeps the table of a view's open windows, after each batch or when the declared interval has passed."""

    def __init__(self, lake: Lake, view: Windowed) -> None:
        self._lake = lake
        self._view = view
        self._written_at: datetime | None = None

    def write_if_due(self, spark: SparkSession, batch: Batch, now: datetime) -> None:
        """Write the open windows as they are after `batch`, if it is time to."""
        every = self._view.early
        if every == EACH_BATCH or (every is not None and self._is_due(interval(every), now)):
            self.write(spark, batch, now)

    def write(self, spark: SparkSession, batch: Batch, now: datetime) -> None:
        """Write the open windows as they are after `batch`, where the view declares a table of them."""
        if self._view.early is None:
            return
        rows = open_windows(read_log(spark, self._lake, self._view.of), self._view, batch)
        written = rows.withColumn("_written_at", literal(now))
        uri = create_table(self._lake, self._view, OPEN, written.schema)
        numbers = {"through": batch.number}
        delta.replace_all(written, uri, says={**numbers, "view": self._view.name}, numbers=numbers)
        # Not before: a try that failed has written nothing, and a view that is paused for it goes on once one has.
        self._written_at = now

    def _is_due(self, every: timedelta, now: datetime) -> bool:
        return self._written_at is None or now - self._written_at >= every


def open_windows(log: DataFrame, view: Windowed, through: Batch) -> DataFrame:
    """The windows not closed after batch `through`, as a pure function of the log.

    The view's columns, `_through_batch`, `_day`.
    """
    watermark = through.after.watermark
    rows = log.where(F.col("_batch") <= through.number)
    # The first row of a session may lie far behind the last, which keeps it open.
    near = rows if kind_of(view).merges else possibly_in_windows_after(rows, view.of, view.window, watermark)
    results = aggregate(pairs(near, view), view)
    if watermark is not None:
        results = results.where(F.col("window_end") > literal(view.window.closed_by(watermark)))
    return results.withColumn("_through_batch", F.lit(through.number).cast("bigint"))


def shown_through(lake: Lake, view: Windowed) -> int:
    """The batch after which the open windows were last written; -1 where nothing tells."""
    table = open_side(lake, view, OPEN)
    written = None if table is None else table.transaction_version("through")
    return -1 if written is None else written


def read_open(spark: SparkSession, lake: Lake, view: Windowed) -> DataFrame:
    """The open windows as they were last written.

    Raises:
        ViewError: the view keeps none, or has not run yet.
    """
    if lake.cut is not None:
        raise ViewError(
            f"the open windows of view {view.name!r} are written whole each time, so there are none as of an older "
            "batch; read its current results as of one, or its open windows as they are now."
        )
    uri, table = lake.open(view), open_side(lake, view, OPEN)
    if table is None:
        raise ViewError(
            f"view {view.name!r} has no table of open windows at {uri!r}; declare early='each batch' or an interval, "
            f"then run `tidemark run {view.of.name}`, or point TIDEMARK_HOME to the lake that has it."
        )
    return delta.read(spark, uri, table.version())
