"""Every window kind keeps the contract, and the contract sees one that does not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streaming.windows.custom import Custom
from streaming.windows.local_days import LocalDays
from streaming.windows.session import SessionWindow
from streaming.windows.window import Sliding, Tumbling, Window, window_of
from tests.streaming.windows.contract import check_window
from tests.support.instants import T0

HOUR = timedelta(hours=1)
INSTANTS = [T0 + number * 7 * HOUR for number in range(-8, 9)] + [T0, T0 - timedelta(microseconds=1)]
DAYS = [T0.date(), T0.date() - timedelta(days=1)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "window",
    [
        Tumbling("10 minutes"),
        Sliding("1 day", "5 hours", "1 hour"),
        Sliding("1 hour", "1 day"),
        Sliding("1 day", "5 hours", "-1 hour"),
        LocalDays("America/New_York"),
        Custom("array(struct(at - interval 3 hours, at + interval 1 hour))", within="4 hours"),
        SessionWindow("30 minutes"),
        SessionWindow(seconds_of="hour(at) * 60"),
    ],
    ids=repr,
)
def test_a_window_kind_keeps_the_contract(spark: SparkSession, window: Window) -> None:
    check_window(spark, window, INSTANTS, DAYS)


@dataclass(frozen=True)
class ReachesFurther(Window):
    """Says that its windows end an hour after the row, and makes them end after two."""

    @property
    def reach(self) -> timedelta:
        return HOUR

    def bounds(self, event_time: Column) -> Column:
        return F.array(window_of(event_time, event_time + F.expr("interval 2 hours")))


def test_the_contract_sees_a_window_that_reaches_further_than_it_says(spark: SparkSession) -> None:
    with pytest.raises(AssertionError):
        check_window(spark, ReachesFurther(), INSTANTS, DAYS)
