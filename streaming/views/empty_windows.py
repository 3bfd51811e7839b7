"""Empty windows as rows: the stream emits none, so whoever needs the silence asks for it."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import MICROSECOND, ViewError, interval, literal
from streaming.declare import Windowed
from streaming.windows import Tumbling


def filled(results: DataFrame, view: Windowed, through: datetime) -> DataFrame:
    """`results` of a view with tumbling windows, and a row for every window that has none: the view's `columns`.

    Per key the windows go from its first result to the last one that is closed at the watermark `through`. An empty
    window counts 0 rows, and its other aggregates are null. A later result is kept as it is, without rows in between.

    Raises:
        ViewError: the view's windows do not tile time, or it computes something else than aggregates.
    """
    window = view.window
    if not isinstance(window, Tumbling) or view.function is not None:
        raise ViewError(
            f"view {view.name!r} has {type(window).__name__} windows"
            f"{'' if view.function is None else ' and a function'}; empty windows are known for aggregates over "
            "Tumbling(...) only."
        )
    size = F.lit(interval(window.size) // MICROSECOND)
    end = F.unix_micros("window_end")
    before_next = F.lead(end).over(SortedBy.partitionBy(*view.by).orderBy("window_end")) - size
    # Without a next result `least` passes over its null.
    last = F.least(before_next, F.greatest(end, F.unix_micros(literal(through))))
    windows = results.withColumn("_last", last).select("*", F.explode(F.sequence(end, "_last", size)).alias("_end"))
    return windows.select(
        *view.by,
        F.timestamp_micros(F.col("_end") - size).alias("window_start"),
        F.timestamp_micros("_end").alias("window_end"),
        *(
            F.when(F.col("_end") == end, F.col(name)).otherwise(F.lit(aggregate.of_nothing)).alias(name)
            for name, aggregate in view.aggregates.items()
        ),
    )
