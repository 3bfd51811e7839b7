"""The contract of results that change, and those of views: what is current, and on which days it may be new."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import date
from itertools import takewhile

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DAY, from_micros, literal, optional_micros
from streaming.declare import CORRECTIONS, Delivery, Operator, Windowed
from streaming.deliveries.seen import NOTHING_CLOSED, Seen
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.tables import delta, newest_commits
from streaming.views import (
    PinnedView,
    Position,
    current_with_reasons,
    read_corrections,
    read_first,
    read_updates,
    updated_through,
)


class Look(ABC):
    """Current results as the tables of an operator had them at one moment."""

    @abstractmethod
    def seen(self, before: Seen) -> Seen:
        """What follows from the tables as they are, where it was `before`; equal to it if nothing is new."""

    @abstractmethod
    def days(self, spark: SparkSession, before: Seen) -> frozenset[date] | None:
        """The days on which a result may have changed since; None for all of them."""

    @abstractmethod
    def rows(self, spark: SparkSession) -> DataFrame:
        """The columns that are told, `_day` and `_reason`: one row for each result that the delivery carries."""


class Changing(ABC):
    """The operator of a delivery, whose current results change."""

    operator: Operator

    identity: tuple[str, ...]
    """The columns of which no two results have the same values."""

    columns: tuple[str, ...]
    """The columns that are told, those of the identity included."""

    kept: tuple[str, ...]
    """Those of them that are told of a deleted result; the others are null."""

    time: str
    """The column with the event time of a result."""

    def __init__(self, lake: Lake, delivery: Delivery, operator: Operator) -> None:
        self.lake = lake
        self.delivery = delivery
        self.operator = operator

    def generation(self) -> int:
        """How often the operator was built anew."""
        return generation_of(delta.open_table(self.lake.table(self.operator)))

    @abstractmethod
    def look(self) -> Look | None:
        """The results as they are now; None while there are none."""


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


def chosen(current: DataFrame, delivery: Delivery) -> DataFrame:
    """Those results for which the delivery's condition holds."""
    return current if delivery.where is None else current.where(delivery.where)


def corrected_since(version: int, table: DeltaTable | None) -> set[date]:
    """The days that were corrected after a version of an open table of corrections."""
    commits = () if table is None else newest_commits(table)
    newer = takewhile(lambda commit: commit["version"] > version, commits)
    metadata = [commit["userMetadata"] for commit in newer if isinstance(commit["userMetadata"], dict)]
    days = [day for each in metadata if isinstance(each.get("through"), dict) for day in each["through"]]
    return {date.fromisoformat(day) for day in days}


def days_of(frame: DataFrame) -> set[date]:
    """The days of its rows."""
    return {row[0] for row in frame.select(DAY).distinct().collect()}
