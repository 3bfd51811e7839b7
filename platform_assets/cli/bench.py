"""`tidemark bench`: what a batch of one's own stream costs here, and which setting to change."""

from __future__ import annotations

import tempfile
from pathlib import Path

from platform_assets.cli.context import PipelineName, console, current_lake, spark_session
from platform_assets.cli.render import next_step, print_rows
from platform_assets.texts.bench import STAGES, advice, rate, stage_row
from streaming.declare import find_pipeline
from streaming.operations import bench as measure


def bench(pipeline_name: PipelineName) -> None:
    """Replay a sample of the log: rows a second, what to change.

    Says where the time goes and which setting to change for more rows; the lake is untouched.
    """
    pipeline = find_pipeline(pipeline_name)
    with (
        spark_session() as spark,
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch,
        console.status("replaying the newest rows of the log in batches of two sizes"),
    ):
        costs = measure(spark, current_lake(), pipeline, Path(scratch))
    rows = [stage_row(stage, costs) for stage in costs.stages]
    print_rows(console, f"{pipeline_name}, {costs.sampled:,} rows replayed", STAGES, rows)
    console.print(f"{rate(costs, costs.rows_a_batch)}, which is the median of the newest batches", highlight=False)
    console.print(rate(costs, 100 * costs.rows_a_batch), highlight=False)
    console.print(advice(costs, pipeline), highlight=False)
    next_step(console, f"tidemark bench {pipeline_name}", "measures again after the change; the lake is untouched.")
