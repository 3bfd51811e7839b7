"""The lines of landed files at which the rows of an answer begin, as far as they can be proved.

A log has the position of a row in its batch, and nobody wrote down where in the batch its file begins. So the file is
read again, and the record looked for that has the values of the row. All rows of a file lie as far apart in the batch
as in the file: of equal records the one is meant with which that is true of every row of the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import pyarrow as pa

from streaming.base import canonical, pc
from streaming.declare import Operator, Stream
from streaming.formats import Decoder
from streaming.lake import Lake
from streaming.provenance.answer import Change, InputRow, RejectedRow, Why
from streaming.provenance.log_rows import place_in_words, place_of
from streaming.sources import FileRecords

LARGEST = 16 * 2**20
"""Bytes of a file, unpacked, up to which it is read for the lines of its rows."""
MOST = 64 * 2**20
"""Bytes of the records of files, unpacked, that are read for one answer."""
MOST_FILES = 100
"""Files that are read for one answer: on an object store each is three requests, one after the other."""
_MOST_EQUAL = 1_000
"""Records that a row may be, beyond which nobody looks for the one that it is."""
_PLACE = "_place"

FromFile = InputRow | RejectedRow
_Known = tuple[str, int, str]
_Placed = list[tuple[FromFile, Mapping[str, Any]]]


def with_lines(lake: Lake, streams: Iterable[Stream], answer: Why, session: Callable[[], object]) -> Why:
    """The answer, and those upstream, with the lines of rows from files that are still as they were when they came.

    `session` starts the session that types of columns are asked from.
    """
    rows = [*_rows_of(answer)]
    lines = _Lines(lake, {each.name: each for each in _upwards(streams)}, session).of(rows)
    if not lines:
        return answer
    places = {row.place: _with_line(row, lines).place for row in rows if _known(row) in lines}
    return _told(answer, lines, places)


def _rows_of(answer: Why) -> Iterator[FromFile]:
    yield from answer.inputs
    yield from answer.rejected
    for each in answer.upstream:
        yield from _rows_of(each)


def _upwards(streams: Iterable[Stream]) -> Iterator[Stream]:
    """Some streams, their revisions, and those that they follow."""
    for stream in streams:
        yield stream
        yield stream.revisions
        for of, _ in stream.source.follows:
            yield from _upwards(of.reads if isinstance(of, Operator) else [of])


def _known(row: FromFile) -> _Known:
    return row.stream, *place_of(row.batch, row.origin)


def _with_line(row: Any, lines: Mapping[_Known, int]) -> Any:
    line = lines.get(_known(row))
    return row if line is None else replace(row, line=line, place=place_in_words(row.origin, line))


def _told(answer: Why, lines: Mapping[_Known, int], places: Mapping[str, str]) -> Why:
    def caused(change: Change) -> Change:
        return replace(change, causes=tuple(places.get(each, each) for each in change.causes))

    return replace(
        answer,
        inputs=tuple(_with_line(row, lines) for row in answer.inputs),
        rejected=tuple(_with_line(row, lines) for row in answer.rejected),
        changes=tuple(map(caused, answer.changes)),
        upstream=tuple(_told(each, lines, places) for each in answer.upstream),
    )


class _Lines:
    """Finds the lines of rows, file by file."""

    def __init__(self, lake: Lake, streams: Mapping[str, Stream], session: Callable[[], object]) -> None:
        self._lake = lake
        self._streams = streams
        self._session = session
        self._decoders: dict[str, Decoder | None] = {}

    def of(self, rows: Iterable[FromFile]) -> dict[_Known, int]:
        """The lines that are known."""
        files: dict[Hashable, _Placed] = defaultdict(list)
        for row in rows:
            origin = self._of_file(row)
            if origin is not None:
                files[row.stream, origin["path"], origin["size"], origin["modified"]].append((row, origin))
        lines: dict[_Known, int] = {}
        left = MOST
        for placed in islice(files.values(), MOST_FILES):
            row, origin = placed[0]
            if origin["size"] > left:
                continue
            stream = self._streams[row.stream]
            source, _ = stream.source.of_row(row.origin)
            records = source.records(self._lake, origin, min(LARGEST, left))
            if records is None:
                left -= origin["size"]
                continue
            left -= sum(map(len, records.payloads))
            lines |= _OfFile(stream, records, placed, partial(self._decoder, row.stream)).lines()
        return lines

    def _decoder(self, name: str) -> Decoder | None:
        """The decoder of a stream, as its format is declared today."""
        if name not in self._decoders:
            self._session()
            self._decoders[name] = self._streams[name].format.decoder
        return self._decoders[name]

    def _of_file(self, row: FromFile) -> Mapping[str, Any] | None:
        """The origin of a row as the source of its file tells it; None for one from elsewhere."""
        stream = self._streams.get(row.stream)
        if stream is None or not row.origin:
            return None
        _, origin = stream.source.of_row(row.origin)
        return (
            origin if all(origin.get(name) is not None for name in ("path", "position", "size", "modified")) else None
        )


class _OfFile:
    """The rows of an answer that are from one file, and the records of that file."""

    def __init__(
        self,
        stream: Stream,
        records: FileRecords,
        placed: _Placed,
        decoder: Callable[[], Decoder | None],
    ) -> None:
        self._stream = stream
        self._records = records
        self._placed = placed
        self._decoder_of = decoder
        self._indexes: dict[tuple[str, ...], dict[str, set[int]]] = {}

    def lines(self) -> dict[_Known, int]:
        """The lines of those rows of which only one record can be the one."""
        parts: dict[Hashable, list[tuple[FromFile, int]]] = defaultdict(list)
        for row, origin in self._placed:
            part, number = self._records.part_of(origin["position"])
            parts[_batch_of(row), part].append((row, number))
        lines: dict[_Known, int] = {}
        for rows in parts.values():
            begins = self._begins(rows)
            if begins is not None:
                lines |= {
                    _known(row): self._records.lines[number - begins]
                    for row, number in rows
                    if 0 <= number - begins < len(self._records.lines)
                }
        return lines

    def _begins(self, rows: Sequence[tuple[FromFile, int]]) -> int | None:
        """The number, in the part of the batch in which some rows are, of the first row of the file; None for unknown.

        It is the only one with which the record of each row is at the place that the row's own number tells.
        """
        placed = [(number, self._places(row)) for row, number in rows if self._can_be_told(row)]
        if not placed:
            return None
        number, places = min(placed, key=lambda each: len(each[1]))
        if len(places) > _MOST_EQUAL:
            return None
        # A part of a divided file begins within it.
        possible = [number - place for place in places if place <= number or not self._records.undivided]
        for number, places in placed:
            possible = [begins for begins in possible if number - begins in places]
        return possible[0] if len(possible) == 1 else None

    def _can_be_told(self, row: FromFile) -> bool:
        """True if the file's record of a row must be one of `_places`."""
        if isinstance(row, RejectedRow):
            return row.payload is not None and not self._stream.masked
        if row.change < 0 and self._stream.key:
            # A revision that takes back an older one is written with the values of that one and its own origin.
            return False
        # What repairs a row may be another record, and columns that were not sent are of an older one.
        return row.repairs is None and not self._stream.as_before and bool(self._values(row))

    def _places(self, row: FromFile) -> Set[int]:
        """The places of the records that have the payload or the values of a row."""
        if isinstance(row, RejectedRow):
            return self._places_of_payloads.get(row.payload or "", frozenset())
        values = self._values(row)
        return self._places_by(tuple(values)).get(_text_of(values.values()), frozenset())

    def _places_by(self, names: tuple[str, ...]) -> Mapping[str, Set[int]]:
        """The places of the records by their values in some columns."""
        if names not in self._indexes:
            index = self._indexes[names] = defaultdict(set)
            for place, values in self._decoded:
                index[_text_of(values[name] for name in names)].add(place)
        return self._indexes[names]

    def _values(self, row: InputRow) -> dict[str, Any]:
        """The values of a row that are in its payload. A null may be of a column that was not declared then."""
        return {name: row.values[name] for name in self._names if row.values.get(name) is not None}

    @cached_property
    def _names(self) -> list[str]:
        """The columns that are compared, as the decoder alone gives them; none where it would ask a registry."""
        stream = self._stream
        if self._decoder is None or self._decoder.registry is not None:
            return []
        others = {*stream.derived, *stream.masked_columns}
        return [name for name in self._decoder.columns if name not in others]

    @cached_property
    def _decoder(self) -> Decoder | None:
        return self._decoder_of()

    @cached_property
    def _places_of_payloads(self) -> Mapping[str, Set[int]]:
        wanted = {row.payload for row, _ in self._placed if isinstance(row, RejectedRow)}
        places: dict[str, set[int]] = defaultdict(set)
        for place, payload in enumerate(self._records.payloads):
            text = payload.decode(errors="backslashreplace")
            if text in wanted:
                places[text].add(place)
        return places

    @cached_property
    def _decoded(self) -> list[tuple[int, dict[str, Any]]]:
        """The records that one of the rows may be, by their places, with the values that are compared."""
        decoder = self._decoder
        assert decoder is not None, self._stream
        columns = decoder.arrays(pa.array(self._records.payloads, pa.binary()), None)
        decoded = dict(zip(decoder.types.names, columns, strict=True))
        chosen = pa.table(
            {**{name: decoded[name] for name in self._names}, _PLACE: pa.array(range(len(self._records.payloads)))}
        )
        wanted = [self._values(row) for row, _ in self._placed if isinstance(row, InputRow)]
        for name in self._names:
            asked, type_ = [each[name] for each in wanted if name in each], chosen.schema.field(name).type
            # Nearly all records of a large file are none of them.
            if len(asked) == len(wanted) and not pa.types.is_nested(type_):
                try:
                    values = pa.array(asked, type_)
                except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
                    # The column is declared as another type by now, of which no record has the values of the rows.
                    return []
                chosen = chosen.filter(pc.field(name).isin(values))
        return [(row.pop(_PLACE), row) for row in chosen.to_pylist()]


def _text_of(values: Iterable[Any]) -> str:
    """A text that is the same for equal values."""
    return repr([canonical(value) for value in values])


def _batch_of(row: FromFile) -> Hashable:
    """The batch that has taken the file of a row, as far as the row tells."""
    if isinstance(row, InputRow) and row.change < 0:
        # Of a stream without a key it has the origin of the one that it takes back, which came in a batch before.
        return row.place
    return row.repairs if isinstance(row, InputRow) and row.repairs is not None else row.batch
