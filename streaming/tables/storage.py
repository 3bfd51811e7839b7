"""Small files and listings without Spark, on whatever storage the lake lies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyarrow import NativeFile, fs

from streaming.tables import s3
from streaming.tables.s3 import location

_WHOLE = ("s3", "gcs", "abfs")
"""Arrow's names of stores in which a file that is written is seen whole or not at all, and which have no folders."""


def resolve(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it."""
    if "://" not in uri:
        return fs.LocalFileSystem(), uri
    if s3.on_s3(uri):
        # Open tables tell their place with a slash at its end, behind which no further part may begin with one.
        return s3.file_system(), location(uri).removeprefix("s3://").rstrip("/")
    return fs.FileSystem.from_uri(location(uri))


def is_on_disk(files: fs.FileSystem) -> bool:
    """True of files on a disk, where a look at one costs little, and a listing as much as there are files."""
    return isinstance(files.base_fs if isinstance(files, fs.SubTreeFileSystem) else files, fs.LocalFileSystem)


def files_of(table: DeltaTable) -> fs.FileSystem:
    """The files of an open table, by paths relative to it.

    Arrow's own, not delta-rs's, which call Python for every file: where a thread does so while its process ends, the
    process is aborted.
    """
    return below(table.table_uri)


def missing_files(table: DeltaTable) -> list[str]:
    """The data files of an open table that are not in its storage, by their paths in it."""
    there = {path for path, _ in walked(table.table_uri, lambda name: name != "_delta_log")}
    return [path for path in map(str, table.get_add_actions()["path"].to_pylist()) if path not in there]


def below(uri: str) -> fs.FileSystem:
    """The files of a folder, by paths relative to it."""
    files, path = resolve(uri)
    return fs.SubTreeFileSystem(path, files)


def read_bytes(uri: str) -> bytes | None:
    """The content of a small file, or None where there is none; a store that is away is a `StoreError`."""
    if s3.on_s3(uri):
        # Arrow asks for the size first, and fails where somebody replaces or removes the file before it reads.
        s3_object = s3.read_object(uri)
        return None if s3_object is None else s3_object[0]
    files, path = resolve(uri)
    try:
        with files.open_input_stream(path) as handle:
            return bytes(handle.read())
    except FileNotFoundError:
        return None


def read_text(uri: str) -> str | None:
    """The text of a small file, or None where there is none."""
    content = read_bytes(uri)
    return None if content is None else content.decode()


def read_json(uri: str) -> dict[str, Any] | None:
    """The object in a small JSON file; None where there is none, or only a part of it, as after a loss of power."""
    try:
        document = json.loads(read_text(uri) or "null")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def lines(uri: str) -> Iterator[str] | None:
    """The lines of a text file, which may be a large one, without their ends; None where there is no file."""
    files, path = resolve(uri)
    try:
        stream = files.open_input_stream(path)
    except FileNotFoundError:
        return None
    return _lines(stream)


def _lines(stream: NativeFile) -> Iterator[str]:
    with TextIOWrapper(stream, encoding="utf-8", newline="\n") as text:
        for line in text:
            yield line.rstrip("\n")


def replace_bytes(uri: str, content: bytes, token: str) -> None:
    """Put a small file in place whole; `token` keeps two writers' unfinished files apart.

    Its folder is made where it is not there yet.
    """
    files, path = resolve(uri)
    make_folder(files, path.rpartition("/")[0])
    if files.type_name in _WHOLE:
        _write(files, path, content)
        return
    hidden = f"{path}.{token}"
    _write(files, hidden, content)
    files.move(hidden, path)


def put_whole(uri: str, content: bytes) -> None:
    """Put a file in place whole, as whoever lists its folder sees it; its folder is made where it is not there.

    Until then it has a hidden name, which follows from its own: who dies meanwhile leaves one that the next attempt
    writes over. On a local disk the content is durable before it is moved.

    Raises:
        OSError: it cannot be written.
    """
    files, path = resolve(uri)
    if files.type_name in _WHOLE:
        _write(files, path, content)
        return
    folder, _, name = path.rpartition("/")
    hidden = f"{folder}/.{name}"
    files.create_dir(folder, recursive=True)
    _write(files, hidden, content)
    if is_on_disk(files):
        make_durable(hidden)
    files.move(hidden, path)


def make_folder(files: fs.FileSystem, path: str) -> None:
    """Make a folder with those above it, where the storage has folders at all."""
    if files.type_name not in _WHOLE:
        files.create_dir(path, recursive=True)


def _write(files: fs.FileSystem, path: str, content: bytes) -> None:
    with files.open_output_stream(path) as handle:
        handle.write(content)


def make_durable(path: str | Path) -> None:
    """Have the disk hold a file, or the entries of a folder, before anything else happens."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(uri: str) -> None:
    """Take a file away, if it is there."""
    files, path = resolve(uri)
    try:
        files.delete_file(path)
    except FileNotFoundError:
        return


def remove_folder(uri: str) -> None:
    """Take a folder away with all that is in it, if it is there."""
    files, path = resolve(uri)
    if files.get_file_info(path).type == fs.FileType.Directory:
        files.delete_dir(path)


def folders(uri: str) -> Iterator[str]:
    """The names of the visible folders directly in a folder; none where there is no folder."""
    files, path = resolve(uri)
    for info in files.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if info.type == fs.FileType.Directory and not info.base_name.startswith((".", "_")):
            yield info.base_name


def files_in(uri: str) -> Iterator[str]:
    """The names of the visible files directly in a folder; none where there is no folder."""
    files, path = resolve(uri)
    for info in files.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if info.type == fs.FileType.File and not info.base_name.startswith((".", "_")):
            yield info.base_name


def walked(uri: str, visible: Callable[[str], bool]) -> Iterator[tuple[str, fs.FileInfo]]:
    """Each file below a folder with its path relative to it; of names that are not `visible` nothing is looked at."""
    files, path = resolve(uri)
    pending = [""]
    while pending:
        folder = pending.pop()
        for info in files.get_file_info(fs.FileSelector(f"{path}/{folder}".rstrip("/"), allow_not_found=True)):
            name = f"{folder}/{info.base_name}".lstrip("/")
            if not visible(info.base_name):
                continue
            if info.type == fs.FileType.Directory:
                pending.append(name)
            else:
                yield name, info


class ChangedMeanwhile(OSError):
    """Somebody else has put the file after it was looked at."""


@dataclass(frozen=True)
class Snapshot:
    """The content of a file, None where there was none, and how the store names that version of it."""

    content: bytes | None
    tag: str | None = None


def look(uri: str) -> Snapshot:
    """The file as it is now, to be handed to `swap`.

    Raises:
        StoreError, OSError: it cannot be read.
    """
    if not s3.on_s3(uri):
        return Snapshot(read_bytes(uri))
    s3_object = s3.read_object(uri)
    return Snapshot(None) if s3_object is None else Snapshot(*s3_object)


def swap(uri: str, content: bytes, snapshot: Snapshot, token: str) -> None:
    """Put a small file in place whole, where it is still as in `snapshot`; `token` is as in `replace_bytes`.

    Of several that replace what they have seen, one wins: object stores compare and swap, and on disks whoever has the
    lock beside the file is the only one to write it. No two writers may put the same `content`: by it a writer knows
    its own, where the store has carried out a request whose answer was lost, and refuses the repetition.

    Raises:
        ChangedMeanwhile: the file is another one by now; nothing was written.
        StoreError, OSError: it cannot be written.
    """
    if not s3.on_s3(uri):
        replace_bytes(uri, content, token)
        return
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    store, name = s3.object_store(uri)
    mode: Any = "create" if snapshot.content is None else {"e_tag": snapshot.tag}
    try:
        store.put(name, content, mode=mode)
    except (AlreadyExistsError, PreconditionError):
        if look(uri).content != content:
            raise ChangedMeanwhile(f"{uri} is another one by now") from None
    # Where the bucket is not there, as where the file is gone, the client says that the file was not found.
    except (BaseError, FileNotFoundError) as error:
        raise s3.store_error(uri, error) from None
