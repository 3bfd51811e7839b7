"""A supervisor as a process of its own: `python -m streaming.always_on.supervise PIPELINE`."""

from __future__ import annotations

import logging
import signal
import sys

from streaming.always_on.process import DRAIN, STOP
from streaming.always_on.supervisor import Supervisor
from streaming.errors import StreamingError
from streaming.lake import Lake
from streaming.pipeline import Pipeline
from streaming.registry import find_pipeline
from streaming.settings import Settings


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


def main() -> None:
    """Supervise the pipeline named by the argument."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("tidemark").setLevel(logging.INFO)
    try:
        sys.exit(supervise(Settings().lake, find_pipeline(sys.argv[1])))
    except StreamingError as error:
        logging.getLogger("tidemark").error("%s: %s", sys.argv[1], error)
        sys.exit(1)


if __name__ == "__main__":
    main()
