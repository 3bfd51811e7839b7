"""`tidemark redeliver`: dead letters or days are sent again, and a delivery that was refused is told what is meant."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from platform_assets.cli.context import PipelineName, console, current_lake, spark_session
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.render import next_step
from streaming.base import DeclarationError, counted
from streaming.declare import find_pipeline
from streaming.operations import Redelivered, begin_anew, redeliver_days
from streaming.operations import redeliver as send_again


def redeliver(
    pipeline_name: PipelineName,
    delivery_name: Annotated[str, typer.Argument(help="Name of a delivery of that pipeline.")],
    go_on: Annotated[
        bool,
        typer.Option("--go-on", help="After a change: deliver by it what follows; of what is current, what differs."),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Deliver everything again, from the beginning.")] = False,
    day: Annotated[
        list[datetime] | None,
        typer.Option(formats=["%Y-%m-%d"], help="Deliver the rows of a day, UTC, again, as they stand; repeatable."),
    ] = None,
) -> None:
    """Send dead letters of a delivery again, each once, or whole days; or say how a delivery goes on."""
    if go_on + everything + bool(day) > 1:
        raise DeclarationError("--go-on, --all and --day exclude one another", "give the one that is meant.")
    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    delivery = pipeline.delivery(delivery_name)
    with spark_session() as spark:
        if go_on or everything:
            done = begin_anew(spark, lake, pipeline, delivery, again=everything)
            console.print(f"{delivery_name} {'begins anew' if everything else 'goes on'}.")
        elif day:
            days = sorted({entry.date() for entry in day})
            done = redeliver_days(spark, lake, pipeline, delivery, days)
            outcome = "is there again" if done.done else "is asked for"
            console.print(f"{delivery_name}: {', '.join(map(str, days))} {outcome}.")
        else:
            done = send_again(spark, lake, pipeline, delivery)
            arrived = done.dead_before - done.dead_after
            console.print(f"{done.dead_before:,} dead letters: {arrived:,} arrived, {done.dead_after:,} stay.")
            if done.earlier:
                console.print(
                    f"{counted(done.earlier, 'of these is', 'of these are')} from before the delivery went on by "
                    "another declaration or build, and not sent again; `--all` sends everything again."
                )
    _say(pipeline_name, delivery_name, done)


def _say(pipeline_name: str, delivery_name: str, done: Redelivered) -> None:
    if done.waiting:
        console.print(f"The target does not take it: {done.waiting}", soft_wrap=True)
        next_step(console, f"tidemark run {pipeline_name}", "goes on with it once the target is back.")
    elif done.holder:
        console.print(f"{done.holder} delivers it.")
        next_step(console, "tidemark status --watch", "shows how it gets on.")
    elif done.dead_after:
        why = "shows why each was refused."
        next_step(console, f"tidemark show {pipeline_name} {delivery_name}_dead", why)
    else:
        next_step(console, f"tidemark audit {pipeline_name}", "holds the target against what was delivered.")
    if not done.done:
        raise typer.Exit(ExitCode.FAILED)
