"""Copies of a Delta table at one version, files and log entries as they are, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow.fs as pa_fs
from deltalake import DeltaTable

from streaming.tables.history import numbers_in
from streaming.tables.storage import files_of, make_folder, resolve

_ENTRY = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)$")
_AT_ONCE = 8
_CHUNK = 4 * 2**20


def copy_table(table: DeltaTable, to: str, *, back_to: int | None = None) -> int:
    """Copy an open table, as it is at its version, to the place `to`; returns the bytes of its data files.

    The copy has the same identity, versions and numbers. Its history reaches back to a checkpoint, and to version
    `back_to` as far as there still is one. A copy that dies in its midst cannot be opened.
    """
    added = table.get_add_actions()
    copy_files(files_of(table), map(str, added["path"].to_pylist()), to)
    # The oldest entry comes last: only that one has the protocol, without which nobody opens a table, while one that
    # lacks its newest entries is an older one. A checksum would tell the protocol too, so it follows then.
    for name in [*_entries(table, back_to), f"{table.version():020}.crc"]:
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


def _entries(table: DeltaTable, back_to: int | None) -> list[str]:
    """The names of the entries that the copy needs, newest first."""
    files, newest = files_of(table), table.version()
    log_files = files.get_file_info(pa_fs.FileSelector("_delta_log"))
    matches = [(int(match[1]), info.base_name) for info in log_files if (match := _ENTRY.match(info.base_name))]
    there = sorted((each for each in matches if each[0] <= newest), reverse=True)
    version_with_numbers = _newest_with_numbers(files, [version for version, name in there if name.endswith(".json")])
    until = version_with_numbers if back_to is None else min(version_with_numbers, back_to)
    since = max((version for version, name in there if name.endswith(".parquet") and version <= until), default=0)
    return [name for version, name in there if version >= since]


def _newest_with_numbers(files: pa_fs.FileSystem, versions: Iterable[int]) -> int:
    """The newest of `versions`, newest first, whose entry sets a number; only entries tell which ones a table has."""
    return next((version for version in versions if numbers_in(files, version)), 0)
