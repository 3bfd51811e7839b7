"""The commits of a Delta table, each with its true version, also while others go on writing."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow.fs as pa_fs
from deltalake import DeltaTable

from streaming.tables import delta
from streaming.tables.storage import files_of

_READ_AT_ONCE = 16


def commit_history(uri: str, limit: int | None = None) -> list[dict[str, Any]]:
    """The table's commits, newest first, each with `version` and the writer's own `userMetadata`, parsed."""
    table = delta.open_table(uri)
    return [] if table is None else commits_of(table, limit)


def commits_of(table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
    """The commits up to the version of an open table, newest first, as `history` gives them.

    The entries are read one by one: delta-rs's own history counts versions down from the one that was opened, but
    begins with the newest there is, so that while somebody writes every commit gets the version of an older one.
    """
    entries = files_of(table)
    versions = range(table.version(), -1, -1)[:limit]
    commits: list[dict[str, Any]] = []
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        for start in range(0, len(versions), _READ_AT_ONCE):
            for commit in pool.map(partial(_commit_of, entries), versions[start : start + _READ_AT_ONCE]):
                if commit is None:
                    return commits
                commits.append(commit)
    return commits


def _commit_of(entries: pa_fs.FileSystem, version: int) -> dict[str, Any] | None:
    """The commit of a version, or None where its entry was cleaned away, as all before it were."""
    try:
        with entries.open_input_file(f"_delta_log/{version:020}.json") as entry:
            actions: list[bytes] = entry.read().splitlines()
    except FileNotFoundError:
        return None
    # An entry need not tell who wrote it.
    about: dict[str, Any] = next(
        (json.loads(action)["commitInfo"] for action in actions if action.startswith(b'{"commitInfo"')), {}
    )
    return {**about, "version": version, "userMetadata": json.loads(about.get("userMetadata") or "null")}
