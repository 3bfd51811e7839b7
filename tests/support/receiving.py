"""A receiver at work in a thread of the test, and what has landed of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming import BoundedOutOfOrderness, Files, Lake, Pipeline, Receiver, Stream, Text, Tumbling, Windowed, agg
from streaming.formats import Format
from streaming.service.receivers import Receiving
from streaming.service.status import ReceiverStatus
from streaming.sources import Connector


@dataclass
class Running:
    """A receiver that runs: its newest status, and what ended it."""

    statuses: list[ReceiverStatus] = field(default_factory=list)
    error: list[BaseException] = field(default_factory=list)

    @property
    def status(self) -> ReceiverStatus:
        """The newest."""
        return self.statuses[-1]

    @property
    def rows(self) -> int:
        """Rows that came so far."""
        return self.statuses[-1].rows if self.statuses else 0


@contextmanager
def running(lake: Lake, pipeline: Pipeline) -> Iterator[Running]:
    """While the body runs, the pipeline's one receiver does; then it is stopped."""
    stop, run = threading.Event(), Running()
    (receiver,) = pipeline.receivers

    def receive() -> None:
        try:
            Receiving(lake, pipeline, receiver, stop, run.statuses.append).run()
        except BaseException as error:
            run.error.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        yield run
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def received(connector: Connector, form: Format | None = None, **changes: Any) -> Pipeline:
    """A pipeline of one stream, `lines`, that a receiver lands; `changes` are those of the receiver.

    Without a format its rows are texts, each at the instant of its ingestion.
    """
    stream = Stream(
        name="lines",
        source=Files("landing/lines", files_per_batch=100),
        format=form or Text("line"),
        event_time="at",
        derived={"at": "_ingested_at"} if form is None else {},
        clock=BoundedOutOfOrderness("0 seconds"),
    )
    hourly = Windowed("hourly", stream, Tumbling("1 hour"), {"rows": agg.count()})
    receiver = Receiver("lines_in", connector, into=stream, **changes)
    return Pipeline(stream, (hourly,), receivers=(receiver,))


def landed(lake: Lake) -> list[list[str]]:
    """The rows of each file that `Files` finds, in the order of the files' names."""
    folder = Path(lake.path("landing/lines"))
    return [path.read_text().splitlines() for path in sorted(folder.glob("[!.]*"))]


def landed_rows(lake: Lake) -> list[str]:
    """The rows of all files, one after another."""
    return [row for file in landed(lake) for row in file]
