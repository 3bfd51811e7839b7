"""Payloads in Protobuf to values, in the Python workers of Spark."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from streaming.formats.decoder import Decoder, Row, Unreadable, Writers, schema_of
from streaming.formats.protobuf_values import Messages, Written, described, messages_of, widened

_LONGEST_VARINT = 10
_DEEPEST = 100
"""More levels of messages in messages than a schema can have; a payload that claims millions would take minutes."""


@dataclass
class ProtobufDecoder(Decoder):
    """Reads messages by their descriptor; with a registry the writer's schema says which message it is."""

    descriptor_set: bytes
    message: str
    _writers: Writers[Messages | str] = field(default_factory=Writers)

    @property
    def name(self) -> str:
        return "protobuf"

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        messages = self._declared
        if identity is not None:
            indexes, content = _indexes(content)
            messages = self._writer(identity, indexes, client)
        try:
            message = self._class.FromString(content)
        except DecodeError as error:
            raise Unreadable(f"the payload is no message {self.message} ({error})") from error
        return messages.row(message)

    @cached_property
    def _class(self) -> type[Message]:
        return GetMessageClass(widened(self.descriptor_set, self.message))

    @cached_property
    def _declared(self) -> Messages:
        return messages_of(described(self.descriptor_set, self.message), None)

    def _writer(self, identity: int, indexes: tuple[int, ...], client: Any) -> Messages:
        """The reader of messages of the type that a payload was written as."""
        answer = self._writers.get((identity, indexes), lambda: self._asked(identity, indexes, client))
        if isinstance(answer, str):
            raise Unreadable(answer)
        return answer

    def _asked(self, identity: int, indexes: tuple[int, ...], client: Any) -> Messages | str:
        try:
            return self._found(identity, indexes, client)
        except Unreadable as error:
            return str(error)

    def _found(self, identity: int, indexes: tuple[int, ...], client: Any) -> Messages:
        registered = schema_of(identity, client, "PROTOBUF", "serialized")
        try:
            file, *imported = (
                FileDescriptorProto.FromString(base64.b64decode(text))
                for text in (registered.text, *registered.references.values())
            )
            messages, names = file.message_type, [file.package] if file.package else []
            for index in indexes:
                messages, written = messages[index].nested_type, messages[index].name
                names.append(written)
        except (ValueError, DecodeError, IndexError) as error:
            raise Unreadable(f"schema {identity} of the registry has no message {list(indexes)} ({error})") from error
        name = ".".join(names)
        if name != self.message:
            raise Unreadable(f"the payload is a message {name}, and no {self.message}")
        return messages_of(self._declared.declared, Written((file, *imported)).message(name))


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
