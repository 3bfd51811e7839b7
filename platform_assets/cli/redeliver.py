"""`tidemark redeliver`: dead letters are sent again, and a delivery that was refused is told what is meant."""

from __future__ import annotations

from typing import Annotated

import typer

from platform_assets.cli.context import PipelineName, console, current_lake, spark_session
from platform_assets.cli.render import next_step
from streaming.base import DeclarationError
from streaming.declare import find_pipeline
from streaming.operations import Redelivered, begin_anew
from streaming.operations import redeliver as send_again


def redeliver(
    pipeline_name: PipelineName,
    delivery_name: Annotated[str, typer.Argument(help="Name of a delivery of that pipeline.")],
    go_on: Annotated[
        bool,
        typer.Option("--go-on", help="After a change: deliver by it what follows; of what is current, what differs."),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Deliver everything again, from the beginning.")] = False,
) -> None:
    """Send the dead letters of a delivery again, each once; or say how a delivery goes on that was refused."""
    if go_on and everything:
        raise DeclarationError("--go-on and --all exclude one another; give the one that is meant.")
    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    delivery = pipeline.delivery(delivery_name)
    with spark_session() as spark:
        if go_on or everything:
            done = begin_anew(spark, lake, pipeline, delivery, again=everything)
            console.print(f"{delivery_name} {'begins anew' if everything else 'goes on'}.", highlight=False)
        else:
            done = send_again(spark, lake, pipeline, delivery)
            arrived = done.dead_before - done.dead_after
            console.print(
                f"{done.dead_before:,} dead letters: {arrived:,} arrived, {done.dead_after:,} stay.", highlight=False
            )
    _say(pipeline_name, delivery_name, done)


def _say(pipeline_name: str, delivery_name: str, done: Redelivered) -> None:
    if done.waiting:
        console.print(f"The target does not take it: {done.waiting}", highlight=False, markup=False, soft_wrap=True)
        next_step(console, f"tidemark run {pipeline_name}", "goes on with it once the target is back.")
    elif done.holder:
        console.print(f"{done.holder} delivers it.", highlight=False, markup=False)
        next_step(console, "tidemark status --watch", "shows how it gets on.")
    elif done.dead_after:
        why = "shows why each was refused."
        next_step(console, f"tidemark show {pipeline_name} {delivery_name}_dead", why)
    else:
        next_step(console, f"tidemark audit {pipeline_name}", "holds the target against what was delivered.")
