"""Golden tests of generators."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples.generators import (
    ReplayableReading,
    generated_integers,
    integer,
    reading,
    replayable,
    smoke,
    sum_of_integers,
)
from streaming import Generator, Lake, Pipeline, log
from streaming.audit.laws import audit
from streaming.sources.generator import GeneratorReader
from tests.support import generator_crash
from tests.support.crash import crash
from tests.support.instants import T0, ms
from tests.support.runs import run, tuples


def made(row: Any, rows: int, task: int = 0, tasks: int = 1) -> list[dict[str, Any]]:
    """The rows of one task, in order."""
    reader = GeneratorReader(row, tasks, None, rows, rows)
    return [json.loads(each["_raw"]) for batch in reader.read((task, 0, rows, 0)) for each in batch.to_pylist()]


def test_s1_wall_clock_sensors_are_ten_a_task_and_each_takes_a_step_before_every_reading() -> None:
    source = Generator(reading, rows_per_second=100, tasks=2)
    two_ticks = made(reading, 20, task=1)
    assert [row["id"] for row in two_ticks[:10]] == [f"sensor_{number}" for number in range(11, 21)]
    assert [row["id"] for row in two_ticks[10:]] == [row["id"] for row in two_ticks[:10]]
    rows = made(reading, 20_000)
    steps = [after["temperature"] - before["temperature"] for before, after in zip(rows, rows[10:], strict=False)]
    mean = sum(steps) / len(steps)
    assert abs(mean) < 0.2 and abs((sum(step**2 for step in steps) / len(steps)) ** 0.5 - 5) < 0.1
    # The time of a row is that at which it was due, a tick of ten rows each 100 ms.
    reader = GeneratorReader(reading, source.tasks, source.rows_per_second, None, 100)
    dues = [row["due"] for batch in reader.read((0, 0, 30, 0)) for row in batch.to_pylist()]
    assert [(due - dues[0]).total_seconds() for due in dues[::10]] == [0, 0.1, 0.2]


@pytest.mark.long
@pytest.mark.processes
def test_s2_replayable_sensors_are_the_same_thousand_rows_after_a_kill_at_row_400(
    spark: SparkSession, tmp_path: Path
) -> None:
    died = crash(tmp_path, generator_crash.AT_ROW_400, generator_crash.__name__)
    assert died.returncode == -9, died.stdout
    lake = Lake(str(tmp_path / "lake"))
    held = log.read_batches(lake, replayable)
    assert [batch.summary.rows for batch in held] == [200, 200]

    run(spark, lake, generator_crash.PIPELINE)

    rows = log.valid(log.read_log(spark, lake, replayable))
    assert tuples(rows, "_origin.offset") == sorted([(offset,) for offset in range(1_000)], key=lambda row: str(row[0]))
    expected = [(row["id"], row["timestamp"], row["temperature"]) for row in made(ReplayableReading(), 1_000)]
    there = rows.orderBy("_origin.offset").select("id", "timestamp", "temperature").collect()
    assert [tuple(row) for row in there] == expected
    assert {row[0] for row in expected} == {f"sensor_{number}" for number in range(10)}
    assert [row[1] for row in expected[::10]] == [ms(T0) + 100 * tick for tick in range(1, 101)]
    broken = [finding for finding in audit(spark, lake, generator_crash.PIPELINE) if not finding.holds]
    assert broken == []


@pytest.mark.parametrize("offset", [0, 9, 10, 437, 999])
def test_s2_any_offset_alone_is_the_row_of_the_whole_sequence(offset: int) -> None:
    row = ReplayableReading(tasks=3)
    assert row(2, offset) == made(row, 1_000, task=2)[offset] == row(2, offset)


def test_s3_smoke_is_high_where_the_draw_is_above_four_fifths() -> None:
    levels = [row["level"] for row in made(smoke, 20_000)]
    assert {*levels} == {"HIGH", "LOW"}
    assert abs(levels.count("HIGH") / len(levels) - 0.2119) < 0.01


@pytest.mark.long
def test_s6_integers_begin_with_one_and_a_flood_of_them_comes_in_bounded_batches(
    spark: SparkSession, lake: Lake
) -> None:
    assert made(integer, 3) == [{"n": 1}, {"n": 2}, {"n": 3}]
    flood = replace(generated_integers, source=Generator(integer, rows=50_000, rows_per_batch=20_000))
    pipeline = Pipeline(flood, (replace(sum_of_integers, of=flood),))
    run(spark, lake, pipeline)
    batches = log.read_batches(lake, flood)
    assert [batch.summary.rows for batch in reversed(batches)] == [20_000, 20_000, 10_000]
    (total,) = log.read_log(spark, lake, flood).selectExpr("sum(n)").collect()
    assert total[0] == 50_000 * 50_001 // 2
