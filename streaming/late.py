"""Late data is a read of the log: the pairs whose window was closed when the row came."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.windowed import WINDOW, Windowed


def late_pairs(log: DataFrame, view: Windowed) -> DataFrame:
    """One row per late (row, window) pair: the log's columns, `window_start`, `window_end`, `window_day`.

    `log` is a batch read of the event log.
    """
    return (
        view.pairs(log)
        .where("_late")
        .select(
            *log.columns,
            F.col(f"{WINDOW}.start").alias("window_start"),
            F.col(f"{WINDOW}.end").alias("window_end"),
            F.to_date(f"{WINDOW}.start").alias("window_day"),
        )
    )
