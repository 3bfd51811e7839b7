"""Spark's checkpoint of a source, held against the log that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from streaming.base import LogError
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log import QUERY, head
from streaming.operations.doctor.ailment import Ailment
from streaming.sources import Memory
from streaming.spark import forget_after, newest_committed, newest_planned, query_id, unreadable_files
from streaming.tables import delta, storage

_FROM_BACKUP = "restore the checkpoint of the same time from a backup"


def examine_checkpoint(lake: Lake, stream: Stream) -> Iterator[Ailment]:
    """Whether the next batch of the query is the one that follows in the log."""
    place, log, memory = lake.checkpoint(stream, QUERY), delta.open_table(lake.log(stream)), _memory(lake, stream)
    checkpoint, knows_its_rows = stream.source.checkpoint(place, memory), stream.source.may_begin_anew(memory)
    damaged = unreadable_files(checkpoint)
    if damaged:
        yield from _damaged(lake, stream, checkpoint, damaged)
        return
    query, committed = query_id(checkpoint), newest_committed(checkpoint)
    if log is None:
        if committed is not None:
            yield Ailment(
                "log missing",
                lake.log(stream),
                f"it is gone, and its checkpoint says that {committed + 1:,} batches were in it; runs are refused",
                "restore the log from a backup or a savepoint; or, to take all files in anew, remove the checkpoint "
                f"{checkpoint}",
            )
        return
    written = None if query is None else log.transaction_version(query)
    if query is None or written is None:
        if log.version() and not knows_its_rows:
            yield _not_its_own(checkpoint, query)
        return
    planned = newest_planned(checkpoint)
    if committed is not None and committed > written:
        yield Ailment(
            "checkpoint newer than the log",
            checkpoint,
            f"it has done batch {committed} of its query, and the log ends with its batch {written}: the log is an "
            "older copy, and rows of later batches would never be read again",
            f"let it forget what comes after batch {written}, so that those rows are read again",
            partial(forget_after, checkpoint, written),
        )
    elif planned is None or planned < written:
        yield Ailment(
            "checkpoint older than the log",
            checkpoint,
            f"it ends with batch {planned} of its query, and the log has its batch {written}: it is an older copy, "
            "and batches planned anew under numbers that the log holds would be left out",
            _FROM_BACKUP if not knows_its_rows else f"remove it: the log knows its rows. {checkpoint}",
        )
    recorded = stream.source.recorded(place, lake)
    if recorded is not None:
        yield Ailment(
            "lake moved",
            checkpoint,
            f"it tells of files in {recorded}, and they lie in {stream.source.location(lake)} now: Spark would take "
            "each of them for a new one and read it again",
            "let it know the files under their new place",
            lambda: _moved(stream, place, recorded, lake),
        )


def _memory(lake: Lake, stream: Stream) -> Memory:
    try:
        newest = head(lake, stream)
    except LogError:
        # What a log lacks is told of where the log is examined.
        return {}
    return {} if newest is None else newest.source


def _moved(stream: Stream, checkpoint: str, recorded: str, lake: Lake) -> None:
    stream.source.move(checkpoint, recorded, lake, lake)


def _not_its_own(checkpoint: str, query: str | None) -> Ailment:
    kind, what = "checkpoint of another query", f"it belongs to query {query}, which has written nothing into the log"
    if query is None:
        kind, what = "checkpoint missing", "there is none, so nobody knows which files are in the log"
    return Ailment(kind, checkpoint, f"{what}; runs are refused, as they would repeat or lose rows", _FROM_BACKUP)


def _damaged(lake: Lake, stream: Stream, checkpoint: str, damaged: list[str]) -> Iterator[Ailment]:
    log = delta.open_table(lake.log(stream))
    query = None if f"{checkpoint}/metadata" in damaged else query_id(checkpoint)
    written = None if log is None or query is None else log.transaction_version(query)
    # What a batch that is not in the log has planned is planned again.
    later = [uri for uri in damaged if written is not None and _batch_of(uri) > written]
    yield Ailment(
        "checkpoint damaged",
        checkpoint,
        f"{', '.join(uri.removeprefix(f'{checkpoint}/') for uri in damaged)} cannot be read: half of it was written",
        "remove what a batch has left that is not in the log; it is planned again"
        if later == damaged
        else _FROM_BACKUP,
        partial(_remove, later) if later == damaged else None,
    )


def _batch_of(uri: str) -> int:
    folder, _, name = uri.rpartition("/")
    return int(name) if name.isdigit() and folder.endswith(("/offsets", "/commits")) else -1


def _remove(uris: list[str]) -> None:
    for uri in uris:
        folder, _, name = uri.rpartition("/")
        storage.remove(f"{folder}/.{name}.crc")
        storage.remove(uri)
