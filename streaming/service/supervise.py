"""A supervisor as a process of its own: `python -m streaming.service supervise PIPELINE`."""

from __future__ import annotations

import logging
import signal
import sys

from streaming.base import StreamingError
from streaming.declare import Pipeline, find_pipeline
from streaming.lake import Lake, Settings
from streaming.service.logs import configure_logs
from streaming.service.process import DRAIN, STOP
from streaming.service.supervisor import Supervisor


def supervise(lake: Lake, pipeline: Pipeline) -> int:
    """Supervise until the end, which TERM and INT ask for, USR1 with a drain; returns 1 where the pipeline failed.

    Raises:
        LeaseError: another process holds the pipeline.
    """
    supervisor = Supervisor(lake, pipeline)
    for number in (STOP, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.ask("stop"))
    signal.signal(DRAIN, lambda *_: supervisor.ask("drain"))
    # A terminal that is closed is no reason to end a stream that was to run on.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return 1 if supervisor.run().state == "failed" else 0


def supervise_main(name: str) -> None:
    """Supervise the pipeline `name`; the exit code tells whether it failed."""
    settings = Settings()
    configure_logs(settings, name)
    try:
        sys.exit(supervise(settings.lake, find_pipeline(name)))
    except StreamingError as error:
        logging.getLogger("tidemark").error("%s", error)
        sys.exit(1)
