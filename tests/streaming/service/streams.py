"""Running streams as tests see them: fed beat by beat, supervised by a thread, waited for with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from streaming import Lake, Pipeline
from streaming.log.batches import read_batches
from streaming.service.supervisor import Supervisor
from tests.support.feeds import land
from tests.support.instants import at
from tests.support.pipelines.beats import land_damaged, pipeline

STREAM = pipeline.stream


class Feeder:
    """Lands one beat per file, ten seconds of event time apart, so that each closes the window before."""

    def __init__(self, lake: Lake) -> None:
        self._folder = Path(STREAM.source.location(lake))
        self.landed = 0

    def beat(self, value: int | None = 1, folder: Path | None = None) -> None:
        reading = {"id": "a", "at": at(10 * self.landed).isoformat(), "value": value}
        land(folder or self._folder, [reading], name=f"{self.landed:04}.json")
        self.landed += 1

    def damage(self) -> None:
        """Land a file that crashes its batch."""
        land_damaged(self._folder, f"{self.landed:04}")
        self.landed += 1


@contextmanager
def supervised(lake: Lake, of: Pipeline = pipeline) -> Iterator[Supervisor]:
    """A supervisor in a thread of its own, asked to stop at the end."""
    supervisor = Supervisor(lake, of)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.ask("stop")
        thread.join(60)
        assert not thread.is_alive()


def until(condition: Callable[[], object], what: str, lake: Lake, within: float = 120) -> None:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            outputs = Path(lake.root).glob("_checkpoints/*/.control/stream.log")
            pytest.fail(f"not {what} after {within} s:\n" + "\n".join(path.read_text()[-3000:] for path in outputs))
        time.sleep(0.1)


def ingested(lake: Lake) -> int:
    """Rows in the log, as its commits tell."""
    return sum(batch.summary.rows for batch in read_batches(lake, STREAM))


def family(pid: int) -> list[psutil.Process]:
    """The stream process and whatever it started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def jvm(pid: int) -> psutil.Process:
    return next(member for member in psutil.Process(pid).children(recursive=True) if "java" in member.name())


def process_of(supervisor: Supervisor) -> int:
    assert supervisor.status.process is not None
    return supervisor.status.process
