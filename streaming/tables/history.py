"""The commits of a Delta table: attempts at one, and those there are, each with its true version.

They are read also while others write. Beside the newest lies its checksum; a copy of a table has its commits, too.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import pyarrow.fs as pa_fs
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from streaming.tables.storage import files_of, is_on_disk, make_folder, replace_bytes, resolve

_ATTEMPTS = 8
_READ_AT_ONCE = 16

Read = TypeVar("Read")
_ENTRY = re.compile(r"(\d{20})\.(json|crc.*|checkpoint\..*parquet)$")
_COPIED_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)$")
_AT_ONCE = 8
_CHUNK = 4 * 2**20


def attempts(table: DeltaTable) -> Retrying:
    """The attempts of a commit: after one that lost to another commit, the open table is updated before the next."""
    return Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(0.05, max=2),
        after=lambda _: table.update_incremental(),
        reraise=True,
    )


def commits_of(table: DeltaTable) -> list[dict[str, Any]]:
    """The commits up to the version of an open table, newest first, as `newest_commits` gives them."""
    return list(newest_commits(table))


def newest_commits(table: DeltaTable) -> Iterator[dict[str, Any]]:
    """The commits up to the version of an open table, newest first; those that nobody asks for are not read.

    Each has its `version`, and the writer's own `userMetadata`, parsed. The entries are read one by one: delta-rs's own
    history counts versions down from the one that was opened, but begins with the newest there is, so that while
    somebody writes every commit gets the version of an older one.
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


def numbers_named(table: DeltaTable | None, names: Iterable[str]) -> dict[str, int]:
    """The numbers that an open table keeps under `names`, less those that it has not; none where there is no table.

    delta-rs reads every entry since the last checkpoint for each number. The newest entry has nearly always set all
    that belong together, so it is read first, for all of them.
    """
    if table is None:
        return {}
    newest = numbers_in(files_of(table), table.version()) or {}
    kept = {name: newest[name] if name in newest else table.transaction_version(name) for name in names}
    return {name: number for name, number in kept.items() if number is not None}


def numbers_in(entries: pa_fs.FileSystem, version: int) -> dict[str, int] | None:
    """The numbers that a version has set, or None where its entry was cleaned away."""
    actions = _lines_of(entries, version)
    if actions is None:
        return None
    kept = (json.loads(action)["txn"] for action in actions if action.startswith(b'{"txn"'))
    return {number["appId"]: number["version"] for number in kept}


def entry_path(version: int, kind: str = "json") -> str:
    """The path of what the log of a table has of a version: its entry, or its checksum (`crc`)."""
    return f"_delta_log/{version:020}.{kind}"


def has_entry(entries: pa_fs.FileSystem, version: int) -> bool:
    """True if the log of a table, among whose files `entries` are looked for, has the entry of a version."""
    return bool(entries.get_file_info(entry_path(version)).type == pa_fs.FileType.File)


def actions_of(table: DeltaTable, version: int) -> list[dict[str, Any]] | None:
    """The actions of a version of an open table, one an entry, or None where that was cleaned away."""
    actions = _lines_of(files_of(table), version)
    return None if actions is None else [json.loads(action) for action in actions]


def _lines_of(entries: pa_fs.FileSystem, version: int) -> list[bytes] | None:
    try:
        with entries.open_input_file(entry_path(version)) as entry:
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


def write_checksum(table: DeltaTable) -> None:
    """Write Delta's checksum file of the version that is open, which saves Spark a job when it reads that version.

    Nothing is raised where it cannot be written, because readers can do without it.
    """
    files, version = files_of(table), table.version()
    with suppress(OSError):
        path = f"{table.table_uri.rstrip('/')}/{entry_path(version, 'crc')}"
        replace_bytes(path, json.dumps(_checksum(table)).encode(), uuid.uuid4().hex)
        if is_on_disk(files):
            # Each file makes every listing dearer, and this one is of use only to whoever opens the newest version.
            files.delete_file(entry_path(version - 1, "crc"))


def _checksum(table: DeltaTable) -> dict[str, Any]:
    sizes = table.get_add_actions()["size_bytes"].to_pylist()
    metadata, protocol = table.metadata(), table.protocol()
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    return {
        "tableSizeBytes": sum(sizes),
        "numFiles": len(sizes),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {
            "id": str(metadata.id),
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": metadata.partition_columns,
            "configuration": metadata.configuration,
            "createdTime": metadata.created_time,
        },
        "protocol": {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            **{name: sorted(values) for name, values in features.items() if values is not None},
        },
    }


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


def copy_table(table: DeltaTable, to: str, *, back_to: int | None = None) -> int:
    """Copy an open table, as it is at its version, to the place `to`; returns the bytes of its data files.

    The copy has the same identity, versions and numbers. Its history reaches back to a checkpoint, and to version
    `back_to` as far as there still is one. A copy that dies in its midst cannot be opened.
    """
    added = table.get_add_actions()
    copy_files(files_of(table), map(str, added["path"].to_pylist()), to)
    # The oldest entry comes last: only that one has the protocol, without which nobody opens a table, while one that
    # lacks its newest entries is an older one. A checksum would tell the protocol too, so it follows then.
    for name in [*_copied_entries(table, back_to), f"{table.version():020}.crc"]:
        if files_of(table).get_file_info(f"_delta_log/{name}").type == pa_fs.FileType.File:
            copy_files(files_of(table), [f"_delta_log/{name}"], to)
    return int(sum(added["size_bytes"].to_pylist()))


def copy_files(source: pa_fs.FileSystem, names: Iterable[str], to: str) -> None:
    """Copy files by their paths below the file system `source` to the same paths below the folder `to`."""
    files, root = resolve(to)
    wanted = list(names)
    for folder in sorted({name.rpartition("/")[0] for name in wanted}):
        make_folder(files, f"{root}/{folder}".rstrip("/"))

    def copy(name: str) -> None:
        with source.open_input_stream(name) as content, files.open_output_stream(f"{root}/{name}") as target:
            while chunk := content.read(_CHUNK):
                target.write(chunk)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(copy, wanted))


def _copied_entries(table: DeltaTable, back_to: int | None) -> list[str]:
    """The names of the entries that the copy needs, newest first."""
    files, newest = files_of(table), table.version()
    log_files = files.get_file_info(pa_fs.FileSelector("_delta_log"))
    matches = [(int(match[1]), info.base_name) for info in log_files if (match := _COPIED_ENTRY.match(info.base_name))]
    there = sorted((each for each in matches if each[0] <= newest), reverse=True)
    version_with_numbers = _newest_with_numbers(files, [version for version, name in there if name.endswith(".json")])
    until = version_with_numbers if back_to is None else min(version_with_numbers, back_to)
    since = max((version for version, name in there if name.endswith(".parquet") and version <= until), default=0)
    return [name for version, name in there if version >= since]


def _newest_with_numbers(files: pa_fs.FileSystem, versions: Iterable[int]) -> int:
    """The newest of `versions`, newest first, whose entry sets a number; only entries tell which ones a table has."""
    return next((version for version in versions if numbers_in(files, version)), 0)
