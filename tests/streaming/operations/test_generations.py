"""A view that is built anew beside the one that is read takes its place all at once, whatever is killed meanwhile."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from docs.examples.late_counts import readings as stream
from streaming import agg
from streaming.audit.laws import audit
from streaming.base.errors import DeclarationError, FencedError, LogError, OperatorError
from streaming.base.intervals import utc_now
from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.operations.rebuild import RebuildListener, rebuild
from streaming.operations.undeclared import drop, undeclared_tables
from streaming.operators.progress import generation_of, open_side
from streaming.operators.runtime import runtime_of
from streaming.operators.switching import make_ready, next_of, ready_generation, switch
from streaming.service.continuous import Continuous, Ending
from streaming.service.lease import take_lease
from streaming.tables import delta
from streaming.views.corrections import correct, plan
from streaming.windows.session import SessionWindow
from streaming.windows.window import Tumbling
from tests.support.feeds import land_all, readings
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run, tuples

FIRST, SECOND, LATE, LATER = readings("a@1, b@2, a@12"), readings("a@25"), readings("a@3, b@4"), readings("a@41")

BEFORE = replace(count_by_sensor, name="counted", late="update", allowed_lateness="1 hour", early="each batch")
REBUILT = {
    # Columns of other types and names, and other windows.
    "fixed windows": replace(
        BEFORE,
        window=Tumbling("5 seconds"),
        aggregates={"readings": agg.maximum("id"), "exact": agg.sum("cast(timestamp as decimal(20, 2))")},
    ),
    # Other tables: no updates, no open windows, but state.
    "sessions": replace(
        count_by_sensor,
        name="counted",
        window=SessionWindow("4 seconds"),
        aggregates={"readings": agg.count(), "newest": agg.maximum("timestamp")},
    ),
    # Updates of another kind, and what they wait for.
    "sessions with updates": replace(BEFORE, window=SessionWindow("4 seconds"), early=None),
    # No late rows at all, where there were some.
    "dropping": replace(BEFORE, late="drop", allowed_lateness=None, early=None, window=Tumbling("30 seconds")),
}


def pipeline_of(view: Windowed) -> Pipeline:
    return Pipeline(stream, (view,))


def current(spark: SparkSession, lake: Lake, view: Windowed) -> list[tuple[Any, ...]]:
    return tuples(runtime_of(view, lake).readable["current"](spark), *view.columns)


def results(lake: Lake, view: Windowed) -> dict[str, list[str]]:
    """What readers are given: the rows of those tables of the view that go together, read without Spark."""
    opened = {spec.suffix: open_side(lake, view, spec.suffix) for spec in view.tables if spec.is_result and spec.suffix}
    opened[""] = delta.open_table(lake.first(view))
    return {
        suffix: sorted(map(repr, table.to_pyarrow_table().to_pylist()))
        for suffix, table in opened.items()
        if table is not None
    }


def built(spark: SparkSession, lake: Lake, view: Windowed) -> Lake:
    """A lake on which a view has followed some batches, with late rows in two of them, and is corrected."""
    run(spark, lake, pipeline_of(view), FIRST, SECOND, LATE)
    if view.corrected:
        correct(spark, lake, view, [pending.day for pending in plan(spark, lake, view)], lambda: NOW)
    return lake


def put_beside(lake: Lake, fresh: Lake, view: Windowed) -> None:
    """What `rebuild` leaves when it dies before it has put anything in place: here the tables of a `fresh` lake."""
    for suffix in ("", *view.reserved_suffixes):
        if delta.exists(fresh.table(view, suffix)):
            shutil.copytree(fresh.table(view, suffix), lake.table(next_of(view), suffix))
    make_ready(lake, view)


@dataclass(frozen=True)
class Rebuilt:
    """A lake in which a view waits to take the place of the one `BEFORE`, and a `fresh` one that never had another.

    `results` are what readers are given, of the one before and of the one after.
    """

    base: Lake
    fresh: Lake
    after: Windowed
    results: tuple[dict[str, list[str]], dict[str, list[str]]]

    def killed(self, spark: SparkSession, lake: Lake, commit: int) -> tuple[bool, bool]:
        """Switch in a copy and die before that commit; returns whether it has died, and whether it has switched."""
        shutil.copytree(self.base.root, lake.root)
        dies = True
        with pytest.MonkeyPatch.context() as dying:
            killed_at(commit, dying)
            with suppress(Killed):
                switch(spark, lake, self.after)
                dies = False
        return dies, generation_of(delta.open_table(lake.first(self.after))) == 1


@pytest.fixture(scope="module", params=REBUILT)
def rebuilt(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Rebuilt:
    folder, after = tmp_path_factory.mktemp("rebuilt"), REBUILT[request.param]
    base, fresh = (built(spark, Lake(str(folder / name)), view) for name, view in (("base", BEFORE), ("fresh", after)))
    # A correction of its own, which an update would have spared.
    correct(spark, base, BEFORE, [at(0).date()], lambda: NOW)
    shown = results(base, BEFORE), results(fresh, after)
    put_beside(base, fresh, after)
    return Rebuilt(base, fresh, after, shown)


@pytest.mark.sampled
def test_a_switch_that_is_killed_anywhere_shows_either_generation_whole(
    spark: SparkSession, tmp_path: Path, rebuilt: Rebuilt
) -> None:
    kills, dies, switched = 0, True, False
    while dies:
        kills += 1
        lake = Lake(str(tmp_path / str(kills)))
        dies, switched = rebuilt.killed(spark, lake, kills)
        assert results(lake, rebuilt.after if switched else BEFORE) == rebuilt.results[switched], kills
    assert switched and kills > 3


@pytest.mark.long
@pytest.mark.parametrize("commit", [6, 1_000])
def test_a_switch_that_was_killed_is_finished_by_the_next_run(
    spark: SparkSession, tmp_path: Path, rebuilt: Rebuilt, commit: int
) -> None:
    lake, untouched, after = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "fresh")), rebuilt.after
    shutil.copytree(rebuilt.fresh.root, untouched.root)
    dies, switched = rebuilt.killed(spark, lake, commit)
    assert dies == (commit < 1_000)
    if switched:
        assert current(spark, lake, after) == current(spark, untouched, after)
        assert plan(spark, lake, after) == []
    for each in (lake, untouched):
        run(spark, each, pipeline_of(after), LATER)
    assert ready_generation(lake, after) is None
    assert list(undeclared_tables(lake, pipeline_of(after))) == []
    assert current(spark, lake, after) == current(spark, untouched, after)
    assert [finding for finding in audit(spark, lake, pipeline_of(after)) if not finding.holds] == []


@pytest.mark.long
def test_a_view_is_rebuilt_while_its_pipeline_runs_and_read_as_before_until_it_is_put_in_place(
    spark: SparkSession, lake: Lake
) -> None:
    built(spark, lake, count_by_sensor)
    halves = replace(count_by_sensor, window=Tumbling("5 seconds"))
    old, ready, done = current(spark, lake, count_by_sensor), Event(), Event()
    snapshots: list[list[tuple[Any, ...]]] = []

    class Looks(RebuildListener):
        def waits(self, holder: str) -> None:
            if not ready.is_set():
                snapshots.append(current(spark, lake, count_by_sensor))
            ready.set()

    def build() -> None:
        rebuild(spark, lake, pipeline_of(halves), halves, now=lambda: NOW, listener=Looks())
        done.set()

    beside = Thread(target=build, daemon=True)

    # The process has the new declaration, so that the view is paused in it, and goes on once it was rebuilt.
    continuous = Continuous(spark, lake, pipeline_of(halves), utc_now, lambda measures: None, lambda status: None)

    def ending() -> Ending | None:
        if not beside.ident:
            beside.start()
        if done.is_set() and not snapshots[1:]:
            snapshots.append(current(spark, lake, halves))
            land_all(lake, stream, LATER)
        return "stop" if snapshots[1:] and ("a", at(25), at(30), 1) in current(spark, lake, halves) else None

    with take_lease(lake, pipeline_of(halves)):
        continuous.run(ending, Event())
    assert ready.is_set()
    assert snapshots[0] == old
    assert snapshots[1] == [("a", at(0), at(5), 2), ("a", at(10), at(15), 1), ("b", at(0), at(5), 2)]
    assert not continuous._run.paused


@pytest.mark.long
def test_a_process_with_the_old_declaration_puts_the_new_view_in_place_and_asks_to_be_restarted(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, after = built(spark, Lake(str(tmp_path / "lake")), BEFORE), REBUILT["fixed windows"]
    fresh = built(spark, Lake(str(tmp_path / "fresh")), after)
    put_beside(lake, fresh, after)
    with pytest.raises(
        OperatorError, match=r"from another declaration than this process has.*`tidemark restart readings`"
    ):
        run(spark, lake, pipeline_of(BEFORE), LATER)
    run(spark, lake, pipeline_of(after))
    run(spark, fresh, pipeline_of(after), LATER)
    assert current(spark, lake, after) == current(spark, fresh, after)


def test_a_rebuild_under_another_name_leaves_the_view_as_it_is_until_it_is_dropped(
    spark: SparkSession, lake: Lake
) -> None:
    built(spark, lake, count_by_sensor)
    before = current(spark, lake, count_by_sensor)
    halves = replace(count_by_sensor, window=Tumbling("5 seconds"))
    done = rebuild(spark, lake, pipeline_of(halves), halves, "halves", now=lambda: NOW)
    assert (done.uri, done.rows, list(done.corrected)) == (lake.path("readings", "halves"), 3, [at(0).date()])
    assert current(spark, lake, count_by_sensor) == before
    assert current(spark, lake, replace(halves, name="halves"))[0] == ("a", at(0), at(5), 2)

    with pytest.raises(DeclarationError, match=r"of another declaration; remove it with `tidemark drop halves`"):
        rebuild(spark, lake, pipeline_of(halves), count_by_sensor, "halves", now=lambda: NOW)
    for taken in ("count_by_sensor", "log", "count_by_sensor_corrections"):
        with pytest.raises(DeclarationError, match="choose another name"):
            rebuild(spark, lake, pipeline_of(halves), halves, taken, now=lambda: NOW)
    assert {table.operator for table in undeclared_tables(lake, pipeline_of(count_by_sensor))} == {"halves"}
    drop(lake, [pipeline_of(count_by_sensor)], "halves")
    assert list(undeclared_tables(lake, pipeline_of(count_by_sensor))) == []


@pytest.mark.long
def test_a_correction_of_the_old_generation_is_not_written_into_the_new_one(spark: SparkSession, lake: Lake) -> None:
    built(spark, lake, count_by_sensor)
    halves = replace(count_by_sensor, window=Tumbling("5 seconds"))

    def rebuilt_meanwhile() -> Any:
        rebuild(spark, lake, pipeline_of(halves), halves, now=lambda: NOW)
        return NOW

    with pytest.raises(FencedError, match="was built anew while it was corrected"):
        correct(spark, lake, count_by_sensor, [at(0).date()], rebuilt_meanwhile)
    assert current(spark, lake, halves)[0] == ("a", at(0), at(5), 2)


@pytest.mark.long
def test_a_table_that_comes_later_is_of_the_views_generation(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline_of(count_by_sensor), FIRST, SECOND)
    rebuild(spark, lake, pipeline_of(count_by_sensor), count_by_sensor, now=lambda: NOW)
    assert not delta.exists(lake.corrections(count_by_sensor))
    run(spark, lake, pipeline_of(count_by_sensor), LATE)
    correct(spark, lake, count_by_sensor, [at(0).date()], lambda: NOW)
    assert current(spark, lake, count_by_sensor)[0] == ("a", at(0), at(10), 2)
    # Once more: the corrections are replaced, too.
    rebuild(spark, lake, pipeline_of(count_by_sensor), count_by_sensor, now=lambda: NOW)
    assert current(spark, lake, count_by_sensor)[0] == ("a", at(0), at(10), 2)
    assert generation_of(delta.open_table(lake.corrections(count_by_sensor))) == 2


@pytest.mark.long
def test_a_rebuild_that_was_killed_goes_on_and_one_of_an_older_declaration_begins_anew(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(spark, lake, count_by_sensor)
    halves = replace(count_by_sensor, window=Tumbling("5 seconds"))
    with monkeypatch.context() as dying:
        killed_at(2, dying)
        with pytest.raises(Killed):
            rebuild(spark, lake, pipeline_of(halves), halves, now=lambda: NOW)
    assert delta.exists(lake.first(next_of(halves)))
    thirds = replace(halves, window=Tumbling("3 seconds"))
    assert rebuild(spark, lake, pipeline_of(thirds), thirds, now=lambda: NOW).rows == 3
    assert current(spark, lake, thirds)[0] == ("a", at(0), at(3), 1)


def test_nothing_can_be_rebuilt_before_anything_was_ingested(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(LogError, match="has no event log"):
        rebuild(spark, lake, pipeline_of(count_by_sensor), count_by_sensor)
