"""The `tidemark` command: feed, run, correct, show, audit, report, and the demo through Dagster."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer
from dagster import BetaWarning
from rich.console import Console
from rich.progress import Progress as Bar

from platform_assets.cli.demonstrated import show_demonstrated
from platform_assets.cli.render import next_step, print_findings, print_frame, print_table
from platform_assets.demo import run_demo
from platform_assets.errors import PlatformError
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import find_report
from platform_assets.ui import start_ui
from quality.errors import QualityError
from streaming.audit import audit as audit_laws
from streaming.corrections import correct as correct_days
from streaming.corrections import plan, read_corrections
from streaming.drain import drain, utc_now
from streaming.errors import StreamingError, ViewError
from streaming.feeds import feed_flights
from streaming.java import require_java
from streaming.lake import Lake
from streaming.late import late_pairs
from streaming.log import read_log, rejected
from streaming.pipeline import Pipeline
from streaming.progress import shown_on
from streaming.registry import find_pipeline
from streaming.scaffold import write_skeleton
from streaming.session import start_session
from streaming.settings import Settings
from streaming.views import current, read_first

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming.windowed import Windowed

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Event-time pipelines on Spark whose every number can be recomputed.",
)
console = Console()

PipelineName = Annotated[str, typer.Argument(help="Name of a declared pipeline, such as flights.")]
ViewName = Annotated[str | None, typer.Option("--view", help="Name of a view; the pipeline's first one if left out.")]


class Table(StrEnum):
    """What `tidemark show` can show of a pipeline."""

    log = "log"
    rejected = "rejected"
    late = "late"
    first = "first"
    corrections = "corrections"
    current = "current"


@app.command()
def feed(
    stream: PipelineName,
    first_day: Annotated[datetime, typer.Option("--from", formats=["%Y-%m-%d"], help="First day, UTC.")] = datetime(
        2013, 1, 1
    ),
    days: Annotated[int, typer.Option(help="How many days.", min=1)] = 7,
    dirty: Annotated[
        float, typer.Option(help="Share of lines damaged on purpose, reproducibly.", min=0, max=1)
    ] = 0.005,
) -> None:
    """Replay real flights into the landing folder, as the airports' systems would report them."""
    pipeline = find_pipeline(stream)
    if pipeline.name != "flights":
        raise StreamingError(f"there is no feed for {stream!r}; feeds are: flights. Put files into its landing folder.")
    landing = _lake().local(pipeline.stream.source.path)
    if landing is None:
        raise StreamingError(
            f"the feed writes to a folder of this machine, not to {_lake().root!r}; set TIDEMARK_HOME."
        )
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("replaying flights", total=None)
        report = feed_flights(
            landing, first_day.date(), days, dirty, lambda done, total: bar.update(task, completed=done, total=total)
        )
    console.print(str(report), highlight=False)
    next_step(console, f"tidemark run {stream}", "ingests them and computes first results.")


@app.command()
def run(
    pipeline_name: PipelineName,
    end_of_input: Annotated[bool, typer.Option("--end-of-input", help="Close the windows still open.")] = False,
) -> None:
    """Ingest everything that has arrived, then bring the views up to date."""
    pipeline = find_pipeline(pipeline_name)
    with _spark() as spark:
        with shown_on(console) as progress:
            done = drain(spark, _lake(), pipeline, end_of_input=end_of_input, progress=progress)
        if done.head is None:
            console.print(f"Nothing has arrived in {_lake().landing(pipeline.stream)} yet.")
            next_step(console, f"tidemark feed {pipeline_name}", "lets something arrive.")
            return
        _say_backlog(spark, pipeline)


@app.command()
def correct(
    pipeline_name: PipelineName,
    day: Annotated[list[datetime] | None, typer.Option(formats=["%Y-%m-%d"], help="A day, UTC; repeatable.")] = None,
) -> None:
    """Recompute the windows that late data has changed: the given days, or all that need it."""
    pipeline = find_pipeline(pipeline_name)
    lake = _lake()
    with _spark() as spark, Bar(console=console, transient=True) as bar:
        for view in pipeline.views:
            days = [entry.date() for entry in day] if day else [entry.day for entry in plan(spark, lake, view)]
            task = bar.add_task(f"correcting {view.name}", total=len(days))

            def told(done: date, rows: int, name: str = view.name) -> None:
                bar.advance(task)  # noqa: B023 -- called before the loop goes on
                bar.console.print(f"{name} {done}: {rows:,} windows corrected", highlight=False)

            if not correct_days(spark, lake, view, days, utc_now, told):
                bar.console.print(f"{view.name}: no day has late pairs that are not corrected yet.")
    next_step(console, f"tidemark show {pipeline_name} current", "shows first results overlaid with corrections.")


@app.command()
def show(
    pipeline_name: PipelineName,
    table: Annotated[Table, typer.Argument(help="Which table or read.")] = Table.current,
    view: ViewName = None,
    limit: Annotated[int, typer.Option(help="Rows to print.", min=1)] = 20,
) -> None:
    """Print rows of the event log, its side outputs, or a view."""
    pipeline = find_pipeline(pipeline_name)
    with _spark() as spark:
        frame = _frame(spark, pipeline, pipeline.view(view), table)
        print_frame(console, frame, f"{pipeline_name} {table}", limit)
    next_step(console, f"tidemark audit {pipeline_name}", "recomputes everything from the log and checks every law.")


@app.command()
def audit(pipeline_name: PipelineName) -> None:
    """Check every law on the lake as it stands, recomputing all results from the log; exit 1 if one is broken."""
    pipeline = find_pipeline(pipeline_name)
    with _spark() as spark:
        held = print_findings(console, audit_laws(spark, _lake(), pipeline))
    if not held:
        next_step(
            console, f"tidemark show {pipeline_name} log", "looks at the rows; a broken law is a defect: report it."
        )
        raise typer.Exit(1)
    next_step(console, "tidemark report on_time_performance", "publishes the report, if its gate opens.")


@app.command()
def report(name: Annotated[str, typer.Argument(help="Name of a report, such as on_time_performance.")]) -> None:
    """Judge the tables that a report reads, and publish it if its gate opens."""
    declared = find_report(name)
    with _spark() as spark:
        published = judge_and_publish(spark, _lake(), declared, run_id=f"cli-{uuid4().hex[:12]}")
    for title, table in published.tables.items():
        print_table(console, table, title)
    for path in (*published.csv.values(), *filter(None, [published.png])):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    next_step(console, f"tidemark audit {declared.pipeline.name}", "proves every number again from the log.")


@app.command()
def demo() -> None:
    """Seven days of real flights through Dagster: feed, drain, corrections, gate, report, audit."""
    if not show_demonstrated(console, run_demo(console)):
        raise typer.Exit(1)


@app.command()
def ui(port: Annotated[int, typer.Option(help="Port on this machine.")] = 3000) -> None:
    """Open Dagster on the runs, the asset graph, the checks and the report of this lake."""
    start_ui(console, port)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the new pipeline.")],
    folder: Annotated[Path, typer.Option(help="Where to write it.")] = Path("streaming/pipelines"),
) -> None:
    """Write the skeleton of a new pipeline: a declaration that runs as a stream and as a batch."""
    for path in write_skeleton(folder, name):
        console.print(f"wrote {path}", highlight=False)
    next_step(console, f"tidemark run {name}", "after a first file is in its landing folder.")


def main() -> None:
    """Run the command; errors that were raised on purpose are told in one line, without a stack trace."""
    # Dagster calls half of what it documents a beta.
    warnings.filterwarnings("ignore", category=BetaWarning)
    try:
        require_java()
        app()
    except (StreamingError, QualityError, PlatformError) as error:
        Console(stderr=True).print(f"[bold red]{type(error).__name__}:[/] {_plain(str(error))}", highlight=False)
        sys.exit(1)


def _frame(spark: SparkSession, pipeline: Pipeline, view: Windowed, table: Table) -> DataFrame:
    lake = _lake()
    match table:
        case Table.log:
            return read_log(spark, lake, pipeline.stream).orderBy("_batch", "_origin.position")
        case Table.rejected:
            columns = ("_batch", "_rejected", "_raw", "_origin")
            return rejected(read_log(spark, lake, pipeline.stream)).select(*columns).orderBy("_batch")
        case Table.late:
            return late_pairs(read_log(spark, lake, pipeline.stream), view).select(
                "window_start", "window_end", "_watermark", "_batch", *pipeline.stream.columns
            )
        case Table.first:
            return read_first(spark, lake, view).orderBy("window_start", *view.by)
    corrections = read_corrections(spark, lake, view)
    if table is Table.current:
        return current(read_first(spark, lake, view), corrections, view).orderBy("window_start", *view.by)
    if corrections is None:
        raise ViewError(f"view {view.name!r} has no corrections yet; run `tidemark correct {pipeline.name}` first.")
    return corrections.orderBy("window_start", *view.by)


def _say_backlog(spark: SparkSession, pipeline: Pipeline) -> None:
    days = sorted({entry.day for view in pipeline.views for entry in plan(spark, _lake(), view)})
    if days:
        console.print(f"Late data has changed windows of {len(days)} days already published as first results.")
        next_step(console, f"tidemark correct {pipeline.name}", "recomputes exactly those windows.")
    else:
        next_step(console, f"tidemark show {pipeline.name} current", "shows the results.")


@contextmanager
def _spark() -> Iterator[SparkSession]:
    with console.status("starting Spark"):
        spark = start_session()
    try:
        yield spark
    finally:
        spark.stop()


def _lake() -> Lake:
    return Settings().lake


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
