"""Killed between any two commits of a step, and run again, operators leave what they leave undisturbed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.laws import audit
from streaming.operators.runtime import runtime_of
from streaming.views import steps
from tests.support.crash import crash
from tests.support.feeds import land_all
from tests.support.instants import at
from tests.support.pipelines.rising import folded, meters, pipeline, rises, updated
from tests.support.running import ingest
from tests.support.runs import tuples
from tests.support.step_crash import POINTS, follow

pytestmark = pytest.mark.processes

SHOWN = {folded: ("first",), updated: ("first", "updates"), rises: ("current", "before")}


def arrive(spark: SparkSession, lake: Lake, number: int) -> None:
    """A batch that closes windows and has a late row, so that every table of every operator gets rows."""
    now = 30 * number
    readings = [("a", now, number), ("b", now + 4, 2 * number), ("a", now - 45, 100)]
    land_all(
        lake, meters, [{"id": id_, "at": at(second).isoformat(), "value": value} for id_, second, value in readings]
    )
    ingest(spark, lake, pipeline)


def shown(spark: SparkSession, lake: Lake) -> dict[str, list[tuple[object, ...]]]:
    """The rows of each table, but for when they were written."""
    tables = {}
    for operator, names in SHOWN.items():
        for name in names:
            rows = runtime_of(operator, lake).readable[name](spark)
            columns = [column for column in rows.columns if column != "_written_at"]
            tables[f"{operator.name} {name}"] = tuples(rows, *columns)
    return tables


@pytest.mark.long
def test_a_step_that_is_killed_after_any_of_its_commits_is_finished_by_the_next_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "FOLDED_FROM", 1)
    lake, undisturbed = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "undisturbed"))
    for each in (lake, undisturbed):
        arrive(spark, each, 0)
        follow(spark, each)
    for number, point in enumerate(POINTS, start=1):
        arrive(spark, lake, number)
        died = crash(tmp_path, point, "tests.support.step_crash", lent=spark)
        assert died.returncode == -signal.SIGKILL, f"{point}: {died.stdout}"
        follow(spark, lake)
        arrive(spark, undisturbed, number)
        follow(spark, undisturbed)

    expected = shown(spark, undisturbed)
    assert all(len(rows) >= len(POINTS) for rows in expected.values())
    assert shown(spark, lake) == expected
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []
