"""`tidemark status` and `tidemark logs`: what streams do, and what they have said."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live

from platform_assets.cli.broken import print_broken
from platform_assets.cli.context import AnyNames, AsJson, PipelineName, console, current_lake
from platform_assets.cli.render import next_step
from platform_assets.cli.requests import named_pipelines
from platform_assets.texts.positions import LogPosition, delivery_positions, log_positions
from platform_assets.texts.receivers import receiver_line, receiver_table
from platform_assets.texts.retention import told_horizons
from platform_assets.texts.status import status_table
from streaming.base import SupervisorError, counted, utc_now
from streaming.declare import Pipeline, broken_modules, declared_pipelines, find_pipeline
from streaming.operations import UndeclaredTable, undeclared_tables
from streaming.operators import FilterCounts, filter_counts
from streaming.service import ControlFolder, Overview, lateness_texts, look
from streaming.sources import largest_partitions

if TYPE_CHECKING:
    from platform_assets.cli.retention_documents import RetentionDocument
    from streaming.operators import UpstreamLag


def status(
    pipelines: AnyNames = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what every stream does: state, rates, watermark, backlog."""
    if watch and as_json:
        raise typer.BadParameter("--watch and --json exclude each other; give one of them.")
    lake, shown, declared = current_lake(), named_pipelines(pipelines), declared_pipelines().values()

    def look_at_all() -> list[Overview]:
        return [look(lake, pipeline) for pipeline in shown]

    def left() -> Iterable[UndeclaredTable]:
        return (table for pipeline in shown for table in undeclared_tables(lake, pipeline))

    def filters() -> Iterator[tuple[Pipeline, str, FilterCounts]]:
        for pipeline in shown:
            for operator in pipeline.operators:
                for suffix, counts in filter_counts(lake, operator).items():
                    yield pipeline, operator.table_name(suffix), counts

    def lags() -> Iterator[tuple[Pipeline, UpstreamLag]]:
        for pipeline in shown:
            for operator in pipeline.operators:
                if operator.follows_current:
                    # Most pipelines follow nothing, and status is there at once without it.
                    from streaming.operators import upstream_lags

                    for lag in upstream_lags(lake, operator):
                        yield pipeline, lag

    def retention() -> Iterable[RetentionDocument]:
        from platform_assets.cli.retention_documents import RetentionDocument

        return (each for pipeline in shown for each in RetentionDocument.all_of(lake, pipeline, declared))

    def positions(overviews: Sequence[Overview]) -> Iterator[LogPosition]:
        # The row of one that runs has the least watermark of its streams, and what waits for all.
        for each in overviews:
            yield from log_positions(lake, each.pipeline, waiting=not each.running)

    if as_json:
        from platform_assets.cli.status_documents import StatusDocument

        overviews, broken = look_at_all(), broken_modules()
        StatusDocument.of(
            lake.root, utc_now(), overviews, left(), broken, filters(), retention(), positions(overviews), lags()
        ).print()
        return
    print_broken(broken_modules())
    if not watch:
        overviews = look_at_all()
        console.print(_shown(overviews))
        resting = [overview.pipeline for overview in overviews if not overview.running]
        for position in positions(overviews):
            several = len(find_pipeline(position.pipeline).streams) > 1
            if several or position.pipeline in {pipeline.name for pipeline in resting}:
                console.print(str(position), soft_wrap=True)
        for behind in (each for pipeline in resting for each in delivery_positions(lake, pipeline)):
            console.print(str(behind), soft_wrap=True)
        for pipeline, table, counts in filters():
            summary = f"{counted(counts.rows_in, 'row')} in, {counts.kept:,} kept, {counts.removed:,} removed"
            console.print(f"{pipeline.name}: filter of {table}: {summary}", soft_wrap=True)
        for line in (f"{pipeline.name}: {lag}" for pipeline, lag in lags() if str(lag)):
            console.print(line, soft_wrap=True)
        for line in (each for pipeline in shown for each in told_horizons(lake, pipeline, declared)):
            console.print(line, soft_wrap=True)
        _say_left(left())
        say_why(overviews)
        return
    with Live(console=console, refresh_per_second=2, screen=False) as live:
        try:
            while True:
                live.update(_shown(look_at_all()))
                time.sleep(0.5)
        except KeyboardInterrupt:
            return


def _shown(overviews: Sequence[Overview]) -> Group:
    """The streams and, where there are some, the receivers."""
    receivers = [status for overview in overviews for status in overview.receivers]
    streams = status_table(overviews, utc_now())
    return Group(streams, "", receiver_table(receivers, utc_now())) if receivers else Group(streams)


def logs(
    pipeline_name: PipelineName,
    lines: Annotated[int, typer.Option("-n", help="How many lines from the end.", min=1)] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on printing until Ctrl-C.")] = False,
) -> None:
    """Print what a stream process and its supervisor have said."""
    lake = current_lake()
    output = ControlFolder(lake, find_pipeline(pipeline_name)).output
    if not output.is_file():
        raise SupervisorError(
            f"stream {pipeline_name!r} was never started here, in the lake {lake.root!r}; `tidemark up "
            f"{pipeline_name}` does, or point TIDEMARK_HOME to the lake where it was.",
            stream=pipeline_name,
        )
    command = ["tail", "-n", str(lines), *(["-F"] if follow else []), str(output)]
    try:
        subprocess.run(command, check=False)
    except KeyboardInterrupt:
        return


def say_why(overviews: Sequence[Overview]) -> None:
    """Print what is the matter with those that do not run or whose source is amiss, and what to do next."""
    for overview in overviews:
        for name, query in (overview.process.queries if overview.process is not None else {}).items():
            for text in (query.paused and f"is paused: {query.paused}", query.waiting and f"waits: {query.waiting}"):
                if text:
                    line = f"{overview.pipeline.name}: {name} {text}"
                    console.print(line, soft_wrap=True)
        for text in lateness_texts(overview, utc_now()):
            console.print(f"{overview.pipeline.name}: {text}", soft_wrap=True)
        for receiver in overview.receivers:
            if receiver.why:
                line = f"{overview.pipeline.name}: receiver {receiver_line(receiver)}"
                console.print(line, soft_wrap=True)
        if overview.why:
            console.print(f"{overview.pipeline.name}: {overview.why}", soft_wrap=True)
        for backlog in () if overview.process is None else overview.process.backlog:
            for text in filter(None, (largest_partitions(backlog), backlog.warning)):
                message = f"{overview.pipeline.name}: {text}"
                console.print(message, soft_wrap=True)
    broken = [overview.pipeline.name for overview in overviews if overview.state == "failed"]
    idle = [overview.pipeline.name for overview in overviews if overview.state == "stopped"]
    if broken:
        next_step(console, f"tidemark logs {broken[0]}", "shows what led to it.")
    elif not overviews:
        next_step(console, "tidemark new stream NAME", "writes the skeleton of a pipeline.")
    elif len(idle) == len(overviews):
        next_step(console, f"tidemark up {idle[0]}", "starts it.")
    else:
        next_step(console, "tidemark status --watch", "shows it live; `tidemark down` ends streams.")


def _say_left(tables: Iterable[UndeclaredTable]) -> None:
    """Tables of views that are not declared: dropped or renamed ones, and those built beside others."""
    for table in tables:
        console.print(
            f"{table.uri} belongs to view {table.operator!r}, which is not declared; `tidemark drop "
            f"{table.operator}` removes it.",
            soft_wrap=True,
        )
