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
        result = profile(spark, lake, windowed, delay or (), complete)
        picture = f"{lake.report(f'lateness_{windowed.name}')}.png"
        put(spark, picture, as_png(draw(result)))
    _print(result)
    console.print(f"wrote {picture}", highlight=False, soft_wrap=True)
    _advise(result, pipeline_name)


def _print(result: Profile) -> None:
    overall = [spread_row(result.overall, "all rows")]
    print_rows(console, f"{result.view}: the delay that a share of the rows needs", ("", *SPREADS), overall)
    if result.by_partition:
        rows = [spread_row(spread) for spread in result.by_partition]
        print_rows(console, "by source partition", ("partition", *SPREADS), rows)
    if result.by_key:
        rows = [spread_row(spread) for spread in result.by_key]
        print_rows(console, "by key, those that need most", ("key", *SPREADS), rows)
    rows = [outcome_row(outcome, interval(result.declared)) for outcome in result.outcomes]
    print_rows(console, "with a delay of", OUTCOMES, rows)


def _advise(result: Profile, pipeline_name: str) -> None:
    if result.recommended is None:
        console.print(
            f"No delay makes {result.complete:.1%} of the rows come on time: {result.needed.never:,} came after an end "
            "of input had closed their windows.",
            highlight=False,
        )
        next_step(console, f"tidemark run {pipeline_name}", "ingests without --end-of-input while rows still come.")
        return
    console.print(
        f"A delay of {result.recommended} makes {result.complete:.1%} of the rows come on time; declared is "
        f"{result.declared}.",
        highlight=False,
    )
    if _same(result.recommended, result.declared):
        next_step(console, f"tidemark show {pipeline_name} current", "shows the results.")
    else:
        next_step(
            console,
            f"tidemark lateness {pipeline_name} --view {result.view} --complete {_more(result.complete)}",
            f"weighs another completeness; or declare the delay {result.recommended!r} in its clock.",
        )


def _same(one: str, other: str) -> bool:
    return interval(one) - interval(other) == timedelta()


def _more(complete: float) -> str:
    return "0.999" if complete < 0.999 else "0.99"
