"""What changed declarations mean for a lake, told before anything is done, and then done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from platform_assets.texts.rollout import part_lines
from streaming import (
    Avro,
    BoundedOutOfOrderness,
    Debezium,
    Delivery,
    Derived,
    Enriched,
    Files,
    Json,
    JsonLines,
    Key,
    Keyed,
    Lake,
    LookupRequest,
    Pipeline,
    Rule,
    Selected,
    Stream,
    Table,
    Then,
    Tumbling,
    View,
    Windowed,
    agg,
    roll_out,
    rollout,
)
from streaming.base import CheckpointError, DeclarationError, LogError, SourceError, T, utc_now
from streaming.declare import Operator
from streaming.log import RETRACTIONS, dropped_number, note_declaration
from streaming.operations.replays import judge, replay
from streaming.operations.rollouts import Action, State, upstream_first
from streaming.operators import declaration_properties, make_ready, next_of
from streaming.reading import result_keys
from streaming.service.progress import Measure
from streaming.service.progress_table import ProgressTable
from streaming.tables import delta
from tests.support.delivering import by_id, reading, readings
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.running import running
from tests.support.runs import read_current, run, tuples
from tests.support.waiting import until

# a@6 is late for its window; the row without a value is rejected.
ROWS = [("a", 1, 5), ("b", 3, 7), ("a", 12, 1), ("b", 41, 9), ("a", 86_401, 2), ("b", 86_423, 1), ("b", 86_460, 1)]
LATE = [("a", 6, 3)]
REACHED = 86_460 - 5

large = Selected("large", readings, where="value > 5")


def sensed(view: Windowed = by_id, chosen: Selected = large, where: str = "readings > 0") -> Pipeline:
    """A view, a selection, and what follows the view: an SQL view and a delivery."""
    sent = Delivery("sent", view, JsonLines("out"), where=where)
    return replace(alone(view, chosen, totals_of(view)), deliveries=(sent,))


def chained(view: Windowed = by_id, chosen: Selected = large) -> Pipeline:
    """The same, and a stream of what is current of the view, with a view of its own, which is declared first."""
    followed = Stream(
        name="followed",
        source=Table(view, what="current"),
        format=Json("id string, window_start timestamp, readings bigint"),
        event_time="window_start",
        clock=Derived(),
    )
    sums = {"readings": agg.sum("readings")}
    per_minute = Windowed("per_minute", followed, Tumbling("1 minute"), sums, by=("id",))
    of = sensed(view, chosen)
    return replace(of, streams=(*of.streams, followed), operators=(per_minute, *of.operators))


def totals_of(view: Windowed, value: str = "sum(total)") -> View:
    sql = f"select id, {value} as total from by_id group by id"
    return View("totals", sql=sql, of=(view,), key=("id",))


def alone(*operators: Operator) -> Pipeline:
    """A pipeline of the same name with these operators over the readings alone."""
    return Pipeline(name="sensed", streams=(readings,), operators=operators)


@pytest.fixture(scope="module")
def base(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that `sensed` has made of all rows; the late one waits for its correction."""
    lake = Lake(str(tmp_path_factory.mktemp("rollout") / "lake"))
    run(spark, lake, sensed(), [*(reading(*row) for row in ROWS), reading("a", 2, None)])
    run(spark, lake, sensed(), [reading(*row) for row in LATE])
    return lake


@pytest.fixture
def copied(base: Lake, tmp_path: Path) -> Lake:
    """A copy of that lake, to be changed."""
    shutil.copytree(base.root, tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


def everything_below(lake: Lake) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(lake.root).rglob("*") if path.is_file()}


def halves_of(view: Windowed = by_id) -> Windowed:
    return replace(view, window=Tumbling("5 seconds"))


def by_hand(seconds: int, rows: Sequence[tuple[str, int, int]] = (*ROWS, *LATE)) -> dict[tuple[Any, ...], list[int]]:
    """The values of each id and window of so many seconds that the watermark has passed, of all valid rows."""
    windows: dict[tuple[Any, ...], list[int]] = {}
    for id_, second, value in rows:
        start = second // seconds * seconds
        if start + seconds <= REACHED:
            windows.setdefault((id_, at(start), at(start + seconds)), []).append(value)
    return windows


def counted_by_hand(seconds: int) -> list[tuple[Any, ...]]:
    return sorted((id_, end, len(values)) for (id_, _, end), values in by_hand(seconds).items())


def test_nothing_is_told_of_a_lake_as_it_is_declared_and_nothing_is_written(base: Lake) -> None:
    before = everything_below(base)
    found = rollout(sensed(), lake=base)
    assert {part.state for part in found.parts} == {"unchanged"} and not found.pending
    assert str(found) == "sensed: nothing to do"
    assert [part.name for part in found.parts] == ["readings", "by_id", "large", "totals", "sent"]
    assert everything_below(base) == before


CHANGES: dict[str, tuple[Operator, State, Action, str]] = {
    "a window of another length": (halves_of(), "changed", "rebuild", "window Tumbling: size 10 seconds → 5 seconds"),
    "an aggregate more": (
        replace(by_id, aggregates={**by_id.aggregates, "greatest": agg.maximum("value")}),
        "changed",
        "rebuild",
        "aggregate 'greatest' added: max(value)",
    ),
    "an aggregate less": (
        replace(by_id, aggregates={"readings": agg.count()}),
        "changed",
        "rebuild",
        "aggregate 'total' removed, which was sum(value)",
    ),
    "only some rows": (replace(by_id, where="value > 1"), "changed", "rebuild", "where added: value > 1"),
    "no key": (replace(by_id, by=()), "changed", "rebuild", "by removed, which was id"),
    "another condition of a selection": (
        replace(large, where="value > 6"),
        "changed",
        "rebuild",
        "rows: - where value > 5, + where value > 6",
    ),
    "another query": (
        totals_of(by_id, "max(total)"),
        "changed",
        "rebuild",
        "sql select id, sum(total) as total from by_id group by id → "
        "select id, max(total) as total from by_id group by id",
    ),
    "a description": (replace(by_id, description="Readings."), "unchanged", "", ""),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_operator_is_told_in_words_with_what_it_takes(base: Lake, case: str) -> None:
    operator, state, action, words = CHANGES[case]
    before = everything_below(base)
    part = rollout(alone(*([by_id] if operator.name == "totals" else []), operator), lake=base).part(operator.name)
    assert (part.state, part.action, "; ".join(part.changes)) == (state, action, words)
    assert everything_below(base) == before


def test_rows_bytes_and_days_to_be_read_are_those_of_the_files(base: Lake) -> None:
    part = rollout(alone(halves_of()), lake=base).part("by_id")
    files = [file for file in Path(base.log(readings)).rglob("*.parquet") if "_day=2026" in str(file)]
    reads = part.reads
    assert reads is not None
    assert (reads.rows, reads.bytes) == (len(ROWS) + len(LATE), sum(file.stat().st_size for file in files))
    assert (reads.days, reads.first, reads.last) == (2, date(2026, 1, 1), date(2026, 1, 2))
    assert part.published == len(by_hand(10, ROWS))
    assert (part.rate, part.seconds) == (None, None), "a drain records no rates"


def test_keys_and_windows_of_the_results_that_are_built_anew_are_told_from_these(base: Lake) -> None:
    changed = sensed(halves_of())
    before = everything_below(base)
    windows = {(start, end) for _, start, end in by_hand(10, ROWS)}
    keys = result_keys(base, changed, changed.operator("by_id"))
    assert keys is not None
    assert (keys.columns, keys.number, keys.few) == (("id",), 2, ({"id": "a"}, {"id": "b"}))
    first, last = min(windows)[0], max(end for _, end in windows)
    assert (keys.times, keys.of_windows, keys.first, keys.last) == (len(windows), True, first, last)
    lines = [*part_lines(rollout(changed, lake=base).part("by_id"), keys)]
    told = f"of 2 keys, id=a, id=b; {len(windows)} windows, {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S}"
    assert lines[lines.index(f"    {told}") - 1].endswith("they are read until the new ones are in place")

    of_view = result_keys(base, changed, changed.operator("totals"))
    assert of_view is not None and (of_view.number, of_view.times, of_view.last) == (2, 0, None)
    # The rows of a selection have no key, and one that is declared otherwise by now is not in the results.
    assert result_keys(base, changed, large) is None
    other = result_keys(base, changed, replace(by_id, by=("value",)))
    assert other is not None and (other.columns, other.number, other.times) == ((), 0, len(windows))
    assert everything_below(base) == before


def test_what_follows_a_rebuild_is_told_for_each_that_does(base: Lake) -> None:
    changed = chained(halves_of())
    assert rollout(changed, lake=base).part("by_id").followers == (
        "stream followed follows each change",
        "view per_minute follows by way of others",
        "SQL view totals follows each change",
        "delivery sent pauses until `tidemark redeliver sensed sent --go-on` or `--all`",
    )
    assert [each.name for each in upstream_first(changed.operators)] == [
        "by_id", "large", "per_minute", "totals"
    ]  # fmt: skip


def test_what_is_new_or_gone_and_another_delivery_are_named_with_what_brings_or_removes_them(copied: Lake) -> None:
    note_declaration(copied, sensed(), replace(readings, name="older"))
    found = rollout(sensed(chosen=replace(large, name="huge"), where="readings > 1"), lake=copied)
    states = {part.name: (part.state, part.action) for part in found.parts if part.state != "unchanged"}
    assert states == {
        "huge": ("new", "run"),
        "sent": ("changed", "redeliver"),
        "large": ("gone", "drop"),
        "older": ("gone", ""),
    }
    assert found.part("sent").changes == ("where readings > 0 → readings > 1",)
    assert "`tidemark drop large`" in found.part("large").advice
    # What is gone is left to whoever wants to remove it, and waits for nothing.
    assert [part.name for part in found.pending] == ["huge", "sent"]
    assert str(found) == "sensed: 1 new, 1 changed, 2 gone"


class LandedFiles(Files):
    """Files under a name of its own."""


STREAMS: dict[str, tuple[Stream, State, Action, str]] = {
    "a rule more": (
        replace(readings, rules=(*readings.rules, Rule("positive", "value > 0"))),
        "adopted",
        "run",
        "rule 'positive' added: value > 0",
    ),
    "a column more": (
        replace(readings, format=Json("id string, at timestamp, value bigint, unit string")),
        "adopted",
        "run",
        "column 'unit' added: string",
    ),
    "a column that must be there": (
        replace(readings, format=Json("id string, at timestamp, value bigint not null")),
        "adopted",
        "run",
        "column 'value' bigint → bigint not null",
    ),
    "another name of a field": (
        replace(readings, format=Json("id string, at timestamp, value bigint", fields={"id": "_id"})),
        "adopted",
        "run",
        "format Json → Json(fields={'id': '_id'})",
    ),
    "another source": (
        replace(readings, source=Files("landing/others")),
        "adopted",
        "run",
        "source Files landing/readings → Files landing/others",
    ),
    "a source of another class that reads the same": (
        replace(readings, source=LandedFiles("landing/readings")),
        "adopted",
        "run",
        "source Files landing/readings → LandedFiles landing/readings",
    ),
    "a source of another kind": (
        replace(readings, source=Table("tables/readings")),
        "changed",
        "refused",
        "source Files landing/readings → Table tables/readings",
    ),
    "a retention": (replace(readings, retention="30 days"), "adopted", "run", "retention added: 30 days"),
    "a longer delay": (
        replace(readings, clock=BoundedOutOfOrderness("6 seconds", max_ahead="30 days")),
        "adopted",
        "run",
        "clock BoundedOutOfOrderness: delay 5 seconds → 6 seconds",
    ),
    "a column of another type": (
        replace(readings, format=Json("id string, at timestamp, value double")),
        "changed",
        "refused",
        "column 'value' bigint → double",
    ),
}


TAKEN = {
    "a column more": ("selection large takes unit",),
    "a column that must be there": ("view by_id takes value", "selection large takes value"),
}


@pytest.mark.parametrize("case", STREAMS)
def test_a_changed_stream_goes_on_without_a_rebuild_but_with_a_column_of_another_type(base: Lake, case: str) -> None:
    stream, state, action, words = STREAMS[case]
    pipeline = Pipeline(stream, (replace(by_id, of=stream), replace(large, of=stream)))
    found = rollout(pipeline, lake=base)
    part = found.part("readings")
    assert (part.state, part.action, part.changes) == (state, action, (words,))
    assert found.part("by_id").state == "unchanged"
    # The selection takes all columns, and the view none that it does not name.
    assert part.followers == TAKEN.get(case, ())
    assert ("older rows have null" in part.advice) == (case == "a column more")
    assert ("drops the days" in part.advice) == (case == "a retention")


def test_a_stream_of_which_nobody_wrote_the_declaration_down_is_compared_by_its_columns(copied: Lake) -> None:
    Path(copied.declaration("readings")).unlink()
    assert rollout(alone(by_id), lake=copied).part("readings").state == "unchanged"
    stream = replace(readings, format=Json("id string, at timestamp, value bigint, unit string"), rules=())
    part = rollout(Pipeline(stream, (replace(by_id, of=stream),)), lake=copied).part("readings")
    assert part.changes == ("column 'unit' added: string",)
    other = replace(readings, format=Json("id string, at timestamp, value double"))
    part = rollout(Pipeline(other, (replace(by_id, of=other),)), lake=copied).part("readings")
    assert (part.action, part.changes) == ("refused", ("column 'value' bigint → double",))


def test_a_derived_column_of_another_type_is_refused(spark: SparkSession, lake: Lake) -> None:
    twice = replace(readings, derived={"more": "value * 2"})
    run(spark, lake, Pipeline(twice, (replace(large, of=twice),)), [reading("a", 1, 5)])
    text = replace(readings, derived={"more": "concat(id, 'x')"})
    part = rollout(Pipeline(text, (replace(large, of=text),)), lake=lake).part("readings")
    assert (part.state, part.action) == ("changed", "refused") and "the type of 'more' stays" in part.advice
    thrice = replace(readings, derived={"more": "value * 3"})
    part = rollout(Pipeline(thrice, (replace(large, of=thrice),)), lake=lake).part("readings")
    assert (part.state, part.action) == ("adopted", "run")


def test_a_source_that_a_plan_refuses_is_refused_by_a_run(spark: SparkSession, copied: Lake) -> None:
    other = replace(readings, source=Then(Files("landing/readings"), Files("landing/others")))
    pipeline = Pipeline(other, (replace(large, of=other),), name="sensed")
    part = rollout(pipeline, lake=copied).part("readings")
    assert (part.state, part.action) == ("changed", "refused")
    assert "are of Files, and no run goes on from them with a Then" in part.advice
    with pytest.raises(CheckpointError, match=r"its checkpoint .* is gone"):
        run(spark, copied, pipeline)
    # Nothing of the refused run stays, so the plan still tells what a run would say.
    assert rollout(pipeline, lake=copied).part("readings").action == "refused"


def test_a_table_is_followed_to_another_path_and_another_table_there_is_refused(
    spark: SparkSession, lake: Lake
) -> None:
    def at_path(path: str) -> Pipeline:
        stream = replace(readings, source=Table(path, start_version=0))
        return Pipeline(stream, (replace(large, of=stream),), name="sensed")

    def append(path: str, *rows: tuple[str, int, int]) -> None:
        table = pa.Table.from_pylist([{**reading(*row), "at": at(row[1])} for row in rows])
        write_deltalake(lake.path(path), table, mode="append")

    append("tables/first", ("a", 1, 9))
    run(spark, lake, at_path("tables/first"))
    Path(lake.path("tables/first")).rename(lake.path("tables/second"))
    append("tables/second", ("b", 2, 8))
    part = rollout(at_path("tables/second"), lake=lake).part("readings")
    assert (part.state, part.changes) == ("adopted", ("source Table tables/first → Table tables/second",))
    run(spark, lake, at_path("tables/second"))
    assert rollout(at_path("tables/second"), lake=lake).part("readings").state == "unchanged"
    assert sorted(row["id"] for row in DeltaTable(lake.table(large)).to_pyarrow_table().to_pylist()) == ["a", "b"]
    append("tables/third", ("c", 3, 7))
    other = rollout(at_path("tables/third"), lake=lake).part("readings")
    assert (other.state, other.action) == ("changed", "refused") and "was replaced: its id was" in other.advice
    with pytest.raises(SourceError, match="was replaced: its id was"):
        run(spark, lake, at_path("tables/third"))
    assert rollout(at_path("tables/third"), lake=lake).part("readings").action == "refused"


def test_a_declaration_that_a_run_has_refused_stays_refused(spark: SparkSession, copied: Lake) -> None:
    other = replace(readings, format=Json("id string, at timestamp, value double"))
    pipeline = Pipeline(other, (replace(large, of=other), replace(large, name="huge", of=other)), name="sensed")
    noted = Path(copied.declaration("readings")).read_bytes()
    for attempt in (partial(run, spark, copied, pipeline), partial(roll_out, spark, copied, pipeline, lambda: NOW)):
        with pytest.raises(LogError, match="The type of a column stays"):
            attempt()
        assert Path(copied.declaration("readings")).read_bytes() == noted
        part = rollout(pipeline, lake=copied).part("readings")
        assert (part.action, part.changes) == ("refused", ("column 'value' bigint → double",))


def test_the_address_of_a_registry_is_written_down_without_its_password() -> None:
    schema = json.dumps({"type": "record", "name": "Row", "fields": [{"name": "id", "type": "string"}]})
    assert Avro(schema).words == "Avro"
    of = Avro(schema, registry="https://me:hidden@registry:8081")
    assert of.words == "Avro(registry=https://registry:8081)"
    assert Debezium(Json("id string", fields={"id": "_id"}), decimals="text").words == (
        "Debezium(of=Json(fields={'id': '_id'}), decimals=text)"
    )


def test_a_stream_that_another_pipeline_declares_is_not_gone(copied: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    older = replace(readings, name="older")
    note_declaration(copied, sensed(), older)
    assert rollout(sensed(), lake=copied).part("older").state == "gone"
    moved = Pipeline(older, (replace(by_id, name="older_by_id", of=older),), name="other")
    monkeypatch.setattr("streaming.operations.rollouts.declared_pipelines", lambda: {"other": moved})
    assert "older" not in {part.name for part in rollout(sensed(), lake=copied).parts}
    monkeypatch.undo()
    monkeypatch.setattr("streaming.operations.rollouts.broken_modules", lambda: (object(),))
    assert "older" not in {part.name for part in rollout(sensed(), lake=copied).parts}


def test_time_is_estimated_by_the_rates_that_a_stream_has_recorded(
    copied: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 30 and 10 rows, followed in steps of 3 s and 1 s: 10 rows a second, so that 8 rows take 0.8 s."""
    began = utc_now() - timedelta(minutes=1)

    def measure(query: str, second: float, seconds: float, rows: int, number: int | None = None) -> Measure:
        started = began + timedelta(seconds=second)
        return Measure(query, 0, started, started + timedelta(seconds=seconds), rows, number)

    with ProgressTable(copied, chained()) as progress:
        progress.add([measure("readings.log", 0, 1, 30, 0), measure("readings.log", 2, 1, 10, 1)])
        progress.add([measure("followed.log", 2, 1, 1_000, 1)])
        progress.add([measure("by_id", 1, 3, 4), measure("by_id", 4, 1, 2)])
        progress.add([measure("totals", 1, 1, 4), measure("totals", 4, 1, 2)])
    part = rollout(chained(halves_of()), lake=copied).part("by_id")
    assert part.rate is not None and part.seconds is not None
    assert (part.rate.steps, part.rate.of) == (2, "by_id")
    assert part.rate.per_second == pytest.approx(10) and part.seconds == pytest.approx(0.8)
    assert not part.rate.is_estimate and not any("slowest" in line for line in part_lines(part))
    # A selection that has never stepped in a stream goes by the slowest that has, also by one of another pipeline.
    elsewhere = Pipeline(name="elsewhere", streams=(readings,), operators=(large,))
    monkeypatch.setattr("streaming.operations.rollouts.declared_pipelines", lambda: {"sensed": chained()})
    larger = replace(large, where="value > 6")
    for pipeline in (chained(chosen=larger), replace(elsewhere, operators=(larger,))):
        other = rollout(pipeline, lake=copied).part("large")
        assert other.rate is not None and (other.rate.of, other.rate.is_estimate) == ("by_id", True)
        assert any(
            "the slowest operator that was measured, as nobody has this one" in line for line in part_lines(other)
        )


CHANGED = alone(halves_of(), replace(large, name="huge"))
"""Another window, and one operator more; nothing else is declared any more."""


def results(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    return tuples(read_current(spark, lake, halves_of()), "id", "window_end", "readings")


def test_a_rollout_builds_what_has_changed_and_what_is_new_and_then_has_nothing_to_do(
    spark: SparkSession, copied: Lake
) -> None:
    done = roll_out(spark, copied, CHANGED, lambda: NOW)
    assert (list(done.rebuilt), done.paused, done.held_by) == (["by_id"], {}, "")
    assert results(spark, copied) == counted_by_hand(5)
    assert delta.row_count(delta.open_table(copied.table(CHANGED.operators[1]))) == 2
    found = rollout(CHANGED, lake=copied)
    assert not found.pending, found
    assert {part.name for part in found.parts if part.state == "gone"} == {"large", "sent", "totals"}

    before = everything_below(copied)
    assert roll_out(spark, copied, CHANGED, lambda: NOW).rebuilt == {}
    assert everything_below(copied) == before


@pytest.mark.parametrize(
    "commit", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)]
)
def test_a_rollout_that_was_killed_goes_on(
    spark: SparkSession, copied: Lake, monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    with monkeypatch.context() as dying:
        killed_at(commit, dying)
        with pytest.raises(Killed):
            roll_out(spark, copied, CHANGED, lambda: NOW)
    assert rollout(CHANGED, lake=copied).pending
    roll_out(spark, copied, CHANGED, lambda: NOW)
    assert results(spark, copied) == counted_by_hand(5)
    assert not rollout(CHANGED, lake=copied).pending


def test_a_rollout_beside_a_stream_waits_for_it_to_put_tables_in_place_and_leaves_it_what_is_new(
    spark: SparkSession, copied: Lake
) -> None:
    done: list[Any] = []
    finished = Event()

    def apply() -> None:
        try:
            done.append(roll_out(spark, copied, CHANGED, lambda: NOW))
        finally:
            finished.set()

    with running(spark, copied, alone(by_id, large)) as stream:
        Thread(target=apply, daemon=True).start()

        def has_finished() -> bool:
            stream.take_over(stream.operators[0])
            return finished.wait(0.1)

        until(has_finished, "rolled out", within=120)
        assert "another declaration than this process has" in str(stream.paused["by_id"])
    assert done, "the rollout has raised"
    assert list(done[0].rebuilt) == ["by_id"] and done[0].held_by
    assert results(spark, copied) == counted_by_hand(5)
    assert [part.name for part in rollout(CHANGED, lake=copied).pending] == ["huge"]


def side_by_side(before: dict[tuple[Any, ...], list[int]], after: dict[tuple[Any, ...], list[int]]) -> list[Any]:
    """The results of `by_id` that differ, by hand: outcome, id, start, count and total before and after."""
    rows = []
    for key in sorted({*before, *after}):
        one, other = before.get(key), after.get(key)
        if one != other:
            outcome = "added" if one is None else "gone" if other is None else "different"
            values = [None if each is None else of(each) for of in (len, sum) for each in (one, other)]
            rows.append((outcome, *key, *values))
    return rows


def test_a_replay_of_days_shows_results_beside_those_that_are_published_and_touches_no_table(
    spark: SparkSession, base: Lake
) -> None:
    """Rows of 1 do not count any more: of the first day a window goes, of the second one, too; one total is less."""
    before, chosen = everything_below(base), replace(by_id, where="value > 1")
    published = by_hand(10, ROWS)
    # What is published lacks the late row, which nobody has corrected; the replay brings it.
    replayed = by_hand(10, [row for row in (*ROWS, *LATE) if row[2] > 1])
    both = replay(spark, base, chosen, days=2, now=lambda: NOW)
    rows = [tuple(row.values()) for row in both.rows.to_pylist()]
    assert both.rows.column_names == [
        "outcome", "id", "window_start", "window_end",
        "readings before", "readings after", "total before", "total after",
    ]  # fmt: skip
    assert rows == side_by_side(published, replayed)
    assert (both.equal, both.different, both.added, both.gone) == (3, 1, 0, 2)
    assert (both.key, both.caveat, both.sample) == (("id", "window_start", "window_end"), "", "from 2026-01-01 on")

    last = replay(spark, base, chosen, days=1, now=lambda: NOW)
    of_last = [row for row in rows if row[2] >= at(86_400)]
    assert [tuple(row.values()) for row in last.rows.to_pylist()] == of_last
    assert (last.equal, last.different, last.added, last.gone) == (1, 0, 0, 1)
    assert everything_below(base) == before


@pytest.mark.long
def test_a_replay_of_keys_has_all_their_rows_and_of_no_other_key(spark: SparkSession, base: Lake) -> None:
    halves = replay(spark, base, halves_of(), keys={"id": ["a"]}, limit=2, now=lambda: NOW)
    added = [key for key in by_hand(5) if key[0] == "a"]
    gone = [key for key in by_hand(10, ROWS) if key[0] == "a"]
    assert (halves.equal, halves.different, halves.added, halves.gone) == (0, 0, len(added), len(gone))
    assert halves.rows.num_rows == 2, "as many as were asked for"
    with pytest.raises(DeclarationError, match=r"cannot be replayed by 'value'.* these are: id"):
        replay(spark, base, by_id, keys={"value": [1]})


@pytest.mark.long
def test_a_replay_of_rows_without_a_key_and_of_an_sql_view(spark: SparkSession, base: Lake) -> None:
    fewer = replay(spark, base, replace(large, where="value > 7"), days=2, now=lambda: NOW)
    assert (fewer.equal, fewer.different, fewer.added, fewer.gone) == (1, 0, 0, 1)
    assert [(row["outcome"], row["id"], row["value"]) for row in fewer.rows.to_pylist()] == [("gone", "b", 7)]
    # One with sums of a@1, a@12, a@86401 and b@3, b@41, b@86423, as they are published.
    greatest = replay(spark, base, totals_of(by_id, "max(total)"), days=1, now=lambda: NOW)
    assert greatest.sample == "all rows"
    assert [tuple(row.values()) for row in greatest.rows.to_pylist()] == [
        ("different", "a", 8, 5),
        ("different", "b", 17, 9),
    ]
    # A text that is no number is compared with one all the same.
    named = replay(spark, base, totals_of(by_id, "concat('t', sum(total))"), days=1, now=lambda: NOW)
    assert [tuple(row.values()) for row in named.rows.to_pylist()] == [
        ("different", "a", "8", "t8"),
        ("different", "b", "17", "t17"),
    ]


def test_rows_that_other_rules_would_reject_or_accept_are_counted(spark: SparkSession, base: Lake) -> None:
    stream = replace(readings, rules=(Rule("enough", "value > 1 or value is null"), Rule("few", "value < 9")))
    before = everything_below(base)
    rows = [value for _, _, value in (*ROWS, *LATE)]
    told = judge(spark, base, stream, days=2, now=NOW)
    assert (told.valid, dict(told.rejected)) == (len(rows), {"enough": rows.count(1), "few": rows.count(9)})
    assert told.in_all == rows.count(1) + rows.count(9)
    # The row without a value breaks the second rule, which null does not keep.
    assert (told.refused, told.accepted) == (1, 0)
    accepting = judge(spark, base, replace(stream, rules=stream.rules[:1]), days=2, now=NOW)
    assert (accepting.refused, accepting.accepted) == (1, 1)
    last = judge(spark, base, replace(stream, rules=stream.rules[:1]), days=1, now=NOW)
    assert (last.valid, dict(last.rejected), last.refused) == (3, {"enough": 2}, 0)
    assert everything_below(base) == before


def count(row: Any, key: Key) -> None:
    key.n = (key.n or 0) + 1
    key.emit(n=key.n)


def answer(row: Any, request: LookupRequest) -> dict[str, Any]:
    return {"answer": row.value}


def made_by(lake: Lake, operator: Operator, rows: int = 0) -> None:
    """The tables of an operator as a declaration has left them."""
    for spec in operator.tables:
        uri, schema = lake.table(operator, spec.suffix), T.StructType().add("id", "string")
        delta.create(uri, schema, append_only=False, description="", properties=declaration_properties(operator))
        if rows and not spec.is_state:
            write_deltalake(uri, pa.table({"id": pa.array(["a"] * rows, pa.string())}), mode="append")


def test_a_function_that_goes_on_from_its_state_is_adopted_and_another_one_is_rebuilt(lake: Lake) -> None:
    adopted = Keyed("counts", readings, ("id",), "n int", "n int", count)
    made_by(lake, adopted, rows=3)
    part = rollout(alone(replace(adopted, state="n bigint")), lake=lake).part("counts")
    assert (part.state, part.is_pending, part.changes) == ("adopted", False, ("state n int → n bigint",))
    part = rollout(alone(replace(adopted, version=2)), lake=lake).part("counts")
    assert (part.state, part.action) == ("changed", "rebuild")
    assert "version 1 → " in part.changes[0] and part.changes[0].endswith("version 2")


def test_what_cannot_be_built_anew_is_refused_and_what_has_published_nothing_begins_anew(lake: Lake) -> None:
    asked = Enriched("asked", readings, answer, {"answer": "bigint"})
    made_by(lake, asked, rows=1)
    part = rollout(alone(replace(asked, select=("id",))), lake=lake).part("asked")
    assert (part.state, part.action) == ("changed", "refused") and "cannot be built anew" in part.advice
    made_by(lake, by_id)
    part = rollout(alone(halves_of()), lake=lake).part("by_id")
    assert (part.state, part.action) == ("changed", "run") and "nothing of it is published yet" in part.advice


def test_an_operator_that_cannot_follow_rows_taken_back_is_refused_whether_it_is_new_or_not(copied: Lake) -> None:
    counts = Keyed("counts", readings, ("id",), "n int", "n int", count, order="arrival")
    assert rollout(alone(counts), lake=copied).part("counts").action == "run"
    delta.note(copied.log(readings), says={}, numbers={RETRACTIONS: 1})
    for state in ("new", "changed"):
        part = rollout(alone(counts), lake=copied).part("counts")
        assert (part.state, part.action) == (state, "refused") and "taken back, last by batch 1" in part.advice
        made_by(copied, counts, rows=1)


def test_nothing_begins_anew_of_a_log_that_has_dropped_days(copied: Lake) -> None:
    made_by(copied, replace(large, name="huge"))
    other = alone(replace(large, name="huge", where="value > 6"))
    assert rollout(other, lake=copied).part("huge").action == "run"
    delta.note(copied.log(readings), says={}, numbers=dropped_number(date(2026, 1, 2)))
    part = rollout(other, lake=copied).part("huge")
    assert part.action == "refused" and "dropped by the retention" in part.advice


def test_what_was_built_of_a_third_declaration_is_not_put_in_place(copied: Lake) -> None:
    third = replace(by_id, window=Tumbling("20 seconds"))
    made_by(copied, next_of(third), rows=1)
    make_ready(copied, third)
    assert "it is built already" in rollout(alone(third), lake=copied).part("by_id").advice
    for view in (by_id, halves_of()):
        part = rollout(alone(view), lake=copied).part("by_id")
        assert (part.state, part.action) == ("changed", "rebuild") and "another declaration" in part.advice
        assert part.reads is not None and bool(part.changes) == (view != by_id)
