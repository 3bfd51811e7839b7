"""The contract of results that change: what is current, and on which days it may be new."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import date
from itertools import takewhile

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from streaming.base import DAY
from streaming.declare import Delivery, Operator
from streaming.deliveries.computed import chosen_rows
from streaming.deliveries.seen import Seen
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.tables import delta, newest_commits


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


def chosen(current: DataFrame, delivery: Delivery) -> DataFrame:
    """Those results that the delivery tells of."""
    return chosen_rows(current, delivery, DAY)


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
