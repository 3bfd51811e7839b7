"""Landed files line by line in Python workers, as Spark's text source cuts them into lines; no row of them is planned.

A line ends with LF, CR or CRLF. A file is cut for tasks behind an LF only: those of its bytes that a part begins and
ends with are found by whoever reads it, as Hadoop's readers do.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import NativeFile

from streaming.sources.file_payloads import packing
from streaming.sources.landed_files import encoded, relative_path, unreadable, vanished
from streaming.sources.source import ROW_BITS, PayloadPart
from streaming.spark import OF_ONE_TASK, FileInfo
from streaming.tables import storage

_LF, _CR = b"\n", b"\r"
_BLOCK = 4 * 2**20
"""Bytes that are read, and lines that are given, together: the memory of a task is a few times as much."""
_LARGEST = 128 * 2**20
"""Bytes of one task, so that what is read again after a failure is bounded."""
_GZIP = ".gz"
_MILLIS = pa.timestamp("ms", "UTC")
_MICROS = pa.timestamp("us", "UTC")
_ORIGIN = pa.struct([("path", pa.string()), ("modified", _MICROS), ("size", pa.int64()), ("position", pa.int64())])


@dataclass(frozen=True)
class FileLines(PayloadPart):
    """The lines of a file below `landing` that begin in [start, end) of its bytes; `end` is None for the whole file.

    `path`, `size` and `modified`, in milliseconds since the epoch, are those of the file as `_origin` has them;
    `number` tells the parts of a batch apart.
    """

    landing: str
    name: str
    path: str
    size: int
    modified: int
    number: int
    start: int = 0
    end: int | None = None

    @property
    def length(self) -> int | None:
        """The bytes that it reads, which nobody knows of a packed file."""
        return None if self.end is None else self.end - self.start

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The payloads with their origins, a block at a time.

        Raises:
            SourceError: the file is gone, or cannot be read to its end.
        """
        try:
            yield from self._located()
        except FileNotFoundError as error:
            raise vanished(self.path) from error
        except OSError as error:
            raise unreadable(self.path, str(error)) from error

    def _located(self) -> Iterator[pa.RecordBatch]:
        first = self.number << ROW_BITS
        for lines in self._lines():
            number = len(lines)
            origin = [
                pa.repeat(self.path, number),
                pa.repeat(pa.scalar(self.modified, _MILLIS).cast(_MICROS), number),
                pa.repeat(pa.scalar(self.size, pa.int64()), number),
                pa.array(np.arange(first, first + number)),
            ]
            first += number
            origins = pa.StructArray.from_arrays(origin, fields=list(_ORIGIN))
            yield pa.RecordBatch.from_arrays([lines, origins], names=["_raw", "_origin"])

    def _lines(self) -> Iterator[pa.BinaryArray]:
        files = storage.below(self.landing)
        if self.end is None:
            compression = "gzip" if packing(self.name) == _GZIP else None
            with files.open_input_stream(self.name, compression=compression) as stream:
                yield from lines_of(_blocks(stream), is_first=True)
        else:
            with files.open_input_file(self.name) as handle:
                yield from lines_of(self._bytes(handle, self.end), is_first=self.start == 0)

    def _bytes(self, handle: NativeFile, end: int) -> Iterator[bytes]:
        """The bytes of the lines that begin in [start, end), from the first one to the end of the last one."""
        place = max(0, self.start - 1)
        handle.seek(place)
        # The line that begins at `start` follows the byte before it, if that is an LF.
        is_found = self.start == 0
        for block in _blocks(handle):
            following = place + len(block)
            if not is_found:
                behind = block.find(_LF) + 1
                is_found = behind > 0
                if not is_found or place + behind >= end:
                    if is_found or following >= end:
                        return
                    place = following
                    continue
                block = block[behind:]
                place += behind
            if following >= end:
                last = block.find(_LF, max(0, end - 1 - place))
                if last >= 0:
                    yield block[: last + 1]
                    return
            yield block
            place = following


def _blocks(stream: NativeFile) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def lines_of(blocks: Iterable[bytes], *, is_first: bool) -> Iterator[pa.BinaryArray]:
    """The lines in some bytes without their ends; a byte order mark in front of the `is_first` of a file is no text."""
    begun: list[bytes] = []
    for block in blocks:
        # An LF may follow a CR with which the block ends.
        end = max(block.rfind(_LF), block.rfind(_CR, 0, len(block) - 1)) + 1
        if not end:
            begun.append(block)
            continue
        yield _cut(_text([*begun, block[:end]], is_first))
        begun, is_first = [block[end:]] if end < len(block) else [], False
    text = _text(begun, is_first)
    if text:
        yield _cut(text if text.endswith(_CR) else text + _LF)


def _text(parts: Iterable[bytes], is_first: bool) -> bytes:
    text = b"".join(parts)
    return text.removeprefix(codecs.BOM_UTF8) if is_first else text


def _cut(text: bytes) -> pa.BinaryArray:
    """The lines of a text whose last one ends."""
    if _CR in text:
        text = text.replace(b"\r\n", _LF).replace(_CR, _LF)
    signs = np.frombuffer(text, np.uint8)
    is_end = signs == _LF[0]
    ends = np.flatnonzero(is_end)
    # Without the ends the lines lie side by side, as an array of Arrow has them.
    offsets = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int32)
    values = signs[~is_end]
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def shared_out(files: Sequence[FileInfo], landing: str, tasks: int) -> tuple[tuple[FileLines, ...], ...]:
    """The lines of all files, shared out among about so many `tasks`, in order; none where one cannot be read here."""
    packings = {packing(file.path) for file in files}
    if packings - {None, _GZIP}:
        return ()
    share = min(max(math.ceil(sum(file.size for file in files) / tasks), OF_ONE_TASK), _LARGEST)
    groups: list[list[FileLines]] = [[]]
    room = share
    number = 0
    for file in files:
        name = relative_path(file.path, landing)
        path = encoded(file.path)
        is_packed = packing(file.path) is not None
        start = 0
        while start < file.size:
            if room <= 0:
                groups.append([])
                room = share
            end = None if is_packed else min(file.size, start + room)
            # What is left is read with it where that is little.
            if end is not None and file.size - end < OF_ONE_TASK:
                end = file.size
            groups[-1].append(FileLines(landing, name, path, file.size, file.modified, number, start, end))
            number += 1
            room -= (file.size if end is None else end) - start
            start = file.size if end is None else end
    return tuple(tuple(group) for group in groups if group)
