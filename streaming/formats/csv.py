"""CSV: one record a payload, typed columns and reasons; never a silent null, never a value that was not written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from streaming.base import DeclarationError, check_column_name, check_type, sql
from streaming.formats.decoder import Decoder, Row, Unreadable, arrow_types
from streaming.formats.format import Format, checked_fields
from streaming.formats.json_text import cut
from streaming.formats.leaves import Leaf, Refused, kind_of, leaf_of

_LINE_ENDS = "\r\n"
_BYTE_ORDER_MARK = "\ufeff"

_Record = list[str | None]
"""The texts of the fields of a record; None is null."""


@dataclass(frozen=True)
class Csv(Format):
    """One record of fields per payload, in the order of a schema in Spark DDL; `not null` marks a required field.

    Types: string, boolean, integers, float, double, decimal(p, s), date, and timestamp (ISO-8601 text *with* an
    offset, behind a `T` or a space). Nothing is rounded or cut: what does not fit into its type rejects the row.

    A field may stand in quotes, where two quotes are one and a line may end. An empty field that is not in quotes is
    null, and so is one that is `null`, such as `"NA"`, where that is declared. `escape`: the sign that makes the next
    one stand for itself, in quotes or not. A record with fewer or more fields than columns, a quote that is not closed,
    text behind a closing quote and a second record cannot be read.

    `encoding`: that of the payload, by its name in Python, such as `"latin-1"`. A byte order mark in front is skipped.

    `header`: each payload begins with a record of names, which says for this payload in which order its fields stand; a
    column that it does not name is null, and fields of other names are counted as unknown. A payload whose first
    record names no column cannot be read, as where a file came without its header. `fields` has the names of columns
    that are called otherwise there, such as `{"id": "Order No."}`. A payload is read by itself, so the header of a file
    has to come along with each of its records, as `Files(..., payloads=CsvRecords(header=True))` sees to.

    Raises:
        DeclarationError: the schema cannot be read or has a type that is not allowed; a sign is not one character, or
            stands for two things; there is no such encoding; `fields` are named without a header, or are no columns.
    """

    schema: str
    separator: str = ","
    quote: str = '"'
    escape: str | None = None
    null: str | None = None
    encoding: str = "utf-8"
    header: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_signs()
        check_type("null of Csv", self.null, (str, type(None)), "the text that means null, such as 'NA'")
        check_type("header of Csv", self.header, bool, "True or False")
        _check_encoding(self.encoding)
        for column in self.columns:
            check_column_name(column.name)
            if leaf_of(kind_of(column)) is None:
                raise DeclarationError(
                    f"column {column.name!r} has type {column.type!r}, which a field cannot carry here",
                    "use string, boolean, int, bigint, float, double, decimal(p, s), date or timestamp.",
                    column=column.name,
                )
        object.__setattr__(self, "fields", checked_fields("Csv", self.columns, self.fields))
        if self.fields and not self.header:
            raise DeclarationError(
                "fields of Csv are names in a header, and header=False: fields are told by their place.",
                "Leave them out, or declare header=True where each payload begins with a record of names.",
            )

    def _check_signs(self) -> None:
        signs = {"separator": self.separator, "quote": self.quote}
        if self.escape is not None:
            signs["escape"] = self.escape
        for name, sign in signs.items():
            check_type(f"{name} of Csv", sign, str, "one character")
            if len(sign) != 1 or sign in _LINE_ENDS:
                raise DeclarationError(
                    f"{name}={sign!r} of Csv is not one character of a line", "write one.", field=name, value=sign
                )
        if len({*signs.values()}) < len(signs):
            raise DeclarationError(
                f"the signs of Csv are {', '.join(f'{name}={sign!r}' for name, sign in signs.items())}, and one stands "
                "for two things",
                "choose others. Two quotes in a quoted field are one without any escape.",
            )

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The declared columns, in order."""
        return sql.columns_of(self.schema)

    @property
    def decoder(self) -> Decoder:
        """The reader of its records; Spark's own parser takes half a record for a whole one."""
        return self.read_as(arrow_types(self.columns))

    def read_as(self, types: pa.Schema) -> CsvDecoder:
        """The reader of its records, whose values it builds by these types."""
        names = tuple(column.name for column in self.columns)
        signs = Signs(self.separator, self.quote, self.escape, self.null)
        return CsvDecoder(names, types, None, self.columns, signs, self.encoding, self.header, self.fields)

    @property
    def masks_payloads(self) -> bool:
        return True

    def masked_payload(self, payload: bytes, masks: Mapping[str, Callable[[bytes], bytes | None]]) -> bytes | None:
        """As the contract says; a record with other than its fields says of none which it is.

        Neither does one whose names lack a masked column: that of a file without its header has values in their place.
        """
        try:
            names, records = _records_of(self).records(payload)
            *_, record = records
            declared = {column.name for column in self.columns}
            of_fields = {self.fields.get(each, each).lower(): masks[each] for each in masks if each in declared}
            if not of_fields.keys() <= {name.lower() for name in names}:
                return None
            of_places = [of_fields.get(name.lower()) for name in names]
            masked = [
                text if mask is None or text is None else _decoded(mask(text.encode()))
                for text, mask in zip(record, of_places, strict=True)
            ]
            written = [*records[:-1], masked]
            return "\n".join(self._written(each) for each in written).encode(self.encoding)
        except (Unreadable, UnicodeError):
            return None

    def _written(self, record: _Record) -> str:
        """A record as text; every field but null in quotes."""
        quote, escape = self.quote, self.escape
        doubled = [(each, each * 2) for each in (escape, quote) if each is not None]
        fields = []
        for text in record:
            told = text or ""
            for sign, written in doubled:
                told = told.replace(sign, written)
            fields.append("" if text is None else f"{quote}{told}{quote}")
        return self.separator.join(fields)


@cache
def _records_of(form: Csv) -> CsvDecoder:
    """A reader of records alone: workers know no Spark that could tell the types of values."""
    return form.read_as(pa.schema([]))


def _decoded(text: bytes | None) -> str | None:
    return None if text is None else text.decode()


def _check_encoding(encoding: object) -> None:
    check_type("encoding of Csv", encoding, str, "its name in Python, such as 'utf-8' or 'latin-1'")
    try:
        "".encode(str(encoding))
    except (ValueError, LookupError) as error:
        raise DeclarationError(
            f"encoding={encoding!r} of Csv is no encoding of text",
            "write its name in Python, such as 'utf-8' or 'latin-1'.",
            field="encoding",
            value=encoding,
        ) from error


class Signs(NamedTuple):
    """The signs that records are written with.

    `separator`: what fields end with. `quote`: what they may stand in. `escape`: what makes the next sign stand for
    itself. `null`: the text that means null, as an empty one does.
    """

    separator: str
    quote: str
    escape: str | None = None
    null: str | None = None


def record_reader(signs: Signs) -> Callable[[str, int], tuple[_Record, int]]:
    """Reads the record of a text that begins at a place; returns it with the place where the next one would begin.

    Raises, when it reads:
        Unreadable: a quote is not closed, or text follows it.
    """
    separator, quote, escape = (re.escape(sign or "") for sign in signs[:3])
    # A line end of two signs is escaped as one.
    escaped = f"|{escape}(?:\r\n|.)" if escape else ""
    quoted = f"{quote}((?:[^{quote}{escape}]++|{quote}{quote}{escaped})*+){quote}"
    plain = f"((?!{quote})(?:[^{separator}{escape}\r\n]++{escaped})*+)"
    field = re.compile(f"(?:{quoted}|{plain})({separator}|\r\n?|\n|\\Z)", re.DOTALL)
    # Two signs of which the second one is meant.
    meant_by_escape = f"{escape}(\r\n|.)"
    in_quotes = re.compile(f"{quote}({quote}){f'|{meant_by_escape}' if escape else ''}", re.DOTALL)
    outside = re.compile(meant_by_escape, re.DOTALL) if escape else None
    nulls = {"", signs.null}
    others = ["\r", "\n", signs.quote, *([signs.escape] if signs.escape else [])]

    def meant(match: re.Match[str]) -> str:
        return match[match.lastindex or 0]

    def read(text: str, start: int) -> tuple[_Record, int]:
        # Most records have no sign but separators.
        if start == 0 and not any(map(text.__contains__, others)):
            return [None if alone in nulls else alone for alone in text.split(signs.separator)], len(text)
        record: _Record = []
        while True:
            match = field.match(text, start)
            if match is None:
                raise Unreadable(f"field {len(record) + 1} has a quote that is not closed, or text that follows one")
            within, alone, end = match.groups()
            if within is not None:
                record.append(in_quotes.sub(meant, within))
            elif alone in nulls:
                record.append(None)
            else:
                record.append(alone if outside is None else outside.sub(meant, alone))
            start = match.end()
            if end != signs.separator:
                return record, start

    return read


@dataclass
class CsvDecoder(Decoder):
    """Reads records of the `declared` columns, or of those that a header in each payload names."""

    declared: tuple[sql.Column, ...]
    signs: Signs
    encoding: str
    header: bool
    fields: Mapping[str, str]

    @property
    def name(self) -> str:
        return "csv"

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        try:
            text = str(content, self.encoding)
        except UnicodeError:
            raise Unreadable(f"the payload is not {self.encoding.upper()}") from None
        text = text.removeprefix(_BYTE_ORDER_MARK)
        return self._named(text) if self.header else self._judged(self._record(text, 0, len(self.columns)))

    def records(self, payload: bytes) -> tuple[Sequence[str], list[_Record]]:
        """The names of the fields of a payload, and its records: that of the names, where it begins with one, and one.

        Raises:
            Unreadable: it is not one record of its fields.
            UnicodeError: it is not in the encoding.
        """
        text = str(payload, self.encoding).removeprefix(_BYTE_ORDER_MARK)
        if not self.header:
            return self.columns, [self._record(text, 0, len(self.columns))]
        names, end = self._read_names(text, 0)
        return names, [[*names], self._record(text, end, len(names))]

    def _record(self, text: str, start: int, fields: int) -> _Record:
        """The one record of so many fields that a text is from a place on."""
        what = f"the payload is not one record of {fields} fields"
        if not text[start:].strip("\r\n"):
            raise Unreadable(what)
        try:
            record, end = self._read(text, start)
        except Unreadable as error:
            raise Unreadable(f"{what}: {error}") from None
        if end < len(text):
            raise Unreadable(f"{what}: another line follows it")
        if len(record) != fields:
            raise Unreadable(f"{what}: it has {len(record)}")
        return record

    def _named(self, text: str) -> Row:
        """The row of a payload that begins with the names of its fields."""
        try:
            names, end = self._read_names(text, 0)
        except Unreadable as error:
            raise Unreadable(f"the payload does not begin with a record of names: {error}") from None
        if len({*names}) < len(names):
            raise Unreadable("the payload begins with a record that has a name more than once")
        read = [self.fields.get(column, column) for column in self.columns]
        if not {*names} & {*read}:
            raise Unreadable("the payload does not begin with a record of names: none of them is that of a column")
        written = dict(zip(names, self._record(text, end, len(names)), strict=True))
        unknown = [name for name in names if name not in read]
        return self._judged([written.get(name) for name in read], unknown)

    def _judged(self, record: _Record, unknown: Sequence[str] = ()) -> Row:
        values: list[Any] = []
        wrong: dict[str, str] = {}
        for column, leaf, text in zip(self.declared, self._leaves, record, strict=True):
            value = None
            try:
                if text is not None:
                    value = leaf.of_text(text)
                elif column.required:
                    wrong[column.name] = f"required: {column.name} is missing"
            except Refused:
                wrong[column.name] = f"type: {column.name} is not {leaf.in_text}, got {cut(text or '')}"
            values.append(value)
        return Row(values, wrong or None, unknown or None)

    @cached_property
    def _read(self) -> Callable[[str, int], tuple[_Record, int]]:
        return record_reader(self.signs)

    @cached_property
    def _read_names(self) -> Callable[[str, int], tuple[list[str], int]]:
        read = record_reader(self.signs._replace(null=None))

        def names(text: str, start: int) -> tuple[list[str], int]:
            record, end = read(text, start)
            return [name or "" for name in record], end

        return names

    @cached_property
    def _leaves(self) -> list[Leaf]:
        return [leaf for leaf in map(leaf_of, map(kind_of, self.declared)) if leaf is not None]
