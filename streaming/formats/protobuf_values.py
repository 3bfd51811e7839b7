"""Messages of Protobuf to values, as Arrow takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
_VARINT, _LENGTH_DELIMITED = 0, 2

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


def kept_aside(message: Message) -> tuple[set[int], set[int]]:
    """The numbers of the fields that the library has put with the unknown ones of a message, in two sets.

    Those that nobody declared, or that are not written as their type; and those of a closed enum, as enums of proto2
    are, whose number has no name there: Protobuf reads such a field as one that was not sent.
    """
    fields = message.DESCRIPTOR.fields_by_number
    unread, unnamed = set[int](), set[int]()
    for each in UnknownFieldSet(message):
        is_unnamed = _wire_type_unnamed(fields.get(each.field_number)) == each.wire_type
        (unnamed if is_unnamed else unread).add(each.field_number)
    return unread, unnamed


def unnamed(message: Message) -> Iterator[str]:
    """The fields of closed enums whose number has no name, also those of messages within, such as `lines.unit`."""
    for number in sorted(kept_aside(message)[1]):
        yield message.DESCRIPTOR.fields_by_number[number].name
    for field, value in message.ListFields():
        within = value.values() if is_map(field) else value if field.is_repeated else (value,)
        for each in within if field.message_type is not None else ():
            if isinstance(each, Message):
                yield from (f"{field.name}.{path}" for path in unnamed(each))


def has_closed_enum(of: Descriptor | None, inside: tuple[str, ...] = ()) -> bool:
    """Whether a field of a message, or of one within, has an enum whose numbers without a name are unknown fields."""
    if of is None or of.full_name in inside:
        return False
    return any(
        (each.enum_type is not None and each.enum_type.is_closed)
        or has_closed_enum(each.message_type, (*inside, of.full_name))
        for each in of.fields
    )


def _wire_type_unnamed(field: FieldDescriptor | None) -> int | None:
    """How a number without a name is written among the unknown fields; None where none can be there."""
    if field is None:
        return None
    # Of a map the whole entry is put aside, as its key alone would say nothing.
    enum = field.message_type.fields_by_name["value"].enum_type if is_map(field) else field.enum_type
    if enum is None or not enum.is_closed:
        return None
    return _LENGTH_DELIMITED if is_map(field) else _VARINT


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
        return _timestamp
    if of.full_name in ANY_JSON:
        return lambda value: json.dumps(MessageToDict(value), ensure_ascii=False)
    if of.full_name in WRAPPERS:
        inner = _value_of(of.fields_by_name["value"])
        return lambda wrapped: inner(wrapped.value)
    readers = {field.name: reader_of(field) for field in of.fields}
    numbers = frozenset(of.fields_by_number)

    def struct(message: Message) -> dict[str, Any]:
        if not numbers.isdisjoint(kept_aside(message)[0]):
            raise ValueError(f"a field of {of.full_name} is not written as its type")
        return {name: read(message) for name, read in readers.items()}

    return struct


def _timestamp(time: Any) -> int:
    if not (_FIRST_SECOND <= time.seconds <= _LAST_SECOND and 0 <= time.nanos < _NANOS):
        raise ValueError(f"{time.seconds} s and {time.nanos} ns are no time of the years 1 to 9999")
    return int(time.seconds) * 1_000_000 + int(time.nanos) // 1_000
