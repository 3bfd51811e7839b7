"""Payloads in Avro to values, in the Python workers of Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from streaming.formats.avro_types import Parsed
from streaming.formats.decoder import Decoder, Row, Unreadable, Writers, schema_of


@dataclass
class _Writer:
    """The schema that a payload was written with, with the fields nobody declared; or why it cannot be used."""

    schema: Parsed = None
    refused: str | None = None
    unknown: list[str] | None = None


@dataclass
class AvroDecoder(Decoder):
    """Reads records by the `reader`, the declared schema, which without a registry all were written with."""

    reader: Parsed
    _writers: Writers[_Writer] = field(default_factory=Writers)

    @property
    def name(self) -> str:
        return "avro"

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        writer = _Writer(self.reader) if identity is None else self._writer(identity, client)
        if writer.refused is not None:
            raise Unreadable(writer.refused)
        stream = BytesIO(content)
        try:
            record: Any = fastavro.schemaless_reader(stream, writer.schema, self.reader)
            values = [record[name] for name in self.columns]
            # Arrow refuses a value that its type cannot keep, and would take the whole batch with it.
            for value, type_ in zip(values, self.types, strict=False):
                pa.scalar(value, type_.type)
        # Bytes that are none of the schema make the decoder raise whatever they lead it to.
        except Exception as error:
            raise Unreadable(f"the payload is no record of its schema ({error or type(error).__name__})") from error
        left = len(content) - stream.tell()
        if left:
            raise Unreadable(f"{left} bytes follow the record")
        return Row(values, unknown=writer.unknown)

    def _writer(self, identity: int, client: Any) -> _Writer:
        return self._writers.get(identity, lambda: self._asked(identity, client))

    def _asked(self, identity: int, client: Any) -> _Writer:
        try:
            return self._found(identity, client)
        except Unreadable as error:
            return _Writer(refused=str(error))

    def _found(self, identity: int, client: Any) -> _Writer:
        text = schema_of(identity, client, "AVRO")
        try:
            written = fastavro.parse_schema(json.loads(text))
        except Exception as error:
            raise Unreadable(f"schema {identity} of the registry cannot be read ({error})") from error
        fields = written.get("fields", []) if isinstance(written, dict) else []
        unknown = sorted(each["name"] for each in fields if each["name"] not in self.columns)
        return _Writer(written, unknown=unknown or None)
