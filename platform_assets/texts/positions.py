"""The position of each log and delivery of a pipeline, read from its tables, whether or not anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from streaming.base import TidemarkError, counted, utc_now
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.log import QUERY, head


@dataclass(frozen=True)
class LogPosition:
    """The newest batch of a stream's log, the watermark after it, and what waits in the source, in words."""

    pipeline: str
    stream: str
    newest_batch: int
    watermark: datetime | None
    waiting: str

    def __str__(self) -> str:
        mark = "no watermark yet" if self.watermark is None else f"watermark {self.watermark:%Y-%m-%d %H:%M:%S}"
        waiting = f"; {self.waiting}" if self.waiting else ""
        return f"{self.pipeline}: stream {self.stream} is at batch {self.newest_batch:,}, {mark}{waiting}"


@dataclass(frozen=True)
class DeliveryPosition:
    """The units of its table that a delivery has not carried to its target yet."""

    pipeline: str
    delivery: str
    behind: int

    def __str__(self) -> str:
        return f"{self.pipeline}: delivery {self.delivery} has {counted(self.behind, 'unit')} to deliver"


def log_positions(lake: Lake, pipeline: Pipeline, *, waiting: bool) -> Iterator[LogPosition]:
    """The positions of the logs that there are; `waiting`: ask the sources, too, what waits there."""
    for stream in pipeline.streams:
        newest = head(lake, stream)
        if newest is None:
            continue
        waits = ""
        came = head(lake, stream.revisions)
        if waiting:
            try:
                backlog = stream.source.backlog(lake, lake.checkpoint(stream, QUERY))
                waits = str(backlog({} if came is None else came.source))
            except TidemarkError as error:
                waits = f"nobody can say what waits: {error}"
        yield LogPosition(pipeline.name, stream.name, newest.number, newest.after.watermark, waits)


def delivery_positions(lake: Lake, pipeline: Pipeline) -> Iterator[DeliveryPosition]:
    """The positions of the deliveries that have begun and are behind."""
    for delivery in pipeline.deliveries:
        from streaming.deliveries import DeliveryRuntime

        runtime = DeliveryRuntime(delivery, lake, utc_now)
        behind = 0 if runtime.ledger.read() is None else runtime.standing().behind
        if behind:
            yield DeliveryPosition(pipeline.name, delivery.name, behind)
