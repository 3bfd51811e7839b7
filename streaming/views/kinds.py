"""The differences between windows whose bounds are fixed and windows that merge, as far as pairs and results go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import WINDOW
from streaming.declare import OverWindows

SESSION = "_session_number"
_EVERYTHING = "_everything"
_START, _END = "_start", "_end"


class WindowKind(ABC):
    """The way in which pairs become groups, and what a late row may change beyond its own window."""

    merges: bool
    """True if a late row may join windows that were published apart."""

    @abstractmethod
    def group(self, pairs: DataFrame, keys: Sequence[str], aggregates: list[Column]) -> DataFrame:
        """One row per `keys` and `_window` with the `aggregates`."""

    @abstractmethod
    def with_window_id(self, results: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
        """`results` with the column `name`: the same for those of the same `keys` that stand for one window.

        They have `window_start` and `window_end`.
        """

    @abstractmethod
    def same_window(self, one: DataFrame, other: DataFrame) -> Column:
        """True where a result of `one` stands for the window of `other`: both have `window_start` and `window_end`."""


class FixedWindows(WindowKind):
    """Bounds follow from the row alone."""

    merges = False

    def group(self, pairs: DataFrame, keys: Sequence[str], aggregates: list[Column]) -> DataFrame:
        # Spark's fastest map of groups takes two instants as a key, and no struct of them.
        bounds = (F.col(f"{WINDOW}.start").alias(_START), F.col(f"{WINDOW}.end").alias(_END))
        groups = pairs.groupBy(*keys, *bounds).agg(*aggregates)
        others = (name for name in groups.columns if name not in (_START, _END))
        return groups.select(*others, F.struct(F.col(_START).alias("start"), F.col(_END).alias("end")).alias(WINDOW))

    def with_window_id(self, results: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
        return results.withColumn(name, F.struct("window_start", "window_end"))

    def same_window(self, one: DataFrame, other: DataFrame) -> Column:
        return (one["window_start"] == other["window_start"]) & (one["window_end"] == other["window_end"])


class MergingWindows(WindowKind):
    """Sessions: what overlaps or touches is one."""

    merges = True

    def group(self, pairs: DataFrame, keys: Sequence[str], aggregates: list[Column]) -> DataFrame:
        bounds = pairs.select(
            *(name for name in pairs.columns if name != WINDOW),
            F.lit(0).alias(_EVERYTHING),  # Spark refuses sessions without a key.
            F.col(f"{WINDOW}.start").alias(_START),
            F.col(f"{WINDOW}.end").alias(_END),
        )
        seconds = (F.unix_micros(_END) - F.unix_micros(_START)) / F.lit(1_000_000)
        session = F.session_window(_START, F.make_interval(secs=seconds.cast("decimal(18,6)"))).alias("_session")
        # Bounds as aggregates, because Spark would push a filter on the session's own bounds below the merge.
        merged = F.struct(F.min(_START).alias("start"), F.max(_END).alias("end")).alias(WINDOW)
        return bounds.groupBy(_EVERYTHING, *keys, session).agg(merged, *aggregates).drop(_EVERYTHING, "_session")

    def with_window_id(self, results: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
        numbered = with_sessions(results, keys, F.col("window_start"), F.col("window_end"))
        return numbered.withColumnRenamed(SESSION, name)

    def same_window(self, one: DataFrame, other: DataFrame) -> Column:
        return (one["window_start"] <= other["window_end"]) & (other["window_start"] <= one["window_end"])


def with_sessions(frame: DataFrame, keys: Sequence[str], start: Column, end: Column) -> DataFrame:
    """`frame` with `_session_number`, the same for rows of a key that overlap or touch from `start` to `end`."""
    in_order = SortedBy.partitionBy(F.lit(0), *(F.col(name) for name in keys)).orderBy(start, end)
    before = F.max(end).over(in_order.rowsBetween(SortedBy.unboundedPreceding, -1))
    begun = frame.withColumn("_begins", F.when(start <= before, 0).otherwise(1))
    number = F.sum("_begins").over(in_order.rowsBetween(SortedBy.unboundedPreceding, 0))
    return begun.withColumn(SESSION, number).drop("_begins")


_FIXED, _MERGING = FixedWindows(), MergingWindows()


def kind_of(view: OverWindows) -> WindowKind:
    """The kind of the view's windows."""
    return _MERGING if view.window.merging else _FIXED
