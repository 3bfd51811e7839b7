"""The context of every command: the console, the lake of the settings, a Spark session for as long as it lasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from platform_assets.cli.command_log import command_log
from platform_assets.cli.completion import operator_names, pipeline_names, view_names
from platform_assets.cli.interrupts import leave_at_once, on_interrupt
from streaming.base import DeclarationError
from streaming.declare import Operator, Pipeline, broken_modules, declared_pipelines
from streaming.lake import Lake, Settings
from streaming.tables import delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming.spark import JarGroup

# Names, paths and values are shown as they are, and not taken for markup.
console = Console(markup=False, highlight=False)

LITTLE = 32 * 2**20
"""Bytes of rows up to which a JVM that compiles quickly costs less than one that compiles well."""

PipelineName = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE", help="Name of a declared pipeline, such as flights.", autocompletion=pipeline_names
    ),
]
OperatorName = Annotated[
    str,
    typer.Argument(
        metavar="VIEW",
        help="Name of a view, or PIPELINE/VIEW where two have the same name.",
        autocompletion=operator_names,
    ),
]
ViewName = Annotated[
    str | None,
    typer.Option("--view", help="Name of a view; the pipeline's first one if left out.", autocompletion=view_names),
]
AnyNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PIPELINE...",
        help="Names of declared pipelines; all, if none is given.",
        autocompletion=pipeline_names,
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="As of a batch, an instant such as 2026-03-02T09:00 (UTC), or a savepoint."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def current_lake() -> Lake:
    """The lake at `TIDEMARK_HOME`."""
    return Settings().lake


def read_lake(pipeline: Pipeline, as_of: str | None) -> Lake:
    """The lake at `TIDEMARK_HOME`, as of what `as_of` names of the pipeline."""
    if as_of is None:
        return current_lake()
    from streaming.operations import lake_as_of

    return lake_as_of(current_lake(), pipeline, as_of)


def find_operator(name: str) -> tuple[Pipeline, Operator]:
    """The operator of that name, or of that pipeline and name, and its pipeline.

    Raises:
        DeclarationError: none is declared, or several; with all that are, and the modules that cannot be imported.
    """
    wanted, _, view = name.rpartition("/")
    every = [(pipeline, entry) for pipeline in declared_pipelines().values() for entry in pipeline.operators]
    matching = [(pipeline, entry) for pipeline, entry in every if entry.name == view and wanted in ("", pipeline.name)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(f"{pipeline.name}/{entry.name}" for pipeline, entry in matching or every) or "none"
    text = f"there {'are several views' if matching else 'is no view'} {name!r}: {names}. Write one of these."
    raise DeclarationError("\n".join([text, *map(str, broken_modules())]))


def fetch_jars(pipeline: Pipeline) -> None:
    """Fetch what the pipeline's sources need besides every session's jars, if it is not there, and say so meanwhile.

    Raises:
        JarError: a jar cannot be had.
    """
    _fetch(group for stream in pipeline.streams for group in stream.source.jars)


def _fetch(groups: Iterable[JarGroup]) -> None:
    from streaming.spark import are_there, jars_of

    for group in dict.fromkeys(groups):
        if not are_there(group):
            with console.status(f"fetching the jars for {group.about}, once"):
                jars_of(group)


def has_little(pipeline: Pipeline) -> bool:
    """True if the logs of a pipeline are small, so that whoever reads them is soon done."""
    lake = current_lake()
    logs = (lake.log(stream) for stream in pipeline.streams)
    return sum(delta.size(log) for log in logs if delta.exists(log)) < LITTLE


def start_quietly(*, is_short: bool = False, why: str = "") -> SparkSession:
    """The session that runs already, or a new one; what Spark and Java say at the start goes to the command's log.

    `is_short` as for `start_session`; `why` says what it is needed for, where that can be a surprise.
    """
    from streaming.spark import start_session, storage_jars

    command_log.takes_records_of_pyspark()
    _fetch(storage_jars(current_lake().root))
    said = f"starting Spark: {why}" if why else "starting Spark"
    # On stderr, because what a command prints may be read by a program.
    with command_log.takes_stderr() as terminal, Console(file=terminal).status(said):
        return start_session(is_short=is_short)


@contextmanager
def spark_session(*, is_short: bool = False, why: str = "") -> Iterator[SparkSession]:
    """The session that runs already, which is left running, or a new one, which is stopped afterwards.

    `is_short` and `why` as for `start_quietly`.
    """
    from pyspark.sql import SparkSession

    from streaming.operations import make_class_archive_later

    command_log.takes_records_of_pyspark()
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    spark = start_quietly(is_short=is_short, why=why)
    # Spark's own handler would break off whatever call is under way.
    with on_interrupt(leave_at_once):
        try:
            yield spark
        finally:
            spark.stop()
            make_class_archive_later()
