"""`tidemark explain`: how a view is computed, and why so; where a stream's rows are judged, and why there."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from platform_assets.cli.completion import explained_names
from platform_assets.cli.context import console, current_lake, find_operator, spark_session
from platform_assets.cli.render import next_step, print_rows
from platform_assets.texts.ingest import PARTS, part_row, summary
from streaming.declare import Operator, Pipeline, Stream, declared_pipelines
from streaming.lake import Settings
from streaming.log import places_of_ingest, require_log
from streaming.operators import analysis_of, counts_of, places_in, runtime_of

_ANALYSED = "no run has analysed this declaration yet"


def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="VIEW|STREAM",
            help="Name of a view, PIPELINE/VIEW where two have the same name, or name of a stream.",
            autocompletion=explained_names,
        ),
    ],
) -> None:
    """Explain how a view is computed, or where a stream's rows are judged, and why so."""
    found = _ingested(name)
    if found is None:
        _explain_view(*find_operator(name))
    else:
        _explain_stream(*found)


def _ingested(name: str) -> tuple[Pipeline, Stream] | None:
    """The stream of that name, and its pipeline; None where it is no stream, or a view as well."""
    pipelines = declared_pipelines().values()
    if any(operator.name == name for pipeline in pipelines for operator in pipeline.operators):
        return None
    found = ((pipeline, stream) for pipeline in pipelines for stream in pipeline.streams if stream.name == name)
    return next(found, None)


def _explain_view(pipeline: Pipeline, operator: Operator) -> None:
    lake = current_lake()
    runtime = runtime_of(operator, lake)
    for stream in operator.follows:
        require_log(lake, stream)
    analysis = analysis_of(lake, pipeline, operator)
    if analysis is None:
        with spark_session(is_short=True, why=_ANALYSED) as spark:
            lines = runtime.explain(spark)
    else:
        lines = runtime.explained(analysis)
    table = Table(show_header=False, box=None, title=f"{pipeline.name}/{operator.name}", title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for heading, text in lines.items():
        table.add_row(heading, text)
    console.print(table)
    next_step(console, f"tidemark bench {pipeline.name}", "replays a sample of its log, and says where the time goes.")


def _explain_stream(pipeline: Pipeline, stream: Stream) -> None:
    lake = current_lake()
    parts = places_in(lake, pipeline, stream)
    if parts is None:
        runtimes = [runtime_of(operator, lake) for operator in pipeline.operators_of(stream)]
        with spark_session(is_short=True, why=_ANALYSED) as spark:
            parts = places_of_ingest(spark, stream, counts_of(runtimes, stream)).parts
    print_rows(console, f"{pipeline.name}: ingest of {stream.name}", PARTS, map(part_row, parts))
    console.print(summary(stream.name, parts, Settings().ingest))
    command = f"tidemark bench {pipeline.name}" + ("" if stream == pipeline.stream else f" --stream {stream.name}")
    next_step(console, command, "replays a sample of its log, and says where the time goes.")
