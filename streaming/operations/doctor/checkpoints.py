"""Spark's checkpoint of a source, held against the log that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from streaming.base import LogError
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log import QUERY, Batch, head, read_batches
from streaming.operations.doctor.ailment import Ailment
from streaming.sources import Memory
from streaming.spark import forget_after, newest_committed, newest_planned, query_id, unreadable_files
from streaming.tables import delta, storage

_FROM_BACKUP = "restore the checkpoint of the same time from a backup"


def examine_checkpoint(lake: Lake, stream: Stream) -> Iterator[Ailment]:
    """Find why the next batch of the query would not be the one that follows in the log."""
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
            yield _not_its_own(lake, stream, checkpoint, query)
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


def _batches(lake: Lake, stream: Stream) -> list[Batch]:
    try:
        return read_batches(lake, stream)
    except LogError:
        return []


def _moved(stream: Stream, checkpoint: str, recorded: str, lake: Lake) -> None:
    stream.source.move(checkpoint, recorded, lake, lake)


def _not_its_own(lake: Lake, stream: Stream, checkpoint: str, query: str | None) -> Ailment:
    kind, what = "checkpoint of another query", f"it belongs to query {query}, which has written nothing into the log"
    if query is None:
        kind, what = "checkpoint missing", "there is none, so Spark does not know which files are in the log"
    means = f"{what}; runs are refused, as they would repeat or lose rows"
    batches = _batches(lake, stream)
    newest = next((batch for batch in batches if batch.query is not None), None)
    # That of another query may be somebody's: where it belongs is for people to decide.
    if query is not None or not stream.source.can_remake_checkpoint or newest is None:
        return Ailment(kind, checkpoint, means, _FROM_BACKUP)
    if any(batch.erased for batch in batches):
        # A file of which nothing is left in the log would be taken for a new one.
        return Ailment(kind, checkpoint, f"{means}. Rows were erased, which would come back", _FROM_BACKUP)
    if any(batch.dropped for batch in batches):
        return Ailment(kind, checkpoint, f"{means}. Files of dropped days would be read once more", _FROM_BACKUP)
    return Ailment(
        kind,
        checkpoint,
        means,
        "let it be made again of the files that rows of the log come from",
        partial(_remake, lake, stream, checkpoint, newest),
    )


def _remake(lake: Lake, stream: Stream, checkpoint: str, newest: Batch) -> None:
    assert newest.query is not None and newest.query_batch is not None
    log = delta.open_table(lake.log(stream))
    assert log is not None
    stream.source.remake_checkpoint(checkpoint, lake, newest.query, newest.query_batch, _origins(log))


def _origins(log: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """The different origins in each file of the log, but for the rows' positions."""
    files = storage.files_of(log)
    for path in log.get_add_actions()["path"].to_pylist():
        with files.open_input_file(unquote(path)) as handle:
            origins = pq.read_table(handle, columns=["_origin"])["_origin"].combine_chunks()
        fields = [name for name in ("path", "modified") if origins.type.get_field_index(name) >= 0]
        table = pa.table({name: origins.field(name) for name in fields})
        yield from (row for row in table.group_by(fields).aggregate([]).to_pylist() if None not in row.values())


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
