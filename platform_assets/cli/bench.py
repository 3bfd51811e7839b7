"""`tidemark bench`: what a batch of one's own stream costs here, and which setting to change."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from platform_assets.cli.context import PipelineName, console, current_lake, spark_session
from platform_assets.cli.render import next_step, print_rows
from platform_assets.texts.bench import STAGES, advice, rate, stage_row
from streaming.base import DeclarationError
from streaming.declare import Pipeline, find_pipeline
from streaming.operations import bench as measure


def bench(
    pipeline_name: PipelineName,
    stream: Annotated[str | None, typer.Option(help="Which one of several; the first if left out.")] = None,
) -> None:
    """Replay a sample of the log: rows a second, what to change.

    Says where the time goes and which setting to change for more rows; the lake is untouched.
    """
    pipeline = with_first(find_pipeline(pipeline_name), stream)
    with (
        spark_session() as spark,
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch,
        console.status("replaying the newest rows of the log in batches of two sizes"),
    ):
        costs = measure(spark, current_lake(), pipeline, Path(scratch))
    rows = [stage_row(stage, costs) for stage in costs.stages]
    print_rows(console, f"{pipeline.stream.name}, {costs.sampled:,} rows replayed", STAGES, rows)
    console.print(f"{rate(costs, costs.rows_a_batch)}, which is the median of the newest batches")
    console.print(rate(costs, 100 * costs.rows_a_batch))
    console.print(advice(costs, pipeline))
    again = f"tidemark bench {pipeline_name}" + ("" if stream is None else f" --stream {stream}")
    next_step(console, again, "measures again after the change; the lake is untouched.")


def with_first(pipeline: Pipeline, name: str | None) -> Pipeline:
    """The pipeline with the stream of this name before the others: a replay is of the first one and its views.

    Raises:
        DeclarationError: it has no such stream.
    """
    if name is None:
        return pipeline
    first = [stream for stream in pipeline.streams if stream.name == name]
    if not first:
        names = ", ".join(stream.name for stream in pipeline.streams)
        raise DeclarationError(
            f"pipeline {pipeline.name!r} has no stream {name!r}; it has {names}.", pipeline=pipeline.name, stream=name
        )
    others = (stream for stream in pipeline.streams if stream.name != name)
    return replace(pipeline, streams=(*first, *others))
