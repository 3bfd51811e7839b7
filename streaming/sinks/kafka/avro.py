"""Rows as records of Avro, plain or with the id under which a registry has their schema.

The library that encodes them cuts what a schema has no place for: fractions of a millisecond, digits of a float, bits
of an int. So every value is looked at before, by functions that are made once for the schema.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from streaming.base import SinkError, is_number_type
from streaming.formats import Avro, parsed_schema
from streaming.sinks.encoding import bare_values, key_writer

Schema = Any
"""As fastavro has parsed it."""
Writer = Callable[[Any], Any]
"""Makes one of `bare_values` a value for fastavro; raises ValueError with the reason where it cannot be one."""

_INT, _LONG = 2**31, 2**63
_EXACT = Context(prec=200)
"""A context with more digits than any decimal here has."""
_MICROS = {"millis": (1, 1_000), "micros": (1, 1), "nanos": (1_000, 1)}
"""The factor and the divisor that turn microseconds into each unit."""
_MAGIC = b"\x00"
_IDENTITY_BYTES = 4


def record_writer(rows: pa.Schema, schema: Schema) -> Writer:
    """The function that makes a row, by column, a record of the schema; columns that it does not have are left out."""
    named: Mapping[str, Schema] = schema.get("__named_schemas", {})
    fields = {field.name: field.type for field in rows}
    return _record(fields, schema, named, "")


def _writer(type_: pa.DataType, schema: Schema, named: Mapping[str, Schema], path: str) -> Writer:
    if isinstance(schema, list):
        return _union(type_, schema, named, path)
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    write = _of(type_, schema, named, path)

    def present(value: Any) -> Any:
        if value is None:
            raise ValueError(f"{path} is null")
        return write(value)

    return present


def _union(type_: pa.DataType, schemas: Sequence[Schema], named: Mapping[str, Schema], path: str) -> Writer:
    branches = [(_branch(each), _writer(type_, each, named, path)) for each in schemas if each != "null"]

    def write(value: Any) -> Any:
        if value is None and "null" in schemas:
            return None
        reason = ValueError(f"{path} is null")
        for name, of_branch in branches:
            try:
                return name, of_branch(value)
            except ValueError as error:
                reason = error
        raise reason

    return write


def _branch(schema: Schema) -> str:
    """The name that fastavro has for a member of a union."""
    if isinstance(schema, str):
        return schema
    return str(schema.get("name", schema["type"]))


def _of(type_: pa.DataType, schema: Schema, named: Mapping[str, Schema], path: str) -> Writer:
    kind, logical = schema["type"], schema.get("logicalType")
    types = pa.types
    if kind == "record" and types.is_struct(type_):
        return _struct(type_, schema, named, path)
    if kind == "array" and (types.is_list(type_) or types.is_large_list(type_)):
        each = _writer(type_.value_type, schema["items"], named, f"{path}[]")
        return lambda values: [each(value) for value in values]
    if kind == "map" and types.is_map(type_):
        key, item = key_writer(type_.key_type), _writer(type_.item_type, schema["values"], named, f"{path}{{}}")
        return lambda pairs: {key(each): item(value) for each, value in pairs}
    of_logical = _logical(type_, kind, logical, schema, path)
    if of_logical is not None:
        return of_logical
    if types.is_integer(type_) and kind in ("int", "long"):
        return _within(_INT if kind == "int" else _LONG, kind, path)
    if is_number_type(type_) and kind in ("float", "double"):
        return _float(kind, path)
    if types.is_boolean(type_) and kind == "boolean":
        return _as_it_is
    is_text = types.is_string(type_) or types.is_large_string(type_)
    if is_text and kind == "enum":
        return _one_of(schema["symbols"], path)
    is_bytes = types.is_binary(type_) or types.is_large_binary(type_)
    if (is_text and kind == "string") or (is_bytes and kind in ("bytes", "fixed")):
        return _as_it_is
    return _none(type_, logical or kind, path)


def _logical(type_: pa.DataType, kind: Any, logical: str | None, schema: Schema, path: str) -> Writer | None:
    """For a logical type that the specification has; None for every other."""
    if logical is None or kind not in ("int", "long", "bytes", "fixed"):
        return None
    types = pa.types
    if logical == "decimal":
        fits = types.is_decimal(type_) or types.is_integer(type_)
        return _decimal(schema, path) if fits else _none(type_, logical, path)
    if logical == "date":
        return _within(_INT, logical, path) if types.is_date(type_) else _none(type_, logical, path)
    name, _, unit = logical.rpartition("-")
    if unit not in _MICROS or name not in ("timestamp", "local-timestamp", "time"):
        return None
    has_zone = types.is_timestamp(type_) and type_.tz is not None
    is_of = {
        "timestamp": has_zone,
        "local-timestamp": types.is_timestamp(type_) and not has_zone,
        "time": types.is_time(type_),
    }
    return (
        _counted(unit, _INT if kind == "int" else _LONG, logical, path) if is_of[name] else _none(type_, logical, path)
    )


def _record(types: Mapping[str, pa.DataType], schema: Schema, named: Mapping[str, Schema], path: str) -> Writer:
    fields: dict[str, Writer] = {}
    for field in schema["fields"]:
        name = field["name"]
        if name in types or "default" not in field:
            fields[name] = _writer(types.get(name, pa.null()), field["type"], named, f"{path}.{name}".lstrip("."))
    return lambda row: {name: write(row.get(name)) for name, write in fields.items()}


def _struct(type_: pa.DataType, schema: Schema, named: Mapping[str, Schema], path: str) -> Writer:
    types = {field.name: field.type for field in type_}
    write = _record(types, schema, named, path)
    others = {*types} - {field["name"] for field in schema["fields"]}

    def whole(value: Mapping[str, Any]) -> Any:
        for name in others:
            if value[name] is not None:
                raise ValueError(f"{path} has a field {name!r}, which the schema does not have")
        return write(value)

    return whole if others else write


def _as_it_is(value: Any) -> Any:
    return value


def _none(type_: pa.DataType, wanted: str, path: str) -> Writer:
    def refused(value: Any) -> Any:
        raise ValueError(f"{path} is of type {type_}, which cannot be {wanted!r}")

    return refused


def _within(bound: int, wanted: str, path: str) -> Writer:
    def write(value: int) -> int:
        if not -bound <= value < bound:
            raise ValueError(f"{path}: {value} is out of the range of {wanted!r}")
        return value

    return write


def _counted(unit: str, bound: int, wanted: str, path: str) -> Writer:
    factor, divisor = _MICROS[unit]

    def write(micros: int) -> int:
        if micros % divisor or not -bound <= micros * factor // divisor < bound:
            raise ValueError(f"{path}: {micros} microseconds since 1970 or midnight cannot be {wanted!r}")
        return micros * factor // divisor

    return write


def _float(kind: str, path: str) -> Writer:
    def write(value: float | Decimal) -> float:
        try:
            result = float(value)
            result = struct.unpack("<f", struct.pack("<f", result))[0] if kind == "float" else result
        except OverflowError:
            result = math.nan
        if result != value and not (isinstance(value, float) and math.isnan(value)) and not _same(result, value):
            raise ValueError(f"{path}: {value} would not be the same number as {kind!r}")
        return result

    return write


def _same(number: float, value: float | Decimal) -> bool:
    """True if a decimal is the shortest text of a float, which is what it is read back as."""
    return isinstance(value, Decimal) and math.isfinite(number) and Decimal(repr(number)) == value


def _decimal(schema: Schema, path: str) -> Writer:
    precision, scale = schema["precision"], schema.get("scale", 0)
    unit = Decimal(1).scaleb(-scale)

    def write(value: Decimal | int) -> Decimal:
        number = Decimal(value)
        shifted = number.scaleb(scale, _EXACT)
        if shifted != shifted.to_integral_value() or abs(shifted) >= 10**precision:
            raise ValueError(f"{path}: {number:f} has no place in decimal({precision},{scale})")
        # The library refuses digits behind the scale, also where they are zeros.
        return number.quantize(unit, context=_EXACT)

    return write


def _one_of(symbols: Sequence[str], path: str) -> Writer:
    def write(value: str) -> str:
        if value not in symbols:
            raise ValueError(f"{path}: {value!r} is none of {', '.join(symbols)}")
        return value

    return write


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
                identity = self._client.register_schema(subject, RegisteredSchema(self._format.schema, "AVRO"))
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
