"""Messages of Protobuf to the values of declared columns, as Arrow takes them.

Messages are read by their widened descriptor, which keeps what was written whole, so that every value is judged here by
the declared type and, where a registry tells it, by the type that it was written as.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-not-found]

from streaming.base import DeclarationError, sql
from streaming.formats.binary_leaves import BIGINT, INSTANT, INT, TEXT, missing, mistyped, shown
from streaming.formats.decoder import Row
from streaming.formats.leaves import FIRST_MICRO, LAST_MICRO
from streaming.formats.nested import Wrong

_Type = FieldDescriptor
_FIRST_SECOND, _LAST_SECOND = FIRST_MICRO // 1_000_000, LAST_MICRO // 1_000_000
_NANOS = 1_000_000_000
_GROUP = 3
_WIRE = {0: "varint", 1: "fixed64", 2: "bytes", 3: "group", 5: "fixed32"}
_UNNAMED = "(a number without a name)"

Read = Callable[[Any, list[str]], Any]
"""Makes what Arrow takes of what the library has read, and adds unknown fields to the list; or raises `Wrong`."""

_SIGNED = frozenset((_Type.TYPE_INT32, _Type.TYPE_INT64, _Type.TYPE_ENUM, _Type.TYPE_SFIXED32, _Type.TYPE_SFIXED64))
_VARINTS = frozenset(
    (
        *(_Type.TYPE_INT32, _Type.TYPE_INT64, _Type.TYPE_UINT32, _Type.TYPE_UINT64, _Type.TYPE_BOOL),
        _Type.TYPE_ENUM,
    )
)
_ALIKE = (
    _VARINTS,
    frozenset((_Type.TYPE_SINT32, _Type.TYPE_SINT64)),
    frozenset((_Type.TYPE_FIXED32, _Type.TYPE_SFIXED32)),
    frozenset((_Type.TYPE_FIXED64, _Type.TYPE_SFIXED64)),
    frozenset((_Type.TYPE_STRING, _Type.TYPE_BYTES)),
    frozenset((_Type.TYPE_MESSAGE, _Type.TYPE_BYTES)),
)
"""Types of which one may be read as another, as Protobuf has it, if the value has room."""

_FIXED_32 = (_Type.TYPE_FIXED32, _Type.TYPE_SFIXED32)
_OF_32_BITS = (-(2**31), 2**31 - 1)
_OF_64_BITS = (-(2**63), 2**63 - 1)
_RANGES = {
    **dict.fromkeys((_Type.TYPE_INT32, _Type.TYPE_SINT32, _Type.TYPE_SFIXED32), (*_OF_32_BITS, INT)),
    **dict.fromkeys((_Type.TYPE_INT64, _Type.TYPE_SINT64, _Type.TYPE_SFIXED64), (*_OF_64_BITS, BIGINT)),
    **dict.fromkeys((_Type.TYPE_UINT32, _Type.TYPE_FIXED32), (0, 2**32 - 1, f"a whole number from 0 to {2**32 - 1}")),
    **dict.fromkeys((_Type.TYPE_UINT64, _Type.TYPE_FIXED64), (0, 2**64 - 1, f"a whole number from 0 to {2**64 - 1}")),
    _Type.TYPE_BOOL: (0, 1, "true or false"),
    _Type.TYPE_ENUM: (*_OF_32_BITS, "a number of an enum"),
}
_OTHER_WORDS = {
    _Type.TYPE_FLOAT: "a number within float",
    _Type.TYPE_DOUBLE: "a number within double",
    _Type.TYPE_STRING: TEXT,
    _Type.TYPE_BYTES: "bytes",
}
_PLAIN = {
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_SINT32: "int",
    FieldDescriptor.TYPE_SFIXED32: "int",
    FieldDescriptor.TYPE_UINT32: "bigint",
    FieldDescriptor.TYPE_FIXED32: "bigint",
    FieldDescriptor.TYPE_INT64: "bigint",
    FieldDescriptor.TYPE_SINT64: "bigint",
    FieldDescriptor.TYPE_SFIXED64: "bigint",
    FieldDescriptor.TYPE_UINT64: "decimal(20,0)",
    FieldDescriptor.TYPE_FIXED64: "decimal(20,0)",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "binary",
    FieldDescriptor.TYPE_ENUM: "string",
}
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages with one field, `value`, of which there may be none."""
_ANY_JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
"""Messages that are JSON of any shape."""

_HOW = "write the set with `protoc --include_imports --descriptor_set_out=FILE`"


def described(descriptor_set: bytes, message: str) -> Descriptor:
    """The descriptor of a message by its full name.

    Raises:
        DeclarationError: the set cannot be read, or has no such message.
    """
    try:
        files = {file.name: file for file in FileDescriptorSet.FromString(descriptor_set).file}
    except DecodeError as error:
        raise DeclarationError(f"the descriptor set of Protobuf cannot be read ({error}); {_HOW}.") from error
    pool = DescriptorPool()
    for name in files:
        _add(name, files, pool)
    try:
        descriptor: Descriptor = pool.FindMessageTypeByName(message)
    except KeyError as error:
        names = sorted(
            f"{file.package}.{each.name}".lstrip(".") for file in files.values() for each in file.message_type
        )
        raise DeclarationError(
            f"the descriptor set has no message {message!r}; it has {', '.join(names) or 'none'}.",
            f"Name one with its package, or {_HOW}.",
            choices=tuple(names),
        ) from error
    return descriptor


_WIDER = {
    FieldDescriptorProto.TYPE_INT32: FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_SINT32: FieldDescriptorProto.TYPE_SINT64,
    FieldDescriptorProto.TYPE_UINT32: FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_BOOL: FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_STRING: FieldDescriptorProto.TYPE_BYTES,
}
"""Types that are written as the same bytes, and that the library takes nothing away from."""


def widened(descriptor_set: bytes, message: str) -> Descriptor:
    """The descriptor of a message by which its bytes are read: every number whole, and text as its bytes.

    The library cuts a number of 64 bits to the 32 that are declared, takes any number but 0 for true, and refuses a
    whole payload for one byte that is no UTF-8. Enums are numbers, and maps the entries they are written as.
    """
    pool = described(descriptor_set, message).file.pool
    files = FileDescriptorSet.FromString(descriptor_set)
    for file in files.file:
        package = f"{file.package}." if file.package else ""
        for each in file.message_type:
            _widen(each, f"{package}{each.name}", pool)
    return described(files.SerializeToString(), message)


def _widen(message: DescriptorProto, name: str, pool: DescriptorPool) -> None:
    fields = pool.FindMessageTypeByName(name).fields_by_name
    message.options.ClearField("map_entry")
    for each in message.field:
        each.ClearField("default_value")
        if fields[each.name].enum_type is not None:
            each.type = FieldDescriptorProto.TYPE_INT64
            each.ClearField("type_name")
        # A file may leave out that a type with a name is a message.
        elif each.HasField("type"):
            each.type = _WIDER.get(each.type, each.type)
    for inner in message.nested_type:
        _widen(inner, f"{name}.{inner.name}", pool)


def _add(name: str, files: Mapping[str, FileDescriptorProto], pool: DescriptorPool) -> None:
    """Add a file to the pool, and before it those that it imports."""
    try:
        pool.FindFileByName(name)
        return
    except KeyError:
        pass
    if name not in files:
        raise DeclarationError(f"the descriptor set imports {name!r} and does not have it; {_HOW}.")
    for imported in files[name].dependency:
        _add(imported, files, pool)
    try:
        pool.AddSerializedFile(files[name].SerializeToString())
    except TypeError as error:
        raise DeclarationError(
            f"{name!r} of the descriptor set cannot be read ({error}); {_HOW}.", value=name
        ) from error


def columns_of(message: Descriptor) -> tuple[sql.Column, ...]:
    """The fields of a message as columns, in the order of their declaration; `required` is that of proto2.

    Raises:
        DeclarationError: there is none, or one has a type that no column has.
    """
    if not message.fields:
        raise DeclarationError(f"the message {message.full_name!r} has no field", "name one that has.")
    _check_cases(message)
    return tuple(
        sql.Column(field.name, _type(field.name, field, (message.full_name,)), required=field.is_required)
        for field in message.fields
    )


def _is_map(field: FieldDescriptor) -> bool:
    """True if a field is a map, which is written as repeated entries."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _type(column: str, field: FieldDescriptor, inside: tuple[str, ...]) -> str:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return f"map<{_single(column, entry['key'], inside)},{_single(column, entry['value'], inside)}>"
    single = _single(column, field, inside)
    return f"array<{single}>" if field.is_repeated else single


def _single(column: str, field: FieldDescriptor, inside: tuple[str, ...]) -> str:
    message = field.message_type
    if message is None:
        return _PLAIN[field.type]
    name = message.full_name
    if name == _TIMESTAMP:
        return "timestamp"
    if name in _ANY_JSON:
        return "string"
    if name in _WRAPPERS:
        return _PLAIN[message.fields_by_name["value"].type]
    if name in inside or not message.fields:
        why = f"the message {name!r} inside itself" if name in inside else f"the message {name!r}, which has no field"
        raise DeclarationError(
            f"column {column!r} of the Protobuf message has {why}, which no column can have",
            "write a message without that field, and name it: what is not declared is counted as an unknown field.",
            column=column,
        )
    _check_cases(message)
    fields = (f"`{each.name}`:{_type(column, each, (*inside, name))}" for each in message.fields)
    return f"struct<{','.join(fields)}>"


def _check_cases(message: Descriptor) -> None:
    """Refuse names that Spark does not tell from one another."""
    names = [field.name.lower() for field in message.fields]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(
                f"the message {message.full_name!r} has the field {name!r} twice, in upper and lower case, which Spark "
                "does not tell apart",
                "write a message without one of them, and name it.",
            )


class _Unnamed(Exception):
    """A number has no name in a closed enum: as Protobuf has it, it was not sent."""


class Written:
    """The messages of a registry's schema, by their full names."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self._messages: dict[str, DescriptorProto] = {}
        for file in files:
            self._add(file.package, file.message_type)

    def _add(self, scope: str, messages: Iterable[DescriptorProto]) -> None:
        for message in messages:
            name = f"{scope}.{message.name}" if scope else message.name
            self._messages[name] = message
            self._add(name, message.nested_type)

    def message(self, name: str, scope: str = "") -> WrittenMessage | None:
        """The message of a name that stands in a scope; None where there is none."""
        while not name.startswith("."):
            full = f"{scope}.{name}" if scope else name
            if full in self._messages:
                return WrittenMessage(self, full, {each.number: each for each in self._messages[full].field})
            if not scope:
                return None
            scope = scope.rpartition(".")[0]
        return self.message(name[1:])


@dataclass(frozen=True)
class WrittenMessage:
    """A message as it was written: its fields by their numbers."""

    within: Written
    name: str
    fields: Mapping[int, FieldDescriptorProto]

    def inside(self, number: int) -> WrittenMessage | None:
        """The message in a field; None where that has none that is known."""
        field = self.fields.get(number)
        return None if field is None or not field.type_name else self.within.message(field.type_name, self.name)


@dataclass(frozen=True)
class _Field:
    name: str
    read: Read


@dataclass(frozen=True)
class Messages:
    """The reader, by the declared descriptor, of messages that the widened one has parsed.

    `path` is that of unknown fields in them. `written` is the message as it was written, where a registry tells.
    """

    declared: Descriptor
    path: str
    written: WrittenMessage | None
    fields: tuple[_Field, ...]

    def row(self, message: Message) -> Row:
        """The values of the fields, None with a reason where there is none, and the paths of unknown fields."""
        unknown: list[str] = []
        wrong = self._judged(message, unknown)
        values: list[Any] = []
        for field in self.fields:
            value = None
            if field.name not in wrong:
                try:
                    value = field.read(message, unknown)
                except Wrong as error:
                    wrong[field.name] = error
            values.append(value)
        reasons = {name: error.below(name).reason for name, error in wrong.items()}
        return Row(values, reasons or None, [*dict.fromkeys(unknown)] or None)

    def struct(self, message: Message, unknown: list[str]) -> dict[str, Any]:
        """The values of the fields by their names; or what is wrong with the first that has none."""
        for name, error in self._judged(message, unknown).items():
            raise error.below(f".{name}")
        values = {}
        for field in self.fields:
            try:
                values[field.name] = field.read(message, unknown)
            except Wrong as error:
                raise error.below(f".{field.name}") from None
        return values

    def entry(self, message: Message, unknown: list[str]) -> tuple[Any, Any] | None:
        """The key and the value of an entry of a map; None for one that Protobuf reads as not sent."""
        for error in self._judged(message, unknown).values():
            raise error
        key, value = self.fields
        its_key = key.read(message, unknown)
        try:
            return its_key, value.read(message, unknown)
        except Wrong as error:
            raise error.below(f"[{shown(its_key)}]") from None
        except _Unnamed:
            unknown.append(f"{self.path.removesuffix('.')} {_UNNAMED}")
            return None

    def _judged(self, message: Message, unknown: list[str]) -> dict[str, Wrong]:
        """Errors of fields that are not written as their type, which the library puts with the unknown ones."""
        wrong: dict[str, Wrong] = {}
        for each in UnknownFieldSet(message):
            number = each.field_number
            field = self.declared.fields_by_number.get(number)
            if field is None:
                unknown.append(f"{self.path}{self._name_of(number)}")
            else:
                data = each.data if each.wire_type != _GROUP else {}
                wrong.setdefault(field.name, mistyped(_words(field), data, _WIRE[each.wire_type]))
        if self.declared.is_extendable:
            unknown += [f"{self.path}[{each.full_name}]" for each, _ in message.ListFields() if each.is_extension]
        return wrong

    def _name_of(self, number: int) -> str:
        field = None if self.written is None else self.written.fields.get(number)
        return f"#{number}" if field is None else field.name


def messages_of(declared: Descriptor, written: WrittenMessage | None, path: str = "") -> Messages:
    """Compare a declared message with what it was written as; `path` is that of unknown fields in it."""
    fields = tuple(_Field(each.name, _field(each, written, path)) for each in declared.fields)
    return Messages(declared, path, written, fields)


def _field(field: FieldDescriptor, written: WrittenMessage | None, path: str) -> Read:
    """Reads a field of a message; None where the message tells that it is not there."""
    name = field.name
    if _is_map(field):
        inside = None if written is None else written.inside(field.number)
        return _map(name, messages_of(field.message_type, inside, f"{path}{name}.").entry)
    value = _value(field, written, path)
    if field.is_repeated:
        return _repeated(name, value, path)
    # What an entry of a map leaves out has its default.
    if field.containing_type.GetOptions().map_entry:
        return lambda message, unknown: value(getattr(message, name), unknown)
    has_presence, is_required = field.has_presence, field.is_required

    def read(message: Message, unknown: list[str]) -> Any:
        if not has_presence or message.HasField(name):
            try:
                return value(getattr(message, name), unknown)
            except _Unnamed:
                unknown.append(f"{path}{name} {_UNNAMED}")
        if is_required:
            raise missing()
        return None

    return read


def _map(name: str, entry: Callable[[Message, list[str]], tuple[Any, Any] | None]) -> Read:
    def read(message: Message, unknown: list[str]) -> list[tuple[Any, Any]]:
        entries = (entry(each, unknown) for each in getattr(message, name))
        # The last one of a key counts.
        return [*dict(each for each in entries if each is not None).items()]

    return read


def _repeated(name: str, value: Read, path: str) -> Read:
    def read(message: Message, unknown: list[str]) -> list[Any]:
        values: list[Any] = []
        try:
            for each in getattr(message, name):
                try:
                    values.append(value(each, unknown))
                except _Unnamed:
                    unknown.append(f"{path}{name} {_UNNAMED}")
        except Wrong as error:
            raise error.below(f"[{len(values)}]") from None
        return values

    return read


def _value(field: FieldDescriptor, written: WrittenMessage | None, path: str) -> Read:
    type_ = field.type
    theirs = None if written is None else written.fields.get(field.number)
    # A file may leave out whether a type with a name is a message or an enum.
    their_type = theirs.type if theirs is not None and theirs.HasField("type") else type_
    if their_type != type_ and not any({type_, their_type} <= alike for alike in _ALIKE):
        return _unlike(_words(field), FieldDescriptorProto.Type.Name(their_type).removeprefix("TYPE_").lower())
    if field.message_type is not None:
        inside = None if written is None else written.inside(field.number)
        # The path of what is in a map is that of the map.
        is_of_map = field.containing_type.GetOptions().map_entry
        return _message(field.message_type, inside, path if is_of_map else f"{path}{field.name}.")
    if type_ in _RANGES:
        return _whole(field, their_type)
    return _text if type_ == _Type.TYPE_STRING else _same


def _same(value: Any, unknown: list[str]) -> Any:
    return value


def _unlike(words: str, written: str) -> Read:
    def read(value: Any, unknown: list[str]) -> NoReturn:
        raise Wrong("type", "", f"is not {words}, got a value of type {written}")

    return read


def _text(value: bytes, unknown: list[str]) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise mistyped(TEXT, value) from None


def _words(field: FieldDescriptor) -> str:
    """The values that a declared field takes, in words."""
    if field.message_type is not None:
        return "a map" if _is_map(field) else f"a message {field.message_type.full_name}"
    return _OTHER_WORDS[field.type] if field.type in _OTHER_WORDS else _RANGES[field.type][2]


def _whole(field: FieldDescriptor, written: int) -> Read:
    """Whole numbers with the sign that they were written with, within the declared type."""
    type_ = field.type
    low, high, words = _RANGES[type_]
    bits = 32 if type_ in _FIXED_32 else 64
    was_signed, is_signed = written in _SIGNED, type_ in _SIGNED
    is_alike = was_signed == is_signed or type_ in (_Type.TYPE_SINT32, _Type.TYPE_SINT64)
    made = _made_of(field)

    def read(value: int, unknown: list[str]) -> Any:
        if not is_alike:
            if was_signed and value >= 2 ** (bits - 1):
                value -= 2**bits
            elif is_signed and value < 0:
                value += 2**bits
        if low <= value <= high:
            return value if made is None else made(value)
        raise mistyped(words, value)

    return read


def _made_of(field: FieldDescriptor) -> Callable[[int], Any] | None:
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        if field.enum_type.is_closed:
            return lambda number: _named(names, number)
        # A number without a name, of a newer sender, is told by its digits.
        return lambda number: names.get(number) or str(number)
    if field.type == _Type.TYPE_BOOL:
        return bool
    return Decimal if field.type in (_Type.TYPE_UINT64, _Type.TYPE_FIXED64) else None


def _named(names: Mapping[int, str], number: int) -> str:
    try:
        return names[number]
    except KeyError:
        raise _Unnamed from None


def _message(of: Descriptor, written: WrittenMessage | None, path: str) -> Read:
    if of.full_name in _ANY_JSON:
        return lambda message, unknown: json.dumps(_json_of(message, of, path, unknown), ensure_ascii=False)
    struct = messages_of(of, written, path).struct
    if of.full_name == _TIMESTAMP:
        return lambda message, unknown: _timestamp(**struct(message, unknown))
    if of.full_name in _WRAPPERS:
        return lambda message, unknown: struct(message, unknown)["value"]
    return struct


def _timestamp(seconds: int, nanos: int) -> int:
    if not (_FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < _NANOS):
        raise mistyped(INSTANT, {"seconds": seconds, "nanos": nanos})
    return seconds * 1_000_000 + nanos // 1_000


def _json_of(message: Any, of: Descriptor, path: str, unknown: list[str]) -> Any:
    """The JSON that a `Struct`, a `Value` or a `ListValue` stands for, parsed."""
    for error in Messages(of, path, None, ())._judged(message, unknown).values():
        raise error

    def below(inner: Any, name: str) -> Any:
        return _json_of(inner, of.file.message_types_by_name[name], path, unknown)

    if of.name == "Struct":
        return {_text(each.key, unknown): below(each.value, "Value") for each in message.fields}
    if of.name == "ListValue":
        return [below(each, "Value") for each in message.values]
    kind = message.WhichOneof("kind")
    value: Any = None if kind is None else getattr(message, kind)
    if kind == "struct_value":
        return below(value, "Struct")
    if kind == "list_value":
        return below(value, "ListValue")
    if kind == "string_value":
        return _text(value, unknown)
    if kind == "number_value" and not math.isfinite(value):
        raise mistyped("a number of JSON", value)
    return bool(value) if kind == "bool_value" else value if kind == "number_value" else None
