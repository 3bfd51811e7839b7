"""Records of CSV to values, in the Python workers of Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from streaming.base import sql
from streaming.formats.decoder import Decoder, Row, Unreadable
from streaming.formats.json_text import cut
from streaming.formats.leaves import Leaf, Refused, leaf_of
from streaming.formats.nested import kind_of

_BYTE_ORDER_MARK = "\ufeff"

Record = list[str | None]
"""The texts of the fields of a record; None is null."""


class Signs(NamedTuple):
    """How records are written.

    `separator`: what fields end with. `quote`: what they may stand in. `escape`: what makes the next sign stand for
    itself. `null`: the text that means null, as an empty one does.
    """

    separator: str
    quote: str
    escape: str | None = None
    null: str | None = None


def record_reader(signs: Signs) -> Callable[[str, int], tuple[Record, int]]:
    """Reads the record of a text that begins at a place; returns it with the place where the next one would begin.

    Raises, when it reads:
        Unreadable: a quote is not closed, or text follows it.
    """
    separator, quote, escape = (re.escape(sign or "") for sign in signs[:3])
    escaped = f"|{escape}." if escape else ""
    quoted = f"{quote}((?:[^{quote}{escape}]++|{quote}{quote}{escaped})*+){quote}"
    plain = f"((?!{quote})(?:[^{separator}{escape}\r\n]++{escaped})*+)"
    field = re.compile(f"(?:{quoted}|{plain})({separator}|\r\n?|\n|\\Z)", re.DOTALL)
    # Two signs of which the second one is meant.
    meant_by_escape = f"{escape}(.)"
    in_quotes = re.compile(f"{quote}({quote}){f'|{meant_by_escape}' if escape else ''}", re.DOTALL)
    outside = re.compile(meant_by_escape, re.DOTALL) if escape else None
    nulls = {"", signs.null}
    others = ["\r", "\n", signs.quote, *([signs.escape] if signs.escape else [])]

    def meant(match: re.Match[str]) -> str:
        return match[match.lastindex or 0]

    def read(text: str, start: int) -> tuple[Record, int]:
        # Most records have no sign but separators.
        if start == 0 and not any(map(text.__contains__, others)):
            return [None if alone in nulls else alone for alone in text.split(signs.separator)], len(text)
        record: Record = []
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

    def _record(self, text: str, start: int, fields: int) -> Record:
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
        written = dict(zip(names, self._record(text, end, len(names)), strict=True))
        read = [self.fields.get(column, column) for column in self.columns]
        unknown = [name for name in names if name not in read]
        return self._judged([written.get(name) for name in read], unknown)

    def _judged(self, record: Record, unknown: Sequence[str] = ()) -> Row:
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
    def _read(self) -> Callable[[str, int], tuple[Record, int]]:
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
