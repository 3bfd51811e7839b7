"""Protobuf: messages of a descriptor, plain or with the id of the schema that they were written with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path

from streaming.base import DeclarationError, check_column_name, check_type, needs, sql
from streaming.formats.decoder import Decoder, arrow_types, check_registry
from streaming.formats.format import Format


@dataclass(frozen=True)
class Protobuf(Format):
    """One message per payload, whose full name is `message`, as `descriptor_set` describes it.

    That is the file, or its content, which `protoc --include_imports --descriptor_set_out=FILE` writes; it is read
    when the format is declared. With the URL of a schema `registry` a payload begins with a zero byte, the id of the
    schema that it was written with, and the place of the message in it. An id that the registry does not know and
    another message reject the row; a registry that does not answer is waited for, and rejects none.

    Enums are text (a number without a name its digits), messages structs, repeated fields arrays, unsigned 64 bits
    decimals, `Timestamp` a timestamp cut to microseconds, wrappers the value or null, `Struct`, `Value` and `ListValue`
    JSON. A field that is `optional`, in a `oneof` or a message is null where it is not there; another one of proto3 has
    its default then, 0, false or empty, as Protobuf tells both by the same bytes. A repeated field and a map are never
    null. Bytes of another message may be one of this as well: its fields are unknown ones, which the log counts at
    every depth, by their paths, and by their numbers (`lines.#7`) where no registry names them.

    A number that its column cannot keep, such as an `int64` beyond an `int32`, text that is no UTF-8 and a field that
    was written as another type reject the row, with the path and the value. With a registry a value is also judged by
    the type that it was written as, which its bytes alone do not tell. A field of a closed enum, as those of proto2
    are, is read as Protobuf says where its number has no name: as if it had not been sent. It is counted with the
    unknown fields, and the payload is kept.

    Raises:
        DeclarationError: the set cannot be read, has no such message, or that has a type that no column has.
    """

    descriptor_set: bytes | str | PathLike[str] = field(repr=False)
    message: str
    registry: str | None = None

    def __post_init__(self) -> None:
        needs("google.protobuf", "Protobuf")
        check_type("message of Protobuf", self.message, str, "its full name, such as 'shop.Order'")
        check_registry("Protobuf", self.registry)
        given = self.descriptor_set
        if not isinstance(given, bytes):
            check_type(
                "descriptor_set of Protobuf", given, (str, PathLike), "the path of a descriptor set, or its bytes"
            )
            # The workers of a cluster have no such file.
            object.__setattr__(self, "descriptor_set", _content(Path(given)))
        for column in self.columns:
            check_column_name(column.name)

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The fields of the message, in order."""
        from streaming.formats.protobuf_values import columns_of, described

        return columns_of(described(self._described_by, self.message))

    @property
    def decoder(self) -> Decoder:
        """The reader of its messages."""
        from streaming.formats.protobuf_decoder import ProtobufDecoder

        names = tuple(column.name for column in self.columns)
        return ProtobufDecoder(names, arrow_types(self.columns), self.registry, self._described_by, self.message)

    @property
    def _described_by(self) -> bytes:
        assert isinstance(self.descriptor_set, bytes)
        return self.descriptor_set


def _content(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise DeclarationError(
            f"descriptor_set={str(path)!r} of Protobuf cannot be read ({error.strerror})",
            "name the file that `protoc --include_imports --descriptor_set_out=FILE` writes.",
            field="descriptor_set",
            value=str(path),
        ) from error
