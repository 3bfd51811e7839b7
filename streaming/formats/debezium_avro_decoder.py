"""Envelopes of Debezium in Avro, in the Python workers of Spark: each to the row that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.formats.avro_decoder import AvroDecoder, Rows
from streaming.formats.avro_resolution import Records, is_same_name, records_of
from streaming.formats.avro_types import Schema, members_of
from streaming.formats.decoder import Row, Unreadable

_SIDES = ("before", "after")


@dataclass
class AvroEnvelopeDecoder(AvroDecoder):
    """Reads envelopes: what is told of the `change`, as a struct; true where there is a row; and the columns of `of`.

    The row is in `before` where something was deleted, and otherwise in `after`. `change` is the declared envelope
    without both, and `of` the declared record in them.
    """

    change: Schema
    of: Schema

    def rows(self, written: Schema, named: Mapping[str, Schema]) -> Rows:
        change = records_of(written, self.change, named)
        others = [path for path in change.unknown if path not in _SIDES]
        sides = {name: self._side(written, name, named) for name in _SIDES}

        def row(envelope: Mapping[str, Any]) -> Row:
            told = change.row(envelope)
            if told.wrong:
                raise Unreadable(next(iter(told.wrong.values())))
            values = {field.name: value for field, value in zip(change.fields, told.values, strict=True)}
            deleted = values["op"] == "d"
            name = "before" if deleted else "after"
            content, records = envelope.get(name), sides[name]
            if content is None or records is None:
                return Row([values, False, *(None for _ in self.of["fields"])], unknown=others or None)
            inner = records.row(content)
            wrong = dict(inner.wrong or {})
            if deleted:
                # Of what was deleted many databases tell no more than the key.
                wrong = {column: why for column, why in wrong.items() if why != f"required: {column} is missing"}
            return Row([values, True, *inner.values], wrong or None, [*others, *records.unknown] or None)

        return row

    def _side(self, written: Schema, name: str, named: Mapping[str, Schema]) -> Records | None:
        """The reader of the record in a field of the written envelope; None where there is no such field."""
        for field in written["fields"]:
            if field["name"] == name:
                kinds = members_of(field["type"], named)[1]
                if len(kinds) != 1 or kinds[0]["type"] != "record" or not is_same_name(kinds[0], self.of):
                    raise Unreadable(f"the field {name} of the written envelope is no record {self.of['name']}")
                return records_of(kinds[0], self.of, named)
        return None
