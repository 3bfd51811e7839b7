"""Corrections beside a stream that goes on: rows that come meanwhile are corrected at once, or by the next one."""

from __future__ import annotations

from pyspark.sql import SparkSession

from streaming import Lake
from streaming.views.corrections import correct, plan
from tests.support.crash import Point, armed
from tests.support.delivering import by_id, ingested, reading
from tests.support.instants import NOW, at
from tests.support.runs import read_current

DAY = at(0).date()


def test_late_rows_that_come_while_their_day_is_corrected_are_in_it_or_wait_for_the_next_correction(
    spark: SparkSession, lake: Lake
) -> None:
    ingested(spark, lake, [reading("a", 1), reading("a", 60)], [reading("a", 2)])
    for number, looks_at in enumerate(("read_log", "head"), start=3):
        module = {"read_log": "streaming.views.corrections", "head": "streaming.operators.progress"}[looks_at]
        meanwhile = Point("", module, looks_at, 1, after=True)
        with armed(meanwhile, lambda second=number: ingested(spark, lake, [reading("a", second)])):  # type: ignore[misc]
            correct(spark, lake, by_id, [DAY], lambda: NOW)
        correct(spark, lake, by_id, [pending.day for pending in plan(spark, lake, by_id)], lambda: NOW)
        (window,) = read_current(spark, lake, by_id).where("window_end <= '2026-01-01 00:00:10'").collect()
        assert (looks_at, window["readings"]) == (looks_at, number)
