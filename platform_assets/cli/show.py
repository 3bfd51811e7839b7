"""`tidemark show`: rows of a table or read, for people or for other programs."""

from __future__ import annotations

from typing import Annotated

import typer

from platform_assets.cli.completion import readable_names
from platform_assets.cli.context import AsOf, PipelineName, ViewName, console, has_little, read_lake, spark_session
from platform_assets.cli.render import next_step, print_frame
from platform_assets.cli.rows import csv_lines, json_lines
from platform_assets.cli.selection import Selection
from platform_assets.cli.tables import OF_STREAM, read_named
from platform_assets.texts.retention import told_kept
from streaming.declare import find_pipeline
from streaming.operations import recomputed


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
    title, _ = read_named(lake, pipeline, operator, what)
    shown = [] if what in OF_STREAM else [operator]
    with spark_session(is_short=has_little(pipeline)) as spark, recomputed(spark, lake, shown) as there:
        frame = read_named(there, pipeline, operator, what)[1](spark)
        chosen = selection.of(frame)
        with selection.computing(frame):
            if as_json or as_csv:
                limited = chosen if limit is None else chosen.limit(limit)
                for line in json_lines(limited) if as_json else csv_lines(limited):
                    print(line)
                return
            print_frame(console, chosen, title, limit)
    for line in told_kept(lake, pipeline):
        console.print(line, highlight=False, soft_wrap=True)
    next_step(console, f"tidemark audit {pipeline_name}", "recomputes everything from the log and checks every law.")
