"""A view that comes later, or comes back, equals one that was there from the start, whatever became of the log."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

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
from streaming.base.errors import CheckpointError, QueryFailed
from streaming.base.intervals import MICROSECOND
from streaming.log.heartbeat import append_heartbeat
from streaming.views.bootstrap import Bootstrap, bootstrap_view
from streaming.views.first_results import FirstResults, dropped_ever, read_first
from streaming.views.results import aggregate, pairs
from tests.support.instants import NOW, T0
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
    """Every row of every table, as text, without the processing times of the engine."""
    found = {}
    for view in pipeline.views:
        for uri in (lake.first(view), lake.updates(view), lake.corrections(view), lake.open(view)):
            if DeltaTable.is_deltatable(uri):
                table = DeltaTable(uri).to_pyarrow_table()
                told = sorted(set(table.column_names) - {*_WRITTEN})
                found[uri.removeprefix(lake.root)] = sorted(map(str, table.select(told).to_pylist()))
    return found


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


def delete(lake: Lake, view: Windowed) -> None:
    """What is to be done where a view was changed."""
    for place in (lake.first(view), lake.open(view), lake.checkpoint(visits, view.name)):
        shutil.rmtree(place)


@pytest.fixture
def one_file_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log comes in as many batches as it has files."""
    monkeypatch.setattr(import_module("streaming.views.first_results"), "_BYTES_PER_CORE", 1)


@pytest.fixture(scope="module")
def from_the_start(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All views were there before the first row came."""
    lake = Lake(str(tmp_path_factory.mktemp("start")))
    run(spark, lake, everything, *EARLIER)
    run(spark, lake, everything, *LATER)
    correct_sessions(spark, lake)
    return lake


def test_first_results_are_the_same_where_a_commit_of_the_log_is_cut_into_batches(
    spark: SparkSession, lake: Lake, from_the_start: Lake, one_file_a_batch: None
) -> None:
    run(spark, lake, everything, *EARLIER)
    run(spark, lake, everything, *LATER)
    correct_sessions(spark, lake)
    assert tables(lake, everything) == tables(from_the_start, everything)
    assert [dropped_ever(lake, view) for view in VIEWS] == [0, 0, 0]
    entries = [entry.read_text() for entry in Path(lake.log(visits), "_delta_log").glob("*.json")]
    batches = Path(lake.checkpoint(visits, "sessions"), "offsets").glob("[0-9]*")
    assert len(list(batches)) > sum(entry.count('"add"') for entry in entries) > len(entries)


def test_views_of_a_log_without_a_past_equal_those_that_were_there_from_the_start(
    spark: SparkSession, lake: Lake, from_the_start: Lake, one_file_a_batch: None
) -> None:
    before = replace(moving, aggregates={"ids": agg.count("id is not null")}, late="correct", allowed_lateness=None)
    run(spark, lake, Pipeline(visits, (before,)), *EARLIER)
    forget_history(lake)
    delete(lake, before)
    run(spark, lake, everything, *LATER)
    correct_sessions(spark, lake)

    expected = tables(from_the_start, everything)
    assert len(expected["/visits/sessions"]) > 3 and len(expected) == 6
    assert tables(lake, everything) == expected
    assert [finding for finding in audit(spark, lake, everything) if not finding.holds] == []
    assert [dropped_ever(lake, view) for view in VIEWS] == [0, 0, 0]
    began = {view.name: Bootstrap.of(lake, view) for view in VIEWS}
    assert began["moving"] == Bootstrap(3, T0 + 40 * HOUR, T0 + 40 * HOUR)
    # The visit of a at 20 is over by itself, and part of a session that is not.
    assert began["sessions"] == Bootstrap(3, T0 + 40 * HOUR, T0 + 20 * HOUR - MICROSECOND)
    # Four files, four batches: of all that was closed nothing is kept as state, of what was open two windows.
    state = spark.read.format("statestore").option("batchId", 3).load(lake.checkpoint(visits, "moving"))
    assert state.count() == 2


def test_a_view_that_dies_between_its_bootstrap_and_its_stream_and_again_in_the_snapshot_is_the_same_in_the_end(
    spark: SparkSession, lake: Lake, one_file_a_batch: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, sessions = Pipeline(visits, (VIEWS[0],)), VIEWS[1]
    later = Pipeline(visits, (sessions,))
    run(spark, lake, begun, *EARLIER[:2], [*EARLIER[2], *at_hours("f@32.25")])
    forget_history(lake)
    newest = log.head(lake, visits)
    assert newest is not None
    assert bootstrap_view(spark, lake, sessions, newest, lambda: NOW) > 0
    assert bootstrap_view(spark, lake, sessions, newest, lambda: NOW) == 0

    # It died here, and the log moved on without it: the sessions that were closed in between are added.
    ended = T0 + 40.5 * HOUR
    closed = newest.state.closed_at(ended)
    append_heartbeat(spark, lake, visits, closed, newest.number + 1, NOW, end_of_input=True)
    before_it_died = FirstResults.__call__

    def dies(self: FirstResults, results: DataFrame, query_batch: int) -> None:
        before_it_died(self, results, query_batch)
        if query_batch == 1:
            raise ZeroDivisionError("killed after the commit of a batch of the snapshot")

    with monkeypatch.context() as dying, pytest.raises(QueryFailed, match="killed after the commit"):
        dying.setattr(FirstResults, "__call__", dies)
        run(spark, lake, later)
    began = Bootstrap.of(lake, sessions)
    assert began is not None and began.batch == newest.number + 1 and began.watermark == ended
    run(spark, lake, later, at_hours("a@40.75 d@80 b@1=7"), end_of_input=True)

    rows = log.read_log(spark, lake, visits)
    expected = aggregate(pairs(rows, sessions).where("not _late"), sessions)
    columns = ("id", "window_start", "window_end", "visits", "all")
    assert tuples(read_first(spark, lake, sessions), *columns) == tuples(expected, *columns)
    assert dropped_ever(lake, sessions) == 0


def test_a_new_view_may_read_a_column_that_comes_with_it(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, Pipeline(visits, (moving,)), EARLIER[0])
    wider = replace(visits, format=Json(f"{visits.format.schema}, place string"))
    by_place = Windowed("by_place", wider, SessionWindow("8 hours"), {"visits": agg.count()}, by=("place",))
    run(spark, lake, Pipeline(wider, (by_place,)), [at_hours("a@60")[0] | {"place": "Rome"}], end_of_input=True)

    found = tuples(read_first(spark, lake, by_place), "place", "window_start", "visits")
    assert [row[2] for row in found if row[0] == "Rome"] == [1]
    assert sum(row[2] for row in found) == 7


def test_a_checkpoint_without_its_table_is_refused(spark: SparkSession, lake: Lake) -> None:
    pipeline = Pipeline(visits, (VIEWS[1],))
    run(spark, lake, pipeline, EARLIER[0])
    shutil.rmtree(lake.first(VIEWS[1]))
    with pytest.raises(CheckpointError, match=r"sessions' is gone, but its checkpoint .*`tidemark rebuild sessions`"):
        run(spark, lake, pipeline)
