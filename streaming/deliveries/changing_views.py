"""Views as results that change."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import from_micros, literal, optional_micros
from streaming.declare import CORRECTIONS, Delivery, Windowed
from streaming.deliveries.changing import Changing, Look, chosen, corrected_since, days_of
from streaming.deliveries.seen import NOTHING_CLOSED, Seen
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.tables import delta
from streaming.views import (
    PinnedView,
    Position,
    current_with_reasons,
    read_corrections,
    read_first,
    read_updates,
    updated_through,
)


class ChangingView(Changing):
    """A view: first results, updates and corrections."""

    operator: Windowed
    time = "window_start"

    def __init__(self, lake: Lake, delivery: Delivery, view: Windowed) -> None:
        super().__init__(lake, delivery, view)
        self.identity = self.kept = view.identity
        self.columns = view.columns

    def look(self) -> Look | None:
        pinned = PinnedView.now(self.lake, self.operator)
        return None if pinned.first == delta.BEFORE else _LookAtView(self.lake, self.delivery, pinned)


class _LookAtView(Look):
    def __init__(self, lake: Lake, delivery: Delivery, pinned: PinnedView) -> None:
        self._lake = lake
        self._delivery = delivery
        self._view = pinned.view
        self._at = pinned
        self._first = delta.open_table(lake.first(pinned.view), pinned.first)

    def seen(self, before: Seen) -> Seen:
        view, closed = self._view, optional_micros(Position.of(self._first).watermark)
        return replace(
            Seen(),
            revision=before.revision,
            closed=NOTHING_CLOSED if closed is None else closed,
            updates=updated_through(self._lake, view, self._at.updates) if view.updated else -1,
            corrections=self._at.corrections,
            of_generation=generation_of(self._first),
        )

    def days(self, spark: SparkSession, before: Seen) -> frozenset[date] | None:
        """A late row may join sessions of several days, of which each is compared."""
        view, lake = self._view, self._lake
        anew = before.revision < 0 or before.closed == NOTHING_CLOSED or before.again
        if anew or view.window.merging or before.of_generation != generation_of(self._first):
            return None
        since = view.window.closed_by(from_micros(before.closed))
        days = days_of(read_first(spark, lake, view, self._at.first).where(F.col("window_end") > literal(since)))
        updates = read_updates(spark, lake, view, self._at.updates)
        if updates is not None:
            days |= days_of(updates.where(F.col("_batch") > before.updates))
        corrections = delta.open_table(lake.table(view, CORRECTIONS), self._at.corrections)
        return frozenset(days | corrected_since(before.corrections, corrections))

    def rows(self, spark: SparkSession) -> DataFrame:
        view, lake = self._view, self._lake
        current = current_with_reasons(
            read_first(spark, lake, view, self._at.first),
            read_corrections(spark, lake, view, self._at.corrections),
            view,
            read_updates(spark, lake, view, self._at.updates),
        )
        return chosen(current, self._delivery)
