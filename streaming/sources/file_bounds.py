"""The bounds on what a landed file may ask of whoever reads it: the length of its lines, and what it unpacks to."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import NativeFile, fs

_ENDS = (b"\n", b"\r")
_AT_ONCE = 2**20
_LOOK_BACK = 2**16
_ARROW = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_DEFLATE = ".deflate"
_FRAMED = (".snappy", ".lz4")
_FRAME_HEAD = 8


@dataclass(frozen=True)
class FileBounds:
    """The bounds beyond which a file is too much, in bytes; the names are those of `Files`."""

    longest_line: int
    largest_unpacked: int
    whole: bool = False
    """True where a file is read as one value, so that all of it is bounded as a line is."""

    def may_exceed(self, name: str, size: int) -> bool:
        """True for a file of a name and size that must be looked into to know; of plain ones few must.

        Every packed one must, since one that is damaged fails in the midst of its batch.
        """
        return _packed(name) is not None or size > self.longest_line

    def exceeded(self, files: fs.FileSystem, name: str) -> str | None:
        """The bound that a file exceeds, in words; None for none. The check takes a megabyte of memory at most.

        A packed file is unpacked once, until it is clear. Of a plain one only the ends of lines are looked for, a
        `longest_line` apart.

        Raises:
            OSError: the file cannot be read, or is not what its name says it is.
        """
        kind = _packed(name)
        if kind is None:
            if self.whole:
                return self._too_large()
            with files.open_input_file(name) as handle:
                return self._too_long() if _has_longer_line(handle, self.longest_line) else None
        if kind in _FRAMED:
            with files.open_input_file(name) as handle:
                _check_first_frame(handle)
            return None
        compression = _ARROW.get(kind)
        try:
            with files.open_input_stream(name, compression=compression) as stream:
                parts = _inflated(stream, self._at_once) if compression is None else _read(stream, self._at_once)
                return self._exceeded_by(parts)
        except pa.ArrowException as error:
            # What the library of bzip2 says of a file that it cannot unpack, is no OSError.
            raise pa.ArrowIOError(str(error)) from error

    @property
    def _at_once(self) -> int:
        # No line that begins and ends within one part is too long.
        return min(_AT_ONCE, self.longest_line)

    def _exceeded_by(self, parts: Iterator[bytes]) -> str | None:
        total = line = 0
        for part in parts:
            total += len(part)
            if total > self.largest_unpacked:
                return f"unpacks to more than largest_unpacked={self.largest_unpacked:,} bytes"
            if self.whole:
                if total > self.longest_line:
                    return self._too_large()
                continue
            ends = [end for end in map(part.find, _ENDS) if end >= 0]
            if line + min(ends, default=len(part)) > self.longest_line:
                return self._too_long()
            line = len(part) - 1 - max(map(part.rfind, _ENDS)) if ends else line + len(part)
        return None

    def _too_large(self) -> str:
        return f"has more than longest_line={self.longest_line:,} bytes, and is read whole"

    def _too_long(self) -> str:
        return f"has a line of more than longest_line={self.longest_line:,} bytes"


def _packed(name: str) -> str | None:
    """The end of the name by which Hadoop takes a file as packed; None where it is not packed."""
    return next((end for end in (*_ARROW, _DEFLATE, *_FRAMED) if name.endswith(end)), None)


def _check_first_frame(handle: NativeFile) -> None:
    """Refuse a file that Hadoop would take so much memory for that the process ends.

    The framing is that of Hadoop's `BlockDecompressorStream`: a block's size unpacked, its first chunk's size packed,
    both as four bytes with the greatest first, and the chunk, for which memory is taken before it is read.

    Raises:
        OSError: the file has not as many bytes as its first chunk.
    """
    head, size = handle.read(_FRAME_HEAD), handle.size()
    chunk = int.from_bytes(head[4:])
    if chunk > size - _FRAME_HEAD:
        raise pa.ArrowIOError(f"its first chunk has {chunk:,} bytes by its head, and the file {size:,}")


def _read(stream: NativeFile, at_once: int) -> Iterator[bytes]:
    while part := stream.read(at_once):
        yield part


def _inflated(stream: NativeFile, at_once: int) -> Iterator[bytes]:
    inflating = zlib.decompressobj()
    try:
        while packed := inflating.unconsumed_tail or inflating.unused_data or stream.read(_LOOK_BACK):
            if inflating.eof:
                # Hadoop goes on with what is packed behind the end, as of gzip.
                inflating = zlib.decompressobj()
            yield inflating.decompress(packed, at_once)
        if not inflating.eof:
            raise pa.ArrowIOError("the file ends before what is packed in it does")
    except zlib.error as error:
        raise pa.ArrowIOError(str(error)) from error


def _has_longer_line(handle: NativeFile, longest: int) -> bool:
    start, size = 0, handle.size()
    while size - start > longest:
        end = _last_end(handle, start, start + longest + 1)
        if end is None:
            return True
        start = end + 1
    return False


def _last_end(handle: NativeFile, start: int, stop: int) -> int | None:
    """Where the last line end in [start, stop) is; None where there is none."""
    while stop > start:
        begin = max(start, stop - _LOOK_BACK)
        handle.seek(begin)
        offset = max(map(handle.read(stop - begin).rfind, _ENDS))
        if offset >= 0:
            return begin + offset
        stop = begin
    return None
