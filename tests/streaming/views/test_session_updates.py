"""What updates of sessions cost: nothing where no late row came, and else no more than those sessions are long."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from docs.examples.allowed_lateness import bursts, updated_bursts
from streaming import Lake, log
from streaming.log.read import LogFiles
from streaming.operators.progress import Progress
from streaming.views.updates import first_time, read_updates, updates_of
from tests.support.feeds import readings
from tests.support.instants import NOW, at
from tests.support.runs import run, tuples

BATCHES = (
    # The session of `before` is over at 406, the one of `long` begins at 2,100 and goes on until 2,506.
    readings(", ".join(f"before@{second}, long@{2_100 + second}" for second in range(0, 400, 9))),
    readings("long@2101, clock@2504"),  # late, as the watermark was 2,496
    readings("clock@2505"),
    readings("clock@2507"),
)


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("updates")))
    run(spark, lake, bursts, *BATCHES)
    return lake


@pytest.fixture
def unfollowed(logged: Lake, tmp_path: Path) -> Lake:
    """The log alone, without updates."""
    shutil.copytree(logged.log(updated_bursts.of), Lake(str(tmp_path)).log(updated_bursts.of))
    return Lake(str(tmp_path))


def jobs_of(spark: SparkSession, name: str, work: Callable[[], object]) -> int:
    spark.sparkContext.setJobGroup(name, "counted")
    try:
        work()
    finally:
        spark.sparkContext.setJobGroup("", "")
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(name))


@pytest.mark.long
def test_spark_starts_only_for_late_rows_and_when_a_session_that_has_some_may_be_closed(
    spark: SparkSession, unfollowed: Lake
) -> None:
    updates = updates_of(spark, unfollowed, updated_bursts, LogFiles(unfollowed, updated_bursts.of))
    jobs = [
        jobs_of(spark, f"updates of batch {batch.number}", partial(updates.follow, batch, lambda: NOW))
        for batch in log.batches_after(unfollowed, updated_bursts.of, -1)
    ]
    assert [number > 0 for number in jobs] == [False, True, False, True]
    assert jobs[3] <= 8
    rows = read_updates(spark, unfollowed, updated_bursts)
    assert rows is not None
    assert tuples(rows, "id", "window_start", "window_end", "readings", "_batch") == [
        ("long", at(2100), at(2506), 46, 3)
    ]


def test_the_log_is_read_back_to_where_the_session_of_a_late_row_begins_and_not_to_its_beginning(
    spark: SparkSession, logged: Lake
) -> None:
    files = LogFiles(logged, updated_bursts.of)
    since = first_time(spark, files, updated_bursts, Progress({"bursts": 0}, {"bursts": at(2496)}, 0), 1)
    # A row ten seconds before the session would be part of it.
    assert since is not None and at(406) < since < at(2090)
