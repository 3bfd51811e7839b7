"""The declaration of a windowed view: keys, window and what is computed, over one stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import (
    EVENT_TIME,
    FIRST_INSTANT,
    ORDER,
    WINDOW,
    DeclarationError,
    check_column_name,
    check_name,
    check_names,
    interval,
    literal,
)
from streaming.declare.aggregates import Aggregate
from streaming.declare.functions import WindowFunction
from streaming.declare.late_policy import LatePolicy, check_policy
from streaming.declare.stream import Stream
from streaming.windows import Window

_ROWS = "_rows"


_EVERYTHING = "_everything"


@dataclass(frozen=True)
class Windowed:
    """Results of stream `of` per key (`by`) and window, over the rows for which `where` is true.

    What is computed is either `aggregates` or a full-window `function`. With `distinct`, rows of one window that agree
    in those columns count once: the first of them in the log's order, whatever the other columns say. Both `distinct`
    and `function` keep the rows of open windows as state; aggregates alone keep one value each.

    `late` says what becomes of late pairs, and `allowed_lateness` belongs to `late="update"` (see `LatePolicy`).
    `early` (`"each batch"` or an interval of processing time) keeps a table of the windows that are still open.
    `fresh_within`: how old the watermark may be before the running view counts as late.

    One declaration, two runners: the stream computes first results from it, the correction everything else.

    Raises:
        DeclarationError: unknown column, reserved or repeated name, nothing to compute, or a policy that cannot be.
    """

    name: str
    of: Stream
    window: Window
    aggregates: Mapping[str, Aggregate] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    where: str | None = None
    description: str = ""
    distinct: tuple[str, ...] = ()
    function: WindowFunction | None = None
    late: LatePolicy = "correct"
    allowed_lateness: str | None = None
    early: str | None = None
    fresh_within: str | None = None

    def __post_init__(self) -> None:
        check_name("view", self.name)
        object.__setattr__(self, "aggregates", MappingProxyType(dict(self.aggregates)))
        if bool(self.aggregates) == (self.function is not None):
            raise DeclarationError(
                f"view {self.name!r} has {'both' if self.aggregates else 'neither'} aggregates and a function; give "
                "one of the two, such as aggregates={'rows': count()}."
            )
        columns = self.of.columns
        for key in self.by:
            check_names(f"by of view {self.name!r}", key, columns)
        for column in self.distinct:
            check_names(f"distinct of view {self.name!r}", column, columns)
        for expression in self.window.expressions:
            check_names(f"window of view {self.name!r}", expression, columns)
        if self.where is not None:
            check_names(f"where of view {self.name!r}", self.where, columns)
        for name, aggregate in self.aggregates.items():
            check_names(f"aggregate {name!r} of view {self.name!r}", aggregate.sql, (*columns, EVENT_TIME, ORDER))
        for name in self.values:
            check_column_name(name)
            if name in self.identity:
                raise DeclarationError(
                    f"result {name!r} of view {self.name!r} has the name of a key or window column "
                    f"({', '.join(self.identity)}); rename it."
                )
        if len(set(self.by)) != len(self.by):
            raise DeclarationError(f"by={self.by!r} of view {self.name!r} repeats a key; name each once.")
        if self.fresh_within is not None:
            interval(self.fresh_within)
        check_policy(self.name, self.late, self.allowed_lateness, self.early, self.window.merging)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify one result: keys, then window bounds."""
        return (*self.by, "window_start", "window_end")

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are computed: the aggregates' or the function's."""
        return tuple(self.aggregates) if self.function is None else self.function.columns

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a result that are a function of the rows: identity, then values."""
        return (*self.identity, *self.values)

    @property
    def corrected(self) -> bool:
        """Whether late pairs wait for a scheduled correction, at least those that come very late."""
        return self.late != "drop"

    def condition(self) -> Column:
        """True for the valid rows that this view counts, false or null for all others."""
        valid = F.col("_day").isNotNull()
        return valid if self.where is None else valid & F.expr(self.where)

    def reaching(self, rows: DataFrame, instant: datetime | None) -> DataFrame:
        """Those `rows` of the log that may be in a window ending after `instant`, found by the files' statistics."""
        longest = self.window.longest
        if instant is None or longest is None or instant - FIRST_INSTANT < longest:
            return rows
        earliest = instant - longest
        return rows.where((F.col("_day") >= F.lit(earliest.date())) & (F.col(self.of.event_time) >= literal(earliest)))

    def assign(self, rows: DataFrame) -> DataFrame:
        """`rows` of the log once per window, in the column `_window`; once with null where there is no window.

        Also `_event_time`, and `_order`, the row's place in the order in which first and last are meant.
        """
        event_time = F.col(self.of.event_time)
        # Not `explode`: for it Spark infers a filter that it pushes below the watermark, where it swallows the rows
        # that carry only the clock (fact S4).
        # Nor over every row: what made a row rejected may well make an expression of the window overflow.
        windows = F.explode_outer(F.when(self.condition() & event_time.isNotNull(), self.window.bounds(event_time)))
        return rows.withColumns(
            {EVENT_TIME: event_time, ORDER: F.struct(event_time.alias("at"), "_batch", "_origin")}
        ).withColumn(WINDOW, windows)

    def pairs(self, rows: DataFrame) -> DataFrame:
        """The (valid row, window) pairs that this view counts, as a batch read, with a boolean `_late`."""
        assigned = self.assign(rows.where(self.condition())).where(F.col(WINDOW).isNotNull())
        return assigned.withColumn("_late", self.window.late(F.col(WINDOW), F.col("_watermark")))

    def group(
        self, pairs: DataFrame, *per: str, clocked: bool = False, extra: Mapping[str, Column] | None = None
    ) -> DataFrame:
        """One row per key, window and `per` of `pairs`: these, `extra` aggregates, and what `finish` needs.

        `clocked`: the frame is a stream whose windows Spark's watermark shall close (fact S7).
        """
        if self._keeps_rows:
            kept = [F.collect_list(F.struct(*self.of.columns, EVENT_TIME, ORDER)).alias(_ROWS)]
        else:
            kept = [aggregate.column().alias(name) for name, aggregate in self.aggregates.items()]
        extras = [column.alias(name) for name, column in (extra or {}).items()]
        keys = (*self.by, *per)
        mark = {"spark.watermarkDelayMs": 0} if clocked else {}
        others = [name for name in pairs.columns if name != WINDOW]
        if not self.window.merging:
            windows = pairs.select(*others, F.col(WINDOW).alias(WINDOW, metadata=mark))
            return windows.groupBy(*keys, WINDOW).agg(*kept, *extras)
        bounds = pairs.select(
            *others,
            F.lit(0).alias(_EVERYTHING),  # Spark refuses sessions without a key (fact W2)
            F.col(f"{WINDOW}.start").alias("_start", metadata=mark),
            F.col(f"{WINDOW}.end").alias("_end"),
        )
        seconds = (F.unix_micros("_end") - F.unix_micros("_start")) / F.lit(1_000_000)
        session = F.session_window("_start", F.make_interval(secs=seconds.cast("decimal(18,6)"))).alias("_session")
        # Bounds as aggregates: a filter on the session's own would be pushed below the merge.
        merged = F.struct(F.min("_start").alias("start"), F.max("_end").alias("end")).alias(WINDOW)
        return bounds.groupBy(_EVERYTHING, *keys, session).agg(merged, *kept, *extras).drop(_EVERYTHING, "_session")

    def finish(self, groups: DataFrame, *extra: str) -> DataFrame:
        """Results of `groups`, a batch frame: `columns`, the `extra` ones, `_day`."""
        results = groups
        if self._keeps_rows:
            members = self.members(groups, *extra).where(F.col("_copy") == 1)
            keys = (*self.by, WINDOW, *extra)
            if self.function is not None:
                results = self.function.over(members, keys)
            else:
                results = members.groupBy(*keys).agg(
                    *(aggregate.column().alias(name) for name, aggregate in self.aggregates.items())
                )
        return results.select(
            *self.by,
            F.col(f"{WINDOW}.start").alias("window_start"),
            F.col(f"{WINDOW}.end").alias("window_end"),
            *self.values,
            *extra,
            F.to_date(f"{WINDOW}.start").alias("_day"),
        )

    def aggregate(self, pairs: DataFrame, *per: str, **extra: Column) -> DataFrame:
        """Results of `pairs`, a batch frame, per `per`: `columns`, `per`, the `extra` aggregates, `_day`."""
        return self.finish(self.group(pairs, *per, extra=extra), *per, *extra)

    def members(self, groups: DataFrame, *extra: str) -> DataFrame:
        """The rows in `groups` of a view with `distinct` or `function`, each with its merged `_window`.

        `_position` is a row's place in its window; `_copy` counts the rows that agree in `distinct`, the first being 1.
        """
        rows = groups.select(*self.by, WINDOW, *extra, F.explode(_ROWS).alias("_row")).select(
            *self.by,
            WINDOW,
            *extra,
            *(
                F.col(f"_row.{name}").alias(name)
                for name in (*self.of.columns, EVENT_TIME, ORDER)
                if name not in self.by
            ),
        )
        window = SortedBy.partitionBy(*self.by, WINDOW, *extra)
        same = window if not self.distinct else SortedBy.partitionBy(*self.by, WINDOW, *extra, *self.distinct)
        # In the order of the log: what was counted first is not exchanged for a copy that comes late.
        copy = F.row_number().over(same.orderBy(f"{ORDER}._batch", f"{ORDER}._origin")) if self.distinct else F.lit(1)
        return rows.withColumns({"_position": F.row_number().over(window.orderBy(ORDER)), "_copy": copy})

    @property
    def _keeps_rows(self) -> bool:
        return bool(self.distinct) or self.function is not None
