"""Small files and listings without Spark, on whatever storage the lake lies."""

from __future__ import annotations

from collections.abc import Iterator

from pyarrow import fs

from streaming import delta


def resolve(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it."""
    if "://" not in location:
        return fs.LocalFileSystem(), location
    return fs.FileSystem.from_uri(delta.location(location))


def read_bytes(location: str) -> bytes | None:
    """The content of a small file, or None where there is none."""
    files, path = resolve(location)
    try:
        with files.open_input_stream(path) as handle:
            return bytes(handle.read())
    except FileNotFoundError:
        return None


def read_text(location: str) -> str | None:
    """The text of a small file, or None where there is none."""
    content = read_bytes(location)
    return None if content is None else content.decode()


def replace_bytes(location: str, content: bytes, token: str) -> None:
    """Put a small file in place whole; `token` keeps two writers' unfinished files apart."""
    files, path = resolve(location)
    hidden = f"{path}.{token}"
    with files.open_output_stream(hidden) as handle:
        handle.write(content)
    files.move(hidden, path)


def remove(location: str) -> None:
    """Take a file away, if it is there."""
    files, path = resolve(location)
    try:
        files.delete_file(path)
    except FileNotFoundError:
        return


def listed(location: str) -> Iterator[fs.FileInfo]:
    """The visible files directly in a folder; none where there is no folder."""
    files, path = resolve(location)
    for info in files.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        if info.type == fs.FileType.File and not info.base_name.startswith((".", "_")):
            yield info
