"""What the types of an Avro schema are in Spark and in Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from streaming.base import DeclarationError, sql

_PLAIN = {
    "string": "string",
    "bytes": "binary",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "uuid": "string",
}

Parsed = Any
"""A schema as fastavro has parsed it."""


def parsed(schema: str) -> Parsed:
    """The schema of records that a text in JSON is.

    Raises:
        DeclarationError: it is none.
    """
    # Only who reads Avro loads the library.
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        result = fastavro.parse_schema(json.loads(schema))
    except (ValueError, TypeError, KeyError, SchemaParseException, UnknownType) as error:
        raise DeclarationError(
            f"the Avro schema {schema!r} cannot be read ({error}); write the schema of a record, in JSON."
        ) from error
    if not isinstance(result, dict) or result.get("type") != "record":
        raise DeclarationError(f"the Avro schema {schema!r} is not that of a record; write one with fields.")
    return result


def columns_of(schema: Parsed) -> tuple[sql.Column, ...]:
    """The fields of a record as columns; those that cannot be null are required.

    Raises:
        DeclarationError: a field has a type that no column has.
    """
    named = _named(schema)
    return tuple(
        sql.Column(field["name"], _type(field["name"], field["type"], named), required=not _nullable(field["type"]))
        for field in schema["fields"]
    )


def _named(schema: Parsed) -> dict[str, Parsed]:
    """The types that have a name, which may be told by it further on."""
    return dict(schema.get("__named_schemas", {}))


def _nullable(schema: Parsed) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _type(column: str, schema: Parsed, named: dict[str, Parsed], inside: tuple[str, ...] = ()) -> str:
    def below(schema: Parsed) -> str:
        return _type(column, schema, named, inside)

    if isinstance(schema, list):
        members = [member for member in schema if member != "null"]
        if len(members) != 1:
            raise _refused(column, "a union of several types")
        return below(members[0])
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema in inside or schema not in named:
            raise _refused(column, f"the type {schema!r}")
        return below(named[schema])
    return _complex(column, schema, named, inside, below)


def _complex(
    column: str, schema: Parsed, named: dict[str, Parsed], inside: tuple[str, ...], below: Callable[[Parsed], str]
) -> str:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "array":
        return f"array<{below(schema['items'])}>"
    if kind == "map":
        return f"map<string,{below(schema['values'])}>"
    if kind == "record":
        within = (*inside, schema["name"])
        fields = (f"{field['name']}:{_type(column, field['type'], named, within)}" for field in schema["fields"])
        return f"struct<{','.join(fields)}>"
    return below(kind) if kind not in _PLAIN else _PLAIN[kind]


def _refused(column: str, what: str) -> DeclarationError:
    return DeclarationError(
        f"column {column!r} of the Avro schema has {what}, which no column can have; write a type that it can be read "
        "as, such as a union of null and one other."
    )
