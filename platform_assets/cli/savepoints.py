"""`tidemark savepoint`, `savepoints`, `restore` and `fork`: cuts of a pipeline that one can keep, and go back to."""

from __future__ import annotations

from datetime import date
from shlex import quote
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.text import Text

from platform_assets.cli.context import PipelineName, console, current_lake, spark_session
from platform_assets.cli.render import next_step, print_rows
from platform_assets.texts.status import length
from streaming.base import DeclarationError, counted, utc_now
from streaming.declare import find_pipeline
from streaming.lake import Lake, Settings
from streaming.operations import (
    RebuildListener,
    Restored,
    drop_savepoint,
    kept_bytes,
    restore_to,
)
from streaming.operations import fork as fork_pipeline
from streaming.operations import restore as restore_tables
from streaming.operations import savepoint as take_savepoint
from streaming.operations import savepoints as savepoints_of

SavepointName = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="Name of a savepoint of that pipeline.")]


def savepoint(
    pipeline_name: PipelineName,
    name: Annotated[str | None, typer.Argument(help="What it is called; the instant, if left out.")] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the savepoint of that name instead.")] = False,
) -> None:
    """Save a consistent cut of all tables of a pipeline, under a name.

    The stream of the pipeline may go on meanwhile. What the cut needs is kept until it is dropped.
    """
    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    if drop and name is None:
        raise DeclarationError(
            f"--drop needs the name of a savepoint; `tidemark savepoints {pipeline_name}` lists them."
        )
    if drop and name is not None:
        dropped = drop_savepoint(lake, pipeline, name)
        console.print(f"Savepoint {dropped.name} is dropped.")
        next_step(console, f"tidemark maintain {pipeline_name}", "removes what only it has kept.")
        return
    taken = take_savepoint(lake, pipeline, name)
    copied = sum(table.size for table in taken.tables if table.kept_at)
    console.print(
        f"Savepoint {taken.name}: {taken.batches_in_words}, {counted(len(taken.tables), 'table')}, "
        f"{decimal(copied)} copied.",
    )
    next_step(
        console, f"tidemark fork {pipeline_name} {taken.name} --as FOLDER", "makes a second pipeline that begins there."
    )


def savepoints(pipeline_name: PipelineName) -> None:
    """List the savepoints of a pipeline, with age and size."""
    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    points, now = savepoints_of(lake, pipeline), utc_now()
    if not points:
        console.print(f"{pipeline.name} has no savepoint.")
        next_step(console, f"tidemark savepoint {pipeline_name}", "takes one.")
        return
    rows = [
        (
            each.name,
            length((now - each.taken_at).total_seconds()),
            each.batches_in_words,
            decimal(sum(table.size for table in each.tables)),
            decimal(kept_bytes(lake, each)),
        )
        for each in points
    ]
    print_rows(console, f"{pipeline.name}: savepoints", ("name", "age", "of", "size", "kept only for it"), rows)
    next_step(
        console, f"tidemark restore {pipeline_name} {points[-1].name}", "goes back to it; --to LAKE restores elsewhere."
    )


def restore(
    pipeline_name: PipelineName,
    name: SavepointName,
    to: Annotated[
        str | None, typer.Option("--to", metavar="LAKE", help="Make a new lake of it, and leave this one alone.")
    ] = None,
) -> None:
    """Go back to a savepoint: in place, or in a new lake.

    In place, the views' tables and state are put back and step on over the log, which stays.
    With --to everything is copied, and goes on from there; the pipeline of this lake is not touched.
    """
    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    if to is not None:
        there = _lake_at(to)
        with console.status(Text(f"copying savepoint {name} to {there.root}")):
            restored = restore_to(lake, pipeline, name, there)
        _say_elsewhere(restored, there, pipeline_name)
        return
    with spark_session() as spark, console.status(f"restoring savepoint {name}") as status:

        class Shown(RebuildListener):
            """Who is waited for, and each corrected day."""

            def corrected(self, day: date, rows: int) -> None:
                console.print(f"{day}: {counted(rows, 'window')} corrected")

            def waits(self, holder: str) -> None:
                status.update(f"savepoint {name} is ready; waiting for {holder} to put it in place")

        restored = restore_tables(spark, lake, pipeline, name, listener=Shown())
    console.print(f"{pipeline.name} is restored from {restored.savepoint.batches_in_words} on.")
    for name_left in restored.left_out:
        why = pipeline.operator(name_left).never_rebuilt or f"it was not there yet when {name} was taken"
        console.print(f"{name_left} stays as it is: {why}.")
    if pipeline.backfilled:
        next_step(console, f"tidemark correct {pipeline_name}", "corrects what came late since.")
    else:
        next_step(console, f"tidemark audit {pipeline_name}", "proves every number again from the log.")


def fork(
    pipeline_name: PipelineName,
    name: Annotated[
        str | None,
        typer.Argument(metavar="SAVEPOINT", help="Where it begins; as everything is now, if left out."),
    ] = None,
    to: Annotated[str, typer.Option("--as", metavar="LAKE", help="The folder or URI of the new lake.")] = "",
) -> None:
    """Make a second pipeline, in a lake of its own, which goes on from a savepoint beside the first.

    Its deliveries are off until `tidemark redeliver` says what is meant.
    """
    if not to:
        raise DeclarationError("--as LAKE is missing: a fork needs a lake of its own, such as --as ./trial.")
    pipeline, lake, there = find_pipeline(pipeline_name), current_lake(), _lake_at(to)
    with console.status(Text(f"copying to {there.root}")):
        forked = fork_pipeline(lake, pipeline, name, there)
    _say_elsewhere(forked, there, pipeline_name)


def _say_elsewhere(restored: Restored, there: Lake, pipeline_name: str) -> None:
    waiting = ", ".join(
        f"{counted(files, 'file')} of {stream} wait" for stream, files in restored.waiting.items() if files
    )
    console.print(
        f"{there.root} begins at {restored.savepoint.batches_in_words}: {decimal(restored.copied)} copied"
        f"{f', {waiting} there' if waiting else ''}. Its deliveries are off.",
        soft_wrap=True,
    )
    next_step(console, f"TIDEMARK_HOME={quote(there.root)} tidemark run {pipeline_name}", "goes on from there.")


def _lake_at(place: str) -> Lake:
    return Settings(home=place).lake
