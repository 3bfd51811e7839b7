"""Functions of Arrow columns, as Spark computes them in its ANSI mode, and the rows for which they are evaluated.

Here are comparisons, conditions and arithmetic, then texts, arrays and structs: of texts, those that both see alike.
Those of dates and timestamps are in `arrow_times`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.spark import arrow_times
from streaming.spark.arrow_tree import (
    ArrowExpression,
    Computed,
    Function,
    Mask,
    Value,
    array_of,
    arrow_type,
    doubt_of,
    numbers,
    numpy_type,
    on_numbers,
    rows_where,
    some,
    union,
    valid_rows,
)

_SAFE_PRODUCT = 9.2e18
"""A little less than what a long holds, as products are looked at as doubles."""
_ROUNDED = float(2**50)
_NEAR_A_TIE = 1e-4
_LEAST_PLAIN, _MOST_PLAIN = 1e-3, 1e7
"""Between these Java writes numbers without an exponent."""
_FEW_CHARACTERS = 14
"""Java does not write every number of more digits as short as can be."""
_NUMBER_TEXTS = {
    "byte": r"\A-?\d{1,2}\z",
    "short": r"\A-?\d{1,4}\z",
    "integer": r"\A-?\d{1,9}\z",
    "long": r"\A-?\d{1,18}\z",
    "float": r"\A-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?\z",
    "double": r"\A-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?\z",
}
_TRUE, _FALSE = ["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"]


def literal(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """One value for every row."""
    return Value(expression.options[0])


# Comparisons.


def _is_floating(data: pa.Array | pa.Scalar) -> bool:
    return bool(pa.types.is_floating(data.type))


def _compared(operation: str, left: Any, right: Any) -> Any:
    """The comparison as Spark makes it: NaN equals itself and is greater than any other number."""
    if pa.types.is_boolean(left.type):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    result = _COMPARISONS[operation](left, right)
    if not _is_floating(left):
        return result
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    if not _any(left_nan) and not _any(right_nan):
        return result
    match operation:
        case "equal":
            return pc.or_(result, pc.and_(left_nan, right_nan))
        case "less":
            return pc.or_(result, pc.and_(right_nan, pc.invert(left_nan)))
        case "greater":
            return pc.or_(result, pc.and_(left_nan, pc.invert(right_nan)))
        case "less_equal":
            return pc.or_(result, right_nan)
        case _:
            return pc.or_(result, left_nan)


def _any(data: Any) -> bool:
    return bool(data.as_py()) if isinstance(data, pa.Scalar) else bool(pc.any(data).as_py())


_COMPARISONS = {
    "equal": pc.equal,
    "less": pc.less,
    "less_equal": pc.less_equal,
    "greater": pc.greater,
    "greater_equal": pc.greater_equal,
}


def _comparison(operation: str) -> Function:
    def function(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
        left, right = arguments
        return Value(_compared(operation, left.data, right.data), doubt_of(arguments))

    return function


def equal_or_both_null(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """`<=>`."""
    left, right = (each.data for each in arguments)
    equal = pc.coalesce(_compared("equal", left, right), pa.scalar(False))
    return Value(pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right))), doubt_of(arguments))


def is_in(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """`in` of literals, which are the options: null where there is no equal one, but a null."""
    data = array_of(arguments[0], number)
    among, has_null, has_nan = expression.options
    if _is_floating(data):
        # Zero has one sign only when numbers are compared.
        data = pc.add(data, pa.scalar(0.0, data.type))
    found = pc.is_in(data, value_set=among, skip_nulls=True)
    if has_nan:
        # Arrow finds only one of the many forms of NaN.
        found = pc.or_(found, pc.coalesce(pc.is_nan(data), pa.scalar(False)))
    if has_null:
        found = pc.if_else(found, found, pa.scalar(None, pa.bool_()))
    elif data.null_count:
        found = pc.if_else(pc.is_valid(data), found, pa.scalar(None, pa.bool_()))
    return Value(found, arguments[0].doubt)


def value_set(values: list[pa.Scalar], type_: pa.DataType) -> pa.Array:
    """The array in which `is_in` looks for a value."""
    array = pa.array([value.as_py() for value in values], type_)
    return pc.add(array, pa.scalar(0.0, type_)) if pa.types.is_floating(type_) else array


# Conditions.


def _and(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    left, right = arguments
    return Value(pc.and_kleene(left.data, right.data), _second_if(left, right, "false", number))


def _or(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    left, right = arguments
    return Value(pc.or_kleene(left.data, right.data), _second_if(left, right, "true", number))


def _second_if(left: Value, right: Value, decided_by: str, number: int) -> Mask | None:
    """Doubts of both, but none of the second where the first decides."""
    if right.doubt is None:
        return left.doubt
    first = array_of(left, number)
    decides = rows_where(first if decided_by == "true" else pc.invert(first))
    return union((left.doubt, some(right.doubt & ~decides)))


def _in_any_turn(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """The first argument, a condition of the others; all their doubts are its own, whichever decides."""
    return Value(arguments[0].data, doubt_of(arguments))


def _not(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    return Value(pc.invert(arguments[0].data), arguments[0].doubt)


def _is_null(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    return Value(pc.is_null(arguments[0].data), arguments[0].doubt)


def _is_not_null(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    return Value(pc.is_valid(arguments[0].data), arguments[0].doubt)


def _is_nan(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    return Value(pc.coalesce(pc.is_nan(arguments[0].data), pa.scalar(False)), arguments[0].doubt)


def case_when(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """The value behind the first condition that is true, or the last argument."""
    *branches, otherwise = arguments
    pairs = list(zip(branches[::2], branches[1::2], strict=True))
    # A first pass from the last branch, as values of earlier ones go before it.
    data = otherwise.data
    for condition, value in reversed(pairs):
        data = pc.if_else(pc.coalesce(condition.data, pa.scalar(False)), value.data, data)
    if all(each.doubt is None for each in arguments):
        return Value(data)
    waiting = np.ones(number, dtype=bool)
    doubt = np.zeros(number, dtype=bool)
    for condition, value in pairs:
        true = rows_where(array_of(condition, number))
        if condition.doubt is not None:
            doubt |= waiting & condition.doubt
        if value.doubt is not None:
            doubt |= waiting & true & value.doubt
        waiting &= ~true
    if otherwise.doubt is not None:
        doubt |= waiting & otherwise.doubt
    return Value(data, some(doubt))


def coalesce(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """The first value that is not null."""
    data = pc.coalesce(*(each.data for each in arguments))
    if all(each.doubt is None for each in arguments):
        return Value(data)
    waiting = np.ones(number, dtype=bool)
    doubt = np.zeros(number, dtype=bool)
    for each in arguments:
        if each.doubt is not None:
            doubt |= waiting & each.doubt
        waiting &= rows_where(pc.is_null(array_of(each, number)))
    return Value(data, some(doubt))


def _extreme(operation: str) -> Function:
    def function(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
        def better(best: Any, other: Any) -> Any:
            is_better = _compared(operation, other, best)
            # Null is no candidate.
            taken = pc.or_(pc.coalesce(is_better, pa.scalar(False)), pc.is_null(best))
            return pc.if_else(taken, other, best)

        return Value(reduce(better, (array_of(each, number) for each in arguments)), doubt_of(arguments))

    return function


def _nan_else(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    left, right = arguments
    is_nan = pc.coalesce(pc.is_nan(left.data), pa.scalar(False))
    data = pc.if_else(is_nan, right.data, left.data)
    second = None if right.doubt is None else some(right.doubt & rows_where(array_of(Value(is_nan), number)))
    return Value(data, union((left.doubt, second)))


# Arithmetic.


def _is_whole(values: np.ndarray) -> bool:
    return values.dtype.kind == "i"


def _add(expression: ArrowExpression, left: np.ndarray, right: np.ndarray) -> Computed:
    result = left + right
    return result, ((left ^ result) & (right ^ result)) < 0 if _is_whole(result) else None


def _subtract(expression: ArrowExpression, left: np.ndarray, right: np.ndarray) -> Computed:
    result = left - right
    return result, ((left ^ right) & (left ^ result)) < 0 if _is_whole(result) else None


def _multiply(expression: ArrowExpression, left: np.ndarray, right: np.ndarray) -> Computed:
    if not _is_whole(left):
        return left * right, None
    if left.dtype == np.int64:
        return left * right, np.abs(left.astype(np.float64) * right.astype(np.float64)) >= _SAFE_PRODUCT
    exact = left.astype(np.int64) * right.astype(np.int64)
    result = exact.astype(left.dtype)
    return result, result != exact


def _in_any_order(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """The first argument, a sum or a product of the others; in doubt where it might overflow in another order."""
    result, *parts = arguments
    is_sum = expression.arguments[0].operation == "add"
    size = np.full(number, 0.0 if is_sum else 1.0)
    with np.errstate(over="ignore"):
        for part in parts:
            if part.is_scalar and not part.data.is_valid:
                continue
            values = np.abs(numbers(part.data).astype(np.float64))
            valid = None if part.is_scalar else valid_rows(part.data)
            if valid is not None:
                values = np.where(valid, values, 0.0)
            size = size + values if is_sum else size * np.maximum(values, 1.0)
    most = _SAFE_PRODUCT if expression.type == "long" else float(np.iinfo(numpy_type(expression.type)).max)
    return Value(result.data, union((result.doubt, some(size > most))))


def _divide(expression: ArrowExpression, left: np.ndarray, right: np.ndarray) -> Computed:
    return left / right, np.broadcast_to(right == 0, np.broadcast_shapes(left.shape, right.shape))


def _divisor(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, Mask]:
    """A divisor that is not zero, and the rows for which it was."""
    zero = np.broadcast_to(right == 0, np.broadcast_shapes(left.shape, right.shape))
    return np.where(right == 0, right.dtype.type(1), right), zero


def _whole_quotient(expression: ArrowExpression, left: np.ndarray, right: np.ndarray) -> Computed:
    right, bad = _divisor(left, right)
    quotient = left // right
    # Java cuts towards zero.
    quotient = quotient + ((quotient < 0) & (quotient * right != left))
    return quotient, bad | ((right == -1) & (left == np.iinfo(left.dtype).min))


def _remainder(expression: ArrowExpression, left: np.ndarray, right: np.ndarray) -> Computed:
    right, bad = _divisor(left, right)
    if _is_whole(left):
        # The least number of a type cannot be divided by -1 in it.
        right = np.where(right == -1, right.dtype.type(1), right)
    return np.fmod(left, right), bad


def _positive_remainder(expression: ArrowExpression, left: np.ndarray, right: np.ndarray) -> Computed:
    first, bad = _remainder(expression, left, right)
    second, _ = _remainder(expression, first + right, right)
    return np.where(first < 0, second, first), bad


def _negative(expression: ArrowExpression, values: np.ndarray) -> Computed:
    return -values, values == np.iinfo(values.dtype).min if _is_whole(values) else None


def _absolute(expression: ArrowExpression, values: np.ndarray) -> Computed:
    return np.abs(values), values == np.iinfo(values.dtype).min if _is_whole(values) else None


def _floor(expression: ArrowExpression, values: np.ndarray) -> Computed:
    return _as_whole(np.floor(values), np.dtype("int64"))


def _ceiling(expression: ArrowExpression, values: np.ndarray) -> Computed:
    return _as_whole(np.ceil(values), np.dtype("int64"))


def _square_root(expression: ArrowExpression, values: np.ndarray) -> Computed:
    return np.sqrt(values), None


def _rounded(expression: ArrowExpression, values: np.ndarray) -> Computed:
    """To so many decimal places as the option says, halves away from zero.

    Spark rounds the shortest decimal number that stands for the value; where that is near a half, it decides.
    """
    (places,) = expression.options
    size = np.abs(values)
    if places == 0:
        whole = np.trunc(size)
        result = np.where(size - whole >= 0.5, whole + 1, whole)
        bad = size >= _ROUNDED
    else:
        scaled = size * 10.0**places
        whole = np.floor(scaled)
        part = scaled - whole
        result = np.where(part >= 0.5, whole + 1, whole) / 10.0**places
        near = np.flatnonzero(np.abs(part - 0.5) < _NEAR_A_TIE)
        bad = scaled >= 2.0**36
        exact, known = _rounded_exactly(size[near], places)
        result[near] = exact
        bad[near] |= ~known
    finite = np.isfinite(values)
    # There is no negative zero among decimal numbers.
    return np.where(finite, np.copysign(result, values) + 0.0, values), bad & finite


def _rounded_exactly(sizes: np.ndarray, places: int) -> tuple[np.ndarray, Mask]:
    """Numbers rounded one by one as decimal numbers, and which of them have few enough digits to be sure of them."""
    unit = Decimal(1).scaleb(-places)
    exact, known = np.zeros(len(sizes)), np.zeros(len(sizes), dtype=bool)
    for place, size in enumerate(sizes.tolist()):
        if _LEAST_PLAIN <= size < _MOST_PLAIN and len(repr(size)) <= _FEW_CHARACTERS:
            exact[place] = float(Decimal(repr(size)).quantize(unit, ROUND_HALF_UP))
            known[place] = True
    return exact, known


def _bitwise(operation: Callable[..., np.ndarray]) -> Function:
    return on_numbers(lambda expression, *values: (operation(*values), None))


# Casts between numbers.


def _as_whole(values: np.ndarray, dtype: np.dtype[Any]) -> Computed:
    """Numbers cut to whole ones; what is outside of the type is bad, and so is NaN."""
    limits = np.iinfo(dtype)
    if values.dtype.kind == "f":
        low, high = float(limits.min), float(limits.max) + 1.0
        cut = np.trunc(values.astype(np.float64))
        good = (cut >= low) & (cut < high)
        return np.where(good, cut, 0.0).astype(dtype), ~good
    if values.dtype.itemsize <= dtype.itemsize:
        return values.astype(dtype), None
    return values.astype(dtype), (values < limits.min) | (values > limits.max)


def _cast_number(expression: ArrowExpression, values: np.ndarray) -> Computed:
    dtype = numpy_type(expression.type)
    if dtype.kind == "b":
        return values != 0, None
    if dtype.kind == "i" and values.dtype.kind in "if":
        return _as_whole(values, dtype)
    return values.astype(dtype), None


def _cast_decimal(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    # The translation lets only those pass for which all digits have a place.
    return Value(arguments[0].data.cast(arrow_type(expression.type)), arguments[0].doubt)


# Texts.


def _of_text(compute: Callable[..., Any]) -> Function:
    """A function of one text, from one of its array that is given the options, too."""

    def function(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
        return Value(compute(arguments[0].data, *expression.options), arguments[0].doubt)

    return function


def _of_ascii(compute: Callable[..., Any]) -> Function:
    """A function of one text, for which others than those of ASCII are doubtful."""

    def function(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
        data = array_of(arguments[0], number)
        other = some(rows_where(pc.invert(pc.string_is_ascii(data))))
        return Value(compute(data, *expression.options), union((arguments[0].doubt, other)))

    return function


def _slice(data: Any, start: int, stop: int | None) -> Any:
    return pc.utf8_slice_codeunits(data, start, stop)


def _concat(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    data = (each.data for each in arguments)
    joined = pc.binary_join_element_wise(*data, "", null_handling="emit_null")
    return Value(joined, doubt_of(arguments))


def _concat_with(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    separator, *parts = (each.data for each in arguments)
    # Arrow leaves out the rows that have no part at all.
    empty = pc.if_else(reduce(pc.and_, map(pc.is_null, parts)), pa.scalar(""), parts[0])
    joined = pc.binary_join_element_wise(empty, *parts[1:], separator, null_handling="skip")
    return Value(joined, doubt_of(arguments))


def _matches(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """A match of a regular expression anywhere; texts that Java and RE2 may see differently are doubtful."""
    pattern, odd = expression.options
    data = array_of(arguments[0], number)
    doubt = arguments[0].doubt
    if odd is not None:
        doubt = union((doubt, some(rows_where(pc.match_substring_regex(data, odd)))))
    return Value(pc.match_substring_regex(data, pattern), doubt)


def _to_number(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    data = array_of(arguments[0], number)
    plain = pc.match_substring_regex(data, _NUMBER_TEXTS[expression.type])
    odd = some(rows_where(pc.invert(plain)))
    if odd is not None:
        data = pc.if_else(plain, data, pa.scalar("0"))
    return Value(data.cast(arrow_type(expression.type)), union((arguments[0].doubt, odd)))


def _to_boolean(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    data = array_of(arguments[0], number)
    lower = pc.ascii_lower(data)
    true, false = pc.is_in(lower, pa.array(_TRUE)), pc.is_in(lower, pa.array(_FALSE))
    odd = some(rows_where(pc.and_(pc.is_valid(data), pc.invert(pc.or_(true, false)))))
    return Value(pc.if_else(pc.is_valid(data), true, pa.scalar(None, pa.bool_())), union((arguments[0].doubt, odd)))


# Structs and arrays.


def _field(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    return Value(pc.struct_field(array_of(arguments[0], number), [expression.options[0]]), arguments[0].doubt)


def _sizes(data: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where the elements of each array begin among all, and how many there are; none for null."""
    offsets = np.frombuffer(data.buffers()[1], np.int32, count=len(data) + 1, offset=data.offset * 4).astype(np.int64)
    valid = valid_rows(data)
    lengths = np.diff(offsets)
    return offsets[:-1], lengths if valid is None else np.where(valid, lengths, 0)


def _size(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    data = array_of(arguments[0], number)
    if len(data) == 0:
        return Value(pa.array([], pa.int32()))
    valid = valid_rows(data)
    lengths = pa.array(_sizes(data)[1], pa.int32(), mask=None if valid is None else ~valid)
    return Value(lengths, arguments[0].doubt)


def _element(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    """The element at a place, which is counted from 0, or from -1 at the end; where there is none, Spark fails."""
    (place,) = expression.options
    data = array_of(arguments[0], number)
    if len(data) == 0:
        return Value(pa.nulls(0, data.type.value_type))
    starts, lengths = _sizes(data)
    there = lengths > place if place >= 0 else lengths >= -place
    places = starts + place if place >= 0 else starts + lengths + place
    elements = data.values.take(pa.array(places, pa.int64(), mask=~there))
    valid = valid_rows(data)
    missing = some(~there if valid is None else valid & ~there)
    return Value(elements, union((arguments[0].doubt, missing)))


_FUNCTIONS: dict[str, Function] = {
    "literal": literal,
    **{operation: _comparison(operation) for operation in _COMPARISONS},
    "equal_or_both_null": equal_or_both_null,
    "is_in": is_in,
    "and": _and,
    "or": _or,
    "in_any_turn": _in_any_turn,
    "not": _not,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "is_nan": _is_nan,
    "case_when": case_when,
    "coalesce": coalesce,
    "greatest": _extreme("greater"),
    "least": _extreme("less"),
    "nan_else": _nan_else,
    "add": on_numbers(_add),
    "subtract": on_numbers(_subtract),
    "multiply": on_numbers(_multiply),
    "in_any_order": _in_any_order,
    "divide": on_numbers(_divide),
    "whole_quotient": on_numbers(_whole_quotient),
    "remainder": on_numbers(_remainder),
    "positive_remainder": on_numbers(_positive_remainder),
    "negative": on_numbers(_negative),
    "absolute": on_numbers(_absolute),
    "floor": on_numbers(_floor),
    "ceiling": on_numbers(_ceiling),
    "square_root": on_numbers(_square_root),
    "rounded": on_numbers(_rounded),
    "bitwise_and": _bitwise(np.bitwise_and),
    "bitwise_or": _bitwise(np.bitwise_or),
    "bitwise_xor": _bitwise(np.bitwise_xor),
    "bitwise_not": _bitwise(np.bitwise_not),
    "cast_number": on_numbers(_cast_number),
    "cast_decimal": _cast_decimal,
    "length": _of_text(lambda data: pc.utf8_length(data).cast(pa.int32())),
    "byte_length": _of_text(lambda data: pc.binary_length(data).cast(pa.int32())),
    "lower": _of_ascii(pc.ascii_lower),
    "upper": _of_ascii(pc.ascii_upper),
    "trim": _of_text(pc.utf8_trim),
    "trim_start": _of_text(pc.utf8_ltrim),
    "trim_end": _of_text(pc.utf8_rtrim),
    "slice": _of_text(_slice),
    "concat": _concat,
    "concat_with": _concat_with,
    "starts_with": _of_text(pc.starts_with),
    "ends_with": _of_text(pc.ends_with),
    "contains": _of_text(pc.match_substring),
    "replace": _of_text(pc.replace_substring),
    "place_of": _of_ascii(lambda data, text: pc.add(pc.find_substring(data, text), pa.scalar(1, pa.int32()))),
    "matches": _matches,
    "to_number": _to_number,
    "to_boolean": _to_boolean,
    "to_string": _of_text(lambda data: pc.cast(data, pa.string())),
    "to_binary": _of_text(lambda data: pc.cast(data, pa.binary())),
    "field": _field,
    "size": _size,
    "element": _element,
    **arrow_times.FUNCTIONS,
}
"""All functions of Arrow columns, by the names that expressions have for them."""


class Rows:
    """So many rows of columns by name, and which of them are doubtful by what has been computed of them.

    For a doubtful row Spark may fail, or what it gives has not been proven; its values have no meaning.
    """

    def __init__(self, columns: Mapping[str, pa.Array], number: int) -> None:
        self._columns = columns
        self._number = number
        self.doubtful = np.zeros(number, dtype=bool)
        # With the expressions, so that nothing else is found at their addresses.
        self._computed: dict[int, tuple[ArrowExpression, Value]] = {}

    def array_of(self, expression: ArrowExpression) -> pa.Array:
        """The value of the expression for each row; raises for none."""
        value = self._value_of(expression)
        if value.doubt is not None:
            self.doubtful |= value.doubt
        return array_of(value, self._number)

    def _value_of(self, expression: ArrowExpression) -> Value:
        found = self._computed.get(id(expression))
        if found is not None:
            return found[1]
        if expression.operation == "column":
            value = Value(self._columns[expression.options[0]])
        else:
            arguments = [self._value_of(each) for each in expression.arguments]
            value = _FUNCTIONS[expression.operation](expression, arguments, self._number)
        self._computed[id(expression)] = (expression, value)
        return value
