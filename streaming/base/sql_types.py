"""Types of SQL without a session: of an expression, and whether it can be what it is declared as; of DDL in Arrow.

Where the type of an expression is in doubt, it can be.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.schema import MappingSchema

from streaming.base.deferred import F
from streaming.base.errors import BadExpression, DeclarationError
from streaming.base.sql import check_names, columns_of

Types = Mapping[str, str | None]
"""The columns that an expression may read, with their Spark types, None where it is not known."""

Kind = Literal["boolean", "number", "text", "date", "timestamp", "interval", "array", "struct", "map"]
"""Types of one kind can be compared, and are refused or taken alike."""

_ROWS = "__rows"
_KINDS: dict[Kind, set[exp.DType]] = {
    "boolean": {exp.DataType.Type.BOOLEAN},
    "number": {*exp.DataType.NUMERIC_TYPES},
    "text": {*exp.DataType.TEXT_TYPES},
    "date": {exp.DataType.Type.DATE},
    "timestamp": {*exp.DataType.TEMPORAL_TYPES} - {exp.DataType.Type.DATE},
    "interval": {exp.DataType.Type.INTERVAL},
    "array": {exp.DataType.Type.ARRAY},
    "struct": {exp.DataType.Type.STRUCT},
    "map": {exp.DataType.Type.MAP},
}
_OF_ONE_ROW = (
    *(exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Upper, exp.Lower),
    *(exp.Length, exp.Concat, exp.Trim, exp.Substring, exp.Connector, exp.Nullif),
)
"""Functions of one row's values, for certain."""

_NAMES = """
and any approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate between bigint binary boolean
case collations date div double float from_avro from_protobuf if in int len luhn_check map measure mod not or
percentile_cont percentile_disc python_worker_logs range schema_of_avro smallint space sql_keywords string
table_changes table_changes_by_path time timestamp tinyint to_avro to_protobuf variant_explode variant_explode_outer
vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
"""
_ONLY_IN_SQL = frozenset(_NAMES.split())
"""Functions of Spark SQL that `pyspark.sql.functions` has no name for."""
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
_ARROW_NAMES = "tinyint, smallint, int, bigint, float, double, boolean, string, binary, date, timestamp, decimal(p, s)"


def check_value(what: str, expression: object, types: Types) -> str | None:
    """Refuse an `expression` of `what` that is no value of a row; returns its Spark type, None where it is not known.

    Raises:
        BadExpression: it is no SQL text, names an unknown column or function, or aggregates.
    """
    tree = _read(what, expression, types)
    aggregate = tree.find(exp.AggFunc)
    if aggregate is not None and tree.find(exp.Query, exp.Window) is None:
        raise BadExpression(
            f"{what} is {expression!r}, which takes many rows together ({aggregate.sql('spark')})",
            "write an expression over the columns of one row, and aggregate in a view.",
            value=expression,
        )
    type_ = _type(tree, types)
    return None if type_ is None or _kind(type_) is None else type_.sql("spark").lower()


def check_condition(what: str, expression: object, types: Types) -> None:
    """Refuse an `expression` of `what` that is true or false of no row.

    Raises:
        BadExpression: as `check_value`, or its type is known and not boolean.
    """
    check_kind(what, expression, types, "boolean", f"a condition, such as '{expression} is not null'")


def check_kind(what: str, expression: object, types: Types, kind: str, advice: str) -> None:
    """Refuse an `expression` of `what` that is of another kind (such as `boolean`) for certain.

    Raises:
        BadExpression: as `check_value`, or its type is known and of another kind.
    """
    check_value(what, expression, types)
    type_ = _type(_read(what, expression, types), types)
    other = None if type_ is None else _kind(type_)
    if other not in (None, kind):
        raise BadExpression(f"{what} is {expression!r}, a {other} and no {kind}", f"write {advice}.", value=expression)


def kind_of(type_: str | None) -> Kind | None:
    """The kind of a Spark type, such as `number` or `text`: types of one kind can be compared; None where in doubt."""
    try:
        return None if type_ is None else _kind(exp.DataType.build(type_, dialect="spark"))
    except SqlglotError:
        return None


def times_among(types: Types) -> frozenset[str]:
    """The columns that are known to be dates or timestamps."""
    return frozenset(name for name, type_ in types.items() if kind_of(type_) in ("date", "timestamp"))


def check_aggregate(what: str, expression: object, types: Types) -> None:
    """Refuse an `expression` of `what` that does not make one value of many rows.

    Raises:
        BadExpression: it is no SQL text, names an unknown column or function, counts by what is no condition, or
            has nothing that aggregates.
    """
    tree = _read(what, expression, types)
    functions = tree.find_all(exp.Func, exp.SubqueryPredicate)
    if all(isinstance(node, _OF_ONE_ROW) and not isinstance(node, exp.AggFunc) for node in functions):
        raise BadExpression(
            f"{what} is {expression!r}, which is a value of each row and none of them all",
            f"say how to aggregate, such as agg.sum({expression!r}).",
            value=expression,
        )
    for counted in tree.find_all(exp.CountIf):
        check_condition(f"the condition that {what} counts", counted.this.sql("spark"), types)


def _read(what: str, expression: object, types: Types) -> exp.Expr:
    if not isinstance(expression, str):
        raise BadExpression(
            f"{what} is {expression!r}, a {type(expression).__name__}",
            "write Spark SQL as text, such as 'amount > 0'.",
            value=expression,
        )
    check_names(what, expression, tuple(types))
    tree = sqlglot.parse_one(expression, dialect="spark")
    for function in tree.find_all(exp.Anonymous):
        name = function.name.lower()
        if isinstance(function.parent, exp.Dot) or hasattr(F, name) or name in _ONLY_IN_SQL:
            continue
        near = difflib.get_close_matches(name, {*_ONLY_IN_SQL, *dir(F)}, 3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise BadExpression(
            f"{what} calls {name}() in {expression!r}, which is no function of Spark SQL; {hint}Correct the name, or "
            "compute it with functions that there are."
        )
    return tree


def _type(tree: exp.Expr, types: Types) -> exp.DataType | None:
    """The type of the expression, as far as it can be told; None where nothing can."""
    rows = sqlglot.select(tree.copy()).from_(_ROWS)
    for column in rows.find_all(exp.Column):
        if not column.table:
            column.set("table", exp.to_identifier(_ROWS))
    schema: dict[str, object] = {_ROWS: {name: type_ for name, type_ in types.items() if type_ is not None}}
    try:
        typed = annotate_types(rows, schema=MappingSchema(schema, dialect="spark"), dialect="spark")
    # Whatever it cannot tell, Spark may well accept.
    except Exception:
        return None
    return typed.selects[0].type


def _kind(type_: exp.DataType) -> Kind | None:
    return next((kind for kind, members in _KINDS.items() if type_.this in members), None)


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
    return pa.field(entry.name, _arrow_type(entry.kind, ddl))


def _arrow_type(declared: exp.DataType, ddl: str) -> pa.DataType:
    if declared.this in _SCALARS:
        return _SCALARS[declared.this]
    if declared.this == _Type.DECIMAL:
        given = [int(parameter.name) for parameter in declared.expressions]
        return pa.decimal128(*(given or _SPARK_DECIMAL))
    if declared.this == _Type.ARRAY and declared.expressions:
        return pa.list_(_arrow_type(declared.expressions[0], ddl))
    if declared.this == _Type.MAP and declared.expressions:
        return pa.map_(*(_arrow_type(entry, ddl) for entry in declared.expressions))
    if declared.this == _Type.STRUCT and declared.expressions:
        return pa.struct([_field(entry, ddl) for entry in declared.expressions])
    raise DeclarationError(
        f"the schema {ddl!r} has the type {declared.sql('spark')!r}, which cannot be kept",
        f"use {_ARROW_NAMES}, and array, map and struct of them.",
    )
