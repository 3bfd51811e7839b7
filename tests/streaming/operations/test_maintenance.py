"""Maintenance changes no result, takes what died, leaves what is being written, and no memory is lost with the past."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableOptimizer
from pyspark.sql import DataFrame, SparkSession

from docs.examples.late_counts import count_by_sensor, pipeline
from streaming import Lake, Pipeline, correct, drain, log, plan
from streaming.audit.laws import audit
from streaming.base.errors import LeaseError, LogError
from streaming.base.intervals import utc_now
from streaming.declare.operator import STATE_BOUNDED
from streaming.keyed import DUE, HASH
from streaming.log.batches import archive, archived, newest_archived
from streaming.operations.maintenance import Maintained, maintain
from streaming.operations.retention import drop_days
from streaming.operators.declaration import about_table
from streaming.operators.progress import Progress
from streaming.service.lease import rewriting
from streaming.service.progress import Measure, QueryProgress
from streaming.service.progress_table import ProgressTable, read_progress
from streaming.service.run import Run
from streaming.tables import delta
from streaming.views.corrections import corrected_through
from streaming.views.steps import _PANE
from tests.support.feeds import land_all, readings
from tests.support.instants import NOW, T0
from tests.support.runs import read_current, run, tuples

NOTHING, WEEK, MONTH = timedelta(), timedelta(days=7), timedelta(days=30)
stream = pipeline.stream
counts = replace(count_by_sensor, late="update", allowed_lateness="2 seconds", early="1 hour")
kept = Pipeline(stream, (counts,))


def maintained(lake: Lake, after: timedelta = NOTHING, **retentions: timedelta) -> dict[str, Maintained]:
    """What was done to each table so long from now; by default nothing old is kept at all."""
    kept_for = {"retention": NOTHING, "entry_retention": NOTHING} | retentions
    done = maintain(lake, kept, **kept_for, now=lambda: utc_now() + after)
    return {entry.table: entry for entry in done}


def broken(spark: SparkSession, lake: Lake) -> list[str]:
    return [f"{finding.law}: {finding.subject}" for finding in audit(spark, lake, kept) if not finding.holds]


def commits(uri: str) -> list[int]:
    """The versions whose commits are still there."""
    return sorted(int(entry.stem) for entry in Path(uri, "_delta_log").glob("*.json"))


def everything(spark: SparkSession, lake: Lake) -> list[list[tuple[Any, ...]]]:
    """The rows of the log, and what the other tables amount to."""
    return [tuples(log.read_log(spark, lake, stream)), tuples(read_current(spark, lake, counts))]


@pytest.mark.long
def test_a_lake_without_a_past_goes_on_and_every_law_holds(spark: SparkSession, lake: Lake) -> None:
    run(
        spark,
        lake,
        kept,
        readings("a@1, a@16"),
        [*readings("a@3, b@19"), "{oops"],  # stamped 11, so that 3 is late, and soon enough for an update
        readings("a@5, a@26"),  # stamped 14: 5 waits for a correction
    )
    assert [backlog.day for backlog in plan(spark, lake, counts)] == [T0.date()]
    correct(spark, lake, counts, [T0.date()], lambda: NOW)
    before, batches = everything(spark, lake), log.read_batches(lake, stream)

    done = maintained(lake)
    assert everything(spark, lake) == before
    assert done["log"].files_before > done["log"].files_after == 2  # a day, and the rows without one
    # The rows without a day are in one file, which stays as it is.
    assert done["log"].files_removed == done["log"].files_before - 1
    assert done["log"].entries_removed and commits(lake.log(stream))[0] > 0
    assert done["count_by_sensor"].entries_removed and commits(lake.first(counts))[0] > 0
    assert log.read_batches(lake, stream) == batches and sorted(archived(lake, stream)) == list(range(len(batches)))
    assert log.head(lake, stream) == batches[0]
    assert corrected_through(lake, counts, [T0.date()]) == {T0.date(): batches[0].number}

    run(spark, lake, kept, readings("b@31, a@4"), readings("a@60"))
    after = log.read_batches(lake, stream)
    assert [batch.number for batch in after] == [*range(len(after))][::-1] and after[-len(batches) :] == batches
    assert after[0].number > batches[0].number + 1
    assert broken(spark, lake) == []

    # Where nothing happens for a long time, nothing but maintenance is left in the history.
    maintained(lake)
    maintained(lake)
    assert all(entry.files_before == entry.files_after for entry in maintained(lake).values())
    assert log.read_batches(lake, stream) == after and log.head(lake, stream) == after[0]


@pytest.mark.long
def test_a_view_that_is_behind_needs_rows_and_no_old_version(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spark, lake, kept, readings("a@1"))
    with monkeypatch.context() as dies_before_its_steps:
        dies_before_its_steps.setattr(Run, "step_all", lambda self: None)
        dies_before_its_steps.setattr(Run, "catch_up", lambda self: None)
        run(spark, lake, kept, readings("a@11"), readings("b@27"))
    read = Progress.now(lake, counts)
    newest = log.head(lake, stream)
    assert newest is not None and read.batch < newest.number - 1

    done = maintained(lake)["log"]
    assert done.files_removed > 2
    run(spark, lake, kept, readings("a@40"))
    assert broken(spark, lake) == []


class CompactedAfterEachBatch:
    """Maintenance in the midst of a run."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.compactions = 0

    def update(self, progress: QueryProgress) -> None:
        """Called after each batch of each query."""
        done = maintained(self.lake, retention=WEEK)
        self.compactions += sum(entry.files_after < entry.files_before for entry in done.values())


@pytest.mark.long
def test_a_pipeline_runs_on_while_its_tables_are_compacted(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, kept, readings("a@1"))
    land_all(lake, stream, readings("a@12, b@19"), readings("a@26"), readings("a@3, b@41"))
    maintenance = CompactedAfterEachBatch(lake)
    drain(spark, lake, kept, progress=maintenance, now=lambda: NOW)
    assert maintenance.compactions >= 4
    assert broken(spark, lake) == []


def small(spark: SparkSession, *numbers: int) -> DataFrame:
    """A few rows of one day."""
    return spark.createDataFrame([(number, T0.date()) for number in numbers], "n int, _day date")


def numbers(spark: SparkSession, uri: str) -> list[int]:
    return sorted(row["n"] for row in delta.read(spark, uri).collect())


def data_files(uri: str) -> set[str]:
    return {str(path) for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}


def killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_files_of_an_attempt_that_died_are_taken_and_those_of_a_running_one_are_not(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = lake.log(stream)
    about = log.about_log(stream)
    delta.create(uri, small(spark).schema, append_only=True, description="a log of numbers", about=about)
    delta.append(small(spark, 1), uri)
    committed = data_files(uri)
    with monkeypatch.context() as dies, pytest.raises(KeyboardInterrupt):
        dies.setattr(DeltaTable, "create_write_transaction", killed)
        delta.append(small(spark, 2), uri)
    dead = data_files(uri) - committed
    assert len(dead) == 1
    removals: list[int] = []

    # The files of the next attempt are there, and not committed yet.
    staged = delta.stage(small(spark, 3), uri)
    assert len(data_files(uri) - committed - dead) == 1
    removals.append(maintained(lake, retention=WEEK)["log"].files_removed)
    eight_days_ago = time.time() - 8 * 86_400
    for file in dead:
        os.utime(file, (eight_days_ago, eight_days_ago))
    removals.append(maintained(lake, retention=WEEK)["log"].files_removed)
    staged.commit({})
    assert removals == [0, 1] and not dead & data_files(uri)
    assert numbers(spark, uri) == [1, 3]


def test_a_day_that_is_corrected_meanwhile_is_compacted_at_the_next_attempt(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = lake.corrections(counts)
    about = about_table(counts, "corrections")
    delta.create(uri, small(spark).schema, append_only=False, description="corrections", about=about)
    delta.append(small(spark, 1), uri)
    delta.append(small(spark, 2), uri)
    compact, overtaken = TableOptimizer.compact, list[int]()

    def late(optimizer: TableOptimizer) -> Any:
        if not overtaken and optimizer.table.table_uri.rstrip("/").endswith(uri):
            overtaken.append(delta.replace_days(small(spark, 3), uri, [T0.date()], says={}))
            delta.append(small(spark, 4), uri)
        return compact(optimizer)

    monkeypatch.setattr(TableOptimizer, "compact", late)
    delta.create(lake.log(stream), small(spark).schema, append_only=True, description="an empty log")
    done = maintained(lake)
    assert overtaken == [1] and done["count_by_sensor_corrections"].files_after == 1
    assert numbers(spark, uri) == [3, 4]


def test_files_are_rewritten_by_one_process_at_a_time(spark: SparkSession, lake: Lake) -> None:
    """delta-rs lets the second of two compactions pass, and the table has each of its rows twice: see `FACTS.md`."""
    kept = replace(stream, retention="1 day")
    retained = Pipeline(kept, (replace(counts, of=kept),))
    delta.create(lake.log(stream), small(spark).schema, append_only=True, description="an empty log")
    with rewriting(lake, retained):
        for rewrite in (lambda: maintained(lake), lambda: drop_days(lambda: spark, lake, retained)):
            with pytest.raises(LeaseError, match="maintain"):
                rewrite()
    assert maintained(lake)


def test_what_progress_says_of_a_batch_goes_after_a_month(lake: Lake) -> None:
    for number, age in enumerate((40, 31, 29, 29, 0)):
        ended = NOW - timedelta(days=age, seconds=9 - number)
        with ProgressTable(lake, stream) as progress:
            progress.add([Measure("log", number, ended, ended, 1)])
    maintained = {entry.table: entry for entry in maintain(lake, kept, now=lambda: NOW)}
    assert [measure.batch for measure in read_progress(lake, stream, NOW - timedelta(days=365))] == [2, 3, 4]
    assert (maintained["progress"].files_before, maintained["progress"].files_after) == (3, 2)
    version = delta.version_of(lake.progress(stream))
    maintain(lake, kept, now=lambda: NOW)
    assert delta.version_of(lake.progress(stream)) == version


def test_a_batch_is_archived_once_by_two_at_a_time_and_by_one_that_died(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = {number: {"batch": number} for number in range(4)}
    assert archive(lake, stream, {0: described[0]}) == 1
    write = write_deltalake

    def overtaken(*arguments: Any, **options: Any) -> None:
        monkeypatch.undo()
        assert archive(lake, stream, {number: described[number] for number in (0, 1, 2)}) == 2
        write(*arguments, **options)

    monkeypatch.setattr("streaming.log.batches.write_deltalake", overtaken)
    with pytest.raises(CommitFailedError):
        archive(lake, stream, described)
    assert archived(lake, stream) == {number: described[number] for number in (0, 1, 2)}
    assert archive(lake, stream, described) == 1
    assert archive(lake, stream, described) == 0
    assert archived(lake, stream) == described and newest_archived(lake, stream) == described[3]


def test_entries_younger_than_the_retention_stay_and_a_history_that_nobody_archived_is_refused(
    spark: SparkSession, lake: Lake
) -> None:
    # Of two days, so that nothing is compacted.
    run(spark, lake, kept, readings("a@1"), readings("a@-90000"))
    uri = lake.log(stream)
    there, month_ago = commits(uri), time.time() - 31 * 86_400
    assert maintained(lake, retention=WEEK, entry_retention=MONTH)["log"].entries_removed == 0
    os.utime(Path(uri, "_delta_log", f"{0:020}.json"), (month_ago, month_ago))
    DeltaTable(uri).create_checkpoint()
    # Version 1 is young, and can only be read with version 0. A table without a new version is looked at once a week.
    assert maintained(lake, WEEK, retention=WEEK, entry_retention=MONTH)["log"].entries_removed == 0
    for version in there:
        os.utime(Path(uri, "_delta_log", f"{version:020}.json"), (month_ago, month_ago))
    # All but the last, which alone has a checksum.
    done = maintained(lake, 2 * WEEK, retention=WEEK, entry_retention=MONTH)
    assert done["log"].entries_removed == len(there) - 1

    Path(uri, "_delta_log", f"{there[-1]:020}.json").unlink()
    assert [batch.number for batch in log.read_batches(lake, stream)] == [1, 0]
    shutil.rmtree(lake.batches(stream))
    for forgotten in (log.head, log.read_batches):
        with pytest.raises(LogError, match=r"log '.*/log' was cleaned away, and no archive at .*Restore"):
            forgotten(lake, stream)


def test_tables_of_state_name_the_columns_by_whose_bounds_steps_choose_files() -> None:
    assert STATE_BOUNDED == (HASH, DUE, _PANE)
