"""The commands on streams that run: up, down, restart, pause, resume, status, logs, metrics."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, start_http_server
from rich.live import Live

from platform_assets.cli.broken import print_broken
from platform_assets.cli.context import console, current_lake
from platform_assets.cli.render import next_step
from platform_assets.cli.requests import ask, ends_within, named_pipelines, wait_for, wait_for_drain
from platform_assets.texts.status import status_table
from streaming.base import SupervisorError, utc_now
from streaming.declare import Pipeline, broken_modules, declared_pipelines, find_pipeline
from streaming.lake import Lake
from streaming.operations import left_tables
from streaming.service import ControlFolder, Overview, StreamCollector, look, supervise

Names = Annotated[list[str], typer.Argument(help="Names of declared pipelines.")]
AnyNames = Annotated[list[str] | None, typer.Argument(help="Names of declared pipelines; all, if none is given.")]

_STARTS_WITHIN = 120.0


def up(
    pipelines: Names,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Supervise in this terminal until Ctrl-C; one pipeline only.")
    ] = False,
) -> None:
    """Run each pipeline on and on, under a supervisor that starts it again when it dies."""
    lake, wanted = current_lake(), [find_pipeline(name) for name in pipelines]
    if foreground:
        if len(wanted) != 1:
            raise SupervisorError(
                f"--foreground supervises one pipeline, not {len(wanted)}; leave it out, or name one."
            )
        raise typer.Exit(supervise(lake, wanted[0]))
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
    if not all(overview.running for overview in overviews):
        _say_why(overviews)
        raise typer.Exit(1)
    next_step(console, "tidemark status --watch", "shows them live; `tidemark down` ends them.")


def down(
    pipelines: AnyNames = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Take no more input, publish all that was taken, then end.")
    ] = False,
) -> None:
    """End streams at the boundary of a batch; the next start goes on from there."""
    lake, ended = current_lake(), ask("drain" if drain else "stop", pipelines)
    if drain:
        overviews = wait_for_drain(lake, ended)
        for overview in overviews:
            console.print(f"{overview.pipeline.name}: {overview.state}", highlight=False)
        if any(overview.state == "failed" for overview in overviews):
            _say_why(overviews)
            raise typer.Exit(1)
    else:
        wait_for(lake, ended, lambda overview: not overview.running, "stopping", ends_within(ended))
    next_step(console, f"tidemark up {' '.join(entry.name for entry in ended)}", "starts them again.")


def pause(pipelines: AnyNames = None) -> None:
    """End the stream processes, but keep their supervisors, which hold the pipelines for `resume`."""
    paused = ask("pause", pipelines)
    ended = ("paused", "failed", "stopped")
    wait_for(current_lake(), paused, lambda overview: overview.state in ended, "pausing", ends_within(paused))
    next_step(console, "tidemark resume", "goes on where they were paused.")


def resume(pipelines: AnyNames = None) -> None:
    """Go on with streams that were paused."""
    resumed = ask("resume", pipelines)
    wait_for(
        current_lake(), resumed, lambda overview: overview.state in ("running", "failed"), "starting", _STARTS_WITHIN
    )
    next_step(console, "tidemark status --watch", "shows them live.")


def restart(pipelines: AnyNames = None) -> None:
    """End each stream process at the boundary of a batch, and start it again: with new code, or new settings."""
    asked_at = utc_now()
    restarted = ask("restart", pipelines)

    def again(overview: Overview) -> bool:
        begun = overview.state == "running" and overview.process is not None and overview.process.started > asked_at
        return begun or overview.state == "failed"

    wait_for(current_lake(), restarted, again, "restarting", ends_within(restarted) + _STARTS_WITHIN)
    next_step(console, "tidemark status --watch", "shows them live.")


def status(
    pipelines: AnyNames = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it until Ctrl-C.")] = False,
) -> None:
    """What every stream does: state, rates, watermark, backlog, failures."""
    lake, shown = current_lake(), named_pipelines(pipelines)
    print_broken(broken_modules())

    def look_at_all() -> list[Overview]:
        return [look(lake, pipeline) for pipeline in shown]

    if not watch:
        overviews = look_at_all()
        console.print(status_table(overviews, utc_now()))
        _say_left_tables(lake, shown)
        _say_why(overviews)
        return
    with Live(console=console, refresh_per_second=2, screen=False) as live:
        try:
            while True:
                live.update(status_table(look_at_all(), utc_now()))
                time.sleep(0.5)
        except KeyboardInterrupt:
            return


def logs(
    pipeline_name: Annotated[str, typer.Argument(help="Name of a declared pipeline.")],
    lines: Annotated[int, typer.Option("-n", help="How many lines from the end.", min=1)] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on printing until Ctrl-C.")] = False,
) -> None:
    """What a stream process and its supervisor have said."""
    output = ControlFolder(current_lake(), find_pipeline(pipeline_name)).output
    if not output.is_file():
        raise SupervisorError(f"stream {pipeline_name!r} was never started here; `tidemark up {pipeline_name}` does.")
    command = ["tail", "-n", str(lines), *(["-F"] if follow else []), str(output)]
    try:
        subprocess.run(command, check=False)
    except KeyboardInterrupt:
        return


def metrics(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 9464,
) -> None:
    """Serve every stream's state to Prometheus, until Ctrl-C; it may run beside the streams or without any."""
    lake = current_lake()
    registry = CollectorRegistry()
    registry.register(
        StreamCollector(lambda: [look(lake, pipeline) for pipeline in declared_pipelines().values()], utc_now)
    )
    try:
        server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise SupervisorError(f"port {port} cannot be had ({error.strerror}); choose another with --port.") from error
    console.print(f"metrics on http://127.0.0.1:{port}/metrics; Ctrl-C stops it.", highlight=False)
    try:
        signal.pause()
    except KeyboardInterrupt:
        server.shutdown()


def _start(lake: Lake, pipeline: Pipeline) -> subprocess.Popen[bytes] | None:
    """The supervisor that was started, or None where one runs already."""
    overview = look(lake, pipeline)
    if overview.running:
        console.print(f"{pipeline.name} runs already: {overview.holder}", highlight=False)
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


def _say_left_tables(lake: Lake, pipelines: Sequence[Pipeline]) -> None:
    """Tables of views that are not declared: dropped or renamed ones, and those built beside others."""
    for table in (table for pipeline in pipelines for table in left_tables(lake, pipeline)):
        console.print(
            f"{table.uri} belongs to view {table.operator!r}, which is not declared; `tidemark drop "
            f"{table.operator}` removes it.",
            highlight=False,
            soft_wrap=True,
        )


def _say_why(overviews: Sequence[Overview]) -> None:
    """What is the matter with those that do not run or whose source is amiss, and what to do next."""
    for overview in overviews:
        if overview.why:
            console.print(f"{overview.pipeline.name}: {overview.why}", highlight=False, markup=False, soft_wrap=True)
        for backlog in () if overview.process is None else overview.process.backlog:
            if backlog.warning:
                warning = f"{overview.pipeline.name}: {backlog.warning}"
                console.print(warning, highlight=False, markup=False, soft_wrap=True)
    broken = [overview.pipeline.name for overview in overviews if overview.state == "failed"]
    idle = [overview.pipeline.name for overview in overviews if overview.state == "stopped"]
    if broken:
        next_step(console, f"tidemark logs {broken[0]}", "shows what led to it.")
    elif not overviews:
        next_step(console, "tidemark new stream NAME", "writes the skeleton of a pipeline.")
    elif len(idle) == len(overviews):
        next_step(console, f"tidemark up {idle[0]}", "starts it.")
    else:
        next_step(console, "tidemark status --watch", "shows it live; `tidemark down` ends streams.")
