"""What the file source of a query has written down: which files each of its batches took."""

from __future__ import annotations

import json
from urllib.parse import unquote


def taken(entry: str) -> list[tuple[int, str]]:
    """Batch and path of each file in one entry of a checkpoint's `sources/0`.

    Every tenth entry, named `<number>.compact`, repeats those before it.
    """
    files = (json.loads(line) for line in entry.splitlines()[1:])
    return [(file["batchId"], unquote(file["path"])) for file in files]
