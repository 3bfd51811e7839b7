"""A lake as of a batch, an instant or a savepoint: all tables of a pipeline as of the same batches."""

from __future__ import annotations

from datetime import UTC, datetime

from streaming.base import LogError, SavepointError
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.log import head, read_batches
from streaming.operations.savepoints import Savepoint, savepoints


def lake_as_of(lake: Lake, pipeline: Pipeline, when: str) -> Lake:
    """The lake as of `when`: the number of a batch, an instant in ISO 8601 (UTC if it has no zone), or a savepoint.

    As of an instant there are the batches that were processed by then.

    Raises:
        SavepointError: it is nothing of the kind.
        LogError: there is no such batch, or the pipeline has several streams, whose batches have numbers of their own.
    """
    if when.isdigit():
        return lake.as_of(_batch(lake, pipeline, int(when)))
    saved = Savepoint.read(lake, pipeline, when) if when.isidentifier() else None
    if saved is not None:
        return lake.as_of(saved.batches)
    try:
        instant = datetime.fromisoformat(when)
    except ValueError as error:
        names = ", ".join(each.name for each in savepoints(lake, pipeline)) or "none"
        raise SavepointError(
            f"{when!r} is no batch, no instant such as 2026-03-02T09:00, and no savepoint of pipeline "
            f"{pipeline.name!r}; savepoints are: {names}."
        ) from error
    return lake.as_of(_by_then(lake, pipeline, instant if instant.tzinfo else instant.replace(tzinfo=UTC)))


def _batch(lake: Lake, pipeline: Pipeline, number: int) -> dict[str, int]:
    if len(pipeline.streams) > 1:
        names = " and ".join(stream.name for stream in pipeline.streams)
        raise LogError(
            f"pipeline {pipeline.name!r} has the streams {names}, each with batches of its own, so {number} is of none "
            "of them; give an instant or a savepoint."
        )
    newest = head(lake, pipeline.stream)
    if newest is None or newest.number < number:
        there = "none yet" if newest is None else f"those from 0 to {newest.number}"
        raise LogError(f"stream {pipeline.stream.name!r} has no batch {number}; it has {there}.")
    return {pipeline.stream.name: number}


def _by_then(lake: Lake, pipeline: Pipeline, instant: datetime) -> dict[str, int]:
    found: dict[str, int] = {}
    for stream in pipeline.streams:
        batches = read_batches(lake, stream)
        by_then = (batch.number for batch in batches if batch.summary.processed_at <= instant)
        newest = next(by_then, None)
        if newest is not None:
            found[stream.name] = newest
    if not found:
        raise LogError(f"no stream of pipeline {pipeline.name!r} had a batch at {instant.isoformat()} yet.")
    return found
