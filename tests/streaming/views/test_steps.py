"""However a log is cut into steps, and whatever ends one, a view is the same; also one that comes later."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    SessionWindow,
    Sliding,
    Stream,
    Windowed,
    agg,
    correct,
    log,
    plan,
)
from streaming.audit.laws import audit
from streaming.base.errors import FencedError
from streaming.log.read import LogFiles
from streaming.operators import runtime as runtimes
from streaming.operators.progress import Progress
from streaming.operators.runtime import runtime_of
from streaming.tables.history import commits_of
from streaming.views.results import read_first
from streaming.views.steps import FoldedSteps, SessionSteps
from streaming.views.updates import updated_through, updates_of
from tests.support.feeds import land_all
from tests.support.instants import NOW, T0
from tests.support.killed import Killed, killed_at
from tests.support.running import ingest
from tests.support.runs import run, tuples

HOUR = timedelta(hours=1)
_WRITTEN = ("_written_at", "_corrected_at")

visits = Stream(
    name="visits",
    source=Files("landing/visits"),
    format=Json("id string, at timestamp, number bigint, stay bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("1 hour", max_ahead="365 days"),
)
moving = Windowed(
    "moving",
    visits,
    Sliding("1 day", "12 hours"),
    {"visits": agg.count(), "sum": agg.sum("number")},
    where="number > 0",
    late="update",
    allowed_lateness="1 day",
    early="1 day",
)
VIEWS = (
    moving,
    Windowed(
        "sessions", visits, SessionWindow("8 hours"), {"visits": agg.count(), "all": agg.collect("number")}, by=("id",)
    ),
    Windowed(
        "stays",
        visits,
        SessionWindow(seconds_of="stay * 3600"),
        {"numbers": agg.count()},
        by=("id",),
        distinct=("number",),
        late="drop",
    ),
)
everything = Pipeline(visits, VIEWS)


def at_hours(text: str) -> list[dict[str, Any]]:
    """Visits in the notation `key@hours=number`; each stays 8 hours."""
    rows = []
    for number, entry in enumerate(text.split(), start=1):
        key, _, rest = entry.partition("@")
        hours, _, value = rest.partition("=")
        when = (T0 + float(hours) * HOUR).isoformat()
        rows.append({"id": key, "at": when, "number": int(value or number), "stay": 8})
    return rows


EARLIER = (
    # Day 1. a's session will last over two midnights; b has one that ends with the day, and one across midnight.
    at_hours("a@20 b@1 b@2.5 b@19 b@21 c@-5"),
    at_hours("a@27 c@22 b@3=9 b@23.5"),  # watermark 20 before it: 3 is late
    # Watermark 32 after it. The visit of a at 20 is over by itself since 28; as a session it ends at 41.
    at_hours("a@33 c@25=0 d@26 e@40 e@41"),
)
LATER = (
    at_hours("a@40.5 e@45 b@30 c@44"),  # watermark 40 before it: 30 is late; a's session goes on
    at_hours("a@47 d@90 b@1=7"),
)


def tables(lake: Lake, pipeline: Pipeline) -> dict[str, list[str]]:
    """Every row of every table, as text, without the processing times of the engine and the place of the lake."""
    contents = {}
    for view in pipeline.views:
        for uri in (lake.table(view, each.suffix) for each in view.tables):
            if DeltaTable.is_deltatable(uri):
                table = DeltaTable(uri).to_pyarrow_table()
                columns = sorted(set(table.column_names) - {*_WRITTEN})
                rows = [in_some_order(row) for row in table.select(columns).to_pylist()]
                contents[uri.removeprefix(lake.root)] = sorted(str(row).replace(lake.root, "") for row in rows)
    return contents


def in_some_order(row: dict[str, Any]) -> dict[str, Any]:
    """A list that is kept as state has no order of its own."""
    return {
        name: sorted(map(str, value)) if name.startswith("_") and value and isinstance(value, list) else value
        for name, value in row.items()
    }


def correct_sessions(spark: SparkSession, lake: Lake) -> None:
    sessions = VIEWS[1]
    correct(spark, lake, sessions, [backlog.day for backlog in plan(spark, lake, sessions)], lambda: NOW)


def forget_history(lake: Lake) -> None:
    """Nothing is left of how the log came to be: old files are gone, and all entries but the newest.

    It is compacted day by day, the newest first, so that files lie against the order of time.
    """
    uri = lake.log(visits)
    log.archive_batches(lake, visits)
    days = {file.partition("_day=")[2].split("/")[0] for file in DeltaTable(uri).file_uris()}
    for day in sorted(days, reverse=True):
        DeltaTable(uri).optimize.compact(partition_filters=[("_day", "=", "" if day.startswith("__") else day)])
    assert DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    table = DeltaTable(uri)
    table.create_checkpoint()
    for entry in Path(uri, "_delta_log").glob("*.json"):
        if int(entry.stem) < table.version():
            entry.unlink()


@pytest.fixture
def one_batch_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog is followed batch by batch."""
    monkeypatch.setattr("streaming.operators.runtime.ROWS_PER_CORE", 0)


@pytest.fixture(scope="module")
def from_the_start(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All views were there before the first row came."""
    lake = Lake(str(tmp_path_factory.mktemp("start")))
    run(spark, lake, everything, *EARLIER)
    run(spark, lake, everything, *LATER)
    correct_sessions(spark, lake)
    return lake


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A log of the same rows, which nothing has followed."""
    lake = Lake(str(tmp_path_factory.mktemp("logged")))
    for batches in (EARLIER, LATER):
        land_all(lake, visits, *batches)
        ingest(spark, lake, everything)
    return lake


@pytest.mark.long
def test_a_backlog_followed_batch_by_batch_gives_the_same(
    spark: SparkSession, lake: Lake, from_the_start: Lake, one_batch_a_step: None
) -> None:
    run(spark, lake, everything, *EARLIER)
    run(spark, lake, everything, *LATER)
    correct_sessions(spark, lake)
    assert tables(lake, everything) == tables(from_the_start, everything)
    steps = {view.name: len(commits_of(DeltaTable(lake.first(view)))) - 1 for view in VIEWS}
    assert steps == dict.fromkeys(steps, len(EARLIER) + len(LATER))


@pytest.mark.long
def test_views_of_a_log_without_a_past_equal_those_that_were_there_from_the_start(
    spark: SparkSession, lake: Lake, from_the_start: Lake
) -> None:
    before = replace(moving, aggregates={"ids": agg.count("id is not null")}, late="correct", allowed_lateness=None)
    run(spark, lake, Pipeline(visits, (before,)), *EARLIER)
    forget_history(lake)
    for uri in (lake.first(before), lake.open(before)):
        shutil.rmtree(uri)
    run(spark, lake, everything, *LATER)
    correct_sessions(spark, lake)

    expected = tables(from_the_start, everything)
    assert len(expected["/visits/sessions"]) > 3 and len(expected) == 8
    assert tables(lake, everything) == expected
    assert [finding for finding in audit(spark, lake, everything) if not finding.holds] == []


@pytest.mark.long
def test_first_results_that_were_deleted_come_back_whatever_state_there_is(
    spark: SparkSession, lake: Lake, from_the_start: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.views.steps.FOLDED_FROM", 1)
    run(spark, lake, everything, *EARLIER)
    for view in VIEWS:
        shutil.rmtree(lake.first(view))
    run(spark, lake, everything, *LATER)
    correct_sessions(spark, lake)

    contents, expected = tables(lake, everything), tables(from_the_start, everything)
    assert contents.pop("/visits/moving_state")
    assert contents == expected


@pytest.mark.long
def test_a_process_whose_table_of_open_sessions_could_not_be_written_goes_on_with_all_rows(
    spark: SparkSession, lake: Lake, from_the_start: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = VIEWS[1]
    shutil.copytree(from_the_start.log(visits), lake.log(visits))
    runtime = runtime_of(sessions, lake)
    with monkeypatch.context() as dying, pytest.raises(Killed):
        dying.setattr(runtimes, "ROWS_PER_CORE", 4)
        # Its second step has published by then.
        killed_at(4, dying)
        for step in runtime.steps(spark, lambda: NOW):
            step.run()
    for step in runtime.steps(spark, lambda: NOW):
        step.run()
    contents, expected = (tables(each, Pipeline(visits, (sessions,))) for each in (lake, from_the_start))
    # Rows of a copied log keep where they were read.
    at_home = {name: [row.replace(from_the_start.root, "") for row in rows] for name, rows in contents.items()}
    assert at_home == {name: expected[name] for name in ("/visits/sessions", "/visits/sessions_state")}


@pytest.mark.long
def test_a_log_without_statistics_is_read_as_one_that_has_them(
    spark: SparkSession, lake: Lake, from_the_start: Lake, one_batch_a_step: None
) -> None:
    shutil.copytree(from_the_start.log(visits), lake.log(visits))
    for commit in Path(lake.log(visits), "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        assert any(action.get("add", {}).pop("stats", None) for action in actions) or commit.stem == f"{0:020}"
        commit.write_text("\n".join(map(json.dumps, actions)))
    head = log.head(lake, visits)
    assert head is not None
    for runtime in (runtime_of(view, lake) for view in VIEWS):
        for step in runtime.steps(spark, lambda: NOW):
            step.run()
        runtime.catch_up(spark, head, lambda: NOW)

    expected = tables(from_the_start, everything)
    del expected["/visits/sessions_corrections"]
    contents = tables(lake, everything)
    # Rows of a copied log keep where they were read.
    assert {name: [row.replace(from_the_start.root, "") for row in rows] for name, rows in contents.items()} == expected


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "by_arrow", "jobs"),
    [("moving", 1_000, [0]), ("moving", 0, [1]), ("sessions", 0, [1, 2, 3]), ("stays", 0, [1, 2, 3, 4, 5])],
)
def test_a_step_costs_few_spark_jobs_however_many_batches_it_follows(
    spark: SparkSession,
    lake: Lake,
    logged: Lake,
    name: str,
    by_arrow: int,
    jobs: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is exchanged within a query is no job of its own, as it would be if each were planned anew on the way."""
    monkeypatch.setattr("streaming.views.arrow_results.MOST_ROWS", by_arrow)
    view = everything.view(name)
    shutil.copytree(logged.log(visits), lake.log(visits))
    batches = log.batches_after(lake, visits, -1)
    kind = SessionSteps if view.window.merging else FoldedSteps
    steps = kind(spark, lake, view)
    steps.step({visits.name: batches[:2]}, lambda: NOW)
    group = f"the step of {name} by {by_arrow}"
    spark.sparkContext.setJobGroup(group, "counted")
    steps.step({visits.name: batches[2:]}, lambda: NOW)
    spark.sparkContext.setJobGroup("", "")
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) in jobs


def test_a_heartbeat_closes_sessions_without_merging_any(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    sessions = VIEWS[1]
    run(spark, lake, Pipeline(visits, (sessions,)), *EARLIER, end_of_input=True)
    again = Lake(str(tmp_path / "again"))
    shutil.copytree(lake.log(visits), again.log(visits))
    *with_rows, heartbeat = log.batches_after(again, visits, -1)
    steps = SessionSteps(spark, again, sessions)
    steps.step({visits.name: with_rows}, lambda: NOW)
    spark.sparkContext.setJobGroup("the heartbeat", "watched")
    closed = steps.step({visits.name: [heartbeat]}, lambda: NOW)
    spark.sparkContext.setJobGroup("", "")

    assert heartbeat.summary.rows == 0 and closed.rows > 0 and closed.state_rows == 0
    assert tables(again, Pipeline(visits, (sessions,))) == tables(lake, Pipeline(visits, (sessions,)))
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("the heartbeat")]
    assert jobs and all(job is not None and len(job.stageIds) == 1 for job in jobs)


def generated_code(frame: DataFrame) -> list[str]:
    """The Java of each stage, with the place of a constant in it, but not with what is handed over as an object."""
    stages = frame._jdf.queryExecution().debug().codegenToSeq()
    return [stages.apply(number)._2() for number in range(stages.size())]


def test_every_step_runs_the_same_generated_code_whatever_its_bounds(
    spark: SparkSession, logged: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or each step would be compiled anew, and begin cold."""
    monkeypatch.setattr("streaming.views.arrow_results.MOST_ROWS", 0)
    compiled = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in compiled}
    try:
        for name, value in compiled.items():
            spark.conf.set(name, value)
        steps = FoldedSteps(spark, logged, moving)
        ends = [
            Progress({visits.name: batch}, {visits.name: T0 + hours * HOUR}, batch)
            for batch, hours in ((0, 12), (2, 36), (3, 72))
        ]
        codes = [generated_code(cast(DataFrame, steps._closed(since, by))) for since, by in pairwise(ends)]
    finally:
        for name, was in before.items():
            spark.conf.set(name, was or "")
    assert codes[0] == codes[1] != []


def test_a_step_on_tables_that_another_process_has_moved_on_is_refused(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, Pipeline(visits, VIEWS[:1]), EARLIER[0])
    head = log.head(lake, visits)
    assert head is not None
    steps = FoldedSteps(spark, lake, moving)
    behind, there = Progress.of(moving, None), steps.position()
    with pytest.raises(FencedError, match="was at batch -1 and is at batch 0 now, so another process"):
        steps._publish(None, behind, there, NOW)
    assert steps.position() == there


@pytest.mark.long
def test_updates_of_a_process_that_was_away_are_refused(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, Pipeline(visits, VIEWS[:1]), *EARLIER[:2])
    head = log.head(lake, visits)
    assert head is not None
    there = updated_through(lake, moving)
    updates = updates_of(spark, lake, moving, LogFiles(lake, visits))
    with pytest.raises(FencedError, match=f"was at batch {there - 1} and is at batch {there} now"):
        updates._append(None, Progress(batch=there - 1), head, NOW, {})
    assert updated_through(lake, moving) == there


def test_a_new_view_may_read_a_column_that_comes_with_it(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, Pipeline(visits, (moving,)), EARLIER[0])
    wider = replace(visits, format=Json(f"{cast(Json, visits.format).schema}, place string"))
    by_place = Windowed("by_place", wider, SessionWindow("8 hours"), {"visits": agg.count()}, by=("place",))
    run(spark, lake, Pipeline(wider, (by_place,)), [at_hours("a@60")[0] | {"place": "Rome"}], end_of_input=True)

    sessions = tuples(read_first(spark, lake, by_place), "place", "window_start", "visits")
    assert [row[2] for row in sessions if row[0] == "Rome"] == [1]
    assert sum(row[2] for row in sessions) == 7
