"""Envelopes of Debezium in JSON, read in the Python workers of Spark: exact numbers, and types by Connect's schema."""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from streaming.base import sql
from streaming.formats.decoder import Decoder, Row, Unreadable
from streaming.formats.json_text import cut, object_of, shown_value, text_of
from streaming.formats.leaves import FIRST_MICRO, LAST_MICRO, Number, Refused, kind_of, leaf_of
from streaming.formats.nested import reader_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Decimals = Literal["number", "text", "base64"]
"""The form in which a connector writes decimals where no schema stands beside the row."""

_Type = exp.DataType.Type
_Schema = Mapping[str, Any]
_NO_SCHEMA: _Schema = {}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
_NANOS_OF = {
    "org.apache.kafka.connect.data.Timestamp": 1_000_000,
    "io.debezium.time.Timestamp": 1_000_000,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1,
}
"""The nanoseconds of a unit of each kind of instant that is written as a number."""
_LARGEST_SCALE, _MOST_CHARACTERS = 400, 400
"""The limits of a decimal in base64; no type has as many digits."""
OP, AT, SOURCE, BEFORE, AFTER = "_op", "_at", "_source", "_before", "_after"
"""Columns of an opened envelope: the operation, a time as text, the source in JSON, and the rows as they came."""

OPERATIONS = {"c": "created", "r": "read by a snapshot", "u": "updated", "d": "deleted"}
FIRST_MILLI, LAST_MILLI = FIRST_MICRO // 1_000, LAST_MICRO // 1_000
"""The first and the last instant there is, in milliseconds since 1970."""

CHANGE_OP, CHANGE_AT, CHANGE_SOURCE = "change_op", "change_at", "change_source"
"""Columns beside those of the row: the kind of a change, when it was committed, and where the database has it."""

CHANGE_UNAVAILABLE = "change_unavailable"
"""The columns of which the database did not send the value, as the change left it as it was."""

ADDED = (
    sql.Column(CHANGE_OP, "string", required=False, comment="c, r (snapshot), u or d; null of a tombstone"),
    sql.Column(CHANGE_AT, "timestamp", required=False, comment="When the database committed it."),
    sql.Column(CHANGE_SOURCE, "string", required=False, comment="Where the database has it, the JSON of `source`."),
    sql.Column(CHANGE_UNAVAILABLE, "array<string>", required=False, comment="Columns whose value was not sent."),
)

PLACEHOLDER = "__debezium_unavailable_value"
"""The text that connectors write for a large value that a change left as it was, which the database does not log."""

_IN_BASE64 = base64.b64encode(PLACEHOLDER.encode()).decode()
NOT_SENT_NUMBERS = [*PLACEHOLDER.encode()]
"""The placeholder as an array of integers is written: its characters."""
_NOT_SENT: tuple[Any, ...] = (
    *(PLACEHOLDER, _IN_BASE64, [PLACEHOLDER], [_IN_BASE64], NOT_SENT_NUMBERS),
    {PLACEHOLDER: PLACEHOLDER},
)
"""The placeholder as texts, bytes, arrays and maps of such are written."""

UNAVAILABLE = (
    "is unavailable: the database did not log the value, as the change left it as it was. Log whole rows, in Postgres "
    "by REPLICA IDENTITY FULL, or declare the column without not null"
)
"""The words of a reason against a column that must have a value."""


def no_operation(operation: object) -> str:
    """The reason against an envelope whose operation is no change of a row."""
    return f"op {operation} is no change of a row ({', '.join(OPERATIONS)})"


class Envelope(ABC):
    """The reader of the envelopes of one encoding."""

    @property
    @abstractmethod
    def row(self) -> tuple[sql.Column, ...]:
        """The columns of the row inside."""

    @abstractmethod
    def opened(self, raw: DataFrame) -> DataFrame:
        """`raw` with the columns of an opened envelope and `_unreadable`; these are null where there is no payload."""

    @abstractmethod
    def parsed(self, judged: DataFrame) -> DataFrame:
        """With `_row`, the values of `_before` where `_deleted` and of `_after` otherwise, `_row_wrong` and `_unknown`.

        A required value that is missing is a reason in `_row_wrong`, but of a row that was deleted.
        """


@dataclass
class EnvelopeDecoder(Decoder):
    """Reads envelopes, also inside `payload` beside a `schema`; `declared` are the columns of the row."""

    declared: tuple[sql.Column, ...]
    fields: Mapping[str, str]
    decimals: Decimals

    @property
    def name(self) -> str:
        return "debezium"

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        envelope, schema = opened_envelope(object_of(content))
        if envelope is None:
            return Row([None] * len(self.columns))
        operation = envelope.get("op")
        if operation is None:
            raise Unreadable("the payload is no envelope, it has no op")
        if type(operation) is not str or operation not in OPERATIONS:
            raise Unreadable(no_operation(cut(operation) if type(operation) is str else shown_value(operation)))
        side = "before" if operation == "d" else "after"
        image = envelope.get(side)
        if image is None:
            raise Unreadable(f"a change {operation} without its row")
        if type(image) is not dict:
            raise Unreadable(f"{side} is not a JSON object, got {shown_value(image)}")
        read = self._read_row(image, _field(schema, side), operation == "d")
        at, reason = _committed_at(envelope)
        wrong = dict(read.wrong or {})
        if reason is not None:
            wrong[CHANGE_AT] = reason
        source = envelope.get("source")
        origin = None if source is None else text_of(source)
        return Row([*read.values[:-1], operation, at, origin, read.values[-1]], wrong or None, read.unknown)

    def _read_row(self, image: Mapping[str, Any], schema: _Schema, deleted: bool) -> Row:
        """The values of the declared columns, and then the names of those that were not sent."""
        converted = dict(image)
        unavailable = []
        for column, kind, field in self._kinds:
            value = image.get(field)
            if value is None:
                continue
            if value in _NOT_SENT:
                unavailable.append(column)
                converted[field] = None
            elif kind is not None:
                converted[field] = _as_json(kind, value, _field(schema, field), self.decimals)
        read = self._lenient(converted) if deleted else self._strict(converted)
        wrong = dict(read.wrong or {})
        for column in unavailable:
            if column in wrong:
                wrong[column] = f"required: {column} {UNAVAILABLE}"
        return Row([*read.values, unavailable or None], wrong or None, read.unknown)

    @cached_property
    def _kinds(self) -> tuple[tuple[str, exp.DataType | None, str], ...]:
        """The name of each column, its type where that may be written in several ways, and its field."""
        kinds = ((each.name, kind_of(each)) for each in self.declared)
        return tuple((name, kind if _varies(kind) else None, self.fields.get(name, name)) for name, kind in kinds)

    @cached_property
    def _strict(self) -> Any:
        return reader_of(self.declared, self.fields)

    @cached_property
    def _lenient(self) -> Any:
        """The reader of a deleted row, which requires no column: many databases tell no more of it than the key."""
        return reader_of([replace(column, required=False) for column in self.declared], self.fields)


def _varies(kind: exp.DataType) -> bool:
    return any(part.this in (_Type.DECIMAL, _Type.DATE, _Type.TIMESTAMPTZ) for part in kind.find_all(exp.DataType))


def opened_envelope(document: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, _Schema]:
    """The envelope and Connect's schema of it, where converters send that along; None where there is no envelope."""
    if "payload" not in document or "op" in document:
        return document, _NO_SCHEMA
    envelope, schema = document["payload"], document.get("schema")
    if envelope is not None and type(envelope) is not dict:
        raise Unreadable(f"payload is not a JSON object, got {shown_value(envelope)}")
    return envelope, schema if type(schema) is dict else _NO_SCHEMA


def _committed_at(envelope: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """The instant of `source.ts_ms` in microseconds, or else of `ts_ms`, and what is wrong with it.

    Snapshots of some connectors write 0, which is no time of a commit.
    """
    source = envelope.get("source")
    of_source = source.get("ts_ms") if type(source) is dict else None
    millis = of_source if of_source not in (None, 0) else envelope.get("ts_ms")
    if millis is None or millis == 0:
        return None, None
    if type(millis) is int and FIRST_MILLI <= millis <= LAST_MILLI:
        return millis * 1_000, None
    words = f"{CHANGE_AT} is no number of milliseconds of the years 1 to 9999, got {shown_value(millis)}"
    return None, f"type: {words}"


def _field(schema: _Schema, name: str) -> _Schema:
    """Connect's schema of a field of a struct."""
    fields = schema.get("fields")
    for each in fields if type(fields) is list else ():
        if type(each) is dict and each.get("field") == name:
            return each
    return _NO_SCHEMA


def _as_json(kind: exp.DataType, value: Any, schema: _Schema, decimals: Decimals) -> Any:
    """A value in the way that JSON writes one of its declared type; as it is, where it is written in no known way."""
    if value is None:
        return None
    type_, inner, name = kind.this, kind.expressions, str(schema.get("name"))
    if type_ == _Type.DECIMAL:
        return _decimal(kind, value, schema, decimals)
    if type_ == _Type.DATE and type(value) is int and name in _DAYS:
        return _date(value)
    if type_ == _Type.TIMESTAMPTZ and type(value) is int and name in _NANOS_OF:
        return _instant(value * _NANOS_OF[name])
    if type_ == _Type.ARRAY and type(value) is list:
        return [_as_json(inner[0], each, _part(schema, "items"), decimals) for each in value]
    if type_ == _Type.MAP and type(value) is dict:
        values = _part(schema, "values")
        return {key: _as_json(inner[1], each, values, decimals) for key, each in value.items()}
    if type_ == _Type.STRUCT and type(value) is dict:
        kinds = {each.name: each.args["kind"] for each in inner}
        return {
            key: _as_json(kinds[key], each, _field(schema, key), decimals) if key in kinds else each
            for key, each in value.items()
        }
    return value


def _part(schema: _Schema, name: str) -> _Schema:
    part = schema.get(name)
    return part if type(part) is dict else _NO_SCHEMA


def _date(days: int) -> Any:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return days


def _instant(nanos: int) -> Any:
    micros, rest = divmod(nanos, 1_000)
    try:
        time = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(timespec="microseconds")
    except OverflowError:
        return nanos
    return f"{time}{rest:03}Z" if rest else f"{time}Z"


def _decimal(kind: exp.DataType, value: Any, schema: _Schema, decimals: Decimals) -> Any:
    """The number that bytes of its unscaled value, or a text, stand for."""
    scale: Any = int(kind.expressions[1].name) if len(kind.expressions) > 1 else 0
    if type(value) is dict and value.keys() == {"scale", "value"}:
        # A number without a declared scale has one of its own.
        scale, value, written = value["scale"], value["value"], "base64"
    elif schema.get("name") == "org.apache.kafka.connect.data.Decimal":
        scale, written = _scale_of(schema), "base64"
    else:
        written = "text" if schema.get("type") == "string" else decimals if not schema else "number"
    if type(value) is not str or type(value) is Number:
        return value
    if written == "text":
        return _numeral(kind, value)
    number = _unscaled(value) if written == "base64" and type(scale) is int and abs(scale) <= _LARGEST_SCALE else None
    return value if number is None else Number(_shifted(number, scale))


def _shifted(number: int, scale: int) -> str:
    """A whole number with its point so many digits further left."""
    if scale <= 0:
        return f"{number}{'0' * -scale}"
    digits = str(abs(number)).rjust(scale + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _numeral(kind: exp.DataType, text: str) -> str:
    leaf = leaf_of(kind)
    assert leaf is not None, "a decimal is a leaf"
    try:
        leaf.of_text(text)
    except Refused:
        return text
    return Number(text)


def _scale_of(schema: _Schema) -> int | None:
    try:
        return int(str(_part(schema, "parameters").get("scale")))
    except ValueError:
        return None


def _unscaled(text: str) -> int | None:
    """The signed number that bytes in base64 are; None where they are none, or more than any decimal has."""
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return int.from_bytes(content, signed=True) if content else None
