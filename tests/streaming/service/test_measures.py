from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.log.batches import read_batches
from streaming.operators.runtime import Written
from streaming.service.observer import Observer
from streaming.service.progress import Measure, latency
from streaming.service.reporter import CatchUp, Reporter, together
from streaming.service.run import Run
from streaming.service.status import PROCESS, ControlFolder, ProcessStatus
from streaming.service.watch import Watch
from tests.streaming.service.streams import supervised, until
from tests.support.instants import NOW, at
from tests.support.pipelines.beats import pipeline
from tests.support.runs import run


def test_a_step_tells_what_waits_and_what_was_not_answered() -> None:
    watch = Watch(lambda: NOW)
    with watch.during("rooms", 3):
        watch.committed("rooms", Written(rows=5, state_rows=2, state_bytes=100, failures=1), None)
    assert watch.measured() == [Measure("rooms", 3, NOW, NOW, 5, state_rows=2, state_bytes=100, failures=1)]


def test_o9_latency(spark: SparkSession, lake: Lake) -> None:
    """Rows that the source had 1 to 100 ms ago: the percentiles are interpolated."""
    delays = spark.range(1, 101).selectExpr("timestamp_millis(1000 - id) as had")
    micros = delays.selectExpr("percentile(unix_micros(had), array(0.5d, 0.05d, 0.01d)) as found").first()
    assert micros is not None
    waited = [1000 - entry / 1000 for entry in micros["found"]]
    assert waited == pytest.approx([50.5, 95.05, 99.01])


def test_a_batch_knows_when_the_source_had_its_rows_and_a_heartbeat_has_none(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, [{"id": "a", "at": "2026-01-01T00:00:00Z", "value": 1}], end_of_input=True)
    heartbeat, batch = read_batches(lake, pipeline.stream)
    assert heartbeat.source_times is None
    assert batch.source_times is not None
    modified = batch.source_times[0]
    assert batch.source_times == (modified,) * 3
    visible = modified.replace(microsecond=0) + (NOW - at(0))
    assert latency(batch, visible) == ((visible - modified).total_seconds(),) * 3
    assert latency(heartbeat, NOW) is None


def test_rates_are_rows_over_the_while_and_over_the_time_in_which_batches_ran() -> None:
    slow = Measure("log", 1, at(0), at(4), rows=30, rejected=3, late=1, latency=(1.0, 2.0, 3.0))
    quick = Measure("log", 2, at(10), at(11), rows=70, rejected=0, late=0, latency=(0.1, 0.2, 0.3))
    throughput = together([slow, quick], seconds=20)
    assert (throughput.rows, throughput.rejected, throughput.late, throughput.batches) == (100, 3, 1, 2)
    assert (throughput.input_rate, throughput.processing_rate, throughput.batch_seconds) == (5, 20, 2.5)
    # Seven rows in ten have waited 0.1 s at the median; one in twenty waited as long as the slow batch's.
    assert throughput.latency == (0.1, 2.0, 3.0)


def test_o11_the_time_to_catch_up_follows_from_how_the_backlog_shrinks_since_it_last_grew() -> None:
    """Counted every ten seconds; while more comes than is taken there is no end in sight."""
    backlog, estimates = CatchUp(at(0), 100, at(0), 100), []
    for second, items in ((10, 120), (20, 120), (30, 90), (40, 60), (50, 80), (60, 40), (70, 0)):
        backlog = backlog.counted(at(second), items)
        estimates.append(backlog.seconds)
    # From 120 to 60 in thirty seconds: as long again. From 80 to 40 in ten: ten more.
    assert estimates == [None, None, 60, 30, None, 10, 0]


def test_nothing_measured_has_no_rate_and_no_latency() -> None:
    rates = together([], seconds=60)
    assert (rates.input_rate, rates.processing_rate, rates.batch_seconds, rates.latency) == (0, 0, None, None)
    empty = Measure("log", 1, at(0), at(1), rows=0)
    assert together([replace(empty, latency=(1.0, 1.0, 1.0))], seconds=60).latency is None


def test_a_watermark_stands_over_restarts_since_the_process_that_saw_it_move(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(now: datetime) -> datetime | None:
        """When the watermark moved, as a process tells that is started now."""
        told: list[ProcessStatus] = []
        begun = Run(spark, lake, pipeline, Observer(lambda: now))
        reporter = Reporter(begun, Watch(lambda: now), lambda: now, lambda measures: None, told.append)
        reporter.begin()
        reporter.end()
        ControlFolder(lake, pipeline).write(PROCESS, told[-1])
        return told[-1].watermark_moved

    assert moved(at(0)) is None
    run(spark, lake, pipeline, [{"id": "a", "at": at(10).isoformat(), "value": 1}])
    assert [moved(at(second)) for second in (100, 200)] == [at(100)] * 2
    # A real process, which dies before it knows the log.
    monkeypatch.setenv("JAVA_HOME", str(lake.path("nowhere")))
    with supervised(lake) as supervisor:
        until(lambda: supervisor.status.state == "failed", "failed", lake)
    assert moved(at(300)) == at(100)
    run(spark, lake, pipeline, [{"id": "a", "at": at(20).isoformat(), "value": 1}])
    assert moved(at(400)) == at(400)
