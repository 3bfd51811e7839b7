"""Copies of Spark's checkpoints: what a query needs to go on after one of its batches, elsewhere too."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator

from streaming.spark.checkpoint import last_line
from streaming.tables import copy_files, storage


def copy_checkpoint(checkpoint: str, to: str, query_batch: int) -> None:
    """Copy of a checkpoint what makes its query go on after `query_batch`, to the folder `to`.

    The query may run: what a batch leaves in its checkpoint is put there whole, and stays for a hundred batches.
    """
    batches = {str(query_batch - 1), str(query_batch)}
    names = ["metadata"]
    for kind in ("offsets", "commits"):
        names += [f"{kind}/{name}" for name in _names(f"{checkpoint}/{kind}") if name in batches]
    names += [f"sources/0/{name}" for name in _of_source(checkpoint, query_batch)]
    copy_files(storage.below(checkpoint), names, to)


def rename_taken(checkpoint: str, renamed: Callable[[str], str]) -> None:
    """Let the file source's log name the files that were taken as they are `renamed`, by their encoded URIs."""
    for name in _names(f"{checkpoint}/sources/0"):
        entry = f"{checkpoint}/sources/0/{name}"
        # The first line names the format.
        version, _, lines = (storage.read_text(entry) or "").partition("\n")
        files = [json.loads(line) for line in lines.split("\n") if line]
        text = "\n".join([version, *(json.dumps({**file, "path": renamed(file["path"])}) for file in files)])
        # Hadoop keeps a checksum beside each file of a local disk, and checks what it reads where there is one.
        storage.remove(f"{checkpoint}/sources/0/.{name}.crc")
        storage.replace_bytes(entry, text.encode(), uuid.uuid4().hex)


def _of_source(checkpoint: str, query_batch: int) -> Iterator[str]:
    """What the source keeps in the checkpoint; of the file source's log the entries up to the batch."""
    names = list(_names(f"{checkpoint}/sources/0"))
    offset = last_line(f"{checkpoint}/offsets/{query_batch}")
    newest = offset.get("logOffset") if isinstance(offset, dict) else None
    if newest is None:
        yield from names
        return
    there = {name: int(name.removesuffix(".compact")) for name in names}
    # An entry of this name repeats all before it.
    compactions = (number for name, number in there.items() if name.endswith(".compact") and number <= newest)
    since = max(compactions, default=0)
    yield from (name for name, number in there.items() if since <= number <= newest)


def _names(folder: str) -> Iterator[str]:
    return (info.base_name for info in storage.listed(folder))
