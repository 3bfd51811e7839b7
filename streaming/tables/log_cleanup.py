"""Clean-up of a Delta log: entries that no version younger than a given age needs."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime

import pyarrow.fs as pa_fs
from deltalake import DeltaTable

from streaming.tables.storage import files_of

_ENTRY = re.compile(r"(\d{20})\.(json|crc.*|checkpoint\..*parquet)$")


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
