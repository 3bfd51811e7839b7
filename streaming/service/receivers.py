"""All receivers of a pipeline in one process: `python -m streaming.service receive PIPELINE SUPERVISOR`."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from threading import Event

from streaming.base import LeaseError
from streaming.declare import Pipeline, Receiver, find_pipeline
from streaming.lake import Lake, Settings
from streaming.service.log_context import new_run
from streaming.service.logs import RUN, configure_logs
from streaming.service.receiving import Receiving
from streaming.service.status import ReceiverStatus

_LOOKS_EVERY = 0.5
_LEASE_TRIED_EVERY = 5.0

_log = logging.getLogger("tidemark")


def receive(
    lake: Lake,
    pipeline: Pipeline,
    receivers: Sequence[Receiver],
    stop: Event,
    on_status: Callable[[ReceiverStatus], None] = lambda status: None,
    each: Callable[[], None] = lambda: None,
) -> None:
    """Run receivers of a pipeline, each in a thread of its own, until `stop` is set; `each` is called now and then.

    Raises:
        LeaseError: another process runs one of them; the others are stopped.
        SourceError: a landing folder is not on this machine; the others are stopped.
    """
    with ThreadPoolExecutor(len(receivers), thread_name_prefix="receiver") as threads:
        works = [Receiving(lake, pipeline, receiver, stop, on_status) for receiver in receivers]
        _await([threads.submit(work.run) for work in works], stop, each)


def _await(running: Sequence[Future[None]], stop: Event, each: Callable[[], None]) -> None:
    try:
        while not stop.is_set() and not any(ended.done() for ended in running):
            each()
            wait(running, _LOOKS_EVERY, FIRST_EXCEPTION)
    finally:
        stop.set()
    for ended in running:
        ended.result()


def receive_main(name: str, supervisor: str) -> None:
    """Run all receivers of the pipeline `name` until TERM, or until the supervisor, by its process, is gone."""
    settings = Settings()
    configure_logs(settings, name, os.environ.get(RUN) or new_run())
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipeline = find_pipeline(name)

    def guard() -> None:
        if os.getppid() != int(supervisor) and not stop.is_set():
            _log.warning("the supervisor is gone, stopping the receivers")
            stop.set()

    def run(receiver: Receiver) -> None:
        last_reason = ""
        while not stop.is_set():
            try:
                Receiving(settings.lake, pipeline, receiver, stop).run()
            except LeaseError as error:
                # Somebody receives by hand; once they stop, this goes on.
                if str(error) != last_reason:
                    _log.warning("%s", error)
                last_reason = str(error)
                stop.wait(_LEASE_TRIED_EVERY)

    with ThreadPoolExecutor(len(pipeline.receivers), thread_name_prefix="receiver") as threads:
        _await([threads.submit(run, receiver) for receiver in pipeline.receivers], stop, guard)
