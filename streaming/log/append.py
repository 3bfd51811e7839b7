"""Appending to the event log: one commit a batch, fenced on the batch before it."""

from __future__ import annotations

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructType

from streaming.base import FencedError
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log.batch import Batch
from streaming.log.batches import late_numbers, newest_batch
from streaming.tables import delta


def stage_batch(frame: DataFrame, lake: Lake, stream: Stream) -> delta.Staged:
    """Write the rows of one batch beside the log, which is created where it is not there yet."""
    uri = lake.log(stream)
    description = stream.description or f"Event log of {stream.name}"
    delta.create(uri, frame.schema, append_only=True, description=description)
    statistics, diverse = (stream.event_time, "_batch"), (stream.event_time, *_numbers_of_origin(frame.schema))
    return delta.stage(frame, uri, statistics=statistics, diverse=diverse)


def commit_batch(staged: delta.Staged, lake: Lake, stream: Stream, batch: Batch, txn: delta.Txn | None = None) -> Batch:
    """Take the staged rows into the log in one commit, which describes them as the `batch`; returns that.

    Raises:
        FencedError: the batch before it is not the newest of the log any more, or not yet.
    """

    def fence(table: DeltaTable) -> None:
        """The stamp is right only if nothing was appended since the clock was read: a process that slept sees it."""
        newest = newest_batch(lake, stream, table)
        follows = 0 if newest is None else newest.number + 1
        if batch.number != follows:
            raise FencedError(
                f"batch {batch.number} of {stream.name!r} was not appended: batch {follows} is next in the log, so "
                "another process has taken over while this one was away. Nothing is lost; let the other one run, or "
                f"stop it and start again (`tidemark status {stream.name}` names it)."
            )

    staged.commit(batch.to_json(), late_numbers(batch), fence=fence, txn=txn)
    return batch


def _numbers_of_origin(schema: StructType) -> list[str]:
    """The fields of `_origin` that number rows, such as a position or an offset: hardly two rows share one."""
    origin = schema["_origin"].dataType
    assert isinstance(origin, StructType)
    return [f"_origin.{field.name}" for field in origin.fields if isinstance(field.dataType, LongType)]
