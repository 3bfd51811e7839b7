"""`tidemark report`: judge and publish."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Annotated, Any
from uuid import uuid4

import pyarrow as pa
import typer

from platform_assets.cli.completion import beginning, silent
from platform_assets.cli.context import AsJson, AsOf, console, has_little, read_lake, spark_session
from platform_assets.cli.documents import ReportDocument
from platform_assets.cli.render import next_step, print_table
from platform_assets.cli.rows import json_lines
from platform_assets.reports.publication import published_as_of, read_sections
from platform_assets.reports.publish import Published, judge_and_publish, sources_as_of
from platform_assets.reports.registry import declared_reports, find_report
from platform_assets.reports.report import Report
from quality import GateClosed
from streaming.lake import Lake
from streaming.operations import recomputed
from streaming.reading import json_lines as lines_of
from streaming.spark import frame_of_arrow


@silent
def report_names(incomplete: str) -> Iterable[str]:
    """The declared reports."""
    return beginning(incomplete, declared_reports())


ReportName = Annotated[
    str,
    typer.Argument(
        metavar="REPORT", help="Name of a report, such as on_time_performance.", autocompletion=report_names
    ),
]


def report(name: ReportName, as_of: AsOf = None, as_json: AsJson = False) -> None:
    """Judge what a report reads, and publish it if its gate opens.

    Exits with 4 if the gate is closed: the report before this one stays as it was. With --as-of it is only
    printed: as it was published of the batches of then, or else as it would have been. Nothing is judged.
    """
    declared = find_report(name)
    lake = read_lake(declared.pipeline, as_of)
    if as_of is not None:
        _print_as_of(declared, lake, as_of, as_json)
        return
    with spark_session(is_short=has_little(declared.pipeline)) as spark:
        try:
            published = judge_and_publish(spark, lake, declared, run_id=f"cli-{uuid4().hex[:12]}")
        except GateClosed as closed:
            if as_json:
                ReportDocument.refused(lake.root, declared, closed).print()
            raise
        if as_json:
            sections = {
                title: _parsed(json_lines(frame_of_arrow(spark, table))) for title, table in published.tables.items()
            }
            ReportDocument.of(lake.root, declared, published, sections).print()
            return
    for title, table in published.tables.items():
        print_table(console, table, title)
    for note in published.footnotes:
        console.print(f"note: {note}")
    for warning in published.warnings:
        console.print(f"warning: {warning.text}", soft_wrap=True)
    for path in _files(published):
        console.print(f"wrote {path}", soft_wrap=True)
    next_step(console, f"tidemark audit {declared.pipeline.name}", "proves every number again from the log.")


def _print_as_of(declared: Report, lake: Lake, as_of: str, as_json: bool) -> None:
    past = published_as_of(lake, declared)
    if past is not None:
        tables = read_sections(lake, past)
        if as_json:
            sections = {title: _parsed(lines_of(table.column_names, [table])) for title, table in tables.items()}
            ReportDocument.past(lake, declared, past.footnotes, sections, past.run_id).print()
            return
        _print_past(tables, past.footnotes, as_of)
        said = f"This is what run {past.run_id} has published of these batches; nothing was computed."
        console.print(said, soft_wrap=True)
        next_step(console, f"tidemark report {declared.name}", "judges and publishes what is current now.")
        return
    with (
        spark_session(is_short=has_little(declared.pipeline), why="nothing was published of these batches") as spark,
        recomputed(spark, lake, declared.pipeline.operators) as there,
    ):
        sources = sources_as_of(spark, there, declared)
        frames = {section.table: section.rows(sources) for section in declared.sections}
        tables = {title: frame.toArrow() for title, frame in frames.items()}
        if as_json:
            sections = {title: _parsed(json_lines(frame)) for title, frame in frames.items()}
            ReportDocument.past(lake, declared, sources.footnotes, sections).print()
            return
        notes = sources.footnotes
    _print_past(tables, notes, as_of)
    console.print("Nothing was judged or published: this is how it was then.")
    next_step(console, f"tidemark report {declared.name}", "judges and publishes what is current now.")


def _print_past(tables: Mapping[str, pa.Table], notes: Iterable[str], as_of: str) -> None:
    for title, table in tables.items():
        print_table(console, table, f"{title} as of {as_of}")
    for note in notes:
        console.print(f"note: {note}")


def _parsed(lines: Iterable[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def _files(published: Published) -> Iterable[str]:
    of_sections = chain.from_iterable(published.files.values())
    return (*of_sections, *filter(None, [published.png]))
