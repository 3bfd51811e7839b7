"""The declaration of a windowed view: keys, window and aggregates over one stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.aggregates import Aggregate
from streaming.errors import DeclarationError
from streaming.names import check_column_name, check_name
from streaming.sql import check_names
from streaming.stream import Stream
from streaming.windows import Tumbling

WINDOW = "_window"


@dataclass(frozen=True)
class Windowed:
    """Aggregates of stream `of` per key (`by`) and window, over the rows for which `where` is true.

    One declaration, two runners: the stream computes first results from it, the correction everything else.

    Raises:
        DeclarationError: unknown column, reserved or repeated name, no aggregate.
    """

    name: str
    of: Stream
    window: Tumbling
    aggregates: Mapping[str, Aggregate]
    by: tuple[str, ...] = ()
    where: str | None = None
    description: str = ""

    def __post_init__(self) -> None:
        check_name("view", self.name)
        object.__setattr__(self, "aggregates", MappingProxyType(dict(self.aggregates)))
        if not self.aggregates:
            raise DeclarationError(f"view {self.name!r} has no aggregates; add one, such as {{'rows': count()}}.")
        for key in self.by:
            check_names(f"by of view {self.name!r}", key, self.of.columns)
        if self.where is not None:
            check_names(f"where of view {self.name!r}", self.where, self.of.columns)
        for name, aggregate in self.aggregates.items():
            check_column_name(name)
            if name in self.identity:
                raise DeclarationError(
                    f"aggregate {name!r} of view {self.name!r} has the name of a key or window column "
                    f"({', '.join(self.identity)}); rename it."
                )
            check_names(f"aggregate {name!r} of view {self.name!r}", aggregate.sql, self.of.columns)
        if len(set(self.by)) != len(self.by):
            raise DeclarationError(f"by={self.by!r} of view {self.name!r} repeats a key; name each once.")

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify one result: keys, then window bounds."""
        return (*self.by, "window_start", "window_end")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a result that are a function of the rows: identity, then aggregates."""
        return (*self.identity, *self.aggregates)

    def condition(self) -> Column:
        """True for the valid rows that this view counts, false or null for all others."""
        valid = F.col("_day").isNotNull()
        return valid if self.where is None else valid & F.expr(self.where)

    def assign(self, log: DataFrame) -> DataFrame:
        """The log's rows with their window in the column `_window`; one row per (row, window) pair."""
        return log.withColumn(WINDOW, self.window.assign(F.col(self.of.event_time)))

    def pairs(self, rows: DataFrame) -> DataFrame:
        """The (valid row, window) pairs that this view counts, as a batch read, with a boolean `_late`."""
        late = F.coalesce(F.col(f"{WINDOW}.end") <= F.col("_watermark"), F.lit(False))
        return self.assign(rows.where(self.condition())).withColumn("_late", late)

    def aggregate(self, pairs: DataFrame, **extra: Column) -> DataFrame:
        """One row per key and window of `pairs`: `columns`, then the `extra` aggregates, then `_day`."""
        results = pairs.groupBy(*self.by, WINDOW).agg(
            *(aggregate.column().alias(name) for name, aggregate in self.aggregates.items()),
            *(column.alias(name) for name, column in extra.items()),
        )
        return results.select(
            *self.by,
            F.col(f"{WINDOW}.start").alias("window_start"),
            F.col(f"{WINDOW}.end").alias("window_end"),
            *self.aggregates,
            *extra,
            F.to_date(f"{WINDOW}.start").alias("_day"),
        )
