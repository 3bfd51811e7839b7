"""Rows of a log that may be of one group, read without Spark from the files that may have them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from operator import and_, itemgetter, or_
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streaming.base import BATCH, DAY, INGESTED_AT, ORIGIN, STAMP, LogError, pc
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log import OF_LOGS, REPAIRS, RETRACTION, RETRACTS, check_as_of, require_log
from streaming.provenance.answer import InputRow, Question, RejectedRow
from streaming.spark import frame_of_arrow
from streaming.tables import Between, FilesRead, delta, nullable, rows_between, s3

REJECTED, RAW = "_rejected", "_raw"

Key = Mapping[str, Any]
"""The values of the columns of a stream that tell which group a row is of."""


@dataclass(frozen=True)
class LogRows:
    """Rows of one log that may be of a group: the `valid` ones, with all columns, and those that were rejected.

    `times` are the event times of the rejected ones.
    """

    stream: Stream
    valid: pa.Table
    rejected: tuple[RejectedRow, ...]
    files: FilesRead
    version: int
    times: tuple[datetime, ...] = ()

    def with_newer(self, newer: LogRows) -> LogRows:
        """These rows and those of a later span of time, which were read from the same log."""
        return LogRows(
            self.stream,
            pa.concat_tables([self.valid, newer.valid]),
            (*self.rejected, *newer.rejected),
            self.files + newer.files,
            max(self.version, newer.version),
            (*self.times, *newer.times),
        )

    def rejected_since(self, since: datetime | None) -> Iterator[RejectedRow]:
        """The rejected rows from an instant on, in the order of their batches; all of them without one."""
        of_times = zip(self.rejected, self.times, strict=True)
        rows = (row for row, time in of_times if since is None or time >= since)
        yield from sorted(rows, key=lambda row: row.batch)


def rows_near(lake: Lake, stream: Stream, keys: Sequence[Key], between: Between) -> LogRows:
    """The rows of the stream's log with one of the `keys` and an event time between two instants.

    Rejected rows count as far as their key and event time could be read.

    Raises:
        LogError: there is no log yet, or nobody knows any more what there was at the batch that it is read as of.
    """
    log = _open(lake, stream)
    newest = lake.batch_read(stream)
    found, files = rows_between(log, stream.event_time, between, partial(_chosen, stream, keys, between, newest))
    is_valid = found.filter(pc.field(DAY).is_valid())
    rejected = found.filter(pc.field(DAY).is_null())
    came = stream.revisions
    if came is not stream:
        # Of a stream with a key the rejected rows are in the log of what came.
        choose = partial(_chosen, came, keys, between, lake.batch_read(came))
        of_came, more = rows_between(_open(lake, came), came.event_time, between, choose)
        rejected, files = of_came.filter(pc.field(DAY).is_null()), files + more
    in_order = sorted(rejected.to_pylist(), key=itemgetter(BATCH))
    told = tuple(_as_rejected(came, keys, row, is_valid) for row in in_order)
    times = tuple(row[came.event_time] for row in in_order)
    return LogRows(stream, is_valid, told, files, log.version(), times)


def rows_at(lake: Lake, stream: Stream, places: Iterable[tuple[int, str]]) -> tuple[pa.Table, FilesRead, int]:
    """The valid rows at some places of the stream's log, which files, and the version of the log."""
    log, wanted = _open(lake, stream), {*places}
    batches = {batch for batch, _ in wanted}

    def chosen(rows: pa.Table) -> pa.Table:
        near = rows.filter(pc.field(DAY).is_valid() & pc.field(BATCH).isin([*batches]))
        is_one = [place_of(row[BATCH], row[ORIGIN]) in wanted for row in near.select([BATCH, ORIGIN]).to_pylist()]
        return near.filter(pa.array(is_one, pa.bool_()))

    least, greatest = min(batches, default=0), max(batches, default=-1)
    found, files = rows_between(log, stream.event_time, Between(), chosen, batches=(least, greatest))
    return found, files, log.version()


def frame_of(question: Question, rows: LogRows) -> DataFrame:
    """The valid rows as a frame with the types of their log."""
    return as_frame(question, rows.valid, types_of_log(question.lake, rows.stream))


def types_of_log(lake: Lake, stream: Stream) -> StructType:
    """The columns of the stream's log, as Spark has them."""
    return delta.schema_of(lake.log(stream))


def as_frame(question: Question, rows: pa.Table, columns: StructType) -> DataFrame:
    """Some rows as a frame with these columns, each of which may be null."""
    return frame_of_arrow(question.spark(), rows, nullable(columns))


def _open(lake: Lake, stream: Stream) -> Any:
    require_log(lake, stream)
    check_as_of(lake, stream)
    table = delta.open_table(lake.log(stream))
    if table is None:
        raise LogError(f"the log of stream {stream.name!r} is gone.", stream=stream.name)
    return table


def _chosen(stream: Stream, keys: Sequence[Key], between: Between, newest: int | None, rows: pa.Table) -> pa.Table:
    time = pc.field(stream.event_time)
    bounds = [] if between.since is None else [time >= _scalar(rows, stream.event_time, between.since)]
    bounds += [] if between.until is None else [time <= _scalar(rows, stream.event_time, between.until)]
    if newest is not None:
        bounds.append(pc.field(BATCH) <= newest)
    of_valid = _has_one_of(rows, keys, unread=False)
    of_rejected = _has_one_of(rows, keys, unread=True)
    came = pc.field(ORIGIN).is_valid()
    is_one = (pc.field(DAY).is_valid() & of_valid) | (
        pc.field(DAY).is_null() & pc.field(REJECTED).is_valid() & of_rejected
    )
    return rows.filter(reduce(and_, bounds, came & is_one))


def _has_one_of(rows: pa.Table, keys: Sequence[Key], *, unread: bool) -> pc.Expression:
    """True for the rows of one of some keys; `unread`: also where a part of it is null, as it could not be read."""
    instants = {*_instants(rows, keys)}
    if len(keys) == 1 or len(instants) != 1 or "" in instants:
        return reduce(or_, (_has(rows, key, unread=unread) for key in keys), pc.scalar(False))
    # Of thousands of keys a condition for each would be nested too deep for Arrow.
    (name,) = instants
    column = pc.field(name)
    same = column.isin(pa.array([key[name] for key in keys], rows.schema.field(name).type))
    return same | column.is_null() if unread else same


def _instants(rows: pa.Table, keys: Sequence[Key]) -> Iterator[str]:
    """Per key its one column, an instant which is not null; empty where it is of other columns."""
    for key in keys:
        name = next(iter(key), "")
        is_instant = len(key) == 1 and key[name] is not None and pa.types.is_timestamp(rows.schema.field(name).type)
        yield name if is_instant else ""


def _has(rows: pa.Table, key: Key, *, unread: bool) -> pc.Expression:
    """True for the rows of a key; `unread`: also where a part of it is null, as it could not be read."""
    conditions = [_equals(rows, name, value, unread) for name, value in key.items()]
    return reduce(and_, conditions, pc.scalar(True))


def _equals(rows: pa.Table, name: str, value: Any, unread: bool) -> pc.Expression:
    column = pc.field(name)
    if value is None:
        return column.is_null()
    is_nan = isinstance(value, float) and value != value
    same = column.is_valid() & (column.is_nan() if is_nan else column == _scalar(rows, name, value))
    return same | column.is_null() if unread else same


def _scalar(rows: pa.Table, name: str, value: Any) -> pa.Scalar:
    return pa.scalar(value, rows.schema.field(name).type)


def read_by_spark(frames: Iterable[DataFrame], tables: Iterable[str]) -> FilesRead:
    """The files of the tables at some addresses that Spark reads for frames, each once, of all that these have."""
    addresses = {*tables}
    read = files_below(addresses, (path for frame in frames for path in frame.inputFiles()))
    return FilesRead(len(read), sum(len(delta.opened(uri).file_uris()) for uri in addresses))


def files_below(addresses: Iterable[str], paths: Iterable[str]) -> set[str]:
    """Those of some paths or URIs that lie below one of the addresses, which may be written in another way."""
    folders = tuple(f"{_as_path(address).rstrip('/')}/" for address in addresses)
    return {path for path in map(_as_path, paths) if path.startswith(folders)}


def _as_path(address: str) -> str:
    """A path of this machine without the scheme that Spark, or a user, puts before it; a place on S3 as `s3://`."""
    scheme, _, path = address.partition(":")
    return f"/{path.lstrip('/')}" if scheme == "file" else s3.location(address)


def place_of(batch: int, origin: Any) -> tuple[int, str]:
    """The place of a row in its log, by which a row of a result is known to be the same."""
    return batch, json.dumps(origin, default=str, sort_keys=True)


def by_place(rows: pa.Table) -> dict[tuple[int, str], dict[str, Any]]:
    """The rows of a log by their places."""
    return {place_of(row[BATCH], row[ORIGIN]): row for row in rows.to_pylist()}


def as_input(stream: Stream, row: Mapping[str, Any], columns: Iterable[str], **more: Any) -> InputRow:
    """A row of a log as an answer has it, with the values of some columns."""
    origin = row[ORIGIN] or {}
    return InputRow(
        stream=stream.name,
        place=place_in_words(origin),
        origin=_of_source(origin),
        batch=row[BATCH],
        values={name: row[name] for name in columns if name in row},
        event_time=row[stream.event_time],
        ingested_at=row[INGESTED_AT],
        stamp=row[STAMP],
        **{
            "change": _sign_of(origin),
            "sequence": _sequence(stream, row),
            "repairs": origin.get(REPAIRS),
            **more,
        },
    )


def identity_of(row: Mapping[str, Any]) -> str:
    """The identity of a row, which one that takes it back has, too."""
    origin = row[ORIGIN] or {}
    if origin.get("identity") is not None:
        return str(origin["identity"])
    batch = row[BATCH] if origin.get(RETRACTS) is None else origin[RETRACTS]
    return str(place_of(batch, _of_source(origin)))


def place_in_words(origin: Mapping[str, Any], line: int | None = None) -> str:
    """Where a row is from, for people: file and line, topic with partition and offset, or unit of a table.

    Where the line is not known, it is the position in the batch, which may be of several files.
    """
    return ", ".join(_words(_of_source(origin), line)) or "unknown"


def _words(origin: Mapping[str, Any], line: int | None = None) -> Iterator[str]:
    if "path" in origin:
        path, position = str(origin["path"]).removeprefix("file:").removeprefix("//"), origin.get("position")
        place = f"position {position}" if line is None else f"line {line}"
        yield path if position is None else f"{path}, {place}"
    elif "topic" in origin:
        yield f"{origin['topic']}, partition {origin['partition']}, offset {origin['offset']}"
    elif "unit" in origin:
        yield f"unit {origin['unit']}, position {origin['position']}"
    else:
        for name, value in origin.items():
            if isinstance(value, Mapping):
                yield from _words(value, line)
            elif value is not None:
                yield f"{name} {value}"


def _of_source(origin: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in origin.items() if name not in OF_LOGS}


def _sign_of(origin: Mapping[str, Any]) -> int:
    if origin.get("change") is not None:
        return int(origin["change"])
    return -1 if (origin.get(RETRACTION) or 0) % 2 else 1


def _sequence(stream: Stream, row: Mapping[str, Any]) -> str | None:
    """The sequence of a revision, where it is a column, or a field of its origin."""
    name = stream.sequence
    if name is None:
        return None
    _, _, of_origin = name.partition(f"{ORIGIN}.")
    value = (row[ORIGIN] or {}).get(of_origin) if of_origin else row.get(name)
    return None if value is None else str(value)


def _as_rejected(stream: Stream, keys: Sequence[Key], row: Mapping[str, Any], valid: pa.Table) -> RejectedRow:
    origin, batch = _of_source(row[ORIGIN]), row[BATCH]
    repaired = (
        repair[BATCH]
        for repair in valid.select([BATCH, ORIGIN]).to_pylist()
        if repair[ORIGIN].get(REPAIRS) == batch and _of_source(repair[ORIGIN]) == origin
    )
    return RejectedRow(
        stream=stream.name,
        place=place_in_words(origin),
        origin=origin,
        batch=batch,
        reasons=tuple(row[REJECTED] or ()),
        payload=None if row[RAW] is None else row[RAW].decode(errors="backslashreplace"),
        certain=any(all(row[name] is not None or value is None for name, value in key.items()) for key in keys),
        repaired_in=next(repaired, None),
    )
