"""Cutting what is behind into steps of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from streaming.log import Batch

Batches = Mapping[str, Sequence[Batch]]
"""Batches of several logs, by stream."""


def slices(batches: Sequence[Batch], most_rows: int) -> Iterator[Sequence[Batch]]:
    """`batches` in order, in pieces of at most `most_rows` rows; a batch with more is a piece of its own."""
    begin, rows = 0, 0
    for place, batch in enumerate(batches):
        if place > begin and rows + batch.summary.rows > most_rows:
            yield batches[begin:place]
            begin, rows = place, 0
        rows += batch.summary.rows
    if batches:
        yield batches[begin:]


def in_pieces(behind: Batches, most_rows: int) -> Iterator[Batches]:
    """What is to be followed, in pieces of at most `most_rows` rows of each log."""
    cut = [slices(batches, most_rows) for batches in behind.values()]
    for piece in zip_longest(*cut, fillvalue=()):
        yield dict(zip(behind, piece, strict=True))
