"""Killed anywhere and run again, a pipeline leaves the tables of a run that nobody disturbed."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from platform_assets.reports.publication import outdated_files, read_publication, read_report
from streaming import Lake
from streaming.log.batches import QUERY
from streaming.views.corrections import plan
from tests.support.crash import POINTS, TORN, crash, end
from tests.support.instants import NOW
from tests.support.left_behind import Left, left
from tests.support.scenario import BY_ID, PIPELINE, REPORT, SECOND_SECTION, STAGES, run_scenario

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Left:
    lake = Lake(str(tmp_path_factory.mktemp("undisturbed") / "lake"))
    run_scenario(spark, lake, NOW)
    return left(spark, lake)


@pytest.mark.long
def test_the_undisturbed_run_has_something_to_lose_at_every_point(undisturbed: Left) -> None:
    assert undisturbed.log_version == len(undisturbed.clock) == 7
    assert [(entry[-1] or {}).get(BY_ID.name, 0) for entry in undisturbed.clock[::-1]] == [0, 1, 1, 1, 0, 0, 1]
    assert [entry[5] for entry in undisturbed.clock[::-1]] == [1, 0, 1, 1, 0, 0, 0]
    assert len({row["_day"] for row in undisturbed.corrections}) == 2
    assert len(undisturbed.first) >= 7
    assert len(undisturbed.sessions) >= 4
    assert [row["id"] for row in undisturbed.report] == ["a", "b", "c", None]


@pytest.mark.long
def test_o8_crash_matrix(spark: SparkSession, tmp_path: Path, undisturbed: Left) -> None:
    """One lake dies at every point, one after the other, and is in the end as if it had never died."""
    lake = Lake(str(tmp_path / "lake"))
    done = 0
    for name, point in POINTS.items():
        stage = STAGES.index(point.stage)
        # An hour later than the process that died, so that no stamp can owe anything to the time of the second attempt.
        run_scenario(spark, lake, NOW + timedelta(hours=1), STAGES[done:stage])
        published = read_report(lake, REPORT)
        if point.killed:
            died = crash(tmp_path, name)
            assert died.returncode == -signal.SIGKILL, f"{name}: {died.stdout}"
        else:
            end(spark, lake, name)
        if name == TORN:
            assert published is not None and read_report(lake, REPORT) == published
            assert (newest(lake, REPORT), newest(lake, SECOND_SECTION)) == (1, 0)
        done = stage

    run_scenario(spark, lake, NOW + timedelta(hours=1), STAGES[done:])

    assert left(spark, lake) == undisturbed
    publication = read_publication(lake, REPORT)
    assert publication is not None and outdated_files(lake, publication) == []
    assert publication.versions == {REPORT: newest(lake, REPORT), SECOND_SECTION: newest(lake, SECOND_SECTION)}
    assert plan(spark, lake, BY_ID) == []
    checkpoint = Path(lake.checkpoint(PIPELINE.stream, QUERY))
    assert numbers(checkpoint / "commits") == numbers(checkpoint / "offsets")


def newest(lake: Lake, section: str) -> int:
    return DeltaTable(lake.report(section)).version()


def numbers(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if entry.name.isdigit()}
