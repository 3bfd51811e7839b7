"""`tidemark rebuild` and `tidemark drop`: a view whose declaration has changed, and one that is declared no more."""

from __future__ import annotations

from datetime import date
from typing import Annotated
from uuid import uuid4

import typer
from pyspark.sql import SparkSession

from platform_assets.cli.broken import print_broken
from platform_assets.cli.context import console, current_lake, spark_session
from platform_assets.cli.render import next_step
from platform_assets.reports.publication import read_publication
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import broken_reports, declared_reports
from quality import GateClosed
from streaming.base import DeclarationError, utc_now
from streaming.declare import Operator, Pipeline, broken_modules, declared_pipelines
from streaming.operations import drop as drop_tables
from streaming.operations import rebuild as rebuild_tables

OperatorName = Annotated[str, typer.Argument(help="Name of a view, or PIPELINE/VIEW where two have the same name.")]


def rebuild(view: OperatorName) -> None:
    """Remove the tables of a view and build them anew from the log; its corrections and reports follow."""
    pipeline, operator = _declared(view)
    lake = current_lake()

    def say(day: date, rows: int) -> None:
        console.print(f"{operator.name} {day}: {rows:,} windows corrected", highlight=False)

    with spark_session() as spark:
        with console.status(f"building {operator.name} from the log"):
            rebuilt = rebuild_tables(spark, lake, pipeline, operator, utc_now, say)
        console.print(f"{operator.name}: {rebuilt.rows:,} results built from the log.", highlight=False)
        _publish_again(spark, pipeline)
    next_step(console, f"tidemark audit {pipeline.name}", "proves every number again from the log.")


def drop(
    view: Annotated[str, typer.Argument(help="Name of a view that is declared no more.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the tables that a renamed or dropped view has left behind; the log and everything else stays."""
    if not yes:
        typer.confirm(f"Remove every table of {view!r} in {current_lake().root}?", abort=True)
    for table in drop_tables(current_lake(), list(declared_pipelines().values()), view):
        console.print(f"removed {table.uri}", highlight=False, soft_wrap=True)
    next_step(console, "tidemark status", "names what other views have left behind.")


def _publish_again(spark: SparkSession, pipeline: Pipeline) -> None:
    """Those reports on the pipeline that were published before; a broken report cannot be, so it is named."""
    print_broken(broken_reports())
    for report in declared_reports().values():
        if report.pipeline != pipeline or read_publication(current_lake(), report.name) is None:
            continue
        try:
            judge_and_publish(spark, current_lake(), report, run_id=f"cli-{uuid4().hex[:12]}")
        except GateClosed as closed:
            console.print(f"report {report.name} was not published again: {closed}", highlight=False, markup=False)
        else:
            console.print(f"report {report.name} is published again.", highlight=False)


def _declared(name: str) -> tuple[Pipeline, Operator]:
    wanted, _, view = name.rpartition("/")
    every = [(pipeline, entry) for pipeline in declared_pipelines().values() for entry in pipeline.operators]
    matching = [(pipeline, entry) for pipeline, entry in every if entry.name == view and wanted in ("", pipeline.name)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(f"{pipeline.name}/{entry.name}" for pipeline, entry in matching or every) or "none"
    text = f"there {'are several views' if matching else 'is no view'} {name!r}: {names}. Write one of these."
    raise DeclarationError("\n".join([text, *map(str, broken_modules())]))
