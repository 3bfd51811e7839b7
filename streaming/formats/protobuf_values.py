"""Messages of Protobuf to values, as Arrow takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-not-found]

from streaming.formats.protobuf_types import ANY_JSON, TIMESTAMP, WRAPPERS, is_map

_UNSIGNED_64 = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_NANOS = 1_000_000_000

Value = Callable[[Any], Any]
"""Makes what Arrow takes of what the library has read; raises ValueError where there is none."""


def reader_of(field: FieldDescriptor) -> Callable[[Message], Any]:
    """Reads a field of a message; None where the message tells that it is not there.

    Readers raise ValueError where a value cannot be told.
    """
    name = field.name
    if is_map(field):
        entry = field.message_type.fields_by_name
        key, value = _value_of(entry["key"]), _value_of(entry["value"])
        return lambda message: [(key(each), value(its)) for each, its in getattr(message, name).items()]
    value = _value_of(field)
    if field.is_repeated:
        return lambda message: [value(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: value(getattr(message, name))


def undeclared(message: Message) -> set[int]:
    """The numbers of the fields in a message that the library could not read by its descriptor."""
    return {each.field_number for each in UnknownFieldSet(message)}


def _value_of(field: FieldDescriptor) -> Value:
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        # A number without a name, of a newer sender, is told by its digits.
        return lambda number: names.get(number) or str(number)
    if field.type in _UNSIGNED_64:
        return Decimal
    return _same if field.message_type is None else _of_message(field.message_type)


def _same(value: Any) -> Any:
    return value


def _of_message(of: Descriptor) -> Value:
    if of.full_name == TIMESTAMP:
        return _micros
    if of.full_name in ANY_JSON:
        return lambda value: json.dumps(MessageToDict(value), ensure_ascii=False)
    if of.full_name in WRAPPERS:
        inner = _value_of(of.fields_by_name["value"])
        return lambda wrapped: inner(wrapped.value)
    readers = {field.name: reader_of(field) for field in of.fields}
    numbers = frozenset(of.fields_by_number)

    def struct(message: Message) -> dict[str, Any]:
        if not numbers.isdisjoint(undeclared(message)):
            raise ValueError(f"a field of {of.full_name} is not written as its type")
        return {name: read(message) for name, read in readers.items()}

    return struct


def _micros(time: Any) -> int:
    if not (_FIRST_SECOND <= time.seconds <= _LAST_SECOND and 0 <= time.nanos < _NANOS):
        raise ValueError(f"{time.seconds} s and {time.nanos} ns are no time of the years 1 to 9999")
    return int(time.seconds) * 1_000_000 + int(time.nanos) // 1_000
