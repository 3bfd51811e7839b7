"""What a replay of a log's sample measures; how fast this machine is does not matter here."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_assets.texts.bench import advice
from streaming import Lake, drain
from streaming.base.errors import LogError
from streaming.log.batches import read_batches
from streaming.operations.bench import APPEND, JUDGE, PARSE, PLAN, Bench, Stage, bench
from tests.support.pipelines.beats import by_id, pipeline

STAGES = (Stage(PARSE, 0.03, 9e-6), Stage(JUDGE, 0.01, 1e-6), Stage("by_id", 0.06, 0.0))


@pytest.mark.long
def test_every_stage_of_a_pipeline_is_measured_and_its_lake_is_left_alone(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    landing = Path(pipeline.stream.source.location(lake))
    landing.mkdir(parents=True)
    for number in range(2):
        lines = (f'{{"id": "a", "at": "2026-01-01T00:00:{second % 60:02}Z", "value": 1}}\n' for second in range(1_000))
        (landing / f"{number}.json").write_text("".join(lines) + "damaged\n")
    drain(spark, lake, pipeline)
    before = read_batches(lake, pipeline.stream)
    benchmark = bench(spark, lake, pipeline, tmp_path / "scratch")
    assert [stage.name for stage in benchmark.stages] == [PARSE, JUDGE, APPEND, by_id.name, PLAN]
    assert all(stage.seconds(benchmark.rows_a_batch) >= 0 for stage in benchmark.stages)
    assert (benchmark.sampled, benchmark.rows_a_batch) == (2_002, 1_001)
    assert read_batches(lake, pipeline.stream) == before


@pytest.mark.long
def test_a_log_too_short_to_measure_is_refused_with_how_long_it_must_be(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    landing = Path(pipeline.stream.source.location(lake))
    landing.mkdir(parents=True)
    (landing / "0.json").write_text('{"id": "a", "at": "2026-01-01T00:00:00Z"}\n')
    drain(spark, lake, pipeline)
    with pytest.raises(LogError, match="has 1 rows, and 1,000 is the least"):
        bench(spark, lake, pipeline, tmp_path)


def test_fixed_and_growing_cost_add_up() -> None:
    benchmark = Bench(10_000, 10_000, STAGES)
    assert benchmark.seconds(10_000) == pytest.approx(0.2)
    assert benchmark.fixed_share == pytest.approx(0.5)
    assert benchmark.balanced == 10_000
    assert benchmark.costliest.name == PARSE


@pytest.mark.parametrize(
    ("rows_a_batch", "hint"),
    [(100, "raise files_per_batch=1 of the source"), (1_000_000, "a field that is not declared costs nothing")],
)
def test_advice_names_the_setting_that_bounds_the_usual_batch(rows_a_batch: int, hint: str) -> None:
    assert hint in advice(Bench(10_000, rows_a_batch, STAGES), pipeline)
