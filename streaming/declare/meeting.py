"""Types of two streams that Spark brings to one, to compare their values or to have them in one column."""

from __future__ import annotations

import re

from streaming.base import kind_of

_MOST_DIGITS = 38
_WHOLE_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The number of digits that Spark gives whole numbers where they meet a decimal."""
_TIMES = ("date", "timestamp")


def how_rounded(one: str | None, other: str | None) -> str | None:
    """The type without room for all digits to which Spark brings two types of numbers, in words; None for none."""
    if _meets_in_doubles(one, other) or _meets_in_doubles(other, one):
        return "as doubles, in which 9007199254740993 equals 9007199254740992"
    if _meets_with_less_digits(one, other):
        return f"as decimals of {_MOST_DIGITS} digits, in which some behind the point are rounded away"
    return None


def what_is_lost(one: str | None, other: str | None) -> str | None:
    """The harm that may be done to values of two types that are put in one column, in words; None for none.

    A type that only Spark knows is None, and is not judged.
    """
    if one is None or other is None or one == other:
        return None
    if one.startswith("array<") and other.startswith("array<"):
        return what_is_lost(one[len("array<") : -1], other[len("array<") : -1])
    kinds = (kind_of(one), kind_of(other))
    if kinds[0] != kinds[1] and not {*kinds} <= {*_TIMES}:
        return "Spark would cast one to the other, and fail for a value that is none of that type"
    if kinds[0] in ("struct", "map"):
        return "Spark would cast what is in them, and may round it"
    how = how_rounded(one, other)
    return None if how is None else f"Spark would have them {how}"


def _meets_in_doubles(exact: str | None, other: str | None) -> bool:
    """True where values of the first type, of more digits than a double has, are rounded to meet the other's."""
    return (exact or "").partition("(")[0] in ("bigint", "decimal") and other in ("float", "double")


def _meets_with_less_digits(one: str | None, other: str | None) -> bool:
    """True where no decimal has room for the digits before the point of one type and those behind it of the other.

    Spark then prefers those before it (its class `DecimalType`, `boundedPreferIntegralDigits`).
    """
    digits = [_digits(one), _digits(other)]
    if None in digits:
        return False
    before, behind = zip(*filter(None, digits), strict=True)
    return max(before) + max(behind) > _MOST_DIGITS


def _digits(type_: str | None) -> tuple[int, int] | None:
    """The digits before and behind the point of an exact number; None for other types."""
    if type_ in _WHOLE_DIGITS:
        return _WHOLE_DIGITS[type_], 0
    match = re.fullmatch(r"decimal(?:\((\d+)(?:, *(\d+))?\))?", type_ or "")
    if match is None:
        return None
    precision, scale = int(match[1] or 10), int(match[2] or 0)
    return precision - scale, scale
