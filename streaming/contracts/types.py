"""Types of the standard and of Spark: what a column of a contract is here, and how a column is told in a contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streaming.base import sql

if TYPE_CHECKING:
    from open_data_contract_standard.model import SchemaProperty

_Type = exp.DataType.Type
_SCALARS = {
    **dict.fromkeys((_Type.CHAR, _Type.VARCHAR, _Type.TEXT, _Type.NCHAR, _Type.NVARCHAR, _Type.UUID), "string"),
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
    **dict.fromkeys((_Type.BINARY, _Type.VARBINARY), "binary"),
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

    Where there is none, or the two types contradict each other, it is refused, and a text is taken.
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
        found = _of_database(of.physicalType)
        if found is None:
            refuse(f"{place}.physicalType", f"{of.physicalType!r} is no type that a column here can have")
            return "string"
        type_ = found
    else:
        width = (of.logicalTypeOptions or {}).get("format") if of.logicalType in ("integer", "number") else None
        found = _WIDTHS.get(str(width)) if width is not None else _DEFAULTS.get(of.logicalType or "")
        if found is None:
            what = f"logicalType {of.logicalType!r}" if of.logicalType else "it has no type"
            refuse(place, f"{what} says not enough; give it a physicalType, such as bigint, or its parts")
            return "string"
        type_ = found
    if of.logicalType is not None and not type_.startswith(_LOGICAL.get(of.logicalType, ("string",))):
        refuse(f"{place}.logicalType", f"it is {of.logicalType!r}, and the column is of type {type_}")
    return type_


def _field(of: SchemaProperty, place: str, refuse: Refuse) -> str:
    required = " not null" if of.required else ""
    comment = f" comment {_text(meaning_of(of))}" if meaning_of(of) else ""
    return f"{_quoted(of.name or '')}: {spark_type(of, place, refuse)}{required}{comment}"


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
    told: dict[str, Any] = {"physicalType": type_.sql("spark").lower()}
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


def _parsed(type_: str) -> exp.DataType:
    table = sqlglot.parse_one(f"CREATE TABLE t (c {type_}\n)", dialect="spark")
    column = table.find(exp.ColumnDef)
    assert column is not None and isinstance(column.kind, exp.DataType)
    return column.kind


def _of_database(text: str) -> str | None:
    """A type as some database writes it, as Spark's; None where there is none."""
    for dialect in ("spark", "postgres", "snowflake", "bigquery", "oracle"):
        try:
            type_ = exp.DataType.build(text, dialect=dialect)
        except (SqlglotError, ValueError):
            continue
        known = _known(type_)
        if known is not None:
            return known
    return None


def _known(type_: exp.DataType) -> str | None:
    if type_.this in _SCALARS:
        return _SCALARS[type_.this]
    if type_.this == _Type.DECIMAL:
        digits = [parameter.name for parameter in type_.expressions]
        return f"decimal({', '.join([*digits, '0'][:2])})" if digits else "decimal(38, 18)"
    nested = (_Type.STRUCT, _Type.ARRAY, _Type.MAP)
    return type_.sql("spark").lower() if type_.this in nested and type_.expressions else None


def _quoted(name: str) -> str:
    return name if name.isidentifier() else "`{}`".format(name.replace("`", "``"))


def _text(text: str) -> str:
    return exp.Literal.string(text).sql("spark")
