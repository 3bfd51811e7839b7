"""Payloads in Avro to values, in the Python workers of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from streaming.formats.avro_types import Parsed

_MAGIC, _HEAD = 0, 5
_NOT_FOUND = 404


@dataclass
class Writer:
    """The schema that a payload was written with: parsed, or why it is none that can be used."""

    schema: Parsed = None
    refused: str | None = None
    unknown: list[str] | None = None


@dataclass
class AvroDecoder:
    """Makes rows of Arrow out of payloads; what cannot be read has a reason instead of values.

    `registry`: options of the client of a schema registry, where payloads name their schema by its id; without it all
    are written with `reader`, the declared schema. `types`: those of the declared columns and of `_unreadable` and
    `_unknown`, as Arrow has them.
    """

    reader: Parsed
    registry: Mapping[str, Any] | None
    types: pa.Schema
    columns: tuple[str, ...]
    _writers: dict[int, Writer] = field(default_factory=dict)

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the decoded columns behind their own."""
        client = None
        if self.registry is not None:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            client = SchemaRegistryClient(dict(self.registry))
        for batch in batches:
            rows = [self._row(payload, client) for payload in batch.column("_raw").to_pylist()]
            decoded = [pa.array([row[place] for row in rows], type_.type) for place, type_ in enumerate(self.types)]
            names = [*batch.schema.names, *self.types.names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *decoded], names=names)

    def _row(self, payload: bytes | str | None, client: Any) -> tuple[Any, ...]:
        nothing = (None,) * len(self.columns)
        if payload is None:
            return (*nothing, None, None)
        content = payload.encode() if isinstance(payload, str) else payload
        writer = Writer(self.reader)
        if client is not None:
            if len(content) < _HEAD or content[0] != _MAGIC:
                return (*nothing, "avro: the payload does not begin with the id of a schema", None)
            writer = self._writer(int.from_bytes(content[1:_HEAD]), client)
            content = content[_HEAD:]
        if writer.refused is not None:
            return (*nothing, writer.refused, None)
        stream = BytesIO(content)
        try:
            record: Any = fastavro.schemaless_reader(stream, writer.schema, self.reader)
            values = tuple(record[name] for name in self.columns)
            # Arrow refuses a value that its type cannot keep, and would take the whole batch with it.
            for value, type_ in zip(values, self.types, strict=False):
                pa.scalar(value, type_.type)
        # Bytes that are none of the schema make the decoder raise whatever they lead it to.
        except Exception as error:
            return (*nothing, f"avro: the payload is no record of its schema ({error or type(error).__name__})", None)
        left = len(content) - stream.tell()
        if left:
            return (*nothing, f"avro: {left} bytes follow the record", None)
        return (*values, None, writer.unknown)

    def _writer(self, identity: int, client: Any) -> Writer:
        if identity not in self._writers:
            self._writers[identity] = self._asked(identity, client)
        return self._writers[identity]

    def _asked(self, identity: int, client: Any) -> Writer:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            schema = client.get_schema(identity)
        except SchemaRegistryError as error:
            # A registry that is away, or refuses, is nothing that a row could be blamed for.
            if error.http_status_code != _NOT_FOUND:
                raise
            return Writer(refused=f"avro: the registry has no schema {identity}")
        if (schema.schema_type or "AVRO") != "AVRO":
            return Writer(refused=f"avro: schema {identity} of the registry is of type {schema.schema_type}")
        try:
            written = fastavro.parse_schema(json.loads(schema.schema_str))
        except Exception as error:
            return Writer(refused=f"avro: schema {identity} of the registry cannot be read ({error})")
        fields = written.get("fields", []) if isinstance(written, dict) else []
        unknown = sorted(each["name"] for each in fields if each["name"] not in self.columns)
        return Writer(written, unknown=unknown or None)
