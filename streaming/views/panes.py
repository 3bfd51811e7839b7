"""The memory of a view of windows that are not published yet: parts of their aggregates, also folded into panes.

Panes are for windows that would be read too often, or too much at once: their rows are folded on the way.
A *pane* is a stretch of time whose rows are all in the same windows. What is folded is a cache of the log: a step makes
its results of the panes and of the rows that are not folded yet, wherever the border between the two lies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StructType

from streaming.base import DAY, STAMP, WINDOW, constant, date_literal
from streaming.declare import STATE, Windowed
from streaming.lake import Lake
from streaming.log import LogFiles
from streaming.operators import Progress, create_table, generation_of
from streaming.tables import delta, forget_days
from streaming.views.results import ROWS, all_rows, ends_within, has_windows, kind_of, with_order

_KEPT = "tidemark.kept"
_PANE, _CLOSED = "_pane", "_closed"


@dataclass(frozen=True)
class PartialColumns:
    """The data kept of some rows beside keys and bounds, as named aggregates.

    `of_rows` makes them of rows, `merged` of what was kept of several lots of them. `wholes` are the view's values made
    of what is kept; empty where that is the rows.
    """

    of_rows: tuple[Column, ...]
    merged: tuple[Column, ...]
    wholes: tuple[Column, ...]


def rows_as_partial(*columns: str) -> PartialColumns:
    """The rows themselves, in the lists of these columns."""
    of_rows = (F.collect_list(column).alias(column) for column in columns)
    return PartialColumns(
        tuple(of_rows), tuple(F.flatten(F.collect_list(column)).alias(column) for column in columns), ()
    )


def partial_columns(view: Windowed, results: StructType) -> PartialColumns:
    """The data that a view keeps: the parts of its aggregates, or the rows where they do not tell.

    `results` are the types of its values. They do not tell where the view counts rows once or calls a function, where
    an aggregate has no parts, and of a decimal that is made of doubles.
    """
    parts_suffice = all(
        each.parts and not (each.in_doubles and isinstance(results[name].dataType, DecimalType))
        for name, each in view.aggregates.items()
    )
    if view.distinct or view.function is not None or not parts_suffice:
        return PartialColumns((all_rows(view),), (F.flatten(F.collect_list(ROWS)).alias(ROWS),), ())
    of_rows: list[Column] = []
    merged: list[Column] = []
    wholes: list[Column] = []
    for name, each in view.aggregates.items():
        names = [f"_{name}_{place}" for place in range(len(each.parts))]
        for column, part in zip(names, each.parts, strict=True):
            of_rows.append(F.expr(part.sql).alias(column))
            merged.append(F.expr(part.merged.format(*names)).alias(column))
        wholes.append(F.expr(each.whole.format(*names)).cast(results[name].dataType).alias(name))
    return PartialColumns(tuple(of_rows), tuple(merged), tuple(wholes))


def kept_days(table: DeltaTable | None) -> set[date]:
    """The days that an open table of first results keeps so; none once the view was built anew."""
    text = None if table is None else table.metadata().configuration.get(_KEPT)
    kept = json.loads(text) if text else {}
    return {date.fromisoformat(day) for day in kept["days"]} if kept.get("of") == generation_of(table) else set()


def keep_days(lake: Lake, view: Windowed, days: Iterable[date]) -> None:
    """Keep the numbers of these days as they are published, and say so to the audit."""
    table = delta.open_table(lake.first(view))
    if table is not None:
        every = sorted({*kept_days(table), *days})
        kept = {"of": generation_of(table), "days": [day.isoformat() for day in every]}
        table.alter.set_table_properties({_KEPT: json.dumps(kept)}, raise_if_not_exists=False)


class Panes:
    """The table of a view's panes: per key and pane the parts of its aggregates, of the batches up to `through`.

    `_closed` is the end of the last window over the pane that was closed when the rows came, null for none: they are
    late for that window and those before it, and on time for the others.
    """

    def __init__(self, spark: SparkSession, lake: Lake, view: Windowed, log: LogFiles, kept: PartialColumns) -> None:
        self._spark = spark
        self._lake = lake
        self._view = view
        self._log = log
        self._kept = kept
        self.uri = lake.table(view, STATE)

    def position(self) -> Progress:
        """Up to where rows are folded."""
        return Progress.of(self._view, delta.open_table(self.uri))

    def fold(self, position: Progress) -> None:
        """Fold the rows up to where the view is, and forget the panes of which every window is published."""
        folded, first = self.position(), first_open(self._view, position)
        log_rows = self._log.with_times(self._spark, first, None, position.batch, after=folded.batch)
        last = F.struct(self._view.window.last_end(F.col(_PANE)).alias("end"))
        # A row that is late for all of its windows, or is in none, makes no result here.
        counts = last["end"].isNotNull() & ~self._view.window.late(last, F.col(STAMP))
        closed = self._parts(log_rows).where(counts).withColumn(_CLOSED, self._closed_before())
        parts = closed.groupBy(*self._view.by, _PANE, _CLOSED).agg(*self._kept.merged)
        written = parts.withColumn(DAY, F.to_date(_PANE))
        delta.append(
            written,
            create_table(self._lake, self._view, STATE, written.schema),
            says={"through": position.batch},
            statistics=(_PANE,),
            numbers=position.numbers(),
            fence=lambda table: folded.fence(self._view, table),
        )
        if first is not None:
            forget_days(self.uri, first.date())

    def closing(self, folded_through: int, since: datetime | None, by: datetime, through: int) -> DataFrame:
        """The groups of the windows that end in (since, by], of the batches up to `through`, as `finish` takes them.

        Up to `folded_through` they are of the panes, which go as far, and from there on of the log.
        """
        first, before = self._view.window.times_for_ends(since, by)
        rows = self._log.with_times(self._spark, first, before, through, after=folded_through)
        panes = delta.read(self._spark, self.uri).where(F.col(_PANE) < constant(by, _PANE))
        if first is not None:
            panes = panes.where((F.col(DAY) >= date_literal(first.date())) & (F.col(_PANE) >= constant(first, _PANE)))
        folded = panes.withColumn(WINDOW, F.explode(self._windows())).where(self._is_on_time(F.col(WINDOW)))
        unfolded = self._on_time(rows)
        return self._merged(folded.select(unfolded.columns).unionByName(unfolded), since, by)

    def gathered(self, rows: DataFrame, since: datetime | None, by: datetime) -> DataFrame:
        """The groups of windows that end in (since, by], of the log's `rows` alone, put together by pane first."""
        return self._merged(self._on_time(rows), since, by)

    def _on_time(self, rows: DataFrame) -> DataFrame:
        """The parts of the aggregates of `rows` that came in time, once for each window."""
        paired = self._parts(rows).withColumn(WINDOW, F.explode(self._windows()))
        return paired.where(~self._view.window.late(F.col(WINDOW), F.col(STAMP))).drop(_PANE, STAMP)

    def _parts(self, rows: DataFrame) -> DataFrame:
        """The parts of the aggregates of `rows` of the log per pane and stamp, which are late for the same windows."""
        pane = self._view.window.pane(F.col(self._view.of.event_time))
        assert pane is not None
        paned = with_order(rows.where(has_windows(self._view)), self._view).withColumn(_PANE, pane)
        return paned.groupBy(*self._view.by, _PANE, STAMP).agg(*self._kept.of_rows)

    def _merged(self, parts: DataFrame, since: datetime | None, by: datetime) -> DataFrame:
        ended = parts.where(ends_within(since, by))
        merged = kind_of(self._view).group(ended, self._view.by, list(self._kept.merged))
        return merged.select(*self._view.by, WINDOW, *self._kept.wholes)

    def _windows(self) -> Column:
        """The windows of a pane, which are those of each of its rows."""
        return self._view.window.bounds(F.col(_PANE))

    def _closed_before(self) -> Column:
        late = F.filter(self._windows(), lambda window: self._view.window.late(window, F.col(STAMP)))
        return F.array_max(F.transform(late, lambda window: window["end"]))

    @staticmethod
    def _is_on_time(window: Column) -> Column:
        return F.col(_CLOSED).isNull() | (window["end"] > F.col(_CLOSED))


def can_fold(view: Windowed, kept: PartialColumns) -> bool:
    """True if rows of the view can be folded: aggregates have parts, and it is known which rows share their windows."""
    return bool(kept.wholes) and view.window.pane(F.lit(None).cast("timestamp")) is not None


def first_open(view: Windowed, position: Progress) -> datetime | None:
    """No row before it is in a window that the view has yet to publish; null where nobody knows."""
    if position.watermark is None:
        return None
    closed = view.window.closed_by(position.watermark)
    return view.window.times_for_ends(closed, closed)[0]
