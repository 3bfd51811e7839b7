"""`tidemark lateness`: how late rows come, and what another delay of the clock would have meant."""

from __future__ import annotations

from typing import Annotated

import typer

from platform_assets.cli.context import AsJson, PipelineName, ViewName, console, current_lake, has_little, spark_session
from platform_assets.cli.documents import LatenessDocument
from platform_assets.cli.next_steps import shows_results
from platform_assets.cli.render import next_step, print_rows
from platform_assets.reports.files import as_png, put
from platform_assets.texts.lateness import OUTCOMES, SPREADS, explained, outcome_row, spread_row
from streaming.base import interval, needs
from streaming.declare import Pipeline, find_pipeline
from streaming.lateness import Profile, profile


def lateness(
    pipeline_name: PipelineName,
    view: ViewName = None,
    delay: Annotated[
        list[str] | None, typer.Option(help="A delay to look at, such as '10 minutes'; repeatable.")
    ] = None,
    complete: Annotated[float, typer.Option(help="The share of rows that shall be on time.", min=0.01, max=1.0)] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Show how late rows come, and which delay would make enough be on time.

    For each delay: how many rows would have been late, how long results would have waited.
    """
    needs("matplotlib", "the chart of lateness")
    from platform_assets.texts.lateness_chart import draw

    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    windowed = pipeline.view(view)
    with spark_session(is_short=has_little(pipeline)) as spark:
        result = profile(spark, lake, windowed, delay or (), complete)
        picture = f"{lake.report(f'lateness_{windowed.name}')}.png"
        put(spark, picture, as_png(draw(result)))
    if as_json:
        LatenessDocument.of(lake.root, pipeline.name, result, explained(result), picture).print()
        return
    _print(result)
    console.print(explained(result))
    console.print(f"wrote {picture}", soft_wrap=True)
    next_step(console, *_next(result, pipeline))


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
    print_rows(console, "with a delay of: late rows, how long results wait, how many windows are open", OUTCOMES, rows)


def _next(result: Profile, pipeline: Pipeline) -> tuple[str, str]:
    if result.recommended is None:
        return f"tidemark run {pipeline.name}", "ingests without --end-of-input while rows still come."
    if interval(result.recommended) == interval(result.declared):
        return shows_results(pipeline)
    return (
        f"tidemark lateness {pipeline.name} --view {result.view} --complete {_more(result.complete)}",
        f"weighs another completeness; or declare delay={result.recommended!r} in the clock of its stream.",
    )


def _more(complete: float) -> str:
    return "0.999" if complete < 0.999 else "0.99"
