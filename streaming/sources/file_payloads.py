"""Payloads within a landed file that are no lines, and the bounds on what a file may ask of whoever reads it.

A payload is a whole file, an element of an array or a record of CSV. Bounded are the length of a line, and what a
packed file unpacks to.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyarrow import NativeFile, fs

from streaming.base import DeclarationError, check_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UTF8 = "utf-8"
_BOM = codecs.BOM_UTF8
_SPACE = b" \t\r\n"
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{},]', re.DOTALL)
"""A whole text of JSON, or a sign that separates; a quote alone opens a text that does not end."""
_ASCII = bytes(range(0x80)) + b"~{!!~}+AGE-\\u0041\x1b$B!!\x1b(B"
"""Each byte of ASCII, and what stands for other characters where such bytes have a second meaning."""
_UNKNOWN = re.compile("[\udc80-\udcff]+")
"""Bytes that an encoding does not know, as Python keeps them in a text."""
_NEVER_UTF8 = "\udcff"
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 10_000, 4 * 2**20

Cut = Callable[[bytes], Iterator[bytes]]
PlacedCut = Callable[[bytes], Iterator[tuple[int, bytes]]]
"""Cuts a file into its payloads, each with the place at which it begins."""
_ENDS = (b"\n", b"\r")
_AT_ONCE = 2**20
_LOOK_BACK = 2**16
_ARROW = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_DEFLATE = ".deflate"
_FRAMED = (".snappy", ".lz4")
_FRAME_HEAD = 8


@dataclass(frozen=True)
class CsvRecords:
    """Each CSV record of a file is a payload, also one with line ends inside its quotes.

    `separator`, `quote` and `escape` are those of the `Csv` that reads the payloads. A quote counts where a field
    begins; what follows one that is never closed is one payload, which `Csv` refuses.

    `header`: the first record of a file names the fields of the others, and is sent along with each of them, for a
    `Csv` that has `header=True` as well; columns may then stand in another order in each file. A file with nothing but
    a header is one payload, which `Csv` refuses, so that it is not lost without a word.

    `comment`: records that begin with this sign are left out.

    Raises:
        DeclarationError: a sign is not one character of ASCII, or stands for two things.
    """

    separator: str = ","
    quote: str = '"'
    header: bool = False
    comment: str | None = None
    escape: str | None = None

    def __post_init__(self) -> None:
        check_type("header of CsvRecords", self.header, bool, "True or False")
        signs = {"separator": self.separator, "quote": self.quote}
        signs |= {} if self.escape is None else {"escape": self.escape}
        signs |= {} if self.comment is None else {"comment": self.comment}
        for name, sign in signs.items():
            check_type(f"{name} of CsvRecords", sign, str, "one character")
            if len(sign) != 1 or not sign.isascii() or sign in "\r\n":
                raise DeclarationError(f"{name}={sign!r} of CsvRecords is not one character of ASCII; write one.")
        if len({*signs.values()}) < len(signs):
            told = ", ".join(f"{name}={sign!r}" for name, sign in signs.items())
            raise DeclarationError(f"the signs of CsvRecords are {told}, and one stands for two things; choose others.")


Payloads = Literal["lines", "file", "array"] | CsvRecords


def check_payloads(payloads: Payloads, encoding: str) -> None:
    """Refuse what no file can be cut into, or an encoding in which not every byte of ASCII is a character of its own.

    Raises:
        DeclarationError: with what to write.
    """
    if not isinstance(payloads, CsvRecords) and payloads not in ("lines", "file", "array"):
        raise DeclarationError(
            f"payloads={payloads!r} of Files is unknown; write 'lines', 'file', 'array' or CsvRecords()."
        )
    check_type("encoding of Files", encoding, str, "the name of one, such as 'latin-1'")
    try:
        as_ascii = all(sign.encode(encoding) == sign.encode() for sign in '\r\n"[]{},')
    except (LookupError, UnicodeError):
        as_ascii = False
    if not as_ascii:
        raise DeclarationError(
            f"encoding={encoding!r} of Files is none in which line ends are those of ASCII; write one such as 'utf-8', "
            "'latin-1' or 'cp1252', and convert files of another one before they are landed."
        )
    try:
        is_plain = len(_ASCII.decode(encoding, "surrogateescape")) == len(_ASCII)
    except UnicodeError:
        is_plain = False
    if not is_plain:
        raise DeclarationError(
            f"encoding={encoding!r} of Files is none in which each byte of ASCII is a character of its own, so that "
            "one bad byte would change others; write one such as 'utf-8', 'latin-1' or 'cp1252', and convert files of "
            "another one before they are landed."
        )


def is_read_whole(payloads: Payloads) -> bool:
    """True where Spark must read a file as one value, which is cut afterwards."""
    return payloads != "lines"


def is_utf8(encoding: str) -> bool:
    """True if the name is one of those that UTF-8 has."""
    return codecs.lookup(encoding).name == _UTF8


def cut_files(rows: DataFrame, payloads: Payloads, encoding: str) -> DataFrame:
    """`rows` of `_raw`, a line or a whole file, and `_origin`, with a row for each payload, in UTF-8.

    Rows keep their order. What an encoding does not know stays as it was, behind a byte 0xFF, so that the payload is no
    UTF-8.
    """
    if payloads in ("lines", "file") and is_utf8(encoding):
        return rows
    cut = partial(_cut_batches, cut=cut_of(payloads), encoding=None if is_utf8(encoding) else encoding)
    return rows.selectExpr("cast(_raw as binary) as _raw", "_origin").mapInArrow(
        cut, rows.selectExpr("cast(_raw as binary) as _raw", "_origin").schema
    )


def cut_of(payloads: Payloads) -> Cut:
    """The function that cuts a file into such payloads."""
    return partial(_without_places, cut=placed_cut_of(payloads))


def placed_cut_of(payloads: Payloads) -> PlacedCut:
    """The function that cuts a file into such payloads, with their places; of what is read line by line there is none.

    One that goes along with a header is at its own place.
    """
    if isinstance(payloads, CsvRecords):
        cut = partial(
            placed_records,
            separator=payloads.separator.encode(),
            quote=payloads.quote.encode(),
            comment=(payloads.comment or "").encode(),
            escape=(payloads.escape or "").encode(),
        )
        return partial(_with_header, records=cut) if payloads.header else cut
    return placed_elements if payloads == "array" else _whole


def _without_places(content: bytes, cut: PlacedCut) -> Iterator[bytes]:
    return (payload for _, payload in cut(content))


def _whole(content: bytes) -> Iterator[tuple[int, bytes]]:
    yield 0, content


def _cut_batches(batches: Iterator[pa.RecordBatch], cut: Cut, encoding: str | None) -> Iterator[pa.RecordBatch]:
    """Batches of a bounded size; a file's origin is repeated for each of its payloads."""
    for batch in batches:
        payloads: list[bytes] = []
        places: list[int] = []
        size = 0
        for place, content in enumerate(batch.column("_raw")):
            for payload in cut(in_utf8(content.as_py(), encoding)):
                payloads.append(payload)
                places.append(place)
                size += len(payload)
                if len(payloads) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
                    yield _batch(batch, payloads, places)
                    payloads, places, size = [], [], 0
        if payloads:
            yield _batch(batch, payloads, places)


def _batch(batch: pa.RecordBatch, payloads: list[bytes], places: list[int]) -> pa.RecordBatch:
    origins = batch.column("_origin").take(pa.array(places, pa.int32()))
    raw = pa.array(payloads, batch.schema.field("_raw").type)
    return pa.RecordBatch.from_arrays([raw, origins], schema=batch.schema)


def in_utf8(content: bytes, encoding: str | None) -> bytes:
    """The text in UTF-8; bytes that the encoding does not know stay as they are, behind one that UTF-8 never has."""
    if encoding is None:
        return content
    text = content.decode(encoding, "surrogateescape")
    try:
        return text.encode(_UTF8)
    except UnicodeEncodeError:
        # Alone they could be a character of UTF-8 together.
        return _UNKNOWN.sub(rf"{_NEVER_UTF8}\g<0>", text).encode(_UTF8, "surrogateescape")


def elements(content: bytes) -> Iterator[bytes]:
    """The elements of a JSON array, as `placed_elements` has them."""
    return _without_places(content, placed_elements)


def placed_elements(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a JSON array, as they are written; only brackets, commas and quotes are looked at.

    Whatever is not the text of an array in which each element stands between commas is in a payload that no format can
    take for an object: an element with the comma before it, where the array does not end; the end of the array with
    what follows it. A file that begins with something else than an array is one payload.
    """
    start = len(_BOM) if content.startswith(_BOM) else 0
    opening = _skipped(content, start)
    if content[opening : opening + 1] != b"[":
        yield 0, content
        return
    depth, begin, is_first = 1, opening + 1, True
    for token in _TOKEN.finditer(content, opening + 1):
        sign = token[0]
        if sign in (b"[", b"{"):
            depth += 1
        elif sign == b"," and depth == 1:
            yield _stripped(content, begin, token.start())
            begin, is_first = token.end(), False
        elif sign in (b"]", b"}") and depth > 1:
            depth -= 1
        elif sign == b"]":
            last = _stripped(content, begin, token.start())
            if last[1] or not is_first:
                yield last
            if content[token.end() :].strip(_SPACE):
                yield token.start(), content[token.start() :]
            return
        elif sign == b'"':
            break
    yield begin - 1, content[begin - 1 :]


def _stripped(content: bytes, begin: int, end: int) -> tuple[int, bytes]:
    text = content[begin:end]
    first = text.lstrip(_SPACE)
    return begin + len(text) - len(first), first.rstrip(_SPACE)


def _skipped(content: bytes, place: int) -> int:
    while content[place : place + 1] and content[place] in _SPACE:
        place += 1
    return place


def _with_header(content: bytes, records: PlacedCut) -> Iterator[tuple[int, bytes]]:
    """Each record of a file but the first one, behind that one; which stands alone where no other follows."""
    found = records(content)
    header, first = next(found, None), next(found, None)
    if header is None:
        return
    if first is None:
        yield header
        return
    for place, record in chain([first], found):
        yield place, header[1] + b"\n" + record


def records(
    content: bytes, separator: bytes, quote: bytes, comment: bytes = b"", escape: bytes = b""
) -> Iterator[bytes]:
    """The records of CSV, as `placed_records` has them."""
    return (record for _, record in placed_records(content, separator, quote, comment, escape))


def placed_records(
    content: bytes, separator: bytes, quote: bytes, comment: bytes = b"", escape: bytes = b""
) -> Iterator[tuple[int, bytes]]:
    """The records of CSV, without the line ends behind them; those within quotes, or behind an `escape`, are kept.

    A quote that never ends takes the rest of the file. What begins with the sign of a `comment` is left out, line by
    line, as a quote in it means nothing.
    """
    q, s, e = re.escape(quote), re.escape(separator), re.escape(escape)
    # The file may end behind an escape; a line end of two signs is escaped as one.
    escaped = b"|%s(?:\r\n|.)?+" % e if escape else b""
    quoted = b"%s(?:[^%s%s]++|%s%s%s)*+%s?+" % (q, q, e, q, q, escaped, q)
    field = b"(?:%s)?+(?:[^%s%s\r\n]++%s)*+" % (quoted, s, e, escaped)
    record = re.compile(b"(%s(?:%s%s)*+)(?:\r\n|[\r\n]|$)" % (field, s, field), re.DOTALL)
    place = len(_BOM) if content.startswith(_BOM) else 0
    left_out = re.compile(b"%s[^\r\n]*+(?:\r\n|[\r\n]|$)" % re.escape(comment)) if comment else None
    while place < len(content):
        if left_out is not None and (ignored := left_out.match(content, place)):
            place = ignored.end()
            continue
        found = record.match(content, place)
        assert found is not None, "any text begins with a record"
        yield place, found[1]
        place = found.end()


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
        return packing(name) is not None or size > self.longest_line

    def exceeded(self, files: fs.FileSystem, name: str) -> str | None:
        """The bound that a file exceeds, in words; None for none. The check takes a megabyte of memory at most.

        A packed file is unpacked once, until it is clear. Of a plain one only the ends of lines are looked for, a
        `longest_line` apart.

        Raises:
            OSError: the file cannot be read, or is not what its name says it is.
        """
        kind = packing(name)
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


def packing(name: str) -> str | None:
    """The end of the name by which Hadoop takes a file as packed; None where it is not packed."""
    return next((end for end in (*_ARROW, _DEFLATE, *_FRAMED) if name.endswith(end)), None)


def content_up_to(files: fs.FileSystem, name: str, most: int) -> bytes | None:
    """The content of a file, unpacked; None where that is more than `most` bytes, or in the framing of Hadoop.

    Raises:
        OSError: the file cannot be read, or is not what its name says it is.
    """
    kind = packing(name)
    if kind in _FRAMED:
        return None
    content = bytearray()
    try:
        with files.open_input_stream(name, compression=_ARROW.get(kind or "")) as stream:
            for part in _inflated(stream, _AT_ONCE) if kind == _DEFLATE else _read(stream, _AT_ONCE):
                content += part
                if len(content) > most:
                    return None
    except pa.ArrowException as error:
        raise pa.ArrowIOError(str(error)) from error
    return bytes(content)


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
