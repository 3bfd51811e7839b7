"""Spark DDL as an Arrow schema, without a Spark session."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from streaming.base.errors import DeclarationError
from streaming.base.sql import columns_of

_Type = exp.DataType.Type
_SCALARS = {
    _Type.TINYINT: pa.int8(),
    _Type.SMALLINT: pa.int16(),
    _Type.INT: pa.int32(),
    _Type.BIGINT: pa.int64(),
    _Type.FLOAT: pa.float32(),
    _Type.DOUBLE: pa.float64(),
    _Type.BOOLEAN: pa.bool_(),
    _Type.TEXT: pa.string(),
    _Type.VARCHAR: pa.string(),
    _Type.BINARY: pa.binary(),
    _Type.DATE: pa.date32(),
    _Type.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}
_SPARK_DECIMAL = (10, 0)
_NAMES = "tinyint, smallint, int, bigint, float, double, boolean, string, binary, date, timestamp, decimal(p, s)"


def arrow_schema(ddl: str) -> pa.Schema:
    """The columns of `ddl`, such as `n bigint, seen array<struct<at: timestamp, v: double>>`, in Arrow's types.

    Raises:
        DeclarationError: `ddl` is not a list of columns, or has a type that a table here cannot keep.
    """
    columns_of(ddl)
    table = sqlglot.parse_one(f"CREATE TABLE t ({ddl}\n)", dialect="spark")
    definitions = [entry for entry in table.find_all(exp.ColumnDef) if entry.parent is table.this]
    return pa.schema([_field(entry, ddl) for entry in definitions])


def _field(entry: Any, ddl: str) -> pa.Field:
    return pa.field(entry.name, _type(entry.kind, ddl))


def _type(declared: exp.DataType, ddl: str) -> pa.DataType:
    if declared.this in _SCALARS:
        return _SCALARS[declared.this]
    if declared.this == _Type.DECIMAL:
        given = [int(parameter.name) for parameter in declared.expressions]
        return pa.decimal128(*(given or _SPARK_DECIMAL))
    if declared.this == _Type.ARRAY and declared.expressions:
        return pa.list_(_type(declared.expressions[0], ddl))
    if declared.this == _Type.MAP and declared.expressions:
        return pa.map_(*(_type(entry, ddl) for entry in declared.expressions))
    if declared.this == _Type.STRUCT and declared.expressions:
        return pa.struct([_field(entry, ddl) for entry in declared.expressions])
    raise DeclarationError(
        f"the schema {ddl!r} has the type {declared.sql('spark')!r}, which cannot be kept",
        f"use {_NAMES}, and array, map and struct of them.",
    )
