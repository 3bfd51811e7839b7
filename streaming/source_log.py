"""What the file source of a query has written down: which files each of its batches took."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import unquote


def taken(entry: str) -> list[tuple[int, str]]:
    """Batch and path of each file in one entry of a checkpoint's `sources/0`.

    Every tenth entry, named `<number>.compact`, repeats those before it.
    """
    files = (json.loads(line) for line in entry.splitlines()[1:])
    return [(file["batchId"], unquote(file["path"])) for file in files]


def planned(read: Callable[[str], str | None], checkpoint: str, query_batch: int) -> list[str]:
    """The files that the query has chosen for a batch; `read` yields a file's text, or None where there is none."""
    before, last = (_log_offset(read(f"{checkpoint}/offsets/{number}")) for number in (query_batch - 1, query_batch))
    paths: list[str] = []
    for number in range(before + 1, last + 1):
        entry = f"{checkpoint}/sources/0/{number}"
        text = read(entry) or read(f"{entry}.compact") or ""
        paths += [path for batch, path in taken(text) if batch == number]
    return paths


def _log_offset(offsets: str | None) -> int:
    return -1 if offsets is None else int(json.loads(offsets.splitlines()[-1])["logOffset"])
