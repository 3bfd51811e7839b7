"""Values between a keyed function and Arrow: checked on the way out, and times as whole numbers on the way in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from streaming.base import to_micros

Encoder = Callable[[Any], Any]


@lru_cache(maxsize=1024)
def with_integer_times(kind: pa.DataType) -> pa.DataType:
    """The type with every timestamp in it as microseconds since the epoch."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(with_integer_times(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(with_integer_times(kind.key_type), with_integer_times(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(entry.name, with_integer_times(entry.type)) for entry in kind])
    return kind


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column as a function sees them: times as microseconds, maps as dicts."""
    if column.null_count == len(column):
        return [None] * len(column)
    kind = with_integer_times(column.type)
    if kind != column.type:
        column = column.cast(kind)
    # A hundred nanoseconds a value less than the general way.
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    return list(column.to_pylist(maps_as_pydicts="strict"))


def read_back(value: Any, kind: pa.DataType) -> Any:
    """What a function is handed of an encoded value once it was stored."""
    return python_values(pa.array([value], kind))[0]


@lru_cache(maxsize=1024)
def encoder(kind: pa.DataType, exact: bool = False) -> Encoder:
    """A function that hands a value of this type on as Arrow takes it.

    It raises ValueError, with the value, for one of another type. `exact`: also for one that would come back as
    something else than it was, such as a tuple as a list.
    """
    if pa.types.is_timestamp(kind):
        return _integer_encoder(pa.int64()) if exact else _time
    if pa.types.is_list(kind):
        return _list_encoder(encoder(kind.value_type, exact), list if exact else (list, tuple))
    if pa.types.is_map(kind):
        return _map_encoder(encoder(kind.key_type, exact), encoder(kind.item_type, exact))
    if pa.types.is_struct(kind):
        return _struct_encoder({entry.name: encoder(entry.type, exact) for entry in kind}, exact)
    if pa.types.is_floating(kind) and exact:
        return _scalar_encoder((float,), "double; write 1.0 for 1")
    if pa.types.is_integer(kind):
        return _integer_encoder(kind)
    if pa.types.is_decimal(kind):
        return _decimal_encoder(kind)
    for is_kind, types, name in _SCALARS:
        if is_kind(kind):
            return _scalar_encoder(types, name)
    raise TypeError(f"a state or result of a keyed function has no type {kind}, which no declaration gives it")


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...], str], ...] = (
    (pa.types.is_floating, (float, int), "number"),
    (pa.types.is_boolean, (bool,), "boolean"),
    (pa.types.is_string, (str,), "string"),
    (pa.types.is_binary, (bytes,), "binary"),
    (pa.types.is_date, (date,), "date"),
)


def normalizer(kind: pa.DataType) -> tuple[type, Encoder] | None:
    """What makes of a state field's value the one that it will be read back as, and the class of those that stay.

    None where all do.
    """
    if pa.types.is_floating(kind):
        return float, _as_float
    return (type(None), _decimal_encoder(kind)) if pa.types.is_decimal(kind) else None


def kept_as(kind: pa.DataType) -> Encoder:
    """What makes of a state field's value the one that is kept; it raises ValueError for what cannot be."""
    normal, encode = normalizer(kind), encoder(kind, exact=True)
    return encode if normal is None else lambda value: encode(normal[1](value))


def _as_float(value: Any) -> Any:
    # A bool is not meant as a number, and is refused later.
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


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
    def encode(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Decimal | int) or isinstance(value, bool):
            raise _refused(value, "decimal")
        try:
            return pa.scalar(Decimal(value), kind).as_py()
        except pa.ArrowInvalid as error:
            raise ValueError(f"{value!r} does not fit into {kind}") from error

    return encode


def _time(value: Any) -> Any:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return to_micros(value)
    raise _refused(value, "time in microseconds, nor an instant with a time zone")


def _list_encoder(entry: Encoder, types: Any) -> Encoder:
    def encode(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, types):
            raise _refused(value, "list")
        return [entry(each) for each in value]

    return encode


def _map_encoder(key: Encoder, item: Encoder) -> Encoder:
    def encode(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _refused(value, "dict")
        if None in value:
            raise ValueError(f"{value!r} has the key None, which a map cannot have")
        return [(key(name), item(each)) for name, each in value.items()]

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
