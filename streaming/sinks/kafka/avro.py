"""Rows as records of Avro, plain or with the id under which a registry has their schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO

import fastavro
import pyarrow as pa
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from streaming.base import SinkError
from streaming.formats import Avro, parsed_schema
from streaming.sinks.encoding import bare_values
from streaming.sinks.kafka.avro_values import record_writer

_MAGIC = b"\x00"
_IDENTITY_BYTES = 4


class AvroValues:
    """Encodes rows; the schema is registered once per topic."""

    def __init__(self, format_: Avro) -> None:
        self._format = format_
        self._schema = parsed_schema(format_.schema)
        self._client = None if format_.registry is None else SchemaRegistryClient({"url": format_.registry})
        self._heads: dict[str, bytes] = {}

    def __call__(self, topics: Sequence[str], rows: pa.Table) -> Iterator[bytes | ValueError]:
        """The value of each row, or why the schema does not take it.

        Raises:
            SinkError: the registry is away, or refuses the schema.
        """
        of_row = record_writer(rows.schema, self._schema)
        columns = [bare_values(column) for column in rows.columns]
        for topic, values in zip(topics, zip(*columns, strict=True), strict=True):
            content = BytesIO()
            try:
                row = of_row(dict(zip(rows.column_names, values, strict=True)))
                fastavro.schemaless_writer(content, self._schema, row)
            # Values that are none of the schema make the encoder raise whatever they lead it to.
            except Exception as error:
                yield ValueError(f"avro: the row is no record of the schema ({error or type(error).__name__})")
                continue
            yield self._head(topic) + content.getvalue()

    def _head(self, topic: str) -> bytes:
        if self._client is None:
            return b""
        if topic not in self._heads:
            subject = f"{topic}-value"
            try:
                identity = self._client.register_schema(subject, Schema(self._format.schema, "AVRO"))
            except SchemaRegistryError as error:
                raise SinkError(
                    f"the schema registry at {self._format.registry!r} refuses the schema of {subject!r} "
                    f"({error.error_message}). Let it take the schema, or correct format=Avro(...); the batch is sent "
                    "again by itself."
                ) from error
            # The client lets through the errors of its HTTP library, of which there are two that it may use.
            except Exception as error:
                raise SinkError(
                    f"the schema registry at {self._format.registry!r} does not answer ({error}); start it, and the "
                    "batch is sent again."
                ) from error
            self._heads[topic] = _MAGIC + identity.to_bytes(_IDENTITY_BYTES)
        return self._heads[topic]
