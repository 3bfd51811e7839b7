"""A running pipeline between two batches."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from streaming import Files, Joined, Lake, Pipeline, Tumbling, Windowed, agg
from streaming.base.intervals import utc_now
from streaming.log.batches import read_batches
from streaming.operators import Written
from streaming.operators.progress import Progress
from streaming.service import continuous, progress_table
from streaming.service.continuous import Continuous, Ending
from streaming.service.progress import Measure
from streaming.service.progress_table import ProgressTable
from streaming.service.query_errors import ingest_query
from streaming.service.status import ProcessStatus, QueryStatus
from streaming.sources.landed_files import FilesBacklog
from streaming.sources.source import SourceBacklog
from streaming.views.results import read_first
from tests.support.feeds import land_all
from tests.support.instants import at
from tests.support.pipelines.beats import pipeline
from tests.support.pipelines.gated import counts
from tests.support.pipelines.gated import pipeline as gated
from tests.support.runs import tuples


def published_after(spark: SparkSession, lake: Lake, second: int) -> list[datetime]:
    """Run with one more reading, at a second of the day, until the view has followed it; returns the window ends."""
    before = len(read_batches(lake, pipeline.stream))
    land_all(lake, pipeline.stream, [{"id": "a", "at": at(second).isoformat(), "value": 1}])

    def ending() -> Ending | None:
        followed = Progress.now(lake, pipeline.views[0]).batch
        return "stop" if followed == before else None

    # Neither the next batch nor the heartbeat of a silent source comes within the test.
    hourly = replace(pipeline, trigger="1 hour")
    Continuous(spark, lake, hourly, utc_now, lambda measures: None, lambda status: None).run(ending, Event())
    assert [batch.cause for batch in read_batches(lake, pipeline.stream)] == ["source"] * (before + 1)
    return [row[0] for row in tuples(read_first(spark, lake, pipeline.views[0]), "window_end")]


def test_a_window_is_published_by_the_batch_whose_clock_closes_it_and_needs_no_other(
    spark: SparkSession, lake: Lake
) -> None:
    """Windows of ten seconds, closed five seconds after they end."""
    assert published_after(spark, lake, 1) == []
    assert published_after(spark, lake, 14) == []  # clock: 9 s
    assert published_after(spark, lake, 15) == [at(10)]  # clock: 10 s, the end of the first window
    assert published_after(spark, lake, 24) == [at(10)]  # clock: 19 s
    assert published_after(spark, lake, 99) == [at(10), at(20), at(30)]  # clock: 94 s, past several


def test_what_is_current_is_looked_at_after_steps_that_wrote_rows_or_updates(spark: SparkSession, lake: Lake) -> None:
    plain = pipeline.views[0]
    updated = replace(plain, name="updated", late="update", allowed_lateness="1 minute")
    running = Continuous(
        spark, lake, replace(pipeline, operators=(plain, updated)), utc_now, lambda measures: None, lambda status: None
    )
    news = running._news
    for view in (plain, updated):
        for rows in (0, 1):
            with running.watch.during(view.name, rows):
                running.committed(view.name, Written(rows), None)
            assert news[view.name].is_set() == bool(rows)
        news[view.name].clear()
        # What it has besides its steps was kept up.
        running._has_kept_up(view)
    assert (news[plain.name].is_set(), news[updated.name].is_set()) == (False, True)


def test_the_clock_of_a_silent_stream_moves_on_beside_one_that_is_never_silent(spark: SparkSession, lake: Lake) -> None:
    """Readings of one stream land all the while, of the other a single one, whose clock moves after a second."""
    beats = pipeline.stream
    clock = replace(beats.clock, heartbeat_after="1 second")
    silent = replace(beats, name="silent", source=Files("landing/silent"), clock=clock)
    near = Joined("near", beats, silent, ("id",), ("0 seconds", "1 minute"))
    both = Pipeline(name="both", streams=(beats, silent), operators=(near,), trigger="500 milliseconds")
    deadline, reading = utc_now() + timedelta(seconds=30), {"id": "a", "at": at(0).isoformat(), "value": 1}
    for stream in (beats, silent):
        land_all(lake, stream, [reading])

    def causes() -> set[str]:
        return {batch.cause for batch in read_batches(lake, silent)}

    def ending() -> Ending | None:
        land_all(lake, beats, [reading])
        return "stop" if "heartbeat" in causes() or utc_now() > deadline else None

    Continuous(spark, lake, both, utc_now, lambda measures: None, lambda status: None).run(ending, Event())
    assert causes() == {"source", "heartbeat"}


@pytest.mark.long
def test_a_view_with_every_steps_at_most_so_often_and_follows_all_batches_since(
    spark: SparkSession, lake: Lake
) -> None:
    """Every hour: the first step follows batch 0, and the next one, an hour later, both batches that came since."""
    counted = pipeline.views[0]
    hourly = replace(pipeline, operators=(replace(counted, every="1 hour"),), trigger="100 milliseconds")
    begun, waited = utc_now(), timedelta()
    followed: list[int] = []
    landed = land_all(lake, pipeline.stream, [{"id": "a", "at": at(0).isoformat(), "value": 1}])

    def now() -> datetime:
        return begun + waited

    def ending() -> Ending | None:
        nonlocal waited
        batches, position = read_batches(lake, pipeline.stream), Progress.now(lake, counted)
        if position.batch not in followed:
            followed.append(position.batch)
        if len(batches) == 3:
            waited = timedelta(hours=1)
        elif len(batches) == len(landed) and position.batch == 0:
            second = 10 * len(landed)
            landed.extend(land_all(lake, pipeline.stream, [{"id": "a", "at": at(second).isoformat(), "value": 1}]))
        return "stop" if position.batch == 2 else None

    Continuous(spark, lake, hourly, now, lambda measures: None, lambda status: None).run(ending, Event())
    assert followed == [-1, 0, 2]


def test_a_stop_during_a_drain_is_heard_and_lets_the_batch_that_runs_end(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """The batch of the view waits at a gate, which opens only once the drain was told to stop."""
    gate, at_the_gate, told_to_stop, statuses = tmp_path / "gate", Event(), Event(), list[ProcessStatus]()
    os.mkfifo(gate)
    first, second = ({"id": "a", "at": at(second).isoformat(), "gate": str(gate)} for second in (0, 10))
    land_all(lake, gated.stream, [first], [second])

    def ending() -> Ending | None:
        if statuses and statuses[-1].phase == "draining":
            told_to_stop.set()
        return "stop" if told_to_stop.is_set() else "drain" if at_the_gate.is_set() else None

    def guard_gate() -> None:
        with gate.open("w"):
            at_the_gate.set()
            told_to_stop.wait(60)

    Thread(target=guard_gate, daemon=True).start()
    Continuous(spark, lake, gated, utc_now, lambda measures: None, statuses.append).run(ending, Event())
    assert told_to_stop.is_set()
    assert statuses[-1].phase == "stopping"
    assert read_first(spark, lake, counts).count() == 1


@pytest.mark.long
def test_a_batch_begins_once_the_operators_have_followed_the_one_before_it(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four files, a batch each: beside the next batch a step would take several times as long."""
    monkeypatch.setattr(continuous, "GIVES_WAY", 60.0)
    monkeypatch.setattr(continuous, "WORKS_OFF_AFTER", timedelta.max)
    one_by_one = replace(pipeline.stream, source=Files("landing/beats", files_per_batch=1))
    counted = replace(pipeline.views[0], of=one_by_one)
    land_all(lake, one_by_one, *([{"id": "a", "at": at(10 * n).isoformat(), "value": 1}] for n in range(4)))
    measured = list[Measure]()

    def ending() -> Ending | None:
        return "stop" if Progress.now(lake, counted).batch == 3 else None

    of = replace(pipeline, streams=(one_by_one,), operators=(counted,), trigger="100 milliseconds")
    Continuous(spark, lake, of, utc_now, measured.extend, lambda status: None).run(ending, Event())
    steps = [each for each in measured if each.query == counted.name]
    batches = [each for each in measured if each.query != counted.name]
    assert len(steps) == len(batches) == 4
    assert all(step.ended <= batch.started for step, batch in zip(steps, batches[1:], strict=False))


@pytest.mark.long
def test_a_step_waits_for_the_batch_that_is_being_written(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a batch brings that ends just after a step has begun would wait for two steps.

    The batch of the calls takes eight seconds; in these comes one of the beats, which is no step by itself.
    """
    monkeypatch.setattr(continuous, "GIVES_WAY", 60.0)
    monkeypatch.setattr(continuous, "WORKS_OFF_AFTER", timedelta.max)
    slow = {"pause": "case when value < 0 then java_method('java.lang.Thread', 'sleep', cast(8000 as bigint)) end"}
    beats, calls = (
        replace(pipeline.stream, name=name, source=Files(f"landing/{name}"), derived=slow)
        for name in ("beats", "calls")
    )
    near = Joined("near", beats, calls, ("id",), ("0 seconds", "1 minute"))
    both = Pipeline(name="both", streams=(beats, calls), operators=(near,), trigger="100 milliseconds")
    land_all(lake, calls, [{"id": "a", "at": at(0).isoformat(), "value": -1}])
    landing, measured, deadline = Path(beats.source.location(lake)), list[Measure](), utc_now() + timedelta(minutes=2)
    landing.mkdir(parents=True)
    running = Continuous(spark, lake, both, utc_now, measured.extend, lambda status: None)

    def ending() -> Ending | None:
        if ingest_query(both, calls) in running.watch.running() and not [*landing.iterdir()]:
            land_all(lake, beats, [{"id": "a", "at": at(0).isoformat(), "value": 1}])
        has_both = Progress.now(lake, near).through == {"beats": 0, "calls": 0}
        return "stop" if has_both or utc_now() > deadline else None

    running.run(ending, Event())
    assert [each.query for each in measured] == ["beats.log", "calls.log", "near"]


@pytest.mark.long
def test_a_log_that_works_off_a_backlog_waits_for_no_step(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four files of an hour ago, a batch each: the step that has a result ends when all of them are in the log."""
    monkeypatch.setattr(continuous, "GIVES_WAY", 300.0)
    one_by_one = replace(gated.stream, source=Files("landing/gated", files_per_batch=1))
    counted = replace(counts, of=one_by_one)
    gate, at_the_gate, all_there, deadline = tmp_path / "gate", Event(), Event(), utc_now() + timedelta(minutes=2)
    os.mkfifo(gate)
    rows = [{"id": "a", "at": at(10 * number).isoformat()} for number in range(4)]
    land_all(lake, one_by_one, [{**rows[0], "gate": str(gate)}], *([row] for row in rows[1:]))
    hour_ago = utc_now().timestamp() - 3600
    for file in Path(one_by_one.source.location(lake)).iterdir():
        os.utime(file, (hour_ago, hour_ago))
    in_log = list[int]()

    def ending() -> Ending | None:
        in_log.append(len(read_batches(lake, one_by_one)))
        if (in_log[-1] < 4 or not at_the_gate.is_set()) and utc_now() < deadline:
            return None
        all_there.set()
        return "stop"

    def guard_gate() -> None:
        with gate.open("w"):
            at_the_gate.set()
            all_there.wait(150)

    Thread(target=guard_gate, daemon=True).start()
    of = replace(gated, streams=(one_by_one,), operators=(counted,), trigger="100 milliseconds")
    Continuous(spark, lake, of, utc_now, lambda measures: None, lambda status: None).run(ending, Event())
    assert in_log[-1] == 4


def test_a_step_that_is_stuck_holds_up_neither_log_nor_other_views_and_its_own_is_told_to_be_behind(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """The first step with a result waits at a gate until two more batches are in the log and in the other view."""
    free = Windowed("free", gated.stream, Tumbling("10 seconds"), {"rows": agg.count()})
    gate, at_the_gate, gone_on, deadline = tmp_path / "gate", Event(), Event(), utc_now() + timedelta(minutes=2)
    os.mkfifo(gate)
    land_all(lake, gated.stream, *([{"id": "a", "at": at(s).isoformat(), "gate": str(gate)}] for s in (0, 10)))
    since, statuses = list[int](), list[ProcessStatus]()

    def behind() -> QueryStatus:
        return statuses[-1].queries[counts.name]

    def ending() -> Ending | None:
        if not at_the_gate.is_set():
            return None
        since.append(len(read_batches(lake, gated.stream)))
        followed = Progress.now(lake, free).batch == since[-1] - 1
        is_behind = followed and statuses[-1].newest_batch == since[-1] - 1 and (behind().behind or 0) > 1
        if (since[-1] == since[0] + 2 and is_behind) or utc_now() > deadline:
            gone_on.set()
            stuck.append((statuses[-1], behind()))
            return "stop"
        if since[-1] < since[0] + 2 and since.count(since[-1]) == 1:
            land_all(lake, gated.stream, [{"id": "a", "at": at(11).isoformat()}])
        return None

    def guard_gate() -> None:
        with gate.open("w"):
            at_the_gate.set()
            gone_on.wait(60)

    Thread(target=guard_gate, daemon=True).start()
    stuck = list[tuple[ProcessStatus, QueryStatus]]()
    often = replace(gated, operators=(counts, free), trigger="100 milliseconds")
    Continuous(spark, lake, often, utc_now, lambda measures: None, statuses.append).run(ending, Event())
    assert gone_on.is_set()
    assert read_first(spark, lake, counts).count() == 1
    ((process, view),) = stuck
    assert view.behind is not None and view.behind > 1 and view.behind_since is not None
    assert (process.queries[free.name].behind or 0) < view.behind
    assert process.watermark is not None and (view.watermark is None or view.watermark < process.watermark)
    # The step that was stuck has ended by now.
    assert (behind().behind or 0) < view.behind and behind().watermark is not None


def test_storage_that_does_not_answer_silences_neither_the_pulse_nor_the_state(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The landing folder is listed, and the progress table written, by threads that nothing else waits for."""
    asked, answered, statuses, deadline = Event(), Event(), list[ProcessStatus](), utc_now() + timedelta(minutes=2)

    def hang(*arguments: object, **options: object) -> SourceBacklog:
        asked.set()
        answered.wait()
        return SourceBacklog(0, "files")

    monkeypatch.setattr(FilesBacklog, "count", hang)
    monkeypatch.setattr(progress_table, "write_deltalake", hang)
    monkeypatch.setattr(progress_table, "_ENDS_WITHIN", 0.1)
    land_all(lake, pipeline.stream, [{"id": "a", "at": at(0).isoformat(), "value": 1}])

    def ending() -> Ending | None:
        committed = [status for status in statuses if status.newest_batch is not None]
        return "stop" if len({status.at for status in committed}) > 2 or utc_now() > deadline else None

    with ProgressTable(lake, pipeline) as progress:
        continuous = Continuous(spark, lake, pipeline, utc_now, progress.add, statuses.append)
        continuous.run(ending, Event())
        assert continuous.watch.pulse().at > statuses[-1].at
    assert asked.is_set() and utc_now() < deadline
    answered.set()
