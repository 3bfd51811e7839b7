"""A count of late rows goes into an event and comes back, also one of an older release."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor, dropping, pipeline
from streaming.lake.lake import Lake
from streaming.operations import drop, drop_savepoint, restore, savepoint
from streaming.operators.backlog import DueDays, LateCount, Waiting, due_days, plan_corrections
from streaming.operators.progress import PendingDay
from tests.support.feeds import readings as readings_of
from tests.support.instants import NOW, T0
from tests.support.runs import run
from tidemark.testing import correct

DAY = date(2024, 1, 1)


def test_a_count_is_the_same_after_it_was_written_down(lake: Lake) -> None:
    count = LateCount.of(lake, count_by_sensor, [PendingDay(DAY, 2, 5, None)], 7)
    assert (count.through, count.days) == (7, {DAY: 5})
    assert LateCount.from_json(json.loads(json.dumps(count.to_json()))) == count


def test_a_count_of_another_policy_or_without_one_is_not_valid(lake: Lake) -> None:
    count = LateCount.of(lake, count_by_sensor, [], None)
    assert count.is_valid(lake, count_by_sensor) and count.through == -1
    assert not count.is_valid(lake, replace(count_by_sensor, late="drop"))
    older = {name: value for name, value in count.to_json().items() if name != "policy"}
    assert not LateCount.from_json(older).is_valid(lake, count_by_sensor)


def test_a_backlog_is_known_by_its_newest_batch_and_days() -> None:
    assert Waiting((), 3, "0123456789").identity == "01234567-3-planned"
    assert Waiting((DAY,), 3, "0123456789").identity == "01234567-3-2024-01-01"


def test_a_plan_is_gone_with_the_tables_of_its_view_and_counts_in_no_other_state_of_them(
    spark: SparkSession, lake: Lake
) -> None:
    """00:01 a reading · 01:00 closes its window · a savepoint · 00:02 comes late · it is planned and corrected.

    Then the tables of the savepoint are put back; in the end the view is dropped and declared again.
    """
    run(spark, lake, pipeline, readings_of("a@1=1"), readings_of("a@60=1"))
    savepoint(lake, pipeline, "then", lambda: NOW)
    run(spark, lake, pipeline, readings_of("a@2=1"))
    plan_corrections(spark, lake, count_by_sensor)
    assert due_days(lake, count_by_sensor) == DueDays((T0.date(),), is_counted=True)
    correct(spark, lake, count_by_sensor, lambda: NOW)
    assert due_days(lake, count_by_sensor).is_empty

    restore(spark, lake, pipeline, "then", lambda: NOW)
    assert due_days(lake, count_by_sensor) == DueDays((), is_counted=False), "nobody has planned since"
    plan_corrections(spark, lake, count_by_sensor)
    assert due_days(lake, count_by_sensor).days == (T0.date(),)

    drop_savepoint(lake, pipeline, "then")
    drop(lake, [dropping], count_by_sensor.name)
    assert [*Path(lake.path("readings")).glob("_late-*")] == []
    assert due_days(lake, count_by_sensor) == DueDays((), is_counted=False)
