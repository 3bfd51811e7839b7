"""A checkpoint of the file source made again, from what the log knows: which files it holds, and by which batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from streaming.spark.checkpoint import TakenFile
from streaming.tables import storage

_FORMAT = "v1"


def make_checkpoint(checkpoint: str, query: str, query_batch: int, files: Iterable[TakenFile]) -> None:
    """Make the checkpoint of a query that goes on after `query_batch`, and takes none of the `files` again.

    The query keeps its id, by which the log tells its batches. That is written last: without it there is no checkpoint,
    and this can be done again.
    """
    storage.remove_folder(checkpoint)
    offsets: list[dict[str, Any]] = [{"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}, {"logOffset": 0}]
    entries: dict[str, list[dict[str, Any]]] = {
        "sources/0/0": [{"path": file.path, "timestamp": file.modified, "batchId": 0} for file in files],
        # Spark looks at the batch before the last one, too.
        **{f"offsets/{number}": offsets for number in range(max(0, query_batch - 1), query_batch + 1)},
        f"commits/{query_batch}": [{"nextBatchWatermarkMs": 0}],
    }
    for name, lines in entries.items():
        storage.put_whole(f"{checkpoint}/{name}", "\n".join([_FORMAT, *map(_json, lines)]).encode())
    storage.put_whole(f"{checkpoint}/metadata", json.dumps({"id": query}).encode())


def _json(value: dict[str, Any]) -> str:
    """As Spark writes it, which compares offsets by their text."""
    return json.dumps(value, separators=(",", ":"))
