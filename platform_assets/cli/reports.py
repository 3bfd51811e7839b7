"""`tidemark report`: judge and publish."""

from __future__ import annotations

from itertools import chain
from typing import Annotated
from uuid import uuid4

import typer

from platform_assets.cli.context import console, current_lake, spark_session
from platform_assets.cli.render import next_step, print_table
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import find_report


def report(name: Annotated[str, typer.Argument(help="Name of a report, such as on_time_performance.")]) -> None:
    """Judge the tables that a report reads, and publish it if its gate opens."""
    declared = find_report(name)
    with spark_session() as spark:
        published = judge_and_publish(spark, current_lake(), declared, run_id=f"cli-{uuid4().hex[:12]}")
    for title, table in published.tables.items():
        print_table(console, table, title)
    for note in published.footnotes:
        console.print(f"note: {note}", highlight=False)
    for path in (*chain.from_iterable(published.files.values()), *filter(None, [published.png])):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    next_step(console, f"tidemark audit {declared.pipeline.name}", "proves every number again from the log.")
