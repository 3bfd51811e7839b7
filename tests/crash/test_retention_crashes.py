"""Killed wherever it may be, maintenance that drops days is finished by the next one, and nobody sees that it was."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, drain
from streaming.audit.laws import audit
from streaming.operations.repair import repair
from streaming.operations.retained_days import retained_days
from streaming.operators.runtime import runtime_of
from streaming.tables import delta
from tests.support.crash import crash
from tests.support.feeds import land
from tests.support.instants import T0
from tests.support.retention_crash import LATER, NOTED, POINTS, calls, keep_tidy, pipeline, readings, tolerant

pytestmark = pytest.mark.processes

HOT, WARM = 95.0, 20.0
first, *others = POINTS
READINGS = (
    [("a", 0, 1, WARM), ("h", 0, 5, HOT)],  # h is rejected, and repaired afterwards
    [("a", 1, 1, WARM), ("b", 0, 2, WARM)],  # b is late
    [("a", 3, 3, WARM), ("b", 3, 4, WARM)],
    [("a", 5, 2, WARM), ("b", 3, 5, WARM)],  # b is late
    [("a", 6, 3, WARM)],
)
CALLS = ([("a", 0, 1.5), ("b", 1, 3)], [("b", 3, 4.5)], [("a", 5, 2.5)], [("a", 6, 1)])
MORE_READINGS = [("a", 6, 4, WARM), ("b", 4, 5, WARM), ("a", 0, 7, WARM), ("a", 7, 1, WARM)]
"""The second one is late, the third one is of a day that is not kept."""
MORE_CALLS = [("b", 4, 5.5), ("a", 7, 1)]
DROPPED = [4, 2]
"""Rows of each log."""


def instant(days: int, hours: float) -> datetime:
    return T0 + timedelta(days=days, hours=hours)


def land_readings(lake: Lake, rows: Sequence[tuple[str, int, float, float]]) -> None:
    at = [(name, instant(days, hours).isoformat(), value) for name, days, hours, value in rows]
    land(readings.source.location(lake), [{"id": name, "at": time, "temperature": value} for name, time, value in at])


def land_calls(lake: Lake, rows: Sequence[tuple[str, int, float]]) -> None:
    at = [(name, instant(days, hours).isoformat()) for name, days, hours in rows]
    land(calls.source.location(lake), [{"id": name, "called": time} for name, time in at])


def took_in(spark: SparkSession, lake: Lake) -> None:
    """Take in what has landed, and correct the days that wait for it."""
    drain(spark, lake, pipeline, now=lambda: LATER)
    for operator in pipeline.operators:
        runtime = runtime_of(operator, lake)
        pending = [entry.day for entry in runtime.plan(spark)]
        if pending:
            runtime.correct(spark, pending, lambda: LATER)


def went_on(spark: SparkSession, lake: Lake) -> None:
    """Take in what comes later, of days that are kept and of one that is not."""
    land_readings(lake, MORE_READINGS)
    land_calls(lake, MORE_CALLS)
    took_in(spark, lake)


def contents(lake: Lake) -> dict[str, list[str]]:
    """What every table of the lake holds, by its place."""
    tables = {str(log.parent.relative_to(lake.root)): delta.open_table(str(log.parent)) for log in logs_in(lake)}
    rows_by_place = {place: delta.contents(table).to_pylist() for place, table in tables.items() if table is not None}
    return {place: sorted(map(repr, rows)) for place, rows in rows_by_place.items()}


def logs_in(lake: Lake) -> list[Path]:
    return sorted(Path(lake.root).rglob("_delta_log"))


def of_results(tables: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The tables of the operators, which retention leaves alone."""
    return {place: rows for place, rows in tables.items() if place.startswith(("readings/hours", "readings/near"))}


def without_notes(tables: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The tables but for what was noted of dropped rows, which says in how many goes they were dropped."""
    return {place: rows for place, rows in tables.items() if not place.endswith("/dropped")}


def broken(spark: SparkSession, lake: Lake) -> list[str]:
    return [str(finding) for finding in audit(spark, lake, pipeline) if not finding.holds]


@dataclass(frozen=True)
class Kept:
    """A lake, and what its tables held where nobody was killed: before days went, and after that.

    `aside` is the lake as it was before.
    """

    lake: Lake
    aside: Path
    before: dict[str, list[str]]
    after: dict[str, list[str]]

    def put_back(self) -> Lake:
        """The lake as it was before, in its place: files of one that lies elsewhere would be taken in again."""
        shutil.rmtree(self.lake.root)
        shutil.copytree(self.aside, self.lake.root)
        return self.lake


@pytest.fixture(scope="module")
def kept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("retained")
    lake, aside = Lake(str(folder / "lake")), folder / "aside"
    land_readings(lake, READINGS[0])
    land_calls(lake, CALLS[0])
    drain(spark, lake, pipeline, now=lambda: LATER)
    repair(spark, lake, tolerant, lambda: LATER)
    for read in READINGS[1:]:
        land_readings(lake, read)
    for called in CALLS[1:]:
        land_calls(lake, called)
    took_in(spark, lake)
    shutil.copytree(lake.root, aside)
    before = contents(lake)
    assert [retention.rows for retention in keep_tidy(spark, lake)] == DROPPED
    return Kept(lake, aside, before, contents(lake))


def killed(spark: SparkSession, kept: Kept, point: str) -> Lake:
    lake = kept.put_back()
    died = crash(Path(lake.root).parent, point, "tests.support.retention_crash", lent=spark)
    assert died.returncode == -signal.SIGKILL, died.stdout
    return lake


@pytest.mark.parametrize("point", [first, *(pytest.param(point, marks=pytest.mark.long) for point in others)])
def test_every_law_holds_after_a_kill_and_the_next_run_ends_as_if_there_had_been_none(
    spark: SparkSession, kept: Kept, point: str
) -> None:
    lake = killed(spark, kept, point)
    left = contents(lake)
    assert broken(spark, lake) == []
    assert of_results(left) == of_results(kept.before)
    # The rows of a log are all there or all gone that shall go.
    logs = ("readings/log", "calls/log")
    assert all(left[log] in (kept.before[log], kept.after[log]) for log in logs)
    keep_tidy(spark, lake)
    assert contents(lake) == kept.after


@pytest.mark.long
def test_a_stream_that_goes_on_after_a_kill_loses_nothing_by_the_run_that_finishes(
    spark: SparkSession, kept: Kept
) -> None:
    undisturbed = kept.put_back()
    keep_tidy(spark, undisturbed)
    went_on(spark, undisturbed)
    keep_tidy(spark, undisturbed)
    later = contents(undisturbed)

    lake = killed(spark, kept, NOTED)
    went_on(spark, lake)
    assert broken(spark, lake) == []
    keep_tidy(spark, lake)
    assert broken(spark, lake) == []
    assert without_notes(contents(lake)) == without_notes(later)
    assert [retention.rows for retention in retained_days(lake, pipeline)] == DROPPED
