"""Payloads in Protobuf to values, in the Python workers of Spark."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import SerializeToJsonError
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from streaming.formats.decoder import Decoder, Row, Unreadable, Writers, schema_of
from streaming.formats.protobuf_types import described
from streaming.formats.protobuf_values import has_closed_enum, kept_aside, reader_of, unnamed

_LONGEST_VARINT = 10
_DEEPEST = 100
"""More levels of messages in messages than a schema can have; a payload that claims millions would take minutes."""

Names = Mapping[int, str]
"""The fields of a message by their numbers."""


@dataclass
class ProtobufDecoder(Decoder):
    """Reads messages by their descriptor; with a registry the writer's schema says which message it is."""

    descriptor_set: bytes
    message: str
    _writers: Writers[Names | str] = field(default_factory=Writers)

    @property
    def name(self) -> str:
        return "protobuf"

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        names: Names = {}
        if identity is not None:
            indexes, content = _indexes(content)
            names = self._writer(identity, indexes, client)
        try:
            message = self._class.FromString(content)
        except DecodeError as error:
            raise Unreadable(f"the payload is no message {self.message} ({error})") from error
        others, _ = kept_aside(message)
        wrong = self._wrong(message, others)
        values = [None if name in wrong else self._read(name, message, wrong) for name in self.columns]
        unknown = [names.get(number, f"#{number}") for number in sorted(others - self._declared.keys())]
        if self._class.DESCRIPTOR.is_extendable:
            unknown += [f"[{each.full_name}]" for each, _ in message.ListFields() if each.is_extension]
        if self._has_closed_enum:
            unknown += [f"{path} (a number without a name)" for path in dict.fromkeys(unnamed(message))]
        return Row(values, wrong or None, unknown or None)

    @cached_property
    def _class(self) -> type[Message]:
        return GetMessageClass(described(self.descriptor_set, self.message))

    @cached_property
    def _declared(self) -> Names:
        return {each.number: each.name for each in self._class.DESCRIPTOR.fields}

    @cached_property
    def _has_closed_enum(self) -> bool:
        return has_closed_enum(described(self.descriptor_set, self.message))

    @cached_property
    def _readers(self) -> dict[str, Callable[[Message], Any]]:
        return {each.name: reader_of(each) for each in self._class.DESCRIPTOR.fields}

    def _wrong(self, message: Message, others: set[int]) -> dict[str, str]:
        """The reasons that the library gives: it keeps aside what is not written as its type, as if it were unknown."""
        wrong = {self._declared[each]: "not written as its type" for each in others if each in self._declared}
        reasons = {name: f"type: {name} is {why}" for name, why in wrong.items()}
        if not message.IsInitialized():
            for path in message.FindInitializationErrors():  # type: ignore[attr-defined]
                reasons.setdefault(path.split(".")[0].split("[")[0], f"required: {path} is missing")
        return reasons

    def _read(self, name: str, message: Message, wrong: dict[str, str]) -> Any:
        try:
            return self._readers[name](message)
        except (ValueError, SerializeToJsonError) as error:
            wrong[name] = f"type: {name} cannot be read ({error})"
            return None

    def _writer(self, identity: int, indexes: tuple[int, ...], client: Any) -> Names:
        """The fields of the message that a payload was written as."""
        answer = self._writers.get((identity, indexes), lambda: self._asked(identity, indexes, client))
        if isinstance(answer, str):
            raise Unreadable(answer)
        return answer

    def _asked(self, identity: int, indexes: tuple[int, ...], client: Any) -> Names | str:
        try:
            return self._found(identity, indexes, client)
        except Unreadable as error:
            return str(error)

    def _found(self, identity: int, indexes: tuple[int, ...], client: Any) -> Names:
        text = schema_of(identity, client, "PROTOBUF", "serialized")
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text))
            messages, names = file.message_type, [file.package] if file.package else []
            for index in indexes:
                written = messages[index]
                messages = written.nested_type
                names.append(written.name)
        except (ValueError, DecodeError, IndexError) as error:
            raise Unreadable(f"schema {identity} of the registry has no message {list(indexes)} ({error})") from error
        if ".".join(names) != self.message:
            raise Unreadable(f"the payload is a message {'.'.join(names)}, and no {self.message}")
        return {each.number: each.name for each in written.field}


def _indexes(content: bytes) -> tuple[tuple[int, ...], bytes]:
    """Where the message stands in the file of its schema, and what follows: the message.

    A number for each level of messages in messages; the first one of a file is a zero alone.
    """
    length, content = _number(content)
    if length == 0:
        return (0,), content
    indexes: list[int] = []
    for _ in range(min(length, _DEEPEST + 1)):
        index, content = _number(content)
        indexes.append(index)
    if not 0 < len(indexes) <= _DEEPEST or min(indexes) < 0:
        raise Unreadable("the payload does not say which message it is")
    return tuple(indexes), content


def _number(content: bytes) -> tuple[int, bytes]:
    """The number that bytes begin with, in seven bits each, and its sign in the lowest one; and what follows."""
    number = 0
    for place, byte in enumerate(content[:_LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), content[place + 1 :]
    raise Unreadable("the payload does not say which message it is")
