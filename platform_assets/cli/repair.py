"""`tidemark repair`: rejected rows come back after rules, schema or format changed."""

from __future__ import annotations

from typing import Annotated

import typer

from platform_assets.cli.context import PipelineName, console, current_lake, has_little, spark_session
from platform_assets.cli.render import next_step, print_rows
from platform_assets.texts.repair import CHANGED, change_row, kept_back_text
from streaming.base import counted, utc_now
from streaming.declare import find_pipeline
from streaming.operations import Preview, preview
from streaming.operations import repair as repair_rows

_MOST_WINDOWS = 20


def repair(
    pipeline_name: PipelineName,
    only_preview: Annotated[bool, typer.Option("--preview", help="Tell what would change, and write nothing.")] = False,
) -> None:
    """Judge the rejected rows anew; those valid now come back, once."""
    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    with spark_session(is_short=has_little(pipeline)) as spark:
        if only_preview:
            _print(preview(spark, lake, pipeline, utc_now), pipeline_name)
            return
        done = repair_rows(spark, lake, pipeline, utc_now)
    console.print(
        f"{counted(done.examined, 'rejected row')} examined: {done.repaired:,} repaired, {done.still_rejected:,} stay "
        f"rejected.{kept_back_text(done.kept_back)}",
    )
    if not done.batches:
        next_step(console, f"tidemark show {pipeline_name} rejected", "shows the reasons against each row.")
    else:
        for stream, batch in done.batches.items():
            of = "the log" if len(pipeline.streams) == 1 else f"the log of {stream}"
            console.print(f"The repaired rows are batch {batch.number} of {of}.")
        next_step(console, f"tidemark run {pipeline_name}", "tells the views of them, and what has to be corrected.")


def _print(outcome: Preview, pipeline_name: str) -> None:
    console.print(
        f"{counted(outcome.examined, 'rejected row')}: {outcome.repaired:,} would pass, "
        f"{outcome.examined - outcome.repaired:,} would stay rejected.{kept_back_text(outcome.kept_back)} "
        "Nothing was written.",
    )
    for view, changes in outcome.changes.items():
        if changes:
            rows = [change_row(change) for change in changes[:_MOST_WINDOWS]]
            print_rows(console, f"{view}: {len(changes):,} windows would change", CHANGED, rows)
            if len(changes) > _MOST_WINDOWS:
                console.print(f"... and {len(changes) - _MOST_WINDOWS:,} more.")
    if outcome.repaired:
        next_step(console, f"tidemark repair {pipeline_name}", "brings the rows back.")
    else:
        next_step(console, f"tidemark show {pipeline_name} rejected", "shows the reasons against each row.")
