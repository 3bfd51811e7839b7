"""The retractions of a log, as the commits of its batches tell them; reads no rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streaming.declare import Pipeline, Stream
from streaming.lake import Lake
from streaming.log.batches import Batch, read_batches


@dataclass(frozen=True)
class Retraction:
    """One commit that took rows of a `stream` back, or put them back.

    `id` is its batch in the log of the stream; `undoes` is that of the retraction which it takes back, None where it
    takes back rows that `where` chose. `where` and `reason` are None once an erasure has taken out rows of it.
    """

    id: int
    stream: str
    at: datetime
    who: str
    reason: str | None
    where: str | None
    undoes: int | None
    rows: int

    @classmethod
    def of(cls, stream: Stream, batch: Batch) -> Retraction:
        """The retraction that a batch of the log describes."""
        told = batch.retraction
        return cls(
            batch.number,
            stream.name,
            batch.summary.processed_at,
            told["who"],
            told["reason"],
            told["where"],
            told["undoes"],
            batch.summary.rows,
        )


def retractions(lake: Lake, pipeline: Pipeline) -> list[Retraction]:
    """Every retraction of the pipeline's streams, in the order in which they came; starts no Spark."""
    found = [
        Retraction.of(stream, batch)
        for stream in pipeline.streams
        for batch in read_batches(lake, stream.revisions)
        if batch.retraction
    ]
    return sorted(found, key=lambda each: (each.at, each.stream, each.id))
