"""Expressions over Arrow columns: trees that Python workers evaluate, and their types by Spark's names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_SIMPLE = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "days": pa.duration("us"),
    "months": pa.int32(),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


@dataclass(frozen=True, eq=False)
class ArrowExpression:
    """A value that is computed from the columns of a table.

    `operation` names a function of `arrow_numbers`, `arrow_texts` or `arrow_times`, which takes the `arguments` and is
    told the `options`; `type` is the value's type by Spark's name. Expressions that have a part in common share it, so
    that it is computed once.
    """

    operation: str
    type: str
    arguments: tuple[ArrowExpression, ...] = ()
    options: tuple[Any, ...] = ()

    @property
    def reads(self) -> frozenset[str]:
        """Names of the columns that are read."""
        names, seen, waiting = set[str](), set[int](), [self]
        while waiting:
            part = waiting.pop()
            if id(part) not in seen:
                seen.add(id(part))
                waiting += part.arguments
                if part.operation == "column":
                    names.add(part.options[0])
        return frozenset(names)


@dataclass(frozen=True)
class Unproven:
    """An expression that is left to Spark, as nothing else is known to compute the same."""

    reason: str


def decimal_type(type_: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for any other."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else None


def arrow_type(type_: str) -> pa.DataType | None:
    """Arrow's type for values of a simple type of Spark; None for any other."""
    decimal = decimal_type(type_)
    if decimal is not None:
        return pa.decimal128(*decimal) if decimal[1] >= 0 else None
    return _SIMPLE.get(type_)
