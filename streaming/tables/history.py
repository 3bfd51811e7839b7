"""The commits of a Delta table, each with its true version, also while others go on writing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import pyarrow.fs as pa_fs
from deltalake import DeltaTable

from streaming.tables import delta
from streaming.tables.storage import files_of

_READ_AT_ONCE = 16

Read = TypeVar("Read")
_ENTRY = re.compile(r"(\d{20})\.(json|crc.*|checkpoint\..*parquet)$")


def commit_history(uri: str, limit: int | None = None) -> list[dict[str, Any]]:
    """The table's commits, newest first, each with `version` and the writer's own `userMetadata`, parsed."""
    table = delta.open_table(uri)
    return [] if table is None else commits_of(table, limit)


def commits_of(table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
    """The commits up to the version of an open table, newest first, as `commit_history` gives them."""
    return list(islice(newest_commits(table), limit))


def newest_commits(table: DeltaTable) -> Iterator[dict[str, Any]]:
    """The commits up to the version of an open table, newest first; those that nobody asks for are not read.

    The entries are read one by one: delta-rs's own history counts versions down from the one that was opened, but
    begins with the newest there is, so that while somebody writes every commit gets the version of an older one.
    """
    return _newest(table, _commit_of)


def _newest(table: DeltaTable, read: Callable[[pa_fs.FileSystem, int], Read | None]) -> Iterator[Read]:
    """The values of `read` for each version up to an open table's, newest first, until there is nothing to read."""
    entries, version = files_of(table), table.version()
    newest = read(entries, version)
    if newest is None:
        return
    yield newest
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        for start in range(version - 1, -1, -_READ_AT_ONCE):
            chunk = range(start, max(-1, start - _READ_AT_ONCE), -1)
            for older in pool.map(partial(read, entries), chunk):
                if older is None:
                    return
                yield older


def numbers_of(table: DeltaTable) -> dict[str, int]:
    """The numbers that an open table keeps, but for those that only entries tell of which were cleaned away."""
    numbers: dict[str, int] = {}
    for older in _newest(table, numbers_in):
        numbers = older | numbers
    return numbers


def numbers_in(entries: pa_fs.FileSystem, version: int) -> dict[str, int] | None:
    """The numbers that a version has set, or None where its entry was cleaned away."""
    actions = _lines_of(entries, version)
    if actions is None:
        return None
    kept = (json.loads(action)["txn"] for action in actions if action.startswith(b'{"txn"'))
    return {number["appId"]: number["version"] for number in kept}


def _entry(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def actions_of(table: DeltaTable, version: int) -> list[dict[str, Any]] | None:
    """The actions of a version of an open table, one an entry, or None where that was cleaned away."""
    actions = _lines_of(files_of(table), version)
    return None if actions is None else [json.loads(action) for action in actions]


def _lines_of(entries: pa_fs.FileSystem, version: int) -> list[bytes] | None:
    try:
        with entries.open_input_file(_entry(version)) as entry:
            lines: list[bytes] = entry.read().splitlines()
    except FileNotFoundError:
        return None
    return lines


def _commit_of(entries: pa_fs.FileSystem, version: int) -> dict[str, Any] | None:
    """The commit of a version, or None where its entry was cleaned away, as all before it were."""
    actions = _lines_of(entries, version)
    if actions is None:
        return None
    # An entry need not tell who wrote it.
    about: dict[str, Any] = next(
        (json.loads(action)["commitInfo"] for action in actions if action.startswith(b'{"commitInfo"')), {}
    )
    return {**about, "version": version, "userMetadata": json.loads(about.get("userMetadata") or "null")}


def clean_up(table: DeltaTable, older_than: datetime, kept: Collection[int] = ()) -> int:
    """Remove the entries before a checkpoint of the table that are older; returns how many files they were.

    Every version since `older_than`, and since the first of those that are `kept`, stays as it is: readable, and with
    its commit. As Delta's own clean-up, but that follows a property of the table, after any commit, and asks nobody.
    """
    files = files_of(table)
    entries = _entries(files)
    commits = {version: info.mtime for version, info in entries if info.path.endswith(".json")}
    young = [version for version, written in commits.items() if written >= older_than]
    limit = min([table.version(), *young, *kept])
    if limit == table.version() and any(version < limit for version in commits):
        table.create_checkpoint()
        entries = _entries(files)
    checkpoints = [version for version, info in entries if info.path.endswith(".checkpoint.parquet")]
    since = max((version for version in checkpoints if version <= limit), default=0)
    # The oldest first: what is left is without a gap, whenever this process dies.
    expired = [info.path for version, info in entries if version < since]
    for path in expired:
        files.delete_file(path)
    return len(expired)


def _entries(files: pa_fs.FileSystem) -> list[tuple[int, pa_fs.FileInfo]]:
    """Commits and checkpoints with their versions, in order."""
    entries = []
    for info in files.get_file_info(pa_fs.FileSelector("_delta_log")):
        match = _ENTRY.match(info.base_name)
        if match:
            entries.append((int(match[1]), info))
    return sorted(entries, key=lambda entry: (entry[0], entry[1].path))
