"""Late data is a read of the log: the pairs whose window was closed when the row came."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import MICROSECOND, WINDOW, ViewError
from streaming.declare import OverWindows, Stream, Windowed
from streaming.log import valid
from streaming.views.results import assign, counted_rows, group, members, pairs


def late_pairs(log: DataFrame, view: Windowed) -> DataFrame:
    """One row per late (row, window) pair: the log's columns, `window_start`, `window_end`, `window_day`.

    `log` is a batch read of the event log.
    """
    return (
        pairs(log, view)
        .where("_late")
        .select(
            *log.columns,
            F.col(f"{WINDOW}.start").alias("window_start"),
            F.col(f"{WINDOW}.end").alias("window_end"),
            F.to_date(f"{WINDOW}.start").alias("window_day"),
        )
    )


def in_lateness(view: OverWindows, window_end: Column, stamp: Column) -> Column:
    """True where the stamp had not yet passed the window's end by the allowed lateness when the row came.

    Semantics of Flink's `allowedLateness`, on the stamp: `stamp < window_end + lateness`. Of a session it is the end
    that it has with the row.
    """
    return F.unix_micros(stamp) < F.unix_micros(window_end) + F.lit(view.lateness // MICROSECOND)


def late_rows(log: DataFrame, stream: Stream) -> DataFrame:
    """The valid rows whose event time lies before the stamp, with the log's columns; a row at the stamp is not late.

    For logic that looks at single rows. Whether such a row is late for a window is what `late_pairs` says.
    """
    return valid(log).where(F.col(stream.event_time) < F.col("_watermark"))


def unassigned(log: DataFrame, view: Windowed) -> DataFrame:
    """The valid rows that the view counts and that lie in none of its windows, with the log's columns."""
    none = F.col(WINDOW).isNull()
    return assign(log.where(counted_rows(view)), view).where(none).select(*log.columns)


def duplicates(log: DataFrame, view: Windowed) -> DataFrame:
    """The rows that a view with `distinct` does not count, because an earlier row of their window agrees with them.

    Keys, `window_start`, `window_end`, the stream's columns, and `_copy` (2 for the second of its kind).

    Raises:
        ViewError: the view counts every row.
    """
    if not view.distinct:
        raise ViewError(f"view {view.name!r} counts every row; declare distinct=(...) to count copies once.")
    copies = members(group(pairs(log, view), view), view)
    others = (name for name in view.of.columns if name not in view.by)
    return copies.where("_copy > 1").select(
        *view.by,
        F.col(f"{WINDOW}.start").alias("window_start"),
        F.col(f"{WINDOW}.end").alias("window_end"),
        *others,
        "_copy",
    )
