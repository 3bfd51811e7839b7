"""The payloads of a landed file, each with the line at which it begins: the file is read again after it was taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pyarrow import fs

from streaming.base import to_micros
from streaming.sources.file_lines import lines_of
from streaming.sources.file_payloads import Payloads, content_up_to, in_utf8, is_utf8, placed_cut_of
from streaming.sources.landed_files import path_of, same_instant
from streaming.sources.source import FileRecords
from streaming.spark import OF_ONE_TASK
from streaming.tables import storage

_END = re.compile(rb"\r\n|[\r\n]")


def records_of(
    landing: str, origin: Mapping[str, Any], payloads: Payloads, encoding: str, most: int
) -> FileRecords | None:
    """The payloads of the file of a row, as its `origin` tells: every one, also those that are rejected.

    A line ends with LF, CR or CRLF. None where the file is not below `landing` any more, or has another size or
    modification time by now, where it has more than `most` bytes, or where it cannot be read.
    """
    name = _name_below(landing, str(origin["path"]))
    if name is None:
        return None
    try:
        files = storage.below(landing)
        info = files.get_file_info(name)
        if info.type != fs.FileType.File or info.size != origin["size"] or info.size > most:
            return None
        if info.mtime_ns is None or not same_instant(info.mtime_ns // 1_000_000, to_micros(origin["modified"]) // 1000):
            return None
        content = content_up_to(files, name, most)
    except OSError:
        return None
    if content is None:
        return None
    placed = _placed(content, payloads, None if is_utf8(encoding) else encoding)
    return FileRecords(*placed, undivided=info.size <= OF_ONE_TASK)


def _name_below(landing: str, path: str) -> str | None:
    below, whole = f"{path_of(landing)}/", path_of(unquote(path))
    return whole.removeprefix(below) if whole.startswith(below) else None


def _placed(content: bytes, payloads: Payloads, encoding: str | None) -> tuple[Sequence[bytes], Sequence[int]]:
    """The payloads, and the lines at which they begin."""
    if payloads == "lines":
        lines = [in_utf8(line, encoding) for block in lines_of([content], is_first=True) for line in block.to_pylist()]
        return lines, range(1, len(lines) + 1)
    text = in_utf8(content, encoding)
    placed = [*placed_cut_of(payloads)(text)]
    return [payload for _, payload in placed], [*_lines(text, (place for place, _ in placed))]


def _lines(content: bytes, places: Iterable[int]) -> Iterator[int]:
    """The numbers of the lines in which some places of a text are, in order."""
    line, before = 1, 0
    for place in places:
        line += sum(1 for _ in _END.finditer(content, before, place))
        before = place
        yield line
