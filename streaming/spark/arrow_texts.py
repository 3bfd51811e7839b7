"""Texts, arrays and structs of Arrow columns, computed as Spark does; of texts, those that both see alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.spark.arrow_numbers import Function
from streaming.spark.arrow_tree import (
    ArrowExpression,
    Value,
    array_of,
    arrow_type,
    doubt_of,
    rows_where,
    some,
    union,
    valid_rows,
)

_NUMBER_TEXTS = {
    "byte": r"\A-?\d{1,2}\z",
    "short": r"\A-?\d{1,4}\z",
    "integer": r"\A-?\d{1,9}\z",
    "long": r"\A-?\d{1,18}\z",
    "float": r"\A-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?\z",
    "double": r"\A-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?\z",
}
_TRUE, _FALSE = ["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"]


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


FUNCTIONS: dict[str, Function] = {
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
}
