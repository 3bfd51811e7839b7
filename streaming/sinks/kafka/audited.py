"""A topic read back: the records that a delivery should have made, and those that are there."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from numpy.typing import NDArray

from streaming.base import REVISION
from streaming.sinks.kafka.client import TopicReader
from streaming.sinks.kafka.records import BY_KEY, Encode, Layout, Record, records_of
from streaming.sinks.sink import Comparison, Delivered, NumberedBatch

_BYTES = 8
_NAMED = 5


class AuditedTopics:
    """The topics of one delivery, made into the same records again to be compared with what is there."""

    def __init__(self, layout: Layout, delivered: Delivered, encode: Encode, reader: TopicReader) -> None:
        self._layout = layout
        self._delivered = delivered
        self._encode = encode
        self._reader = reader
        self._topics: set[str] = set() if layout.topic is None else {layout.topic}

    def compare(self, generation: int, expected: Iterable[pa.Table]) -> Comparison | None:
        """A comparison by keys of what is current, by records of everything else; None where the topics cannot tell."""
        if self._delivered.changes:
            return self._compare_newest(expected)
        # Records do not say of which generation they are.
        if generation:
            return None
        should = ([self._of_record(record) for record in self._records(rows)] for rows in expected)
        # Without transactions a batch may come again.
        comparison = compare_every(should, map(self._of_message, self._messages()), may_be_twice=self._layout.named)
        return comparison if all(map(self._reader.keeps_every_record, self._topics)) else None

    def _compare_newest(self, expected: Iterable[pa.Table]) -> Comparison | None:
        should: dict[bytes | None, int] = {}
        for rows in expected:
            should |= {record.key: self._of_record(record).digest or 0 for record in self._records(rows)}
        newest: dict[bytes | None, tuple[int, int | None]] = {}
        for message in self._messages():
            key, digest = self._of_message(message)
            # A topic that got more partitions has a key in two of them, so their order says nothing.
            revision = int(_headers(message).get(REVISION) or -1)
            if revision >= newest.get(key, (-1, None))[0]:
                newest[key] = revision, digest
        there = {key: digest for key, (_, digest) in newest.items() if digest is not None}
        comparison = compare_newest(should, there)
        return comparison if all(map(self._reader.keeps_every_key, self._topics)) else None

    def _records(self, rows: pa.Table) -> Iterator[Record]:
        batch = NumberedBatch(self._delivered.name, 0, 0, rows)
        for record in records_of(self._layout, self._delivered.key, batch, self._encode):
            # A row that cannot be a record is a dead letter, and none that should be there.
            if isinstance(record, Record):
                self._topics.add(record.topic)
                yield record

    def _messages(self) -> Iterator[Message]:
        for topic in sorted(self._topics):
            yield from self._reader.records(topic)

    def _of_record(self, record: Record) -> Printed:
        declared = [(name, _as_bytes(content)) for name, content in record.headers if name in self._layout.headers]
        place = self._place(record.topic, record.partition)
        return Printed(record.key, digest_of(record.key, record.value, place, declared))

    def _of_message(self, message: Message) -> Printed:
        key, value = _as_bytes(message.key()), _as_bytes(message.value())
        declared = [(name, content) for name, content in _headers(message).items() if name in self._layout.headers]
        if value is None and self._delivered.changes:
            return Printed(key, None)
        place = self._place(message.topic() or "", message.partition() or 0)
        return Printed(key, digest_of(key, value, place, declared))

    def _place(self, topic: str, partition: int) -> str:
        return topic if self._layout.partition is None or partition == BY_KEY else f"{topic}-{partition}"


def _headers(message: Message) -> dict[str, bytes | None]:
    headers: Sequence[tuple[str, str | bytes | None]] = message.headers() or ()  # type: ignore[assignment]
    return {name: _as_bytes(content) for name, content in headers}


def _as_bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


class Printed(NamedTuple):
    """A record: its key, and a digest of all that it says; None where it deletes the key."""

    key: bytes | None
    digest: int | None


def digest_of(key: bytes | None, value: bytes | None, place: str, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """The BLAKE2b digest, of 64 bits, of a record; `place` is its topic, with its partition where a row names it."""
    hashed = blake2b(digest_size=_BYTES)
    pairs = [(name.encode(), content) for name, content in sorted(headers, key=lambda header: header[0])]
    for part in (place.encode(), key, value, *(each for header in pairs for each in header)):
        # The length before each part, so that no two records are the same bytes; null is not empty.
        hashed.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return int.from_bytes(hashed.digest())


def compare_every(
    should: Iterable[Sequence[Printed]], there: Iterable[Printed], *, may_be_twice: bool = False
) -> Comparison:
    """Each record as often as it should be there, or at least as often where it `may_be_twice`; names their keys.

    `there` is asked for once all that `should` be there is known.
    """
    pieces: list[NDArray[np.uint64]] = []
    keys: list[pa.Array] = []
    for piece in should:
        pieces.append(np.array([record.digest or 0 for record in piece], np.uint64))
        keys.append(pa.array([record.key for record in piece], pa.binary()))
    expected = np.concatenate(pieces) if pieces else np.empty(0, np.uint64)
    actual = np.sort(np.frombuffer(array("Q", (record.digest or 0 for record in there)), np.uint64))
    digests, first, wanted = np.unique(expected, return_index=True, return_counts=True)
    had = np.searchsorted(actual, digests, "right") - np.searchsorted(actual, digests, "left")
    lacking, more = np.maximum(wanted - had, 0), np.maximum(had - wanted, 0) * (not may_be_twice)
    differing = int((lacking + more).sum())
    all_keys = pa.chunked_array(keys, pa.binary())
    places = first[(lacking + more) > 0][:_NAMED]
    named = sorted({_text(all_keys[int(place)].as_py()) for place in places} - {""})
    return Comparison(len(expected), differing, ("record", "records"), tuple(named))


def compare_newest(should: Mapping[bytes | None, int], there: Mapping[bytes | None, int]) -> Comparison:
    """The newest record of each key; one that was deleted has none."""
    differ = [key for key in {**should, **there} if should.get(key) != there.get(key)]
    named = sorted(_text(key) for key in differ)[:_NAMED]
    return Comparison(len(should), len(differ), ("key", "keys"), tuple(filter(None, named)))


def _text(key: bytes | None) -> str:
    return "" if key is None else key.decode(errors="replace")
