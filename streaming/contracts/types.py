"""Types of the standard and of Spark: what a column of a contract is here, and how a column is told in a contract."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streaming.base import sql

if TYPE_CHECKING:
    from open_data_contract_standard.model import SchemaProperty

_Type = exp.DataType.Type
_TEXTS = (_Type.CHAR, _Type.BPCHAR, _Type.VARCHAR, _Type.TEXT, _Type.NCHAR, _Type.NVARCHAR, _Type.UUID)
_BINARIES = (_Type.BINARY, _Type.VARBINARY)
_SCALARS = {
    **dict.fromkeys(_TEXTS, "string"),
    _Type.BOOLEAN: "boolean",
    _Type.TINYINT: "tinyint",
    _Type.SMALLINT: "smallint",
    **dict.fromkeys((_Type.INT, _Type.MEDIUMINT), "int"),
    _Type.BIGINT: "bigint",
    _Type.FLOAT: "float",
    _Type.DOUBLE: "double",
    _Type.DATE: "date",
    **dict.fromkeys(
        (_Type.TIMESTAMP, _Type.TIMESTAMPTZ, _Type.TIMESTAMPLTZ, _Type.DATETIME, _Type.TIMESTAMPNTZ), "timestamp"
    ),
    **dict.fromkeys(_BINARIES, "binary"),
}
"""The types that databases have, as Spark's: widths of texts are rules, and instants have one type."""

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_LOGICAL: dict[str, tuple[str, ...]] = {
    "string": ("string", "binary"),
    "boolean": ("boolean",),
    "integer": ("tinyint", "smallint", "int", "bigint", "decimal"),
    "number": _NUMBERS,
    "date": ("date",),
    "timestamp": ("timestamp",),
    "object": ("struct",),
    "array": ("array",),
    "map": ("map",),
}
"""The types of Spark, by how they begin, that a logical type may be."""

_WIDTHS = {"i8": "tinyint", "i16": "smallint", "i32": "int", "i64": "bigint", "u8": "smallint", "u16": "int"}
_WIDTHS |= {"u32": "bigint", "f32": "float", "f64": "double"}
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_RANGES = {type_: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for type_, bits in _BITS.items()}
"""The least and the greatest number of each type."""

_DEFAULTS = {
    "string": "string",
    "boolean": "boolean",
    "integer": "bigint",
    "number": "double",
    "date": "date",
    "timestamp": "timestamp",
}

Refuse = Callable[[str, str], None]
"""Takes the place in the file and the reason for which it cannot be carried over."""


def spark_type(of: SchemaProperty, place: str, refuse: Refuse) -> str:
    """The Spark type of a property: by its parts where it has any, else by its physical type, else by its logical one.

    Where there is none, it is refused and a text is taken; so it is where two of these contradict each other.
    """
    if of.properties:
        parts = (_field(each, f"{place}.{each.name}", refuse) for each in of.properties)
        type_ = f"struct<{', '.join(parts)}>"
    elif of.items is not None:
        type_ = f"array<{spark_type(of.items, f'{place}.items', refuse)}>"
    elif of.map is not None and of.map.key is not None and of.map.value is not None:
        key, value = (
            spark_type(each, f"{place}.map.{part}", refuse)
            for part, each in (("key", of.map.key), ("value", of.map.value))
        )
        type_ = f"map<{key}, {value}>"
    elif of.physicalType is not None:
        parsed = _of_database(of.physicalType)
        if parsed is None:
            refuse(f"{place}.physicalType", f"{of.physicalType!r} is no type that a column here can have")
            return "string"
        if any(_width(part) is not None for part in parsed.find_all(exp.DataType) if part is not parsed):
            refuse(
                f"{place}.physicalType",
                f"{of.physicalType!r} has a width within it, which nothing here checks; write its parts as properties",
            )
        if parsed.this == _Type.DECIMAL and not parsed.expressions and of.logicalType == "integer":
            return "decimal(38, 0)"
        type_ = _known(parsed) or "string"
        if of.logicalType == "integer" and type_.startswith("decimal") and not type_.endswith(", 0)"):
            refuse(f"{place}.logicalType", f"it is 'integer', and the column is of type {type_}")
    else:
        width = _width_of_format(of)
        found = _DEFAULTS.get(of.logicalType or "") if width is None else width
        if not found:
            what = f"logicalType {of.logicalType!r}" if of.logicalType else "it has no type"
            refuse(place, f"{what} says not enough; give it a physicalType, such as bigint, or its parts")
            return "string"
        type_ = found
    has_parts = bool(of.properties) or of.items is not None or of.map is not None
    if has_parts and of.physicalType is not None and _contradicts(of.physicalType, of, type_):
        refuse(f"{place}.physicalType", f"it is {of.physicalType!r}, and its parts are {plain_type(type_)}")
    if of.logicalType is not None and not type_.startswith(_LOGICAL.get(of.logicalType, ("string",))):
        refuse(f"{place}.logicalType", f"it is {of.logicalType!r}, and the column is of type {type_}")
    return type_


def _field(of: SchemaProperty, place: str, refuse: Refuse) -> str:
    return _part(sql.Column(of.name or "", spark_type(of, place, refuse), bool(of.required), meaning_of(of)))


def _part(of: sql.Column) -> str:
    required = " not null" if of.required else ""
    comment = f" comment {_text(of.comment)}" if of.comment else ""
    return f"{_quoted(of.name)}: {of.type}{required}{comment}"


def width_of(of: SchemaProperty) -> int | None:
    """The most characters, of a binary bytes, that the physical type of a property has; None for any number."""
    if of.physicalType is None or of.properties or of.items is not None or of.map is not None:
        return None
    parsed = _of_database(of.physicalType)
    return None if parsed is None else _width(parsed)


def _width(type_: exp.DataType) -> int | None:
    width = type_.expressions[0].name if type_.this in (*_TEXTS, *_BINARIES) and type_.expressions else ""
    return int(width) if width.isdigit() else None


def range_of(of: SchemaProperty, type_: str) -> tuple[int, int] | None:
    """The least and the greatest number that the format of an integer has, where its column has others besides."""
    format_ = str((of.logicalTypeOptions or {}).get("format")) if of.logicalType == "integer" else ""
    if re.fullmatch("[iu](8|16|32|64)", format_) is None or not type_.startswith(_NUMBERS):
        return None
    bits = int(format_[1:])
    low, high = (0, 2**bits - 1) if format_[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    least, greatest = _RANGES.get(type_, (None, None))
    return None if least is not None and greatest is not None and low <= least and greatest <= high else (low, high)


def meaning_of(of: SchemaProperty) -> str:
    """The description of a property, with its examples."""
    shown = ", ".join(str(example) for example in of.examples or ())
    description = (of.description or of.businessName or "").strip()
    return f"{description} Such as: {shown}.".strip() if shown else description


def ddl_of(columns: tuple[sql.Column, ...]) -> str:
    """Columns as Spark DDL."""
    return ", ".join(
        f"{_quoted(column.name)} {column.type}"
        + (" not null" if column.required else "")
        + (f" comment {_text(column.comment)}" if column.comment else "")
        for column in columns
    )


def property_of(column: sql.Column) -> dict[str, Any]:
    """A column as the standard has it, its parts included; the physical type is Spark's."""
    told: dict[str, Any] = {"name": column.name}
    if column.comment:
        told["description"] = column.comment
    if column.required:
        told["required"] = True
    return told | _type_of(_parsed(column.type))


def _type_of(type_: exp.DataType) -> dict[str, Any]:
    told: dict[str, Any] = {"physicalType": plain_type(type_)}
    name = told["physicalType"].partition("<")[0].partition("(")[0]
    logical = next((each for each, begins in _LOGICAL.items() if name in begins), "string")
    told["logicalType"] = "number" if name == "decimal" else logical
    if type_.this == _Type.STRUCT:
        told["properties"] = [property_of(part) for part in _parts(type_)]
        # The parts say it all, and a comment in the type would say some of it twice.
        del told["physicalType"]
    elif type_.this == _Type.ARRAY:
        told["items"] = _type_of(type_.expressions[0])
        del told["physicalType"]
    elif type_.this == _Type.MAP:
        told["map"] = {part: _type_of(each) for part, each in zip(("key", "value"), type_.expressions, strict=True)}
        del told["physicalType"]
    return told


def _parts(type_: exp.DataType) -> Iterator[sql.Column]:
    for part in type_.expressions:
        kinds = [constraint.kind for constraint in part.args.get("constraints") or ()]
        comments = [kind.this.name for kind in kinds if isinstance(kind, exp.CommentColumnConstraint)]
        required = any(isinstance(kind, exp.NotNullColumnConstraint) for kind in kinds)
        yield sql.Column(part.name, part.kind.sql("spark"), required, " ".join(comments))


def plain_type(type_: str | exp.DataType) -> str:
    """A type of Spark as text, without the comments of its parts, and with the digits that Spark gives a decimal."""
    type_ = _parsed(type_) if isinstance(type_, str) else type_
    if type_.this == _Type.STRUCT:
        parts = (replace(part, type=plain_type(part.type), comment="") for part in _parts(type_))
        return f"struct<{', '.join(map(_part, parts))}>"
    if type_.this in (_Type.ARRAY, _Type.MAP):
        return f"{type_.this.value.lower()}<{', '.join(map(plain_type, type_.expressions))}>"
    if type_.this == _Type.DECIMAL:
        return _decimal(type_) or "decimal(10, 0)"
    return type_.sql("spark").lower()


def _parsed(type_: str) -> exp.DataType:
    table = sqlglot.parse_one(f"CREATE TABLE t (c {type_}\n)", dialect="spark")
    column = table.find(exp.ColumnDef)
    assert column is not None and isinstance(column.kind, exp.DataType)
    return column.kind


def _of_database(text: str) -> exp.DataType | None:
    """A type as some database writes it; None where it is none that Spark has."""
    for dialect in ("spark", "postgres", "snowflake", "bigquery", "oracle"):
        try:
            type_ = exp.DataType.build(text, dialect=dialect)
        except (SqlglotError, ValueError):
            continue
        if _known(type_) is not None:
            return type_
    return None


def _contradicts(physical: str, of: SchemaProperty, type_: str) -> bool:
    """True if a type, as some database writes it, cannot be that of a property's parts; one that nobody knows can."""
    parsed = _of_database(physical)
    if parsed is not None:
        return not _can_be(parsed, of)
    begins = re.match("struct|record|row|array|map", physical.strip(), re.I)
    named = {"record": "struct", "row": "struct"}.get(begins[0].lower(), begins[0].lower()) if begins else None
    return named is not None and not type_.startswith(named)


def _can_be(type_: exp.DataType, of: SchemaProperty) -> bool:
    """True unless a type says another thing than a property, whose logical type leaves widths and digits open."""
    if of.properties:
        if type_.this != _Type.STRUCT:
            return False
        # Databases write names that are not quoted in a case of their own.
        theirs = [(part.name.lower(), part.kind) for part in type_.expressions]
        same = [name for name, _ in theirs] == [(part.name or "").lower() for part in of.properties]
        return same and all(_can_be(kind, part) for (_, kind), part in zip(theirs, of.properties, strict=True))
    if of.items is not None:
        return type_.this == _Type.ARRAY and _can_be(type_.expressions[0], of.items)
    if of.map is not None and of.map.key is not None and of.map.value is not None:
        parts = (of.map.key, of.map.value)
        return type_.this == _Type.MAP and all(map(_can_be, type_.expressions, parts))
    if of.physicalType is not None:
        own = _of_database(of.physicalType)
        return own is None or _are_alike(type_, own)
    known, width = _known(type_) or "", _width_of_format(of)
    if width is not None and type_.this != _Type.DECIMAL:
        return known == width
    return known.startswith(_LOGICAL.get(of.logicalType or "", ("",)))


def _are_alike(one: exp.DataType, other: exp.DataType) -> bool:
    """True if two types are the same here; a decimal without digits may have any."""
    is_open = one.this == other.this == _Type.DECIMAL and not (one.expressions and other.expressions)
    return is_open or _known(one) == _known(other)


def _width_of_format(of: SchemaProperty) -> str | None:
    """The type that the format of a number asks for; None where it has none."""
    width = (of.logicalTypeOptions or {}).get("format") if of.logicalType in ("integer", "number") else None
    return None if width is None else _WIDTHS.get(str(width), "")


def _known(type_: exp.DataType) -> str | None:
    if type_.this in _SCALARS:
        return _SCALARS[type_.this]
    if type_.this == _Type.DECIMAL:
        return _decimal(type_) or "decimal(38, 18)"
    if type_.this not in (_Type.STRUCT, _Type.ARRAY, _Type.MAP) or not type_.expressions:
        return None
    is_struct = type_.this == _Type.STRUCT
    if is_struct and not all(isinstance(part, exp.ColumnDef) for part in type_.expressions):
        return None
    types = [_known(part.kind if is_struct else part) for part in type_.expressions]
    if None in types:
        return None
    if is_struct:
        # Fields of payloads go by their case.
        columns = zip(_parts(type_), types, strict=True)
        return f"struct<{', '.join(_part(replace(part, type=each or '')) for part, each in columns)}>"
    return f"{type_.this.value.lower()}<{', '.join(each or '' for each in types)}>"


def _decimal(type_: exp.DataType) -> str | None:
    """A decimal with its digits; None where it has none."""
    digits = [parameter.name for parameter in type_.expressions]
    return f"decimal({', '.join([*digits, '0'][:2])})" if digits else None


def _quoted(name: str) -> str:
    return name if name.isidentifier() else "`{}`".format(name.replace("`", "``"))


def _text(text: str) -> str:
    return exp.Literal.string(text).sql("spark")
