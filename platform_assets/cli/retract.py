"""`tidemark retract` and `retractions`: valid rows that are wrong are taken back by hand, and put back."""

from __future__ import annotations

import getpass
from shlex import quote
from typing import Annotated

import typer

from platform_assets.cli.completion import pipeline_names
from platform_assets.cli.context import AsJson, console, current_lake, has_little, spark_session
from platform_assets.cli.documents import RetractionPreviewDocument, RetractionsDocument
from platform_assets.cli.render import next_step, print_rows
from platform_assets.reports.registry import reports_reached
from platform_assets.texts.retraction import due_line, follower_lines, heading_of, table_of
from streaming.base import RetractionError, counted, utc_now
from streaming.declare import Pipeline, declared_pipelines, find_pipeline
from streaming.log import Retraction
from streaming.log import retractions as retractions_of
from streaming.operations import RetractionPreview, RowChoice, find_retractable, preview_retraction
from streaming.operations import retract as retract_rows
from streaming.operators import Effect

StreamOrPipeline = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of a stream, or of a pipeline that has only one.", autocompletion=pipeline_names
    ),
]


def retract(
    name: StreamOrPipeline,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Which rows: a condition over the stream's columns.")
    ] = None,
    undo: Annotated[
        int | None, typer.Option("--undo", metavar="ID", help="Take back that retraction: its rows count again.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; it stays in the log.")] = None,
    who: Annotated[str | None, typer.Option("--who", help="By whom; the user of this machine if left out.")] = None,
    only_preview: Annotated[bool, typer.Option("--preview", help="Tell what would change, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take back valid rows that are wrong, or put them back.

    The rows stay in the log, and so does who took them back, when and why. First results do not change: what is
    published is corrected, as by any late row. The pipeline must not run.
    """
    pipeline, stream_name = _found(name)
    lake, stream, chosen = current_lake(), find_retractable(pipeline, stream_name), RowChoice(where, undo)
    if reason is None and not only_preview:
        raise RetractionError(
            f"nothing says why rows of {stream.name!r} are taken back",
            "Add --reason '...', or --preview to look first.",
        )
    with spark_session(is_short=has_little(pipeline)) as spark:
        if only_preview:
            outcome = preview_retraction(spark, lake, pipeline, stream, chosen)
            reports = reports_reached(pipeline, outcome)
            if as_json:
                RetractionPreviewDocument.of(outcome, reports).print()
            else:
                print_preview(outcome, name, chosen, reports)
            return
        done = retract_rows(spark, lake, pipeline, stream, chosen, reason or "", who or getpass.getuser(), utc_now)
    if as_json:
        RetractionsDocument.of([] if done is None else [done]).print()
    elif done is None:
        console.print(f"No row of {stream.name} that counts is meant. Nothing was written.")
        next_step(console, f"tidemark retractions {name}", "lists what was taken back before.")
    else:
        _print_done(done, pipeline)


def retractions(pipeline_name: StreamOrPipeline, as_json: AsJson = False) -> None:
    """List the retractions of a stream or a pipeline: who took which rows back, when and why."""
    pipeline, stream_name = _found(pipeline_name)
    found = [each for each in retractions_of(current_lake(), pipeline) if stream_name in (None, each.stream)]
    if as_json:
        RetractionsDocument.of(found).print()
        return
    if not found:
        console.print(f"No row of {pipeline_name} was taken back.")
        next_step(console, f"tidemark retract {pipeline_name} --where '...' --preview", "tells what would change.")
        return
    heads = ("id", "stream", "when", "who", "rows", "what", "reason")
    print_rows(console, f"{pipeline_name}: retractions", heads, [_cells(each) for each in found])
    newest = found[-1]
    next_step(
        console,
        f"tidemark retract {newest.stream} --undo {newest.id} --reason '...'",
        "takes the newest back.",
    )


def _found(name: str) -> tuple[Pipeline, str | None]:
    """The pipeline, and the stream where `name` is that of one of several."""
    for pipeline in declared_pipelines().values():
        if name in [stream.name for stream in pipeline.streams]:
            return pipeline, name
    return find_pipeline(name), None


def _cells(each: Retraction) -> tuple[str, ...]:
    what = f"undoes {each.undoes}" if each.undoes is not None else each.where or "erased since"
    when = f"{each.at:%Y-%m-%d %H:%M:%S}"
    return (str(each.id), each.stream, when, each.who, f"{each.rows:,}", what, each.reason or "erased since")


def print_preview(outcome: RetractionPreview, name: str, chosen: RowChoice, reports: tuple[str, ...]) -> None:
    """Print what would change, and what does it; `reports` are the names of those that read it."""
    verb = "taken back" if chosen.undoes is None else "taken back or put back"
    console.print(f"{counted(outcome.rows, 'row')} of {outcome.stream} would be {verb}. Nothing was written.")
    if outcome.rows:
        days = [(f"{day}", f"{rows:,}") for day, rows in outcome.days.items()]
        print_rows(console, "", ("day", "rows"), days)
        heads = tuple(outcome.examples[0])
        examples = [tuple("" if each[name] is None else str(each[name]) for name in heads) for each in outcome.examples]
        console.print(f"The first {len(examples)}:" if outcome.rows > len(examples) else "These are:")
        print_rows(console, "", heads, examples)
    for effect in outcome.effects:
        _print_effect(effect)
    for line in follower_lines(outcome, reports):
        console.print(line, soft_wrap=True)
    if outcome.rows:
        option = f"--where {quote(chosen.where or '')}" if chosen.undoes is None else f"--undo {chosen.undoes}"
        next_step(console, f"tidemark retract {name} {option} --reason '...'", "does it.")
    else:
        next_step(console, f"tidemark retractions {name}", "lists what was taken back before.")


def _print_effect(effect: Effect) -> None:
    heads, rows, more = table_of(effect)
    # As the title of a narrow table it would be folded.
    console.print(heading_of(effect), soft_wrap=True)
    if rows:
        print_rows(console, "", heads, rows)
    if more:
        console.print(f"... and {more:,} more.")
    if due := due_line(effect):
        console.print(due)


def _print_done(done: Retraction, pipeline: Pipeline) -> None:
    verb = "taken back" if done.undoes is None else f"those of retraction {done.undoes}, whose effect is undone"
    console.print(f"{counted(done.rows, 'row')} of {done.stream}: {verb}. This is retraction {done.id}.")
    console.print(
        f"`tidemark retract {done.stream} --undo {done.id} --reason '...'` takes it back.",
    )
    next_step(
        console,
        f"tidemark run {pipeline.name} && tidemark correct {pipeline.name}",
        "tells the views of it, and corrects what is published.",
    )
