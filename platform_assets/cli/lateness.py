"""`tidemark lateness`: how late rows come, and what another delay of the clock would have meant."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from platform_assets.cli.context import PipelineName, ViewName, console, current_lake, spark_session
from platform_assets.cli.render import next_step, print_rows
from platform_assets.reports.files import as_png, put
from platform_assets.texts.lateness import OUTCOMES, SPREADS, outcome_row, spread_row
from platform_assets.texts.lateness_chart import draw
from streaming.base import interval
from streaming.declare import find_pipeline
from streaming.lateness import Profile, profile


def lateness(
    pipeline_name: PipelineName,
    view: ViewName = None,
    delay: Annotated[
        list[str] | None, typer.Option(help="A delay to look at, such as '10 minutes'; repeatable.")
    ] = None,
    complete: Annotated[float, typer.Option(help="The share of rows that shall be on time.", min=0.01, max=1.0)] = 0.99,
) -> None:
    """Show how late rows come, what other delays would have meant, and which delay makes enough rows come on time."""
    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    windowed = pipeline.view(view)
    with spark_session() as spark:
        found = profile(spark, lake, windowed, delay or (), complete)
        picture = f"{lake.report(f'lateness_{windowed.name}')}.png"
        put(spark, picture, as_png(draw(found)))
    _print(found)
    console.print(f"wrote {picture}", highlight=False, soft_wrap=True)
    _advise(found, pipeline_name)


def _print(found: Profile) -> None:
    overall = [spread_row(found.overall, "all rows")]
    print_rows(console, f"{found.view}: the delay that a share of the rows needs", ("", *SPREADS), overall)
    if found.by_partition:
        rows = [spread_row(spread) for spread in found.by_partition]
        print_rows(console, "by source partition", ("partition", *SPREADS), rows)
    if found.by_key:
        rows = [spread_row(spread) for spread in found.by_key]
        print_rows(console, "by key, those that need most", ("key", *SPREADS), rows)
    rows = [outcome_row(outcome, interval(found.declared)) for outcome in found.outcomes]
    print_rows(console, "with a delay of", OUTCOMES, rows)


def _advise(found: Profile, pipeline_name: str) -> None:
    if found.recommended is None:
        console.print(
            f"No delay makes {found.complete:.1%} of the rows come on time: {found.needed.never:,} came after an end "
            "of input had closed their windows.",
            highlight=False,
        )
        next_step(console, f"tidemark run {pipeline_name}", "ingests without --end-of-input while rows still come.")
        return
    console.print(
        f"A delay of {found.recommended} makes {found.complete:.1%} of the rows come on time; declared is "
        f"{found.declared}.",
        highlight=False,
    )
    if _same(found.recommended, found.declared):
        next_step(console, f"tidemark show {pipeline_name} current", "shows the results.")
    else:
        next_step(
            console,
            f"tidemark lateness {pipeline_name} --view {found.view} --complete {_more(found.complete)}",
            f"weighs another completeness; or declare the delay {found.recommended!r} in the clock of {pipeline_name}.",
        )


def _same(one: str, other: str) -> bool:
    return interval(one) - interval(other) == timedelta()


def _more(complete: float) -> str:
    return "0.999" if complete < 0.999 else "0.99"
