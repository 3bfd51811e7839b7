"""A landing folder that goes into another lake, with the checkpoint of the query that reads it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import quote, unquote

from pyarrow import fs

from streaming.sources.landed_files import LandedFile, listing_of
from streaming.sources.taken_files import TakenFiles, path_of, relative_path
from streaming.spark import rename_taken, taken_entry
from streaming.tables import storage


def move_files(checkpoint: str, recorded: str, there: str, to: str, names: Sequence[str] = ()) -> int:
    """Copy the files that wait in the folder `there` into the folder `to`, and let the checkpoint know that folder.

    The checkpoint says which files of the folder `recorded` were taken, which `there` may be a copy of: they stay
    taken under their names. Returns how many files were copied; none that is there already.
    """
    if path_of(recorded) == path_of(there) == path_of(to):
        return 0
    waiting = 0 if path_of(there) == path_of(to) else _copy_waiting(checkpoint, recorded, there, to, names)
    rename_taken(checkpoint, lambda uri: _uri(to, relative_path(unquote(uri), recorded)))
    return waiting


def recorded_folder(checkpoint: str, path: str, landing: str) -> str | None:
    """The folder of the file that was taken last, if it ends with `path` as `landing` does, and is another one."""
    names = (info.base_name.removesuffix(".compact") for info in storage.listed(f"{checkpoint}/sources/0"))
    newest = max((int(name) for name in names if name.isdigit()), default=None)
    file = None if newest is None else next(iter(taken_entry(checkpoint, newest) or ()), None)
    if file is None or path_of(file.path).startswith(f"{path_of(landing)}/"):
        return None
    folder, below, _ = path_of(file.path).rpartition(f"/{path.strip('/')}/")
    return f"{folder}{below}".rstrip("/") if below else None


def _copy_waiting(checkpoint: str, recorded: str, there: str, to: str, names: Sequence[str]) -> int:
    taken = TakenFiles(recorded, checkpoint)
    taken.read_on()
    files, root = storage.resolve(to)
    files.create_dir(root, recursive=True)
    entries = sorted(listing_of(there, names).files, key=lambda file: (file.modified_ns, file.name))
    modified = taken.modified([file.name for file in entries])
    waiting = [entry for entry, modification_time in zip(entries, modified, strict=True) if modification_time is None]
    for file in waiting:
        _copy(there, to, file)
    return len(waiting)


def _copy(there: str, to: str, file: LandedFile) -> None:
    """Put a copy in place whole, with the same modification time where the storage lets one set it: it orders files."""
    folder, _, last = file.name.rpartition("/")
    source, root = storage.resolve(f"{there}/{folder}".rstrip("/"))
    target, place = storage.resolve(f"{to}/{folder}".rstrip("/"))
    hidden = f"{place}/.{last}"
    storage.make_folder(target, place)
    with source.open_input_stream(f"{root}/{last}") as content, target.open_output_stream(hidden) as copy:
        copy.write(content.read())
    if isinstance(target, fs.LocalFileSystem):
        os.utime(hidden, ns=(file.modified_ns, file.modified_ns))
    target.move(hidden, f"{place}/{last}")


def taken_uri(landing: str, path: str, origin_path: str) -> str:
    """A file of the landing folder by the URI that Spark's source knows it by, where rows hold it as `origin_path`.

    The folder is declared as `path`; where it was another one when the file was read, the lake was moved since.
    """
    name, below = path_of(unquote(origin_path)), f"{path_of(landing)}/"
    if name.startswith(below):
        return _uri(landing, name.removeprefix(below))
    return _uri(landing, name.rpartition(f"/{path.strip('/')}/")[2])


def _uri(folder: str, name: str) -> str:
    """The file as Spark's source writes it: an encoded URI."""
    path = f"{folder}/{name}"
    scheme, separator, rest = path.partition("://")
    address, below = (f"{scheme}://", rest) if separator else ("file://", path)
    # Java leaves what is not ASCII as it is.
    return address + "".join(quote(part, safe="/!$&'()*+,;=:@~") if part.isascii() else part for part in below)
