"""Dates and timestamps of Arrow columns, computed as Spark does where the time zone of the session is UTC."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.spark.arrow_tree import (
    ArrowExpression,
    Computed,
    Function,
    Mask,
    Value,
    array_from,
    array_of,
    arrow_type,
    numbers,
    on_numbers,
    rows_where,
    some,
    union,
    valid_rows,
)

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_MOST_DAYS = 100_000_000
"""From 1970; a little less than timestamps hold."""
_LEAST_MICROSECONDS = -9_200_000_000_000_000_000
"""The start of what holds an earlier time might be before the first timestamp."""
_FIRST_DAY_CUT = -(2**31) + 400
"""Before it there may be no start of a week or a year."""
_FIRST_WRITTEN = int(np.datetime64("0001-01-01", "D").astype(np.int64))
_LAST_WRITTEN = int(np.datetime64("9999-12-31", "D").astype(np.int64))
_UNITS = {"HOUR": 3600 * _SECOND, "MINUTE": 60 * _SECOND, "SECOND": _SECOND, "MILLISECOND": 1000, "MICROSECOND": 1}
TIMES_CUT = {
    **{name: name for name in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", *_UNITS)},
    **{"YYYY": "YEAR", "YY": "YEAR", "MM": "MONTH", "MON": "MONTH", "DD": "DAY"},
}
"""Units to which `date_trunc` cuts, by the names that it takes; of dates, `trunc` takes those of a week and longer."""
_DATE_TEXT = r"\d{4}-\d{2}-\d{2}"
_TIME_TEXT = r"\d{2}:\d{2}:\d{2}"
_OFFSET = r"[+-]\d{2}:\d{2}"
_FORMAT = re.compile(r"yyyy|MM|dd|HH|mm|ss|'[^']+'|[-/:., ]")


# Parts of dates, which are days since 1970.


def _months(days: np.ndarray) -> np.ndarray:
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def _first_of(months: np.ndarray) -> np.ndarray:
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def _year(expression: ArrowExpression, days: np.ndarray) -> Computed:
    return _months(days) // 12 + 1970, None


def _quarter(expression: ArrowExpression, days: np.ndarray) -> Computed:
    return _months(days) % 12 // 3 + 1, None


def _month(expression: ArrowExpression, days: np.ndarray) -> Computed:
    return _months(days) % 12 + 1, None


def _day_of_month(expression: ArrowExpression, days: np.ndarray) -> Computed:
    return days - _first_of(_months(days)) + 1, None


def _day_of_year(expression: ArrowExpression, days: np.ndarray) -> Computed:
    return days - _first_of(_months(days) // 12 * 12) + 1, None


def _after_monday(days: np.ndarray) -> np.ndarray:
    # 1970 began with a Thursday.
    return (days.astype(np.int64) + 3) % 7


def _day_of_week(expression: ArrowExpression, days: np.ndarray) -> Computed:
    return (_after_monday(days) + 1) % 7 + 1, None


def _weekday(expression: ArrowExpression, days: np.ndarray) -> Computed:
    return _after_monday(days), None


def _week_of_year(expression: ArrowExpression, days: np.ndarray) -> Computed:
    # A week belongs to the year of its Thursday.
    thursday = days - _after_monday(days) + 3
    return (thursday - _first_of(_months(thursday) // 12 * 12)) // 7 + 1, None


# Parts of timestamps, which are microseconds since 1970.


def _hour(expression: ArrowExpression, microseconds: np.ndarray) -> Computed:
    return microseconds // _UNITS["HOUR"] % 24, None


def _minute(expression: ArrowExpression, microseconds: np.ndarray) -> Computed:
    return microseconds // _UNITS["MINUTE"] % 60, None


def _second(expression: ArrowExpression, microseconds: np.ndarray) -> Computed:
    return microseconds // _SECOND % 60, None


def _whole_units(expression: ArrowExpression, microseconds: np.ndarray) -> Computed:
    """Seconds, or what else the option says in microseconds, from 1970."""
    whole = microseconds // expression.options[0]
    return whole, _not_in(whole, expression.type)


def _seconds_cut(expression: ArrowExpression, microseconds: np.ndarray) -> Computed:
    """Seconds from 1970, cut towards it, as `unix_timestamp` does."""
    return np.sign(microseconds) * (np.abs(microseconds) // _SECOND), microseconds == np.iinfo(np.int64).min


def _fractional_seconds(expression: ArrowExpression, microseconds: np.ndarray) -> Computed:
    return microseconds.astype(np.float64) / _SECOND, None


def _from_units(expression: ArrowExpression, values: np.ndarray) -> Computed:
    """The timestamp so many seconds, or what else the option says in microseconds, from 1970."""
    unit = expression.options[0]
    values = values.astype(np.int64)
    most = np.iinfo(np.int64).max // unit
    return values * unit, (values > most) | (values < -most)


def _not_in(values: np.ndarray, type_: str) -> Mask | None:
    limits: Any = {"byte": np.int8, "short": np.int16, "integer": np.int32}.get(type_)
    return None if limits is None else (values < np.iinfo(limits).min) | (values > np.iinfo(limits).max)


# Between dates and timestamps.


def _date_of(expression: ArrowExpression, microseconds: np.ndarray) -> Computed:
    return microseconds // _DAY, None


def _start_of(expression: ArrowExpression, days: np.ndarray) -> Computed:
    return days.astype(np.int64) * _DAY, np.abs(days.astype(np.int64)) > _MOST_DAYS


def _cut_days(unit: str, days: np.ndarray) -> np.ndarray:
    if unit == "WEEK":
        return days - _after_monday(days)
    months = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}[unit]
    return _first_of(_months(days) // months * months)


def _cut_date(expression: ArrowExpression, days: np.ndarray) -> Computed:
    # Spark looks for a Monday from the week before on, of which the first days have none.
    return _cut_days(expression.options[0], days.astype(np.int64)), days < _FIRST_DAY_CUT


def _cut_timestamp(expression: ArrowExpression, microseconds: np.ndarray) -> Computed:
    (unit,) = expression.options
    if unit in _UNITS or unit == "DAY":
        length = _UNITS.get(unit, _DAY)
        cut = microseconds // length * length
    else:
        cut = _cut_days(unit, microseconds // _DAY) * _DAY
    return cut, microseconds < _LEAST_MICROSECONDS


# Sums and differences.


def _add_days(expression: ArrowExpression, days: np.ndarray, more: np.ndarray) -> Computed:
    result = days.astype(np.int64) + more.astype(np.int64)
    return result, _not_in(result, "integer")


def _subtract_days(expression: ArrowExpression, days: np.ndarray, less: np.ndarray) -> Computed:
    result = days.astype(np.int64) - less.astype(np.int64)
    return result, _not_in(result, "integer")


def _days_later(days: np.ndarray, months: np.ndarray) -> np.ndarray:
    """That day of a later month, or the last of that month."""
    before, later = _months(days), _months(days) + months.astype(np.int64)
    day = days - _first_of(before)
    return _first_of(later) + np.minimum(day, _first_of(later + 1) - _first_of(later) - 1)


def _add_months(expression: ArrowExpression, days: np.ndarray, months: np.ndarray) -> Computed:
    result = _days_later(days, months)
    return result, _not_in(result, "integer")


def _add_months_to_timestamp(expression: ArrowExpression, microseconds: np.ndarray, months: np.ndarray) -> Computed:
    days = _days_later(microseconds // _DAY, months)
    return days * _DAY + microseconds % _DAY, np.abs(days) > _MOST_DAYS


def _add_microseconds(expression: ArrowExpression, left: np.ndarray, right: np.ndarray) -> Computed:
    result = left + right
    return result, ((left ^ result) & (right ^ result)) < 0


def _between_timestamps(expression: ArrowExpression, end: np.ndarray, start: np.ndarray) -> Computed:
    result = end - start
    return result, ((end ^ start) & (end ^ result)) < 0


def _between_dates(expression: ArrowExpression, end: np.ndarray, start: np.ndarray) -> Computed:
    days = end.astype(np.int64) - start.astype(np.int64)
    return days * _DAY, np.abs(days) > _MOST_DAYS


# Texts of dates and timestamps.


def _texts_of(days: np.ndarray, in_day: np.ndarray, parts: tuple[str, ...], valid: Mask | None) -> pa.Array:
    """A text for each time of the years 1 to 9999: parts of a pattern, and what stands between them."""
    within = np.clip(days, _FIRST_WRITTEN, _LAST_WRITTEN)
    months = _months(within)
    seconds = in_day // _SECOND
    numbers_of = {
        "yyyy": months // 12 + 1970,
        "MM": months % 12 + 1,
        "dd": within - _first_of(months) + 1,
        "HH": seconds // 3600,
        "mm": seconds // 60 % 60,
        "ss": seconds % 60,
        "SSSSSS": in_day % _SECOND,
    }
    characters: list[np.ndarray] = []
    for part in parts:
        if part not in numbers_of:
            characters += [np.full(len(days), character, np.uint8) for character in part.encode()]
            continue
        # Numbers of half the width are divided in a third of the time.
        rest, digits = numbers_of[part].astype(np.int32), []
        for _ in part:
            rest, digit = rest // 10, rest % 10
            digits.append((digit + ord("0")).astype(np.uint8))
        characters += digits[::-1]
    text = np.stack(characters, axis=1)
    offsets = np.arange(len(days) + 1, dtype=np.int32) * text.shape[1]
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(days), buffers)


def format_parts(pattern: str) -> tuple[str, ...] | None:
    """The parts of a pattern of `date_format`; None if it has others than those that are always of one width."""
    parts = _FORMAT.findall(pattern)
    if "".join(parts) != pattern or not parts:
        return None
    return tuple(part.strip("'") if part.startswith("'") else part for part in parts)


def _written(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
    data = array_of(arguments[0], number)
    values = numbers(data)
    parts = expression.options[0]
    if pa.types.is_date(data.type):
        days, in_day = values.astype(np.int64), np.zeros(number, np.int64)
    else:
        days, in_day = values // _DAY, values % _DAY
    outside = (days < _FIRST_WRITTEN) | (days > _LAST_WRITTEN)
    valid = valid_rows(data)
    if valid is not None:
        outside &= valid
    with_fractions = parts is None and bool((in_day % _SECOND != 0).any())
    if parts is None:
        parts = ("yyyy", "-", "MM", "-", "dd", " ", "HH", ":", "mm", ":", "ss")
    text = _texts_of(days, in_day, (*parts, ".", "SSSSSS") if with_fractions else parts, valid)
    if with_fractions:
        text = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    return Value(text, union((arguments[0].doubt, some(outside))))


def _read(shape: str) -> Function:
    """A function of texts of one shape, which are read as dates or timestamps; others are doubtful."""
    pattern = rf"\A{shape}\z"

    def function(expression: ArrowExpression, arguments: list[Value], number: int) -> Value:
        data = array_of(arguments[0], number)
        type_ = arrow_type(expression.type)
        fits = rows_where(pc.match_substring_regex(data, pattern))
        places = np.flatnonzero(fits)
        values, good = _microseconds(data if len(places) == number else data.take(pa.array(places)))
        result = np.zeros(number, np.int64)
        result[places] = values
        sure = np.zeros(number, bool)
        sure[places] = good
        valid = valid_rows(data)
        doubtful = ~sure if valid is None else valid & ~sure
        if expression.type == "date":
            result //= _DAY
        return Value(array_from(result, valid, type_), union((arguments[0].doubt, some(doubtful))))

    return function


def _microseconds(texts: pa.Array) -> Computed:
    """Microseconds since 1970 of texts of the shape of timestamps or dates, and which of them there are."""
    if len(texts) == 0:
        return np.empty(0, np.int64), np.empty(0, bool)
    offset = np.zeros(len(texts), np.int64)
    texts = pc.utf8_rtrim(texts, "Z")
    elsewhere = pc.match_substring_regex(texts, rf":\d\d(\.\d+)?{_OFFSET}\z")
    if pc.any(elsewhere).as_py():
        tails = _digits(pc.if_else(elsewhere, pc.utf8_slice_codeunits(texts, -6, None), "+00:00"), 6)
        sign, *figures = tails.astype(np.int64)
        ahead = (figures[0] * 10 + figures[1]) * 60 + figures[3] * 10 + figures[4]
        offset = np.where(sign == (ord("+") - ord("0")) % 256, ahead, -ahead)
        texts = pc.if_else(elsewhere, pc.utf8_slice_codeunits(texts, 0, -6), texts)
        good_offset = (figures[3] <= 5) & (ahead <= 18 * 60)
    else:
        good_offset = np.ones(len(texts), bool)
    lengths = pc.binary_length(texts).to_numpy()
    if (lengths == 10).any():
        texts = pc.if_else(pa.array(lengths == 10), pc.binary_join_element_wise(texts, "T00:00:00", ""), texts)
    texts = pc.if_else(pa.array(lengths <= 19), pc.binary_join_element_wise(texts, ".", ""), texts)
    digits = _digits(pc.utf8_rpad(texts, 26, "0"), 26)

    def number(start: int, width: int) -> np.ndarray:
        whole = digits[start].astype(np.int64)
        for digit in digits[start + 1 : start + width]:
            whole = whole * 10 + digit
        return whole

    year, month, day = number(0, 4), number(5, 2), number(8, 2)
    hour, minute, second = number(11, 2), number(14, 2), number(17, 2)
    good = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (hour <= 23) & (minute <= 59) & (second <= 59)
    months = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
    good &= day <= _first_of(months + 1) - _first_of(months)
    days = _first_of(months) + day - 1
    in_day = ((hour * 60 + minute - offset) * 60 + second) * _SECOND + number(20, 6)
    return days * _DAY + in_day, good & good_offset


def _digits(texts: pa.Array, width: int) -> np.ndarray:
    """The characters of texts that all have the width, less the code of 0: a row for each place in them."""
    # A part of another array begins anywhere in its bytes.
    start = int(np.frombuffer(texts.buffers()[1], np.int32, count=1, offset=texts.offset * 4)[0])
    data = np.frombuffer(texts.buffers()[2], np.uint8, count=len(texts) * width, offset=start)
    return np.ascontiguousarray(data.reshape(-1, width).T) - np.uint8(ord("0"))


_ANY_TIME = rf"{_DATE_TEXT}([ T]{_TIME_TEXT}(\.\d{{1,6}})?(Z|{_OFFSET})?)?"
READ_WITH = {
    "yyyy-MM-dd": "read_date",
    "yyyy-MM-dd HH:mm:ss": "read_spaced_time",
    "yyyy-MM-dd'T'HH:mm:ss": "read_joined_time",
}
"""The functions that read texts of a pattern of `to_timestamp`."""

FUNCTIONS: dict[str, Function] = {
    "year": on_numbers(_year),
    "quarter": on_numbers(_quarter),
    "month": on_numbers(_month),
    "day_of_month": on_numbers(_day_of_month),
    "day_of_year": on_numbers(_day_of_year),
    "day_of_week": on_numbers(_day_of_week),
    "weekday": on_numbers(_weekday),
    "week_of_year": on_numbers(_week_of_year),
    "hour": on_numbers(_hour),
    "minute": on_numbers(_minute),
    "second": on_numbers(_second),
    "whole_units": on_numbers(_whole_units),
    "seconds_cut": on_numbers(_seconds_cut),
    "fractional_seconds": on_numbers(_fractional_seconds),
    "from_units": on_numbers(_from_units),
    "date_of": on_numbers(_date_of),
    "start_of": on_numbers(_start_of),
    "same_time": on_numbers(lambda expression, microseconds: (microseconds, None)),
    "cut_date": on_numbers(_cut_date),
    "cut_timestamp": on_numbers(_cut_timestamp),
    "add_days": on_numbers(_add_days),
    "subtract_days": on_numbers(_subtract_days),
    "add_months": on_numbers(_add_months),
    "add_months_to_timestamp": on_numbers(_add_months_to_timestamp),
    "add_microseconds": on_numbers(_add_microseconds),
    "between_timestamps": on_numbers(_between_timestamps),
    "between_dates": on_numbers(_between_dates),
    "written": _written,
    "read_date": _read(_DATE_TEXT),
    "read_time": _read(_ANY_TIME),
    "read_spaced_time": _read(rf"{_DATE_TEXT} {_TIME_TEXT}"),
    "read_joined_time": _read(rf"{_DATE_TEXT}T{_TIME_TEXT}"),
}
