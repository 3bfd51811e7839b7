"""Spark's checkpoints: which query owns one, which files and versions each of its batches took."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable

from streaming.base import CheckpointError
from streaming.tables import commits_of, copy_files, delta, storage

_BATCH = re.compile('"batchId": *([0-9]+)')
_FORMAT = "v1"


@dataclass(frozen=True)
class TakenFile:
    """A file that a batch of the query took: its URI, and its modification time in milliseconds since the epoch."""

    batch: int
    path: str
    modified: int


def taken_entry(checkpoint: str, number: int, since: int = -1) -> Iterator[TakenFile] | None:
    """The files of batches after `since` in one entry of the file source's log, `sources/0`; None where there is none.

    Every tenth entry, named `<number>.compact`, repeats those before it, which are deleted after a while.
    """
    entry = f"{checkpoint}/sources/0/{number}"
    lines = storage.lines(entry) or storage.lines(f"{entry}.compact")
    return None if lines is None else _taken(lines, since)


def _taken(lines: Iterator[str], since: int) -> Iterator[TakenFile]:
    for line in lines:
        batch = _BATCH.search(line)
        # The first line names the format; a compaction may have millions, of which few are of newer batches.
        if batch is not None and int(batch[1]) > since:
            file = json.loads(line)
            yield TakenFile(file["batchId"], unquote(file["path"]), file["timestamp"])


def newest_compaction(checkpoint: str) -> int | None:
    """The number of the newest entry of the file source's log that repeats all before it; None where there is none."""
    names = storage.files_in(f"{checkpoint}/sources/0")
    return max((int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")), default=None)


def planned(checkpoint: str, query_batch: int) -> list[str]:
    """The files that the query has chosen for a batch."""
    offsets = (storage.read_text(f"{checkpoint}/offsets/{number}") for number in (query_batch - 1, query_batch))
    before, last = map(_log_offset, offsets)
    paths: list[str] = []
    for number in range(before + 1, last + 1):
        paths += [file.path for file in taken_entry(checkpoint, number, number - 1) or ()]
    return paths


def _log_offset(offsets: str | None) -> int:
    return -1 if offsets is None else int(json.loads(offsets.splitlines()[-1])["logOffset"])


def planned_offsets(checkpoint: str, query_batch: int) -> tuple[Any, Any]:
    """Where a batch of the query begins and ends, as the source wrote it in JSON; the first one at its first offset."""
    end = last_line(f"{checkpoint}/offsets/{query_batch}")
    before = f"offsets/{query_batch - 1}" if query_batch else "sources/0/0"
    return last_line(f"{checkpoint}/{before}"), end


def newest_planned(checkpoint: str) -> int | None:
    """The newest batch that the query has planned; None where it has planned none."""
    names = storage.files_in(f"{checkpoint}/offsets")
    return max((int(name) for name in names if name.isdigit()), default=None)


def newest_committed(checkpoint: str) -> int | None:
    """The newest batch that the query has done; None where it has done none."""
    return max(map(int, filter(str.isdigit, storage.files_in(f"{checkpoint}/commits"))), default=None)


def forget_after(checkpoint: str, query_batch: int) -> None:
    """Remove what batches after `query_batch` have left, so that the query plans them again; the newest first."""
    for kind in ("commits", "offsets"):
        later = (int(name) for name in storage.files_in(f"{checkpoint}/{kind}") if name.isdigit())
        for number in sorted((number for number in later if number > query_batch), reverse=True):
            storage.remove(f"{checkpoint}/{kind}/.{number}.crc")
            storage.remove(f"{checkpoint}/{kind}/{number}")


def unreadable_files(checkpoint: str) -> list[str]:
    """The small files of a checkpoint that are not what Spark writes: empty, or cut off; by their URIs."""
    names = [f"{kind}/{name}" for kind in ("offsets", "commits") for name in storage.files_in(f"{checkpoint}/{kind}")]
    uris = [f"{checkpoint}/{name}" for name in ("metadata", *names)]
    return [uri for uri in uris if (text := storage.read_text(uri)) is not None and not _is_json(text)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text.strip().rpartition("\n")[2])
    except ValueError:
        return False
    return True


def has_begun(checkpoint: str) -> bool:
    """True if the checkpoint says from where the query reads, so that a start position means nothing any more."""
    return newest_planned(checkpoint) is not None or storage.read_text(f"{checkpoint}/sources/0/0") is not None


def last_line(uri: str) -> Any:
    """The last line of a small file as a JSON value, None where there is no file: an offset of a source."""
    text = storage.read_text(uri)
    return None if text is None else json.loads(text.splitlines()[-1])


def query_id(checkpoint: str) -> str | None:
    """The id of the query that owns a checkpoint, or None where the checkpoint is new."""
    metadata = storage.read_text(f"{checkpoint}/metadata")
    return None if metadata is None else json.loads(metadata)["id"]


def check_checkpoint(table: str, checkpoint: str, way_out: str, may_begin_anew: bool = False) -> None:
    """Refuse a checkpoint that is not the one `table` was written with: it would lose or repeat rows.

    With `may_begin_anew` one of another query will do, and none: the source knows which rows the table holds.

    Raises:
        CheckpointError: with `way_out` as the advice.
    """
    opened, query = delta.open_table(table), query_id(checkpoint)
    if opened is None:
        if any(storage.files_in(f"{checkpoint}/commits")):
            raise CheckpointError(
                f"the table {table!r} is gone, but its checkpoint {checkpoint!r} holds batches that were in it; going "
                f"on would lose them. {way_out}"
            )
        return
    if query is not None and opened.transaction_version(query) is not None:
        return
    writer = None if may_begin_anew else _writer(opened)
    if writer is not None:
        raise CheckpointError(
            f"the table {table!r} was written with query {writer}, but its checkpoint {checkpoint!r} "
            f"{'is gone' if query is None else f'belongs to query {query}'}; going on would repeat or lose rows. "
            f"{way_out}"
        )


def _writer(table: DeltaTable) -> str | None:
    """The query that wrote the table, None where none did; of a history that was cleaned, only that there was one."""
    history = commits_of(table)
    for commit in history:
        if isinstance(commit["userMetadata"], dict) and commit["userMetadata"].get("query"):
            return str(commit["userMetadata"]["query"])
    return None if history and history[-1]["version"] == 0 else "of which its history tells no more"


def copy_checkpoint(checkpoint: str, to: str, query_batch: int) -> None:
    """Copy of a checkpoint what makes its query go on after `query_batch`, to the folder `to`.

    The query may run: what a batch leaves in its checkpoint is put there whole, and stays for a hundred batches.
    """
    batches = {str(query_batch - 1), str(query_batch)}
    names = ["metadata"]
    for kind in ("offsets", "commits"):
        names += [f"{kind}/{name}" for name in storage.files_in(f"{checkpoint}/{kind}") if name in batches]
    names += [f"sources/0/{name}" for name in _of_source(checkpoint, query_batch)]
    copy_files(storage.below(checkpoint), names, to)


def rename_taken(checkpoint: str, renamed: Callable[[str], str]) -> None:
    """Let the file source's log name the files that were taken as they are `renamed`, by their encoded URIs."""
    for name in storage.files_in(f"{checkpoint}/sources/0"):
        entry = f"{checkpoint}/sources/0/{name}"
        # The first line names the format.
        version, _, lines = (storage.read_text(entry) or "").partition("\n")
        files = [json.loads(line) for line in lines.split("\n") if line]
        text = "\n".join([version, *(json.dumps({**file, "path": renamed(file["path"])}) for file in files)])
        # Hadoop keeps a checksum beside each file of a local disk, and checks what it reads where there is one.
        storage.remove(f"{checkpoint}/sources/0/.{name}.crc")
        storage.replace_bytes(entry, text.encode(), uuid.uuid4().hex)


def _of_source(checkpoint: str, query_batch: int) -> Iterator[str]:
    """The entries that the source keeps in the checkpoint; of the file source's log those up to the batch."""
    names = list(storage.files_in(f"{checkpoint}/sources/0"))
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
