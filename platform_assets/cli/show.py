"""`tidemark show`: rows of a table or read, for people or for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from platform_assets.cli.completion import readable_names
from platform_assets.cli.context import AsOf, PipelineName, ViewName, console, has_little, read_lake, spark_session
from platform_assets.cli.render import next_step, print_first, rows_to_print
from platform_assets.cli.selection import Selection
from platform_assets.cli.tables import OF_STREAM, read_named, stored_named
from platform_assets.texts.retention import told_kept
from streaming.declare import Operator, Pipeline, find_pipeline
from streaming.lake import Lake
from streaming.reading import Untranslatable, can_be_written
from streaming.reading import csv_lines as csv_texts
from streaming.reading import json_lines as json_texts


def show(
    pipeline_name: PipelineName,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="Which table or read: current, first, late, log, clock, rejected, ...",
            autocompletion=readable_names,
        ),
    ] = None,
    view: ViewName = None,
    columns: Annotated[str | None, typer.Option(help="Names of columns, such as 'origin,flights'.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Rows of one key, such as 'id=a', or 'a' where that is the first column.")
    ] = None,
    where: Annotated[str | None, typer.Option(help="A condition in SQL, such as 'flights > 10'.")] = None,
    sort: Annotated[str | None, typer.Option(help="Columns to sort by, such as 'flights desc,origin'.")] = None,
    limit: Annotated[
        int | None, typer.Option(help="Rows to print; 20, or 5 if they are too wide for a table.", min=1)
    ] = None,
    as_of: AsOf = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per row: all of them.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header: all rows.")] = False,
) -> None:
    """Print rows of the event log, its side outputs, or a view."""
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other; give one of them.")
    pipeline, selection = find_pipeline(pipeline_name), Selection(columns, where, sort, key)
    lake, operator = read_lake(pipeline, as_of), pipeline.operator(view)
    printed = _Printed(limit, as_json, as_csv)
    if not _show_stored(lake, pipeline, operator, what, selection, printed):
        _show_computed(lake, pipeline, operator, what, selection, printed)
    if as_json or as_csv:
        return
    for line in told_kept(lake, pipeline):
        console.print(line, soft_wrap=True)
    next_step(console, f"tidemark audit {pipeline_name}", "recomputes everything from the log and checks every law.")


@dataclass(frozen=True)
class _Printed:
    """The form in which rows are printed."""

    limit: int | None
    as_json: bool
    as_csv: bool

    @property
    def for_programs(self) -> bool:
        return self.as_json or self.as_csv


def _show_stored(
    lake: Lake, pipeline: Pipeline, operator: Operator, what: str | None, selection: Selection, printed: _Printed
) -> bool:
    """Print rows that lie in a table; False where only Spark can compute them, or choose among them."""
    found = stored_named(lake, pipeline, operator, what)
    if found is None:
        return False
    title, rows = found
    if printed.for_programs and not can_be_written(rows.schema):
        return False
    try:
        chosen = selection.of_stored(rows)
        if printed.for_programs:
            lines = json_texts if printed.as_json else csv_texts
            for line in lines(chosen.names, chosen.batches(printed.limit)):
                print(line)
        else:
            print_first(console, chosen.table(rows_to_print(printed.limit)), title, printed.limit)
    except Untranslatable:
        return False
    return True


def _show_computed(
    lake: Lake, pipeline: Pipeline, operator: Operator, what: str | None, selection: Selection, printed: _Printed
) -> None:
    from platform_assets.cli.rows import csv_lines, json_lines
    from streaming.operations import recomputed

    title, _ = read_named(lake, pipeline, operator, what)
    shown = [] if what in OF_STREAM else [operator]
    why = f"no table has {title} as it is asked for"
    with (
        spark_session(is_short=has_little(pipeline), why=why) as spark,
        recomputed(spark, lake, shown) as there,
    ):
        frame = read_named(there, pipeline, operator, what)[1](spark)
        chosen = selection.of(frame)
        with selection.computing(frame):
            if printed.for_programs:
                limited = chosen if printed.limit is None else chosen.limit(printed.limit)
                for line in json_lines(limited) if printed.as_json else csv_lines(limited):
                    print(line)
                return
            rows = chosen.limit(rows_to_print(printed.limit)).toArrow()
            print_first(console, rows, title, printed.limit)
