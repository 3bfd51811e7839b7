"""The `tidemark` command: feed, run, correct, repair, show, lateness, audit, report, and the demo through Dagster."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from dagster import BetaWarning

from platform_assets.cli import bench, explain, lateness, pipelines, rebuild, repair, streams
from platform_assets.cli.command_log import command_log
from platform_assets.cli.context import console, current_lake, spark_session
from platform_assets.cli.demonstrated import show_demonstrated
from platform_assets.cli.failures import Commands, print_failure
from platform_assets.cli.render import next_step, print_table
from platform_assets.demo.demo import run_demo
from platform_assets.demo.live import run_live
from platform_assets.demo.ui import start_ui
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import find_report
from streaming.operations import write_skeleton
from streaming.spark import require_java

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    help="Event-time pipelines on Spark whose every number can be recomputed.",
)
for command in (
    pipelines.feed,
    pipelines.run,
    pipelines.correct,
    repair.repair,
    rebuild.rebuild,
    rebuild.drop,
    pipelines.show,
    explain.explain,
    lateness.lateness,
    bench.bench,
    pipelines.audit,
    pipelines.maintain,
    streams.up,
    streams.status,
    streams.logs,
    streams.pause,
    streams.resume,
    streams.restart,
    streams.down,
    streams.metrics,
):
    app.command()(command)


@app.command()
def report(name: Annotated[str, typer.Argument(help="Name of a report, such as on_time_performance.")]) -> None:
    """Judge the tables that a report reads, and publish it if its gate opens."""
    declared = find_report(name)
    with spark_session() as spark:
        published = judge_and_publish(spark, current_lake(), declared, run_id=f"cli-{uuid4().hex[:12]}")
    for title, table in published.tables.items():
        print_table(console, table, title)
    for note in published.footnotes:
        console.print(f"note: {note}", highlight=False)
    for path in (*published.csv.values(), *filter(None, [published.png])):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    next_step(console, f"tidemark audit {declared.pipeline.name}", "proves every number again from the log.")


@app.command()
def demo() -> None:
    """Seven days of real flights through Dagster: feed, drain, corrections, gate, report, audit."""
    if not show_demonstrated(console, run_demo(console)):
        raise typer.Exit(1)


@app.command()
def live(
    seconds_a_day: Annotated[float, typer.Option(help="How fast days of flights come in.", min=1)] = 30.0,
    port: Annotated[int, typer.Option(help="Port of Dagster on this machine.")] = 3000,
) -> None:
    """Run flights on and on, fed day after day, with Dagster correcting and reporting beside it, until Ctrl-C."""
    run_live(console, seconds_a_day=seconds_a_day, port=port)
    next_step(console, "tidemark audit flights", "proves what was published from the log.")


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
    """Run the command; whatever goes wrong is one paragraph on the terminal, and its trace is in a file."""
    # Dagster calls half of what it documents a beta.
    warnings.filterwarnings("ignore", category=BetaWarning)
    with command_log.collecting():
        code = _run()
    sys.exit(code)


def _run() -> int:
    """Run the command; returns its exit code."""
    try:
        require_java()
        app()
    except SystemExit as ended:
        command_log.discard()
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    # Whatever is raised becomes one paragraph here; the trace is in the file that it names.
    except Exception as error:
        print_failure(error)
        return 1
    return 0
