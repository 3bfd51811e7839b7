"""Single values of a declared type: made of what JSON or a field of text has, exactly, or refused.

Nothing is rounded, cut or cast: a number with more digits than its decimal type, a time without an offset and a text
where a number is declared are refused, and whoever asked says so. An instant is the number of its microseconds since
1970 and everything else what Arrow takes for the type, so that an array of such values can always be built.

`kind_of` and `is_required` tell what is declared of a column, or of a field within one.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from sqlglot import exp

from streaming.base import sql

_Type = exp.DataType.Type
_INTEGERS = {_Type.TINYINT: 8, _Type.SMALLINT: 16, _Type.INT: 32, _Type.BIGINT: 64}
_SPARK_DECIMAL = (10, 0)
_MOST_DIGITS = 38

_WHOLE = re.compile(r"([+-]?)0*([0-9]{1,19})")
"""A whole number, zeros in front aside; Python refuses to convert thousands of digits, and no type has more than 19."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)(?:(?<=\.[0-9]{6})0+)?"
    # No place on earth is further from Greenwich, and Spark reads no more.
    r"(Z|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|18(?::?00)?))"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICROS_A_DAY = 86_400_000_000
FIRST_MICRO = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
LAST_MICRO = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
"""The first and the last instant there is, of the years 1 and 9999, in microseconds since 1970."""
FIRST_DAY, LAST_DAY = FIRST_MICRO // _MICROS_A_DAY, LAST_MICRO // _MICROS_A_DAY
"""The first and the last date there is, in days since 1970."""
_FLOAT = struct.Struct("<f")


class Refused(Exception):
    """A value is none of its declared type."""


class Number(str):
    """A number of JSON as it was written: one with a fraction, an exponent or so many digits that it is no `int`.

    So is minus zero, of which a double keeps the sign.
    """

    __slots__ = ()


MINUS_ZERO = Number("-0")


@dataclass(frozen=True)
class Leaf:
    """The rules by which values of one type are read.

    `of_json` takes what `json` has parsed, numbers with a fraction as `Number`, and `of_text` a text that stands for a
    value; both return what Arrow takes for the type, or raise `Refused`. `in_json` and `in_text` say in words what must
    be written there. `signed_zero`: -0.0 stays what it is, and is not 0.0.
    """

    of_json: Callable[[Any], Any]
    of_text: Callable[[str], Any]
    in_json: str
    in_text: str
    signed_zero: bool = False

    def or_none(self, value: Any) -> Any:
        """The value that JSON has, and None where that is null or refused."""
        try:
            return None if value is None else self.of_json(value)
        except Refused:
            return None


Leaves = Callable[[exp.DataType], Leaf | None]
"""A function that gives the leaf by which values of a type of Spark are read: `leaf_of` or `typed_leaf_of`."""


def leaf_of(kind: exp.DataType) -> Leaf | None:
    """The leaf of a type of Spark; None where the type is not one of single values that a text can carry."""
    type_ = kind.this
    if type_ in _INTEGERS:
        return _whole(_INTEGERS[type_], kind.sql("spark").lower())
    if type_ == _Type.DECIMAL:
        return _decimal(*decimal_digits(kind))
    return _OTHERS.get(type_)


def decimal_digits(kind: exp.DataType) -> tuple[int, int]:
    """The precision and the scale of a decimal type of Spark."""
    precision, scale = [*(int(each.name) for each in kind.expressions), *_SPARK_DECIMAL[len(kind.expressions) :]]
    return precision, scale


def typed_leaf_of(kind: exp.DataType) -> Leaf | None:
    """As `leaf_of`, for JSON that Spark has written of values of a table: a double may be any that there is.

    JSON has no NaN and no infinities, so Spark writes them as the texts `NaN`, `Infinity` and `-Infinity`.
    """
    return _TYPED.get(kind.this) or leaf_of(kind)


def kind_of(column: sql.Column) -> exp.DataType:
    """The type of a column, parsed."""
    return exp.DataType.build(column.type, dialect="spark")


def is_required(field: exp.ColumnDef) -> bool:
    """True where a field of a struct is declared `not null`."""
    return any(isinstance(constraint.kind, exp.NotNullColumnConstraint) for constraint in field.constraints)


def _whole(bits: int, type_: str) -> Leaf:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def of_json(value: Any) -> int:
        # True is an integer to Python.
        if type(value) is int and low <= value <= high:
            return value
        if type(value) is Number and value == MINUS_ZERO:
            return 0
        raise Refused

    def of_text(text: str) -> int:
        match = _WHOLE.fullmatch(text)
        if match is None:
            raise Refused
        return of_json(int(match[1] + match[2]))

    words = f"a whole number within {type_}"
    return Leaf(of_json, of_text, words, words)


def _decimal(precision: int, scale: int) -> Leaf | None:
    if not 0 <= scale <= precision <= _MOST_DIGITS or precision == 0:
        return None
    context = Context(prec=precision, traps=[Inexact, InvalidOperation, Overflow])
    unit = Decimal(1).scaleb(-scale)

    def exactly(number: int | str) -> Decimal:
        try:
            return context.quantize(context.create_decimal(number), unit)
        except (Inexact, InvalidOperation, Overflow):
            raise Refused from None

    words = f"a number within decimal({precision},{scale})"
    return Leaf(_of_number(exactly), _of_numeral(exactly), words, words)


def _signed_double(number: int | str) -> float:
    try:
        value = float(number)
    except OverflowError:
        raise Refused from None
    if not math.isfinite(value):
        raise Refused
    return value


def _signed_float(number: int | str) -> float:
    value = _signed_double(number)
    try:
        _FLOAT.pack(value)
    except OverflowError:
        raise Refused from None
    return value


def _double(number: int | str) -> float:
    # There is one zero, as SQL compares.
    return _signed_double(number) + 0.0


def _float(number: int | str) -> float:
    return _signed_float(number) + 0.0


def _of_number(convert: Callable[[int | str], Any]) -> Callable[[Any], Any]:
    def of_json(value: Any) -> Any:
        if type(value) is int or type(value) is Number:
            return convert(value)
        raise Refused

    return of_json


def _of_any_number(convert: Callable[[int | str], float]) -> Callable[[Any], float]:
    of_finite = _of_number(convert)

    def of_json(value: Any) -> float:
        if type(value) is str and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        return of_finite(value)

    return of_json


def _of_numeral(convert: Callable[[int | str], Any]) -> Callable[[str], Any]:
    def of_text(text: str) -> Any:
        if _NUMBER.fullmatch(text) is None:
            raise Refused
        return convert(text)

    return of_text


def _of_boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise Refused


_BOOLEANS = {"true": True, "false": False}


def _boolean_of(text: str) -> bool:
    try:
        return _BOOLEANS[text.lower()]
    except KeyError:
        raise Refused from None


def _string(value: Any) -> str:
    if type(value) is not str:
        raise Refused
    if not value.isascii():
        try:
            value.encode()
        # Half of a character, which JSON can name by an escape, is no text.
        except UnicodeEncodeError:
            raise Refused from None
    return value


def _date(value: Any) -> date:
    if type(value) is str and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise Refused


def _instant(value: Any) -> int:
    if type(value) is str and value[10:11] == "T":
        return _instant_of(value)
    raise Refused


def _instant_of(text: str) -> int:
    """The microseconds since 1970; digits beyond them may be zeros only."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise Refused
    try:
        time = datetime.fromisoformat(match[1] + match[2])
    except ValueError:
        raise Refused from None
    micros = (time - _EPOCH) // _MICROSECOND
    if not FIRST_MICRO <= micros <= LAST_MICRO:
        raise Refused
    return micros


_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TIME_WORDS = "ISO-8601 text with an offset, of the years 1 to 9999 in UTC, such as 2026-01-01T00:00:00Z"
_DATE_WORDS = "text such as 2026-01-01"
_OTHERS = {
    _Type.TEXT: Leaf(_string, _string, "a JSON string", "text"),
    _Type.BOOLEAN: Leaf(_of_boolean, _boolean_of, "a JSON boolean", "true or false"),
    _Type.DOUBLE: Leaf(_of_number(_double), _of_numeral(_double), "a number within double", "a number within double"),
    _Type.FLOAT: Leaf(_of_number(_float), _of_numeral(_float), "a number within float", "a number within float"),
    _Type.DATE: Leaf(_date, _date, _DATE_WORDS, _DATE_WORDS),
    _Type.TIMESTAMPTZ: Leaf(_instant, _instant_of, _TIME_WORDS, _TIME_WORDS),
}
_TYPED = {
    type_: replace(_OTHERS[type_], of_json=_of_any_number(convert), signed_zero=True)
    for type_, convert in ((_Type.DOUBLE, _signed_double), (_Type.FLOAT, _signed_float))
}
