"""`tidemark receive`: receivers of a pipeline in this terminal."""

from __future__ import annotations

import signal
from threading import Event
from types import FrameType
from typing import Annotated

import typer
from rich.live import Live

from platform_assets.cli.completion import receiver_names
from platform_assets.cli.context import PipelineName, console, current_lake
from platform_assets.cli.interrupts import leave_at_once, on_interrupt
from platform_assets.cli.render import next_step
from platform_assets.texts.receivers import receiver_line, receiver_table
from streaming.base import DeclarationError, utc_now
from streaming.declare import find_pipeline
from streaming.service import ReceiverStatus
from streaming.service import receive as receive_until

_LINE_EVERY = 20


def receive(
    pipeline_name: PipelineName,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of a receiver; all of the pipeline, if none is given.",
            autocompletion=receiver_names,
        ),
    ] = None,
) -> None:
    """Receive from sockets, websockets and HTTP, and land it.

    Goes on until Ctrl-C or TERM, and lands what came.
    """
    pipeline, lake, stop = find_pipeline(pipeline_name), current_lake(), Event()
    receivers = pipeline.receivers if name is None else (pipeline.receiver(name),)
    if not receivers:
        raise DeclarationError(
            f"pipeline {pipeline.name!r} has no receivers",
            f"declare one, such as Pipeline(..., receivers=(Receiver("
            f"'{pipeline.stream.name}_in', TcpSocket('127.0.0.1', 9999), into={pipeline.stream.name}),)).",
            pipeline=pipeline.name,
        )
    newest: dict[str, ReceiverStatus] = {}
    rounds = 0

    def end(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            leave_at_once(number)
        stop.set()

    def show() -> None:
        nonlocal rounds
        live.update(receiver_table(list(newest.values()), utc_now()))
        if not console.is_terminal and rounds % _LINE_EVERY == 0:
            _print_lines(newest)
        rounds += 1

    console.print(f"Ctrl-C ends {', '.join(each.name for each in receivers)}, and lands what came.")
    with on_interrupt(end), Live(console=console, transient=True, auto_refresh=console.is_terminal) as live:
        signal.signal(signal.SIGTERM, end)
        receive_until(lake, pipeline, receivers, stop, lambda status: newest.update({status.name: status}), show)
    _print_lines(newest)
    next_step(console, f"tidemark run {pipeline.name}", "takes in what has landed; `tidemark up` does so on and on.")


def _print_lines(newest: dict[str, ReceiverStatus]) -> None:
    for status in list(newest.values()):
        console.print(receiver_line(status), soft_wrap=True)
