"""Appending to the event log: one commit a batch, fenced on the batch before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructType

from streaming.base import FencedError
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log.batch import Batch
from streaming.log.batches import late_numbers, newest_batch
from streaming.tables import delta

Written = Callable[[], DataFrame]
"""Reads the rows of a batch as they were written, and are not committed yet; there must be some."""


def append_batch(
    frame: DataFrame, lake: Lake, stream: Stream, txn: delta.Txn | None, batch: Callable[[Written], Batch]
) -> Batch:
    """Append the rows of one batch in one commit; `batch` describes them and is called once they are written.

    Raises:
        FencedError: the batch before it is not the newest of the log any more, or not yet.
    """
    uri = lake.log(stream)
    description = stream.description or f"Event log of {stream.name}"
    delta.create(uri, frame.schema, append_only=True, description=description)
    described: list[Batch] = []
    written: list[Written] = []

    def metadata() -> dict[str, Any]:
        described.append(batch(written[0]))
        return described[0].to_json()

    def fence(table: DeltaTable) -> None:
        """The stamp is right only if nothing was appended since the clock was read: a process that slept sees it."""
        newest, number = newest_batch(lake, stream, table), described[0].number
        follows = 0 if newest is None else newest.number + 1
        if number != follows:
            raise FencedError(
                f"batch {number} of {stream.name!r} was not appended: batch {follows} is next in the log, so another "
                "process has taken over while this one was away. Nothing is lost; let the other one run, or stop it "
                f"and start again (`tidemark status {stream.name}` names it)."
            )

    delta.append(
        frame,
        uri,
        txn=txn,
        metadata=metadata,
        statistics=(stream.event_time, "_batch"),
        diverse=(stream.event_time, *_numbers_of_origin(frame.schema)),
        fence=fence,
        numbers=lambda: late_numbers(described[0]),
        on_written=written.append,
    )
    return described[0]


def _numbers_of_origin(schema: StructType) -> list[str]:
    """The fields of `_origin` that number rows, such as a position or an offset: hardly two rows share one."""
    origin = schema["_origin"].dataType
    assert isinstance(origin, StructType)
    return [f"_origin.{field.name}" for field in origin.fields if isinstance(field.dataType, LongType)]
