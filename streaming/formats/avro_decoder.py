"""Payloads in Avro to values, in the Python workers of Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import Any

import fastavro
from fastavro import _read_py
from fastavro.io.binary_decoder import BinaryDecoder

from streaming.formats.avro_resolution import is_same_name, records_of
from streaming.formats.avro_types import NO_BYTES_HAVE, RawSchema, Schema, named_in, raw_schema, read_schema
from streaming.formats.decoder import Decoder, Row, Unreadable, Writers, schema_of

Rows = Callable[[Mapping[str, Any]], Row]
"""Makes a row of a record."""

_LONGEST, _GOES_ON = 10, 0x80
"""The bytes of a number of 64 bits, and the least one behind which another follows."""
_MAY_BE_LONG = re.compile(rb"[\x80-\xff]{9}")
"""Only bytes like these may have a number of more than 64 bits; so may those of a fraction or a text."""


@dataclass(frozen=True)
class _Writer:
    """The schema that payloads were written with, and what makes rows of their records; or why there are none."""

    raw: RawSchema | None
    rows: Rows | None
    refused: str = ""


class _Whole(BinaryDecoder):
    """Reads numbers as they are, of 64 bits at most."""

    def read_long(self) -> int:
        number = 0
        for place in range(_LONGEST):
            byte = self.fo.read(1)
            if not byte:
                raise EOFError
            number |= (byte[0] & 0x7F) << (7 * place)
            if byte[0] < _GOES_ON:
                break
        if byte[0] >= _GOES_ON or number >= 2**64:
            raise ValueError("a number has more than 64 bits")
        return (number >> 1) ^ -(number & 1)

    read_int = read_long


def _careful(stream: BytesIO, schema: Any, handle_unicode_errors: str) -> Any:
    """As fastavro reads a record, in Python and with numbers as they are."""
    named: dict[str, dict[str, Any]] = {"writer": {}, "reader": {}}
    fastavro.parse_schema(schema, named["writer"])
    return _read_py.read_data(_Whole(stream), schema, named, None, {"handle_unicode_errors": handle_unicode_errors})


@dataclass
class AvroDecoder(Decoder):
    """Reads records by the `reader`, the declared schema, which without a registry all were written with."""

    reader: Schema
    _writers: Writers[_Writer] = field(default_factory=Writers, init=False)

    @property
    def name(self) -> str:
        return "avro"

    def rows(self, written: Schema, named: Mapping[str, Schema]) -> Rows:
        """The maker of rows from records of a schema, whose types that have a name are `named`."""
        return records_of(written, self.reader, named).row

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        writer = self._declared if identity is None else self._writer(identity, client)
        if writer.raw is None or writer.rows is None:
            raise Unreadable(writer.refused)
        stream = BytesIO(content)
        # The compiled reader cuts numbers of more than 64 bits, and has no bound on levels of records in themselves.
        read = _careful if writer.raw.is_recursive or _MAY_BE_LONG.search(content) else fastavro.schemaless_reader
        try:
            record: Any = read(stream, writer.raw.schema, handle_unicode_errors="surrogateescape")
        # Bytes that are none of the schema make the decoder raise whatever they lead it to.
        except Exception as error:
            why = "a union has no such type" if str(NO_BYTES_HAVE) in str(error) else error or type(error).__name__
            raise Unreadable(f"the payload is no record of its schema ({why})") from error
        left = len(content) - stream.tell()
        if left:
            raise Unreadable(f"{left} bytes follow the record")
        return writer.rows(record)

    @cached_property
    def _declared(self) -> _Writer:
        named = named_in(self.reader)
        return _Writer(raw_schema(self.reader, named), self.rows(self.reader, named))

    def _writer(self, identity: int, client: Any) -> _Writer:
        return self._writers.get(identity, lambda: self._asked(identity, client))

    def _asked(self, identity: int, client: Any) -> _Writer:
        try:
            return self._found(identity, client)
        except Unreadable as error:
            return _Writer(None, None, str(error))

    def _found(self, identity: int, client: Any) -> _Writer:
        registered = schema_of(identity, client, "AVRO")
        named: dict[str, Schema] = {}
        try:
            for reference in registered.references.values():
                read_schema(json.loads(reference), named, is_writer=True)
            written = read_schema(json.loads(registered.text), named, is_writer=True)
            raw = raw_schema(written, named)
        except Exception as error:
            raise Unreadable(f"schema {identity} of the registry cannot be read ({error})") from error
        if not isinstance(written, dict) or written["type"] != "record":
            raise Unreadable(f"schema {identity} of the registry is not that of a record")
        if not is_same_name(written, self.reader):
            raise Unreadable(f"the payload is a record {written['name']}, and no {self.reader['name']}")
        return _Writer(raw, self.rows(written, named))
