"""Values between Arrow columns and Python: the one way in and the one way out, exact in both directions.

In: numbers as Python's, decimals with all their digits, instants as whole microseconds since the epoch, structs and
maps as dicts, arrays as lists. No value makes it fail, so that nothing is stopped by a column that nobody looks at.
Out: a value comes out as it was given, or it is refused.

A row of such values is a tuple whose columns are attributes.
"""

from __future__ import annotations

import math
import struct
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache, total_ordering
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streaming.base.intervals import from_micros, to_micros

NAN = math.nan
"""The one NaN that conversion in gives, so that it equals itself wherever Python asks for identity first: as a key, in
tuples and lists."""

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH_ORDINAL, date.max.toordinal() - _EPOCH_ORDINAL
_DAYS_OF_CYCLE, _YEARS_OF_CYCLE = 146_097, 400
"""After so long the calendar repeats itself."""
DAY_MICROS = 86_400_000_000
"""The microseconds of a day."""
_FIRST_MICROS, _LAST_MICROS = _FIRST_DAY * DAY_MICROS, (_LAST_DAY + 1) * DAY_MICROS - 1
_INT64 = 1 << 63

Encoder = Callable[[Any], Any]


@total_ordering
@dataclass(frozen=True)
class FarDate:
    """A date of a year that Python's `date` does not have, before 1 or beyond 9999: `days` since 1970-01-01.

    It can be compared with dates, kept and handed on; whatever asks more of it is told so.
    """

    days: int

    def isoformat(self) -> str:
        """The date as ISO 8601 has years of more than four digits: with a sign."""
        cycles, rest = divmod(self.days, _DAYS_OF_CYCLE)
        near = date.fromordinal(rest + _EPOCH_ORDINAL)
        year = near.year + cycles * _YEARS_OF_CYCLE
        signed = f"{year:+05}" if year < 0 or year > 9999 else f"{year:04}"
        return f"{signed}{near.isoformat()[4:]}"

    __str__ = isoformat

    def __lt__(self, other: object) -> bool:
        if isinstance(other, FarDate):
            return self.days < other.days
        if isinstance(other, date) and not isinstance(other, datetime):
            return self.days < _FIRST_DAY
        return NotImplemented

    def __getattr__(self, name: str) -> Any:
        # Python itself looks for some, as when it copies or pickles a value that has no fields yet.
        if name.startswith("__") or name == "days":
            raise AttributeError(name)
        raise AttributeError(f"{_beyond(self)}; it has no {name!r}")

    def _cannot_count(self, other: object) -> Any:
        raise ValueError(f"{_beyond(self)}; compute with such dates in SQL, or leave them out")

    __add__ = __radd__ = __sub__ = __rsub__ = _cannot_count


def _beyond(day: FarDate) -> str:
    return f"{day} is beyond the years 1 to 9999 that Python can compute with"


@dataclass(frozen=True, order=True)
class FarInstant:
    """An instant of a year that Python's `datetime` does not have: `micros` since the epoch, UTC."""

    micros: int

    def isoformat(self) -> str:
        """The instant as ISO 8601 has it, in UTC."""
        days, rest = divmod(self.micros, DAY_MICROS)
        seconds, fraction = divmod(rest, 1_000_000)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        clock = f"{hour:02}:{minute:02}:{second:02}" + (f".{fraction:06}" if fraction else "")
        return f"{FarDate(days).isoformat()}T{clock}+00:00"

    __str__ = isoformat


def instant_of(micros: int) -> datetime | FarInstant:
    """The instant so many microseconds after the epoch, in UTC."""
    return from_micros(micros) if _FIRST_MICROS <= micros <= _LAST_MICROS else FarInstant(micros)


def day_of(days: int) -> date | FarDate:
    """The date so many days after 1970-01-01."""
    return date.fromordinal(days + _EPOCH_ORDINAL) if _FIRST_DAY <= days <= _LAST_DAY else FarDate(days)


def days_of(micros: np.ndarray[Any, Any], known: np.ndarray[Any, Any] | None = None) -> pa.Array:
    """The dates of instants in microseconds since the epoch; null where one is not `known`."""
    mask = None if known is None else ~known
    return pa.array((micros // DAY_MICROS).astype(np.int32), pa.int32(), mask=mask).cast(pa.date32())


def as_type(values: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column as one of this type; a value that the type does not have is an error."""
    return values if values.type == type_ else values.cast(type_)


def _struct(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


@dataclass(frozen=True)
class Reading:
    """In what form conversion in gives instants, from microseconds, and structs, from names and values."""

    instant: Callable[[int], Any] = int
    struct: Callable[[tuple[str, ...], tuple[Any, ...]], Any] = _struct


IN_MICROS = Reading()
"""Instants as whole microseconds since the epoch, structs as dicts."""


def python_values(column: pa.Array | pa.ChunkedArray, reading: Reading = IN_MICROS) -> list[Any]:
    """The values of a column, None for null. It does not fail, whatever they are.

    A NaN is `NAN`, a date that Python does not have a `FarDate`; what is no UTF-8 in a text are surrogates, which
    conversion out refuses. A map is a dict; where that cannot be, because keys are structs or arrays or one comes
    twice, it is the list of its (key, value) pairs.
    """
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in python_values(chunk, reading)]
    if column.null_count == len(column):
        return [None] * len(column)
    values = _values(column, reading)
    if not column.null_count:
        return values
    return [value if there else None for value, there in zip(values, _are_valid(column).tolist(), strict=True)]


def _are_valid(column: pa.Array) -> np.ndarray[Any, Any]:
    """True where there is a value, of a column with a null."""
    bits = np.unpackbits(np.frombuffer(column.buffers()[0], np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].astype(bool)


def _values(column: pa.Array, reading: Reading) -> list[Any]:
    """The values, anything where there is null."""
    kind = column.type
    if pa.types.is_integer(kind):
        return _numbers(column).tolist()
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_timestamp(kind):
        # A cast imports all of Arrow's functions.
        in_micros = column if kind.unit == "us" else column.cast(pa.timestamp("us", kind.tz))
        micros = _numbers(in_micros.view(pa.int64())).tolist()
        return micros if reading.instant is int else list(map(reading.instant, micros))
    if pa.types.is_date32(kind):
        return list(map(day_of, _numbers(column.view(pa.int32())).tolist()))
    if pa.types.is_struct(kind):
        names = tuple(entry.name for entry in kind)
        entries = [python_values(column.field(place), reading) for place in range(kind.num_fields)]
        rows = zip(*entries, strict=True) if entries else iter([()] * len(column))
        return [reading.struct(names, row) for row in rows]
    if pa.types.is_map(kind):
        as_map = _pairs if pa.types.is_nested(kind.key_type) else _dict_or_pairs
        return [as_map(*entries) for entries in _slices(column, (column.keys, column.items), reading)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [entries for (entries,) in _slices(column, (column.values,), reading)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(column)
    return list(column.to_pylist())


def _texts(column: pa.Array) -> list[Any]:
    """Where one is no UTF-8, which SQL makes of bytes, with surrogates for such bytes: on the way out it is refused."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        contents = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()).to_pylist()
        return [None if content is None else content.decode(errors="surrogateescape") for content in contents]


def _numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    """The numbers in their own type, 0 where there is null."""
    # Neither `to_numpy` nor `fill_null` can be used without pandas, whose import takes a third of a second.
    stored = np.frombuffer(column.buffers()[1], column.type.to_pandas_dtype(), column.offset + len(column))
    numbers = stored[column.offset :]
    return np.where(_are_valid(column), numbers, numbers.dtype.type(0)) if column.null_count else numbers


def _floats(column: pa.Array) -> list[Any]:
    numbers = _numbers(column)
    values: list[Any] = numbers.tolist()
    return [NAN if value != value else value for value in values] if np.isnan(numbers).any() else values


def _slices(column: Any, children: tuple[pa.Array, ...], reading: Reading) -> list[tuple[list[Any], ...]]:
    """The part of the children that belongs to each list or map; converted in one go, as most lists are short."""
    ends = np.from_dlpack(column.offsets).tolist()
    first, last = ends[0], ends[-1]
    lists = [python_values(child.slice(first, last - first), reading) for child in children]
    return [tuple([values[start - first : end - first] for values in lists]) for start, end in pairwise(ends)]


def _pairs(keys: list[Any], items: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(keys, items, strict=True))


def _dict_or_pairs(keys: list[Any], items: list[Any]) -> dict[Any, Any] | list[tuple[Any, Any]]:
    made = dict(zip(keys, items, strict=True))
    return made if len(made) == len(keys) else _pairs(keys, items)


@lru_cache(maxsize=256)
def row_class(columns: tuple[str, ...]) -> Any:
    """A class of tuples whose columns are attributes, and by `row["name"]` those that are no name in Python too."""
    plain = namedtuple("Row", columns, rename=True)  # type: ignore[misc]
    places = {name: place for place, name in enumerate(columns)}

    def of_column(row: Any, name: Any) -> Any:
        return tuple.__getitem__(row, places[name] if isinstance(name, str) else name)

    return type("Row", (plain,), {"__slots__": (), "__getitem__": of_column, "columns_": columns})


def as_dict(row: Any) -> dict[str, Any]:
    """The columns of a row by name."""
    return dict(zip(row.columns_, row, strict=True))


def read_back(value: Any, kind: pa.DataType) -> Any:
    """An encoded value as conversion in gives it once it was stored."""
    return python_values(pa.array([value], kind))[0]


@lru_cache(maxsize=1024)
def encoder(kind: pa.DataType, exact: bool = False) -> Encoder:
    """A function that hands a value of this type on as Arrow takes it.

    It raises ValueError, with the value, for one of another type, or that would be rounded. `exact`: also for one that
    would come back as something else than it was, such as a tuple as a list.
    """
    if pa.types.is_timestamp(kind):
        return _integer_encoder(pa.int64()) if exact else _time
    if pa.types.is_list(kind):
        return _list_encoder(encoder(kind.value_type, exact), list if exact else (list, tuple))
    if pa.types.is_map(kind):
        in_pairs = not exact or pa.types.is_nested(kind.key_type)
        return _map_encoder(encoder(kind.key_type, exact), encoder(kind.item_type, exact), in_pairs)
    if pa.types.is_struct(kind):
        return _struct_encoder({entry.name: encoder(entry.type, exact) for entry in kind}, exact)
    if pa.types.is_floating(kind):
        if exact:
            return _scalar_encoder((float,), "double; write 1.0 for 1")
        return _single if pa.types.is_float32(kind) else _float
    if pa.types.is_integer(kind):
        return _integer_encoder(kind)
    if pa.types.is_decimal(kind):
        return _decimal_encoder(kind)
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_string(kind):
        return _text
    for is_kind, types, name in _SCALARS:
        if is_kind(kind):
            return _scalar_encoder(types, name)
    raise TypeError(f"a state or result of a function has no type {kind}, which no declaration gives it")


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...], str], ...] = (
    (pa.types.is_boolean, (bool,), "boolean"),
    (pa.types.is_binary, (bytes,), "binary"),
)


def normalizer(kind: pa.DataType) -> tuple[type, Encoder] | None:
    """The class of a state field's values that stay, and the function that makes the others what is read back.

    None where all do.
    """
    if pa.types.is_floating(kind):
        return float, _as_float
    return (type(None), _decimal_encoder(kind)) if pa.types.is_decimal(kind) else None


def kept_as(kind: pa.DataType) -> Encoder:
    """The function that makes a state field's value the one that is kept; it raises ValueError for what cannot be."""
    normal, encode = normalizer(kind), encoder(kind, exact=True)
    return encode if normal is None else lambda value: encode(normal[1](value))


def is_number_type(kind: pa.DataType) -> bool:
    """True for the types of whole numbers, doubles and decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_number(value: Any) -> bool:
    # A bool is an int to Python, and never meant as one.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_float(value: Any) -> Any:
    return _float(value) if _is_number(value) else value


def _refused(value: Any, name: str) -> ValueError:
    return ValueError(f"{value!r} is a {type(value).__name__} and no {name}")


def _scalar_encoder(types: tuple[type, ...], name: str) -> Encoder:
    truths, usual = bool in types, types[0]

    def encode(value: Any) -> Any:
        # Nearly every value is of this very type, and this is asked for each of them.
        if value.__class__ is usual:
            return value
        if value is None or (isinstance(value, types) and (truths or not isinstance(value, bool))):
            return value
        raise _refused(value, name)

    return encode


def _float(value: Any) -> Any:
    if value.__class__ is float or value is None:
        return value
    if not _is_number(value):
        raise _refused(value, "number")
    try:
        same = float(value)
    except OverflowError as error:
        raise ValueError(f"{value!r} is greater than any double") from error
    if isinstance(value, int) and same != value:
        raise ValueError(
            f"{value!r} cannot be kept in a double, the nearest is {same!r}; declare a bigint or a decimal"
        )
    return same


def _single(value: Any) -> Any:
    """A number of a `float` column, which has less digits and a smaller range than Python's."""
    double = _float(value)
    if double is None or not math.isfinite(double):
        return double
    try:
        single = struct.unpack("<f", struct.pack("<f", double))[0]
    except OverflowError:
        raise ValueError(f"{value!r} is greater than any float; declare a double") from None
    if isinstance(value, int) and single != value:
        raise ValueError(
            f"{value!r} cannot be kept in a float, the nearest is {single!r}; declare a bigint, a decimal or a double"
        )
    return double


def _text(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _refused(value, "string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{value!r} is no text in UTF-8: {error.reason}") from error
    return value


def _date(value: Any) -> Any:
    if value is None or value.__class__ is date:
        return value
    if isinstance(value, FarDate):
        return value.days
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise _refused(value, "date; write value.date() for the day of a datetime")


def _integer_encoder(kind: pa.DataType) -> Encoder:
    most = 1 << (kind.bit_width - 1)

    def encode(value: Any) -> Any:
        if value is None:
            return None
        if value.__class__ is not int and (not isinstance(value, int) or isinstance(value, bool)):
            raise _refused(value, "whole number")
        if not -most <= value < most:
            raise ValueError(f"{value!r} does not fit into a whole number of {kind.bit_width} bits")
        return value

    return encode


def _decimal_encoder(kind: pa.DataType) -> Encoder:
    """Takes numbers that have a place in the type, digit for digit, and gives them its scale."""
    digits = Context(kind.precision, ROUND_HALF_UP, traps=[Inexact, InvalidOperation])
    unit = Decimal((0, (1,), -kind.scale))
    nothing = digits.quantize(Decimal(0), unit)
    name = f"decimal({kind.precision}, {kind.scale})"

    def encode(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Decimal | int) or isinstance(value, bool):
            raise _refused(value, "decimal")
        try:
            scaled = digits.quantize(Decimal(value), unit)
        except Inexact as error:
            raise ValueError(
                f"{value!r} does not fit into {name}, which has {kind.scale} digits behind the point; round it first, "
                f"such as value.quantize(Decimal({str(unit)!r}))"
            ) from error
        except InvalidOperation as error:
            raise ValueError(f"{value!r} does not fit into {name}") from error
        if not scaled.is_finite():
            raise ValueError(f"{value!r} does not fit into {name}, which has no such value")
        # Arrow has no negative zero.
        return scaled or nothing

    return encode


def _time(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        micros = value
    elif isinstance(value, datetime) and value.tzinfo is not None:
        # Pandas' instants are datetimes.
        if getattr(value, "nanosecond", 0):
            raise ValueError(f"{value!r} has nanoseconds, and a timestamp has microseconds; round it first")
        micros = to_micros(value)
    else:
        raise _refused(value, "time in microseconds, nor an instant with a time zone")
    if not -_INT64 <= micros < _INT64:
        raise ValueError(f"{value!r} is no time: microseconds since the epoch have 64 bits")
    return micros


def _list_encoder(entry: Encoder, types: Any) -> Encoder:
    def encode(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, types):
            raise _refused(value, "list")
        return [entry(each) for each in value]

    return encode


def _map_encoder(key: Encoder, item: Encoder, in_pairs: bool) -> Encoder:
    def encode(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Mapping):
            pairs: Sequence[Any] = list(value.items())
        elif in_pairs and isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            pairs = value
        else:
            raise _refused(value, "dict")
        if any(name is None for name, _ in pairs):
            raise ValueError(f"{value!r} has the key None, which a map cannot have")
        return [(key(name), item(each)) for name, each in pairs]

    return encode


def _struct_encoder(entries: Mapping[str, Encoder], whole: bool) -> Encoder:
    def encode(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _refused(value, f"dict of {', '.join(entries)}")
        if not value.keys() <= entries.keys():
            unknown = ", ".join(map(repr, sorted(value.keys() - entries.keys(), key=str)))
            raise ValueError(f"{value!r} has {unknown}; its fields are: {', '.join(entries)}")
        if whole and len(value) < len(entries):
            raise ValueError(f"{value!r} lacks fields; give each, None where there is nothing: {', '.join(entries)}")
        return {name: each(value.get(name)) for name, each in entries.items()}

    return encode
