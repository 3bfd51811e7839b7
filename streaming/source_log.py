"""What the file source of a query has written down: which files each of its batches took."""

from __future__ import annotations

import json
from urllib.parse import unquote

from streaming import storage


def taken(entry: str) -> list[tuple[int, str]]:
    """Batch and path of each file in one entry of a checkpoint's `sources/0`.

    Every tenth entry, named `<number>.compact`, repeats those before it.
    """
    files = (json.loads(line) for line in entry.splitlines()[1:])
    return [(file["batchId"], unquote(file["path"])) for file in files]


def planned(checkpoint: str, query_batch: int) -> list[str]:
    """The files that the query has chosen for a batch."""
    offsets = (storage.read_text(f"{checkpoint}/offsets/{number}") for number in (query_batch - 1, query_batch))
    before, last = map(_log_offset, offsets)
    paths: list[str] = []
    for number in range(before + 1, last + 1):
        entry = f"{checkpoint}/sources/0/{number}"
        text = storage.read_text(entry) or storage.read_text(f"{entry}.compact") or ""
        paths += [path for batch, path in taken(text) if batch == number]
    return paths


def _log_offset(offsets: str | None) -> int:
    return -1 if offsets is None else int(json.loads(offsets.splitlines()[-1])["logOffset"])
