"""`tidemark rebuild` and `tidemark drop`: a view whose declaration has changed, and one that is not declared."""

from __future__ import annotations

from datetime import date
from typing import Annotated
from uuid import uuid4

import typer
from pyspark.sql import SparkSession
from rich.status import Status

from platform_assets.cli.broken import print_broken
from platform_assets.cli.context import OperatorName, console, current_lake, find_operator, spark_session
from platform_assets.cli.render import next_step
from platform_assets.reports.errors import NewerIsPublished, NothingToReport
from platform_assets.reports.publication import read_publication
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import broken_reports, declared_reports
from quality import GateClosed
from streaming.base import counted, utc_now
from streaming.declare import Pipeline, declared_pipelines
from streaming.operations import RebuildListener
from streaming.operations import drop as drop_tables
from streaming.operations import rebuild as rebuild_tables


def rebuild(
    view: OperatorName,
    beside: Annotated[
        str | None, typer.Option("--as", help="Keep the old tables in place, and build new ones under this name.")
    ] = None,
) -> None:
    """Build a view anew from the log, then put it in place at once.

    Everything may run meanwhile, and the old tables are read until the new ones take their place.
    Corrections are built with it, and reports are published again. With --as nothing is replaced.
    """
    pipeline, operator = find_operator(view)
    lake = current_lake()
    with spark_session() as spark:
        with console.status(f"building {operator.name} from the log") as status:
            shown = ShownRebuild(operator.name, status)
            rebuilt = rebuild_tables(spark, lake, pipeline, operator, beside, utc_now, shown)
        console.print(f"{beside or operator.name}: {counted(rebuilt.rows, 'result')} built from the log.")
        if beside is None:
            publish_again(spark, pipeline)
    if beside is None:
        next_step(console, f"tidemark audit {pipeline.name}", "proves every number again from the log.")
    else:
        console.print(f"They are in {rebuilt.uri}", soft_wrap=True)
        next_step(
            console, f"tidemark rebuild {view}", f"puts such tables in place; `tidemark drop {beside}` removes these."
        )


class ShownRebuild(RebuildListener):
    """A rebuild on the console: how far it is, and each corrected day."""

    def __init__(self, name: str, status: Status) -> None:
        self._name = name
        self._status = status

    def followed(self, through: int, newest: int) -> None:
        self._status.update(f"building {self._name} from the log: batch {through:,} of {newest:,}")

    def corrected(self, day: date, rows: int) -> None:
        console.print(f"{self._name} {day}: {counted(rows, 'window')} corrected")

    def waits(self, holder: str) -> None:
        self._status.update(f"{self._name} is built; waiting for {holder} to put it in place")


def drop(
    view: Annotated[str, typer.Argument(help="Name of a view that is not declared.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the tables of a view that is not declared any more.

    The log and everything else stays.
    """
    if not yes:
        typer.confirm(f"Remove every table of {view!r} in {current_lake().root}?", abort=True)
    for table in drop_tables(current_lake(), list(declared_pipelines().values()), view):
        console.print(f"removed {table.uri}", soft_wrap=True)
    next_step(console, "tidemark status", "names what other views have left behind.")


def publish_again(spark: SparkSession, pipeline: Pipeline) -> None:
    """Those reports on the pipeline that were published before; a broken report cannot be, so it is named."""
    print_broken(broken_reports())
    for report in declared_reports().values():
        if report.pipeline != pipeline or read_publication(current_lake(), report.name) is None:
            continue
        try:
            judge_and_publish(spark, current_lake(), report, run_id=f"cli-{uuid4().hex[:12]}")
        except GateClosed as closed:
            # The view is in place: its words would say of the whole command that nothing was done.
            reasons = "; ".join(reason.text for reason in closed.reasons)
            text = f"report {report.name} stays as it was, for its gate is closed: {reasons}"
            console.print(text, soft_wrap=True)
        except NothingToReport:
            console.print(f"report {report.name} stays as it was, for no window is closed yet.")
        except NewerIsPublished:
            console.print(f"report {report.name} stays as it was, for another process has published a newer one.")
        else:
            console.print(f"report {report.name} is published again.")
