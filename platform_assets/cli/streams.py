"""The commands that change how streams run: up, down, restart, pause, resume."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from platform_assets.cli.completion import pipeline_names
from platform_assets.cli.context import AnyNames, console, current_lake
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.render import next_step
from platform_assets.cli.requests import ask, ends_within, wait_for, wait_for_drain
from platform_assets.cli.status import say_why
from platform_assets.texts.status import status_table
from streaming.base import SupervisorError, utc_now
from streaming.declare import Pipeline, find_pipeline
from streaming.lake import Lake, Settings
from streaming.service import ControlFolder, Overview, look, supervise

Names = Annotated[
    list[str], typer.Argument(metavar="PIPELINE...", help="Names of declared pipelines.", autocompletion=pipeline_names)
]

_STARTS_WITHIN = 120.0


def up(
    pipelines: Names,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Supervise in this terminal until Ctrl-C; one pipeline only.")
    ] = False,
) -> None:
    """Run pipelines on and on, under supervisors that restart them."""
    lake, wanted = current_lake(), [find_pipeline(name) for name in pipelines]
    if foreground:
        if len(wanted) != 1:
            raise SupervisorError(
                f"--foreground supervises one pipeline, not {len(wanted)}", "leave it out, or name one."
            )
        logging.getLogger("tidemark").setLevel(Settings().log_level)
        console.print(f"Ctrl-C ends {wanted[0].name} at the boundary of a batch.")
        raise typer.Exit(ExitCode.STREAM_FAILED if supervise(lake, wanted[0]) else ExitCode.DONE)
    started = {pipeline.name: _start(lake, pipeline) for pipeline in wanted}
    asked_at = utc_now()

    def begun(overview: Overview) -> bool:
        supervisor = started[overview.pipeline.name]
        if supervisor is None or supervisor.poll() is not None:
            return True
        return overview.state == "running" and overview.since is not None and overview.since >= asked_at

    wait_for(lake, wanted, begun, "starting", _STARTS_WITHIN)
    overviews = [look(lake, pipeline) for pipeline in wanted]
    console.print(status_table(overviews, utc_now()))
    _end_if(any(not overview.running for overview in overviews), overviews)
    next_step(console, "tidemark status --watch", "shows them live; `tidemark down` ends them.")


def down(
    pipelines: AnyNames = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Take no more input, publish all that was taken, then end.")
    ] = False,
) -> None:
    """End streams between two batches; the next start goes on there.

    A drain starts a stream that is paused, and waits for the restart of one that has died.
    A drain of which an operator or a delivery is paused has not published all, and exits with 5.
    """
    lake, ended = current_lake(), ask("drain" if drain else "stop", pipelines)
    if drain:
        overviews = wait_for_drain(lake, ended)
        for overview in overviews:
            console.print(f"{overview.pipeline.name}: {overview.state}")
        queries = [query for each in overviews if each.process for query in each.process.queries.values()]
        _end_if(any(each.state == "failed" for each in overviews) or any(each.paused for each in queries), overviews)
    else:
        wait_for(lake, ended, lambda overview: not overview.running, "stopping", ends_within(ended))
    next_step(console, f"tidemark up {' '.join(entry.name for entry in ended)}", "starts them again.")


def pause(pipelines: AnyNames = None) -> None:
    """End the stream processes, but keep their supervisors.

    They hold the pipelines for `resume`.
    """
    paused = ask("pause", pipelines)
    ended = ("paused", "failed", "stopped")
    lake = current_lake()
    _end_if_failed(wait_for(lake, paused, lambda overview: overview.state in ended, "pausing", ends_within(paused)))
    next_step(console, f"tidemark resume {' '.join(entry.name for entry in paused)}", "goes on from there.")


def resume(pipelines: AnyNames = None) -> None:
    """Go on with streams that were paused."""
    resumed = ask("resume", pipelines)
    ended = ("running", "failed")
    _end_if_failed(
        wait_for(current_lake(), resumed, lambda overview: overview.state in ended, "starting", _STARTS_WITHIN)
    )
    next_step(console, "tidemark status --watch", "shows them live.")


def restart(pipelines: AnyNames = None) -> None:
    """End stream processes between two batches, and start them again.

    They run with new code and new settings then.
    """
    asked_at = utc_now()
    restarted = ask("restart", pipelines)

    def again(overview: Overview) -> bool:
        begun = overview.state == "running" and overview.process is not None and overview.process.started > asked_at
        return begun or overview.state == "failed"

    within = ends_within(restarted) + _STARTS_WITHIN
    _end_if_failed(wait_for(current_lake(), restarted, again, "restarting", within))
    next_step(console, "tidemark status --watch", "shows them live.")


def _end_if_failed(overviews: Sequence[Overview]) -> None:
    _end_if(any(overview.state == "failed" for overview in overviews), overviews)


def _end_if(failed: bool, overviews: Sequence[Overview]) -> None:
    if failed:
        say_why(overviews)
        raise typer.Exit(ExitCode.STREAM_FAILED)


def _start(lake: Lake, pipeline: Pipeline) -> subprocess.Popen[bytes] | None:
    """The supervisor that was started, or None where one runs already."""
    overview = look(lake, pipeline)
    if overview.running:
        console.print(f"{pipeline.name} runs already: {overview.holder}")
        return None
    control = ControlFolder(lake, pipeline)
    control.path.mkdir(parents=True, exist_ok=True)
    with control.output.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "streaming.service", "supervise", pipeline.name],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # It outlives this command and its terminal.
            start_new_session=True,
        )
