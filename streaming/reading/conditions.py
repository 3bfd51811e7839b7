"""Conditions in Spark's SQL as DuckDB computes them, where both mean the same.

Nothing is translated but what is listed here: of each operator and function the types for which both engines agree,
nulls, NaN and -0.0 included. All else is `Untranslatable`, and is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streaming.base import ReadError

Kind = Literal["boolean", "integer", "decimal", "double", "text", "date", "instant", "local", "other", "null"]
"""The kinds of types that are compared alike: `instant` has a zone, `local` has none."""

_NUMBERS: tuple[Kind, ...] = ("integer", "decimal", "double")
_TIMES: tuple[Kind, ...] = ("date", "instant", "local")
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is not distinct from",
}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_TEXTS: dict[type[exp.Expr], str] = {
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.Contains: "contains",
}
_PARTS: dict[type[exp.Expr], str] = {exp.Year: "year", exp.Month: "month", exp.Day: "day"}
_CLOCK: dict[type[exp.Expr], str] = {exp.Hour: "hour", exp.Minute: "minute"}
_CASTS: dict[Kind, str] = {"date": "date", "instant": "timestamptz", "local": "timestamp"}


class Untranslatable(Exception):
    """Part of a condition of which it is not known that DuckDB computes it as Spark does."""


@dataclass(frozen=True)
class Value:
    """SQL of DuckDB, and the type of what it gives."""

    sql: str
    kind: Kind


def translated(condition: str, schema: pa.Schema) -> str:
    """The condition, which is Spark's SQL, as DuckDB's, over columns of these types.

    Raises:
        ReadError: there is no such column, or it is no condition.
        Untranslatable: only Spark knows what it means.
    """
    try:
        tree = sqlglot.parse_one(condition, read="spark")
    except SqlglotError as error:
        raise Untranslatable(str(error)) from error
    value = _value(tree, schema)
    if value.kind == "null":
        raise Untranslatable(condition)
    if value.kind != "boolean":
        raise ReadError(f"{condition!r} is a value and no condition.")
    return value.sql


def column(name: str, schema: pa.Schema) -> Value:
    """A column, or a field of one such as `_origin.path`, whatever the case of its letters.

    Raises:
        ReadError: there is none.
    """
    if name in schema.names:
        return _of_path([name], schema)
    return _of_path(name.split("."), schema)


def kind_of(type_: pa.DataType) -> Kind:
    """The kind of an Arrow type."""
    types = pa.types
    known: tuple[tuple[Kind, Callable[[pa.DataType], bool]], ...] = (
        ("boolean", types.is_boolean),
        ("integer", types.is_signed_integer),
        ("decimal", types.is_decimal),
        ("double", types.is_floating),
        ("text", lambda each: types.is_string(each) or types.is_large_string(each)),
        ("date", types.is_date32),
        ("instant", lambda each: types.is_timestamp(each) and each.tz is not None),
        ("local", types.is_timestamp),
    )
    return next((kind for kind, is_kind in known if is_kind(type_)), "other")


def quoted(name: str) -> str:
    """A name in DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text in DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"


def resolved(path: Sequence[str], schema: pa.Schema) -> tuple[list[str], pa.DataType]:
    """The names of a column and of fields within it as they are written in the table, and the type of the innermost.

    Raises:
        ReadError: there is no such column, or several that differ in case alone.
    """
    names: list[str] = []
    type_: pa.DataType = pa.struct(list(schema))
    for part in path:
        fields = list(type_) if pa.types.is_struct(type_) else []
        exact = [each for each in fields if each.name == part]
        found = exact or [each for each in fields if each.name.lower() == part.lower()]
        if len(found) != 1:
            raise ReadError(f"there is no column {'.'.join(path)!r}.", column=".".join(path))
        names.append(found[0].name)
        type_ = found[0].type
    return names, type_


def _of_path(path: Sequence[str], schema: pa.Schema) -> Value:
    names, type_ = resolved(path, schema)
    sql, kind = ".".join(map(quoted, names)), kind_of(type_)
    # Of a float DuckDB would compare as many digits as that has.
    return Value(f"cast({sql} as double)", kind) if pa.types.is_float32(type_) else Value(sql, kind)


def _value(node: exp.Expr, schema: pa.Schema) -> Value:
    match node:
        case exp.Paren():
            return _value(node.this, schema)
        case exp.Column() | exp.Dot():
            return _of_path([part.name for part in node.parts], schema)
        case exp.Boolean():
            return Value("true" if node.this else "false", "boolean")
        case exp.Null():
            return Value("null", "null")
        case exp.Literal():
            return _literal(node)
        case exp.Neg(this=exp.Literal(is_string=False)):
            return Value(f"-{node.this.sql()}", _literal(node.this).kind)
        case exp.And() | exp.Or():
            word = "and" if isinstance(node, exp.And) else "or"
            sides = [_condition(side, schema) for side in (node.this, node.expression)]
            return Value(f"({sides[0]} {word} {sides[1]})", "boolean")
        case exp.Not():
            return Value(f"(not {_condition(node.this, schema)})", "boolean")
        case exp.Is(expression=exp.Null()):
            return Value(f"({_value(node.this, schema).sql} is null)", "boolean")
        case exp.Is(expression=exp.Boolean()):
            word = "true" if node.expression.this else "false"
            return Value(f"({_condition(node.this, schema)} is {word})", "boolean")
        case exp.Between():
            low = _compared(node.this, ">=", node.args["low"], schema)
            high = _compared(node.this, "<=", node.args["high"], schema)
            return Value(f"({low} and {high})", "boolean")
        case exp.In() if node.expressions:
            same = [_compared(node.this, "=", each, schema) for each in node.expressions]
            return Value(f"({' or '.join(same)})", "boolean")
        case exp.Like(expression=exp.Literal(is_string=True)):
            # A backslash escapes in Spark only.
            if "\\" in node.expression.name:
                raise Untranslatable(node.sql("spark"))
            return Value(f"({_text(node.this, schema)} like {text_literal(node.expression.name)})", "boolean")
        case exp.Cast(this=exp.Literal(is_string=True)):
            return _time_literal(node)
        case exp.Coalesce():
            return _coalesced(node, schema)
        case exp.IsNan():
            value = _value(node.this, schema)
            if value.kind == "double":
                return Value(f"coalesce(isnan({value.sql}), false)", "boolean")
        case exp.Length():
            return Value(f"length({_text(node.this, schema)})", "integer")
        case exp.Abs():
            value = _value(node.this, schema)
            if value.kind == "double":
                return Value(f"abs({value.sql})", "double")
        case exp.TsOrDsToDate():
            value = _value(node.this, schema)
            if value.kind in _TIMES:
                return Value(f"cast({value.sql} as date)", "date")
        case exp.Anonymous() if node.name.lower() in ("isnull", "isnotnull") and len(node.expressions) == 1:
            word = "is null" if node.name.lower() == "isnull" else "is not null"
            return Value(f"({_value(node.expressions[0], schema).sql} {word})", "boolean")
    kind = type(node)
    if kind in _COMPARISONS:
        return Value(f"({_compared(node.this, _COMPARISONS[kind], node.expression, schema)})", "boolean")
    if kind in _ARITHMETIC:
        return _computed(node, _ARITHMETIC[kind], schema)
    if kind in _TEXTS:
        return Value(f"{_TEXTS[kind]}({_text(node.this, schema)}, {_text(node.expression, schema)})", "boolean")
    if kind in _PARTS:
        return _part(node, _PARTS[kind], _TIMES, schema)
    if kind in _CLOCK:
        return _part(node, _CLOCK[kind], ("instant", "local"), schema)
    raise Untranslatable(node.sql("spark"))


def _literal(node: exp.Literal) -> Value:
    if node.is_string:
        return Value(text_literal(node.name), "text")
    text = node.name.lower()
    if not text.replace(".", "", 1).replace("e", "", 1).replace("-", "", 1).replace("+", "", 1).isdigit():
        raise Untranslatable(node.sql("spark"))
    return Value(text, "double" if "e" in text else "decimal" if "." in text else "integer")


def _condition(node: exp.Expr, schema: pa.Schema) -> str:
    value = _value(node, schema)
    if value.kind not in ("boolean", "null"):
        raise Untranslatable(node.sql("spark"))
    return value.sql


def _text(node: exp.Expr, schema: pa.Schema) -> str:
    value = _value(node, schema)
    if value.kind != "text":
        raise Untranslatable(node.sql("spark"))
    return value.sql


def _compared(left: exp.Expr, operator: str, right: exp.Expr, schema: pa.Schema) -> str:
    one, other = _alike(_value(left, schema), _value(right, schema))
    # `is not distinct from` binds less than `and` does in some parsers.
    return f"({one} {operator} {other})"


def _alike(one: Value, other: Value) -> tuple[str, str]:
    """Both values as they are compared: with one type, to which Spark would cast them too.

    Raises:
        Untranslatable: Spark casts them otherwise, or one cannot be compared.
    """
    kinds = {one.kind, other.kind} - {"null"}
    if "other" in kinds:
        raise Untranslatable(f"{one.sql} and {other.sql}")
    if len(kinds) < 2:
        return one.sql, other.sql
    if kinds <= {*_NUMBERS}:
        if "double" in kinds:
            return f"cast({one.sql} as double)", f"cast({other.sql} as double)"
        return one.sql, other.sql
    if "text" in kinds:
        (times,) = kinds - {"text"}
        if times in _TIMES:
            return _as_time(one, times), _as_time(other, times)
    if kinds == {"date", "instant"}:
        return f"cast({one.sql} as timestamptz)", f"cast({other.sql} as timestamptz)"
    raise Untranslatable(f"{one.sql} and {other.sql}")


def _as_time(value: Value, kind: Kind) -> str:
    """A time, or a text literal that is one; Spark reads other texts, too."""
    if value.kind != "text":
        return value.sql
    if not (value.sql.startswith("'") and value.sql.endswith("'")):
        raise Untranslatable(value.sql)
    return _time(value.sql[1:-1], kind).sql


def _time_literal(node: exp.Cast) -> Value:
    kinds: dict[exp.DType, Kind] = {
        exp.DType.DATE: "date",
        exp.DType.TIMESTAMP: "instant",
        exp.DType.TIMESTAMPTZ: "instant",
        exp.DType.TIMESTAMPNTZ: "local",
    }
    kind = kinds.get(node.to.this)
    if kind is None:
        raise Untranslatable(node.sql("spark"))
    return _time(node.this.name, kind)


def _time(text: str, kind: Kind) -> Value:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise Untranslatable(text) from error
    if len(text) < len("2013-01-01") or "W" in text or (kind == "date" and len(text) > len("2013-01-01")):
        raise Untranslatable(text)
    if kind == "local" and instant.tzinfo is not None:
        raise Untranslatable(text)
    if kind == "instant":
        instant = instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    written = instant.date().isoformat() if kind == "date" else instant.isoformat(" ")
    return Value(f"{_CASTS[kind]} '{written}'", kind)


def _computed(node: exp.Expr, operator: str, schema: pa.Schema) -> Value:
    sides = [_value(side, schema) for side in (node.this, node.expression)]
    kinds = {side.kind for side in sides}
    # Spark fails where whole numbers overflow, and decimals have other scales.
    if "double" in kinds and kinds <= {*_NUMBERS}:
        one, other = (f"cast({side.sql} as double)" for side in sides)
        return Value(f"({one} {operator} {other})", "double")
    raise Untranslatable(node.sql("spark"))


def _coalesced(node: exp.Coalesce, schema: pa.Schema) -> Value:
    values = [_value(each, schema) for each in (node.this, *node.expressions)]
    kinds = {value.kind for value in values} - {"null"}
    if len(kinds) != 1 or kinds == {"other"} or kinds == {"decimal"}:
        raise Untranslatable(node.sql("spark"))
    return Value(f"coalesce({', '.join(value.sql for value in values)})", kinds.pop())


def _part(node: exp.Expr, function: str, kinds: Sequence[Kind], schema: pa.Schema) -> Value:
    of = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
    value = _value(of, schema)
    if value.kind not in kinds:
        raise Untranslatable(node.sql("spark"))
    return Value(f"{function}({value.sql})", "integer")
