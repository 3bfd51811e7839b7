"""The types of a Protobuf message in Spark, by its descriptor."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from streaming.base import DeclarationError, sql

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
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages with one field, `value`, of which there may be none."""
ANY_JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
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


def is_map(field: FieldDescriptor) -> bool:
    """True if a field is a map, which is written as repeated entries."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _type(column: str, field: FieldDescriptor, inside: tuple[str, ...]) -> str:
    if is_map(field):
        entry = field.message_type.fields_by_name
        return f"map<{_single(column, entry['key'], inside)},{_single(column, entry['value'], inside)}>"
    single = _single(column, field, inside)
    return f"array<{single}>" if field.is_repeated else single


def _single(column: str, field: FieldDescriptor, inside: tuple[str, ...]) -> str:
    message = field.message_type
    if message is None:
        return _PLAIN[field.type]
    name = message.full_name
    if name == TIMESTAMP:
        return "timestamp"
    if name in ANY_JSON:
        return "string"
    if name in WRAPPERS:
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
