"""`tidemark erase`: a person's rows leave a pipeline, with a proof."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from platform_assets.cli.context import PipelineName, console, current_lake, spark_session
from platform_assets.cli.render import next_step, print_rows
from platform_assets.reports.registry import declared_reports
from streaming.base import counted
from streaming.declare import Pipeline, find_pipeline
from streaming.operations import Erased, ErasurePreview, Person, preview_erasure
from streaming.operations import erase as erase_rows


def erase(
    pipeline_name: PipelineName,
    key: Annotated[str, typer.Option("--key", metavar="COLUMN=VALUE", help="Whose rows, such as customer_id=c17.")],
    preview: Annotated[bool, typer.Option("--preview", help="Only count what is there; changes nothing.")] = False,
    keep_numbers: Annotated[
        bool,
        typer.Option("--keep-numbers", help="Leave published numbers of several people as they are, if they can be."),
    ] = False,
    with_savepoints: Annotated[
        bool, typer.Option("--with-savepoints", help="Drop the savepoints that keep old versions.")
    ] = False,
) -> None:
    """Erase all rows with a value of a column: log, state, results, dead letters and their history.

    The pipeline must not run. What aggregates several people is computed anew without these rows.
    A proof is printed, and kept in the table `erasures`, without the value.
    """
    pipeline, lake, person = find_pipeline(pipeline_name), current_lake(), Person.of(key)
    with spark_session() as spark:
        if preview:
            _print_preview(
                pipeline, key, preview_erasure(spark, lake, pipeline, person, keep_numbers=keep_numbers), keep_numbers
            )
            return
        with console.status(f"erasing from {pipeline.name}") as status:
            done = erase_rows(
                spark,
                lake,
                pipeline,
                person,
                keep_numbers=keep_numbers,
                with_savepoints=with_savepoints,
                listener=lambda what: status.update(f"erasing from {pipeline.name}: {what}"),
            )
    _print_proof(pipeline, done)


def _print_preview(pipeline: Pipeline, key: str, preview: ErasurePreview, keep_numbers: bool) -> None:
    rows = [(table, f"{count:,}") for table, count in preview.rows.items()]
    print_rows(console, f"{pipeline.name}: rows to be erased", ("table", "rows"), rows)
    if preview.rebuilt:
        console.print(f"Computed anew without them: {', '.join(preview.rebuilt)}.")
    if preview.kept:
        console.print(f"Left as published: {', '.join(preview.kept)}.")
    for stream, count in preview.unread.items():
        console.print(
            f"{counted(count, 'rejected payload')} of {stream} without a field {key.partition('=')[0]}: "
            "those go in which the value is a word, also of another field.",
        )
    if preview.savepoints:
        console.print(f"Savepoints that keep old versions: {', '.join(preview.savepoints)}.")
    more = f"{' --keep-numbers' if keep_numbers else ''}{' --with-savepoints' if preview.savepoints else ''}"
    next_step(
        console, f"tidemark erase {pipeline.name} --key {quote(key)}{more}", "erases them; stop the pipeline before."
    )


def _print_proof(pipeline: Pipeline, done: Erased) -> None:
    rows = [
        (table, f"{removed.rows:,}", f"{removed.rewritten:,}", f"{removed.vacuumed:,}")
        for table, removed in done.erasure.tables.items()
    ]
    title = f"{pipeline.name}: erased"
    print_rows(console, title, ("table", "rows removed", "files rewritten", "old files deleted"), rows)
    if done.rebuilt:
        console.print(f"Computed anew without them: {', '.join(done.rebuilt)}.")
    for view, days in done.erasure.kept.items():
        console.print(f"{view} keeps the numbers of {counted(len(days), 'day')} as published.")
    checked = ", ".join(f"{count:,} {what}" for what, count in done.erasure.checked.items())
    console.print(f"Looked through {checked}: none is left. Erasure {done.erasure.id}.")
    if done.told:
        console.print(f"Told, as upserts and deletes: the targets of {', '.join(done.told)}.")
    for_people = [
        *(f"what {name} has delivered to {_address(pipeline, name)}" for name in done.to_tell),
        *(f"published versions of report {name}" for name in _reports(pipeline)),
        *(f"the source of {stream.name}" for stream in pipeline.streams),
    ]
    console.print(f"Not reached from here, see to it yourself: {'; '.join(for_people)}.")
    next_step(console, f"tidemark audit {pipeline.name}", "proves every number again from the log.")


def _address(pipeline: Pipeline, name: str) -> str:
    return next(delivery.to.address for delivery in pipeline.deliveries if delivery.name == name)


def _reports(pipeline: Pipeline) -> list[str]:
    return [report.name for report in declared_reports().values() if report.pipeline.name == pipeline.name]
