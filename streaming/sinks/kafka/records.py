"""Rows as records: topic, partition, key, value, headers and time of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from streaming.base import REASON, REVISION
from streaming.kafka import can_name_a_topic
from streaming.sinks.encoding import contents, instant_text, json_objects, json_values, plain_texts
from streaming.sinks.sink import CHANGE, DELETE, TIME, NumberedBatch, RefusedRow

BY_KEY = -1
"""The partition of a record whose key says where it goes."""
NOW = 0
"""The time of a record of which only the broker says when it was."""
ID = "_id"
"""The header that is the same each time a record is sent."""

_PARTITIONS = 2**31
_MICROS = 1_000

Headers = list[tuple[str, str | bytes | None]]

Encode = Callable[[Sequence[str], pa.Table], Iterable[bytes | ValueError]]
"""The value of each row, given the topics of the rows; or why it has none."""


@dataclass(frozen=True)
class Layout:
    """Which columns say where a row goes, and with what headers; `named`: a header tells each row from all others."""

    topic: str | None
    topic_column: str | None
    partition: str | None
    headers: Mapping[str, str]
    named: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """These columns, which are not in a record's value."""
        return tuple(dict.fromkeys(filter(None, (self.topic_column, self.partition, *self.headers.values()))))


class Record(NamedTuple):
    """The record that is sent for one row of a batch; `at` is in milliseconds since 1970."""

    position: int
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    at: int


def records_of(
    layout: Layout, key: Sequence[str], batch: NumberedBatch, encode: Encode
) -> Iterator[Record | RefusedRow]:
    """A record for each row of a batch, in order; a row that cannot be one is refused."""
    rows = batch.rows
    nothing = [None] * rows.num_rows
    partitions = nothing if layout.partition is None else json_values(rows[layout.partition])
    topics = nothing if layout.topic_column is None else plain_texts(rows[layout.topic_column])
    named = [layout.topic if topic is None else topic for topic in topics]
    change_columns = (CHANGE, REVISION, REASON) if CHANGE in rows.column_names else ()
    headers = [
        (name, contents(rows[column]))
        for name, column in (*layout.headers.items(), *zip(change_columns, change_columns, strict=True))
    ]
    changes = rows[CHANGE].to_pylist() if change_columns else nothing
    selected = [name for name in batch.selected.column_names if name not in layout.columns]
    values = encode([topic or "" for topic in named], rows.select(selected))
    columns = zip(named, partitions, keys(rows, key), values, _times(rows), changes, strict=True)
    for position, (topic, partition, its_key, value, at, change) in enumerate(columns):
        content = None if change == DELETE else value
        why = (
            _refused(layout.topic_column, topic)
            or _no_partition(partition)
            or (str(content) if isinstance(content, ValueError) else "")
            or (_too_early(at) if at is not None and at <= NOW else "")
        )
        if why or topic is None or isinstance(content, ValueError):
            yield RefusedRow(position, why)
            continue
        its_headers: Headers = [(name, each[position]) for name, each in headers] if headers else []
        if layout.named:
            its_headers.append((ID, f"{batch.key}/{position}".encode()))
        yield Record(
            position, topic, BY_KEY if partition is None else partition, its_key, content, its_headers, at or NOW
        )


def keys(rows: pa.Table, columns: Sequence[str]) -> Sequence[bytes | None]:
    """The key of each row: none without columns, the text of one, a JSON object of several."""
    if len(columns) > 1:
        return json_objects(rows.select(list(columns)))
    return contents(rows[columns[0]]) if columns else [None] * rows.num_rows


def as_json(topics: Sequence[str], rows: pa.Table) -> Sequence[bytes]:
    """The rows as JSON, whatever their topics."""
    return json_objects(rows)


@lru_cache(maxsize=1024)
def _refused(column: str | None, topic: str | None) -> str:
    """Why a row has no topic; empty if it has one. Most rows ask for the same."""
    if topic is None:
        return f"{column} is null, and no topic is declared for such rows"
    if not can_name_a_topic(topic):
        return f"{topic!r} cannot name a topic"
    return ""


def _no_partition(partition: Any) -> str:
    """Why a value is no partition; empty if it is one, or null."""
    # True is an integer to Python.
    if partition is None or (type(partition) is int and 0 <= partition < _PARTITIONS):
        return ""
    return f"{partition!r} is no number of a partition"


def _times(rows: pa.Table) -> Sequence[int | None]:
    """In milliseconds since 1970, null where a row has none."""
    if TIME not in rows.column_names:
        return [None] * rows.num_rows
    micros: list[int | None] = rows[TIME].cast(pa.int64()).to_pylist()
    return [None if at is None else at // _MICROS for at in micros]


def _too_early(at: int) -> str:
    return (
        f"its time is {instant_text(at * _MICROS, utc=True)}, and a record of Kafka can only have one after "
        f"{instant_text(0, utc=True)}; leave such rows out with `where`, and deliver them to another target"
    )
