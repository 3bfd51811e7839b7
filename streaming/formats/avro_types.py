"""Avro schemas: how their texts are read, and what their types are as columns of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from streaming.base import DeclarationError, sql

MOST_DIGITS = 38

Schema = Any
"""A schema as fastavro has parsed it: names are full, and a type that has a name stands where it is met first."""


@dataclass(frozen=True)
class RawSchema:
    """A schema that fastavro reads bytes by; of records within themselves, bytes can have levels without end."""

    schema: Schema
    is_recursive: bool


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
_TYPES = {*_PLAIN, "null", "record", "array", "map"}
_LOGICAL = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "uuid": "string",
}
"""Those of numbers of which Spark's tables have no column, of times of a day and of nanoseconds, stay the numbers."""

_CARRIERS = {
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "duration": ("fixed",),
    **dict.fromkeys(
        (
            "time-micros",
            *(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
        ),
        ("long",),
    ),
}
"""The types that each logical one may be written as; anywhere else it counts for nothing, as Avro has it."""

_UUID_SIZE, _DURATION_SIZE = 16, 12


def parsed(schema: str) -> Schema:
    """The schema of records that a text in JSON is.

    Raises:
        DeclarationError: it is none.
    """
    try:
        result = read_schema(json.loads(schema), {})
    except Exception as error:
        raise DeclarationError(
            f"the Avro schema {schema!r} cannot be read ({error})", "write the schema of a record, in JSON."
        ) from error
    if not isinstance(result, dict) or result.get("type") != "record":
        raise DeclarationError(f"the Avro schema {schema!r} is not that of a record", "write one with fields.")
    return result


def read_schema(schema: Any, named: dict[str, Schema], *, is_writer: bool = False) -> Schema:
    """A schema of parsed JSON; types with a name are looked for in `named`, and are added to it.

    Of a writer's schema the defaults do not matter, and may be whatever they are.

    Raises:
        Exception: fastavro cannot read it.
    """
    # Only who reads Avro loads the library.
    import fastavro

    return fastavro.parse_schema(_plainer(schema, is_writer), named)


def _plainer(schema: Any, is_writer: bool) -> Any:
    """The schema without types in types that say nothing of their own, which fastavro cannot read."""
    if isinstance(schema, list):
        return [_plainer(member, is_writer) for member in schema]
    if not isinstance(schema, dict):
        return schema
    type_ = schema.get("type")
    if isinstance(type_, (dict, list)) or (isinstance(type_, str) and type_ not in _TYPES):
        return _plainer(type_, is_writer)
    made = {**schema}
    if is_writer:
        made.pop("default", None)
        if schema.get("logicalType") == "decimal" and decimal_of(schema) is None:
            del made["logicalType"]
    for inner in ("items", "values"):
        if inner in made:
            made[inner] = _plainer(made[inner], is_writer)
    if isinstance(made.get("fields"), list):
        made["fields"] = [_plainer_field(field, is_writer) for field in made["fields"]]
    return made


def _plainer_field(field: Any, is_writer: bool) -> Any:
    if not isinstance(field, dict) or "type" not in field:
        return field
    made = {**field, "type": _plainer(field["type"], is_writer)}
    if is_writer:
        made.pop("default", None)
    return made


def named_in(schema: Schema) -> Mapping[str, Schema]:
    """The types of a schema that have a name, by their full names."""
    named: Mapping[str, Schema] = schema.get("__named_schemas", {})
    return named


def kind_of(schema: Schema, named: Mapping[str, Schema]) -> dict[str, Any]:
    """A schema that is no union as an object with a `type`, whichever way it is written."""
    while not isinstance(schema, dict) or schema["type"] in named:
        name = schema if isinstance(schema, str) else schema["type"]
        schema = named.get(name, {"type": name})
    return schema


def members_of(schema: Schema, named: Mapping[str, Schema]) -> tuple[bool, list[dict[str, Any]]]:
    """The types of a schema or union: null among them or not, and the others."""
    kinds = [kind_of(member, named) for member in (schema if isinstance(schema, list) else [schema])]
    others = [kind for kind in kinds if kind["type"] != "null"]
    return len(others) < len(kinds), others


def logical_of(kind: Mapping[str, Any]) -> str | None:
    """The logical type that counts; None where there is none, or one of something that cannot carry it."""
    logical = kind.get("logicalType")
    if not isinstance(logical, str) or kind["type"] not in _CARRIERS.get(logical, ()):
        return None
    if logical == "uuid" and kind["type"] == "fixed" and kind["size"] != _UUID_SIZE:
        return None
    if logical == "duration" and kind["size"] != _DURATION_SIZE:
        return None
    return logical


def decimal_of(kind: Mapping[str, Any]) -> tuple[int, int] | None:
    """The precision and the scale of a decimal; None where they are none."""
    precision, scale = kind.get("precision"), kind.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return None
    if kind["type"] == "fixed" and 2 ** (8 * kind["size"] - 1) < 10**precision:
        return None
    return precision, scale


_ONE_BYTE = {"type": "fixed", "name": "OneByte", "size": 1}
_READ_AS = {"boolean": "OneByte", "enum": "int"}

NO_BYTES_HAVE = 1 << 62
_NO_BRANCH = {"type": "fixed", "name": "NoBranch", "size": NO_BYTES_HAVE}
_NO_BRANCHES = ("NoBranch",) * 64
"""Follow the types of a union, since fastavro counts a negative number of a type from the end, as Python does."""


def raw_schema(schema: Schema, named: Mapping[str, Schema]) -> RawSchema:
    """The schema by which fastavro reads what was written with `schema`, so that everything can still be judged.

    There are no logical types, whose values fastavro may be unable to make, and names are made up. A union of several
    types besides null is one of records with one field each, `branch_name`, which are the same bytes and tell which
    type was written. So is a map an array of its entries, in which a key may stand twice. A symbol of an enum is its
    number and a boolean its byte, which fastavro does not check.

    Raises:
        ValueError: it has arrays of what takes no bytes, of which a few bytes could announce any number.
    """
    import fastavro

    names: dict[str, str] = {}
    open_: list[str] = []
    is_recursive = False

    def raw(schema: Schema) -> Any:
        nonlocal is_recursive
        if isinstance(schema, list):
            several = len(members_of(schema, named)[1]) > 1
            made = [raw(member) for member in schema]
            if several:
                places = count()
                made = [member if member == "null" else branch(member, next(places)) for member in made]
            return [*made, *_NO_BRANCHES]
        kind = kind_of(schema, named)
        type_ = kind["type"]
        if type_ == "array":
            if _is_empty(kind["items"], named):
                raise ValueError("arrays of what takes no bytes")
            return {"type": "array", "items": raw(kind["items"])}
        if type_ == "map":
            fields = [{"name": "key", "type": "string"}, {"name": "value", "type": raw(kind["values"])}]
            return {"type": "array", "items": {"type": "record", "name": made_up("entry"), "fields": fields}}
        if type_ in _READ_AS:
            return _READ_AS[type_]
        if "name" not in kind:
            return type_
        name = kind["name"]
        is_recursive = is_recursive or name in open_
        if name in names:
            return names[name]
        names[name] = f"T{len(names)}"
        named_type: dict[str, Any] = {"type": type_, "name": names[name]}
        if type_ == "fixed":
            return named_type | {"size": kind["size"]}
        open_.append(name)
        named_type["fields"] = [{"name": field["name"], "type": raw(field["type"])} for field in kind["fields"]]
        open_.pop()
        return named_type

    def branch(member: Any, place: int) -> Any:
        return {"type": "record", "name": made_up("branch"), "fields": [{"name": branch_name(place), "type": member}]}

    def made_up(what: str) -> str:
        name = names[f"{what} {len(names)}"] = f"T{len(names)}"
        return name

    helpers: dict[str, Any] = {}
    for helper in (_ONE_BYTE, _NO_BRANCH):
        fastavro.parse_schema(helper, helpers)
    return RawSchema(fastavro.parse_schema(raw(schema), helpers), is_recursive)


def branch_name(place: int) -> str:
    """The field that stands for a branch of a union of several types, which is the `place`th that is not null."""
    return f"branch_{place}"


def _is_empty(schema: Schema, named: Mapping[str, Schema], inside: tuple[str, ...] = ()) -> bool:
    if isinstance(schema, list):
        return False
    kind = kind_of(schema, named)
    if kind["type"] == "record":
        within = (*inside, kind["name"])
        return kind["name"] not in inside and all(_is_empty(each["type"], named, within) for each in kind["fields"])
    return kind["type"] == "null" or kind.get("size") == 0


def columns_of(schema: Schema) -> tuple[sql.Column, ...]:
    """The fields of a record as columns; those that cannot be null are required.

    Raises:
        DeclarationError: a field has a type that no column has.
    """
    named = named_in(schema)
    if not schema["fields"]:
        raise DeclarationError(f"the record {schema['name']!r} of the Avro schema has no field", "give it one.")
    _check_cases(schema["name"], schema["fields"])
    return tuple(
        sql.Column(
            field["name"],
            _type(field["name"], field["type"], named, (schema["name"],)),
            required=not members_of(field["type"], named)[0],
        )
        for field in schema["fields"]
    )


def _type(column: str, schema: Schema, named: Mapping[str, Schema], inside: tuple[str, ...]) -> str:
    def below(schema: Schema) -> str:
        return _type(column, schema, named, inside)

    _, kinds = members_of(schema, named)
    if len(kinds) != 1:
        raise _refused(column, "a union of several types" if kinds else "the type 'null'")
    (kind,) = kinds
    type_, logical = kind["type"], logical_of(kind)
    if logical == "decimal":
        return _decimal(column, kind)
    if logical == "duration":
        raise _refused(column, "the logical type 'duration'")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if type_ == "array":
        return f"array<{below(kind['items'])}>"
    if type_ == "map":
        return f"map<string,{below(kind['values'])}>"
    if type_ == "record":
        return _struct(column, kind, named, inside)
    if type_ not in _PLAIN:
        raise _refused(column, f"the type {type_!r}")
    return _PLAIN[type_]


def _decimal(column: str, kind: Mapping[str, Any]) -> str:
    digits = decimal_of(kind)
    if digits is None or digits[0] > MOST_DIGITS:
        raise DeclarationError(
            f"column {column!r} of the Avro schema is a decimal of precision {kind.get('precision')!r} and scale "
            f"{kind.get('scale', 0)!r}, which no column can have",
            f"write a precision of 1 to {MOST_DIGITS}, that its "
            "bytes have room for, and a scale within it. What was written with more is read where the value fits.",
            column=column,
        )
    return f"decimal({digits[0]},{digits[1]})"


def _struct(column: str, kind: Mapping[str, Any], named: Mapping[str, Schema], inside: tuple[str, ...]) -> str:
    if kind["name"] in inside or not kind["fields"]:
        why = "inside itself" if kind["name"] in inside else "without a field"
        raise _refused(column, f"the record {kind['name']!r} {why}")
    _check_cases(kind["name"], kind["fields"])
    within = (*inside, kind["name"])
    fields = (f"`{field['name']}`:{_type(column, field['type'], named, within)}" for field in kind["fields"])
    return f"struct<{','.join(fields)}>"


def _check_cases(record: str, fields: Iterable[Mapping[str, Any]]) -> None:
    """Refuse names that Spark does not tell from one another."""
    names = [field["name"].lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(
                f"the record {record!r} of the Avro schema has the field {name!r} twice, in upper and lower case, "
                "which Spark does not tell apart",
                "leave out all but one, or rename one and give its old name as an alias.",
            )


def _refused(column: str, what: str) -> DeclarationError:
    return DeclarationError(
        f"column {column!r} of the Avro schema has {what}, which no column can have",
        "write a type that it can be read "
        "as, such as a union of null and one other, or leave the field out: it is counted as an unknown one.",
        column=column,
    )
