"""Expressions that some row makes fail, with what they are of a row in plain Python, as Spark computes in ANSI mode."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from random import Random
from typing import Any

from tests.support.fuzz.values import INTEGERS, Type

Row = Mapping[str, Any]
FAR: Any = object()
"""A time outside the years 1 to 9999."""
UNSURE: Any = object()
"""A value that nobody here has computed; that it is one is certain."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_FIRST_DAY, _LAST_DAY = ((each - _EPOCH.date()).days for each in (date.min, date.max))
_FIRST, _LAST = ((each.replace(tzinfo=UTC) - _EPOCH) // _MICRO for each in (datetime.min, datetime.max))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_WORDS = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}
_TRIMMED = "".join(map(chr, range(0x21)))


class Failed(Exception):
    """Spark raises."""


@dataclass(frozen=True)
class Expression:
    """SQL over columns, the columns that it reads, what kind of value it gives, and that of a row."""

    sql: str
    reads: tuple[str, ...]
    kind: str
    of: Callable[[Row], Any]

    def may_fail(self, row: Row) -> bool:
        try:
            self.of(row)
        except Failed:
            return True
        return False


def fits(bits: int, value: int) -> int:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise Failed
    return value


def _whole(text: str) -> int:
    stripped = text.strip(_TRIMMED)
    if not _INTEGER.fullmatch(stripped):
        raise Failed
    return fits(32, int(stripped))


def _double(text: str) -> float:
    stripped = text.strip(_TRIMMED)
    if stripped.lower() in _WORDS:
        return _WORDS[stripped.lower()]
    if not _NUMBER.fullmatch(stripped):
        raise Failed
    return float(stripped)


def _nonzero(value: Any) -> Any:
    if value == 0:
        raise Failed
    return value


def _truncated(bits: int, value: float | Decimal) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        raise Failed
    return fits(bits, int(value))


def _element(values: Sequence[Any], place: int) -> Any:
    if not -len(values) <= place < len(values):
        raise Failed
    return values[place]


def _day(days: int) -> Any:
    return _EPOCH.date() + timedelta(days=days) if _FIRST_DAY <= days <= _LAST_DAY else FAR


def _instant(micros: int) -> Any:
    return _EPOCH + micros * _MICRO if _FIRST <= fits(64, micros) <= _LAST else FAR


def _wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _made_date(day: int) -> date:
    if not 1 <= day <= 31:
        raise Failed
    return date(2026, 1, day)


def _unique(values: Sequence[Any]) -> int:
    if None in values or len(set(values)) < len(values):
        raise Failed
    return len(values)


def _rounded(value: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        found = value.quantize(Decimal("0.1"), ROUND_HALF_UP)
    if abs(found) >= 1000:
        raise Failed
    return found


def _tenfold(value: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        found = value * 10
    if abs(found) >= 10**38:
        raise Failed
    return found


def _refused(text: str) -> int:
    if text == "":
        raise Failed
    return 1


def _total(values: Sequence[Any]) -> int | None:
    found: int | None = 0
    for each in values:
        found = None if found is None or each is None else fits(64, found + each)
    return found


def of_one(name: str, how: Callable[[Any], Any]) -> Callable[[Row], Any]:
    """A function of one column that is null where it is."""
    return lambda row: None if row[name] is None else how(row[name])


def of_two(left: str, right: str, how: Callable[[Any, Any], Any]) -> Callable[[Row], Any]:
    """A function of two columns that is null where one of them is."""
    return lambda row: None if row[left] is None or row[right] is None else how(row[left], row[right])


def _remainder(left: int, right: int) -> int:
    size = abs(left) % abs(_nonzero(right))
    return size if left >= 0 else -size


def _div(left: int, right: int) -> int:
    size = abs(left) // abs(_nonzero(right))
    return fits(64, size if (left >= 0) == (right > 0) else -size)


_BY_COLUMN: Mapping[str, tuple[tuple[str, str, Callable[[Any], Any]], ...]] = {
    "f64": (
        ("cast({} as int)", "number", lambda value: _truncated(32, value)),
        ("10 / {}", "number", lambda value: 10 / _nonzero(value)),
    ),
    "f32": (("cast({} as tinyint)", "number", lambda value: _truncated(8, value)),),
    "d0": (
        ("cast({} as bigint)", "number", lambda value: _truncated(64, value)),
        ("{} * 10", "number", _tenfold),
    ),
    "d2": (("cast({} as decimal(4, 1))", "number", _rounded),),
    "d18": (("cast({} as int)", "number", lambda value: _truncated(32, value)),),
    "s": (
        ("cast({} as int)", "number", _whole),
        ("cast({} as double)", "number", _double),
        ("make_date(2026, 1, cast({} as int))", "date", lambda value: _made_date(_whole(value))),
        ("if({0} = '', raise_error('hostile'), 1)", "number", _refused),
        ("char_length({})", "number", len),
        ("encode({}, 'utf-8')", "binary", lambda value: UNSURE),
    ),
    "b": (("10 div cast({} as int)", "number", lambda value: _div(10, int(value))),),
    "ts": (
        ("unix_micros({}) * 1000", "number", lambda value: fits(64, (value - _EPOCH) // _MICRO * 1000)),
        ("{} + interval 1 day", "timestamp", lambda value: _instant((value - _EPOCH) // _MICRO + 86_400_000_000)),
        ("cast({} as date)", "date", lambda value: UNSURE),
    ),
    "i64": (("timestamp_seconds({})", "timestamp", lambda value: _instant(value * 1_000_000)),),
    "xs": (
        ("{}[1]", "number", lambda value: _element(value, 1)),
        ("element_at({}, -3)", "number", lambda value: _element(value, -3)),
        (
            "transform({}, x -> 10 div x)",
            "array",
            lambda value: [None if each is None else _div(10, each) for each in value],
        ),
        ("aggregate({}, 0L, (total, x) -> total + x)", "number", _total),
        ("size(map_from_arrays({0}, {0}))", "number", _unique),
    ),
    "m": (
        (
            "10 % element_at({}, 'a')",
            "number",
            lambda value: None if dict(value).get("a") is None else _remainder(10, dict(value)["a"]),
        ),
        ("map_keys({})", "array", lambda value: UNSURE),
    ),
    "st": (
        ("10 div {}.a", "number", lambda value: None if value["a"] is None else _div(10, value["a"])),
        (
            "cast({}.b.c as int)",
            "number",
            lambda value: None if value["b"] is None or value["b"]["c"] is None else _whole(value["b"]["c"]),
        ),
        ("to_json({})", "text", lambda value: UNSURE),
    ),
    "nested": (
        ("{}[0][1]", "number", lambda value: None if _element(value, 0) is None else _element(_element(value, 0), 1)),
    ),
    "deep": (("{}[0].m", "map", lambda value: None if _element(value, 0) is None else UNSURE),),
}
"""Expressions of one column: SQL with its name left out, the kind of value, and what it is of a value."""

_KINDS = {
    **dict.fromkeys((*INTEGERS, "float", "double", "decimal"), "number"),
    **{"string": "text", "boolean": "boolean", "date": "date", "timestamp": "timestamp"},
}


def expressions(columns: Mapping[str, Type], name_of: Callable[[str], str] = str) -> Iterator[Expression]:
    """Every expression over the columns; SQL calls them what `name_of` says."""
    for name, of in columns.items():
        # Spark neither orders nor tells apart what holds a map, at whatever depth.
        kind = "map" if "map" in of.ddl else _KINDS.get(of.kind, of.kind)
        yield Expression(name_of(name), (name,), kind, of_one(name, lambda value: value))
        for sql, given, how in _BY_COLUMN.get(name, ()):
            yield Expression(sql.format(name_of(name)), (name,), given, of_one(name, how))
    whole = {name: INTEGERS[of.kind] for name, of in columns.items() if of.kind in INTEGERS}
    for name, bits in whole.items():
        yield from _of_whole(name, name_of(name), bits)
        if "day" in columns and bits < 64:
            sql = f"date_add({name_of('day')}, {name_of(name)})"
            yield Expression(sql, ("day", name), "date", of_two("day", name, _later))
        for other in whole:
            for operator, of_both in _OF_TWO.items():
                sql = f"{name_of(name)} {operator} {name_of(other)}"
                yield Expression(sql, (name, other), "number", of_two(name, other, of_both))


def _later(day: date, days: int) -> Any:
    return _day(_wrapped((day - _EPOCH.date()).days + days))


def _quotient(left: int, right: int) -> float:
    return float(left / _nonzero(right))


_OF_TWO: Mapping[str, Callable[[int, int], Any]] = {"/": _quotient, "%": _remainder, "div": _div}


def _of_whole(name: str, sql: str, bits: int) -> Iterator[Expression]:
    """Expressions of a column of whole numbers of so many bits."""
    made: dict[str, Callable[[int], int]] = {
        f"{sql} * 3": lambda value: fits(max(32, bits), value * 3),
        f"{sql} + {sql}": lambda value: fits(bits, value + value),
        f"-{sql}": lambda value: fits(bits, -value),
        f"abs({sql})": lambda value: fits(bits, abs(value)),
        f"cast({sql} as tinyint)": lambda value: fits(8, value),
    }
    for text, how in made.items():
        yield Expression(text, (name,), "number", of_one(name, how))


def condition(random: Random, among: Sequence[Expression]) -> Expression:
    """A condition that holds for ordinary rows, over an expression that may fail."""
    numbers = [each for each in among if each.kind == "number"]
    if not numbers or random.random() < 0.2:
        each = random.choice(among)
        return Expression(f"{each.sql} is not null", each.reads, "boolean", lambda row: each.of(row) is not None)
    number = random.choice(numbers)
    if random.random() < 0.3:
        return Expression(
            f"coalesce({number.sql} < 1000000, true)",
            number.reads,
            "boolean",
            lambda row: _below(number.of(row)) is not False,
        )
    return Expression(f"{number.sql} < 1000000", number.reads, "boolean", lambda row: _below(number.of(row)))


def _below(value: Any) -> bool | None:
    return None if value is None else bool(value < 1_000_000)
