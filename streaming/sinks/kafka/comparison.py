"""Records that should be in topics against those that are, as numbers of digests. Pure.

A topic may have records of others. So what is compared is whether each record that should be there is, and how often;
of what is current a consumer keeps one value per key, and there a key that should not be there counts as well.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.sinks.comparison import Comparison

_BYTES = 8
_NAMED = 5

Keys = Sequence[bytes | None]


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
