"""Ctrl-C while Spark runs: no call to the JVM may be broken off in the middle, or the next one reads its answer."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from platform_assets.cli.command_log import command_log
from platform_assets.cli.exit_codes import ExitCode
from streaming.base import utc_now

if TYPE_CHECKING:
    from streaming.service import Watch

_BATCH_ENDS_WITHIN = 5.0
_SHOW_CURSOR = "\x1b[?25h"

Handler = Callable[[int, FrameType | None], None]


def interrupted_line() -> str:
    """The line that is printed after Ctrl-C."""
    command = " ".join(["tidemark", *sys.argv[1:]])
    return f"Interrupted. What was committed stays; `{command}` goes on from there."


def leave_at_once(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """End this process without unwinding it; its JVM ends with it, and every step can be repeated."""
    cursor = _SHOW_CURSOR if sys.stdout.isatty() else ""
    os.write(2, f"{cursor}\n{interrupted_line()}\n".encode())
    command_log.discard()
    os._exit(ExitCode.INTERRUPTED)


@contextmanager
def on_interrupt(handler: Handler) -> Iterator[None]:
    """While the body runs, Ctrl-C calls `handler`."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def stopping_between_batches() -> Iterator[Watch]:
    """A watch for a drain: Ctrl-C lets the batch that runs end, for a few seconds; a second one does not.

    Raises:
        KeyboardInterrupt: the drain was interrupted, and has ended between two batches.
    """
    from streaming.service import Watch

    watch = Watch(utc_now)
    deadline = threading.Timer(_BATCH_ENDS_WITHIN, leave_at_once)
    deadline.daemon = True

    def stop(number: int, frame: FrameType | None) -> None:
        if watch.ended:
            leave_at_once()
        watch.end_all()
        deadline.start()

    with on_interrupt(stop):
        try:
            yield watch
        except Exception:
            # What a query that was stopped raises is no news.
            if not watch.ended:
                raise
        finally:
            deadline.cancel()
    if watch.ended:
        raise KeyboardInterrupt
