"""Expressions over Arrow columns: trees that Python workers evaluate, and their types by Spark's names.

Their values are Arrow columns, or numpy arrays made of these and back, beside the rows for which they are not certain.
All functions that compute them have one form, which `on_numbers` gives to those of numpy arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
_NUMPY: dict[pa.DataType, Any] = {
    pa.int8(): np.dtype("int8"),
    pa.int16(): np.dtype("int16"),
    pa.int32(): np.dtype("int32"),
    pa.int64(): np.dtype("int64"),
    pa.float32(): np.dtype("float32"),
    pa.float64(): np.dtype("float64"),
    pa.date32(): np.dtype("int32"),
    pa.timestamp("us", tz="UTC"): np.dtype("int64"),
    pa.timestamp("us"): np.dtype("int64"),
    pa.duration("us"): np.dtype("int64"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")

Mask = np.ndarray
"""A boolean for each row."""


@dataclass(frozen=True, eq=False)
class ArrowExpression:
    """A value that is computed from the columns of a table.

    `operation` names a function of `arrow_functions` or `arrow_times`, which takes the `arguments` and is told the
    `options`; `type` is the value's type by Spark's name. Expressions that have a part in common share it, so that it
    is computed once.
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


@dataclass(frozen=True, eq=False)
class Value:
    """An array with a value for each row, or a scalar that is the value of every row.

    Values of the rows in `doubt` have no meaning; None where there is no such row.
    """

    data: pa.Array | pa.Scalar
    doubt: Mask | None = None

    @property
    def is_scalar(self) -> bool:
        """True for one value of all rows."""
        return isinstance(self.data, pa.Scalar)


Function: TypeAlias = Callable[[ArrowExpression, list[Value], int], Value]
Computed: TypeAlias = tuple[np.ndarray, Mask | None]
"""Numbers, and the rows for which they are not those of Spark."""


def array_of(value: Value, number: int) -> pa.Array:
    """The value of each of so many rows."""
    data = value.data
    if not isinstance(data, pa.Scalar):
        return data
    return pa.nulls(number, data.type) if not data.is_valid else pa.repeat(data, number)


def union(masks: Iterable[Mask | None]) -> Mask | None:
    """Rows of any of the masks."""
    whole: Mask | None = None
    for mask in masks:
        if mask is not None:
            whole = mask if whole is None else whole | mask
    return whole


def doubt_of(values: Iterable[Value]) -> Mask | None:
    """Rows for which one of the values is not certain."""
    return union(value.doubt for value in values)


def numpy_type(type_: str) -> Any:
    """Numpy's type of numbers that are of a type of Spark."""
    return np.dtype(bool) if type_ == "boolean" else _NUMPY[arrow_type(type_)]


def some(mask: Mask | None) -> Mask | None:
    """The mask, or None where it has no row."""
    return mask if mask is not None and mask.any() else None


def rows_where(condition: pa.Array) -> Mask:
    """Rows for which a boolean array is true."""
    if condition.null_count:
        condition = condition.fill_null(False)
    return condition.to_numpy(zero_copy_only=False)


def valid_rows(data: pa.Array) -> Mask | None:
    """Rows with a value; None where all have one."""
    return None if data.null_count == 0 else pc.is_valid(data).to_numpy(zero_copy_only=False)


def numbers(data: pa.Array | pa.Scalar) -> np.ndarray:
    """The numbers of an array or a scalar; those of null are any. Days of dates, microseconds of timestamps."""
    if isinstance(data, pa.Scalar):
        if pa.types.is_boolean(data.type):
            return np.asarray(data.as_py())
        number = data.value if hasattr(data, "value") else data.as_py()
        return np.asarray(number, dtype=_NUMPY[data.type])
    if pa.types.is_boolean(data.type):
        return rows_where(data)
    dtype = _NUMPY[data.type]
    if len(data) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(data.buffers()[1], dtype, count=len(data), offset=data.offset * dtype.itemsize)


def array_from(values: np.ndarray, valid: Mask | None, type_: pa.DataType) -> pa.Array:
    """The array of a type with the numbers of the valid rows."""
    if pa.types.is_boolean(type_):
        return pa.array(values, type_, mask=None if valid is None else ~valid)
    values = np.ascontiguousarray(values, dtype=_NUMPY[type_])
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(type_, len(values), [bits, pa.py_buffer(values)])


def on_numbers(compute: Callable[..., Computed]) -> Function:
    """A function that is null where an argument is, from one of numpy arrays that is given the expression, too."""

    def function(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
        type_ = arrow_type(expression.type)
        doubt = doubt_of(arguments)
        if any(each.is_scalar and not each.data.is_valid for each in arguments):
            return Value(pa.scalar(None, type_), doubt)
        data = [each.data for each in arguments]
        if all(each.is_scalar for each in arguments):
            data[0] = array_of(arguments[0], number)
        valid: Mask | None = None
        for each in data:
            mask = None if isinstance(each, pa.Scalar) else valid_rows(each)
            if mask is not None:
                valid = mask if valid is None else valid & mask
        # What overflows is found afterwards.
        with np.errstate(all="ignore"):
            values, bad = compute(expression, *map(numbers, data))
        if bad is not None and valid is not None:
            bad = bad & valid
        return Value(array_from(values, valid, type_), union((doubt, some(bad))))

    return function
