"""Checks of a windowed view: values of the right types, and expressions that can be what they are used for."""

from __future__ import annotations

from collections.abc import Mapping

from streaming.base import (
    EVENT_TIME,
    ORDER,
    DeclarationError,
    Kind,
    Types,
    check_aggregate,
    check_condition,
    check_names,
    check_value,
    kind_of,
)
from streaming.declare.aggregates import Aggregate
from streaming.windows import Window


def check_keys(what: str, names: tuple[str, ...], types: Types) -> None:
    """Refuse a name of `what` that is no column.

    Raises:
        DeclarationError: it is unknown, or an expression.
    """
    for name in names:
        check_names(what, name, tuple(types))
        if name.strip("`") not in types:
            raise DeclarationError(
                f"{what} has {name!r}, which is an expression",
                f"name a column, and derive one in the stream for what is "
                f"computed, such as derived={{'key': {name!r}}}.",
            )


def check_view_expressions(
    view: str,
    types: Types,
    window: Window,
    where: str | None,
    aggregates: Mapping[str, Aggregate],
) -> None:
    """Refuse an expression that reads none of the columns in `types`, or cannot be what it is used for.

    Raises:
        DeclarationError: with the expression, and what to write.
    """
    of = f"of view {view!r}"
    for expression in window.expressions:
        check_names(f"window {of}", expression, tuple(types))
    if where is not None:
        check_condition(f"where {of}", where, types)
    readable = {**types, EVENT_TIME: "timestamp", ORDER: None}
    for name, aggregate in aggregates.items():
        check_aggregate(f"aggregate {name!r} {of}", aggregate.sql, readable)
        check_taken(f"aggregate {name!r} {of}", aggregate, readable)


def check_taken(what: str, aggregate: Aggregate, types: Types) -> None:
    """Refuse an aggregate of `what` over values of a kind that it does not take, as far as the declaration tells.

    Raises:
        DeclarationError: with the type, the kinds that it takes, and what to write.
    """
    for sql, kinds in aggregate.takes:
        type_ = check_value(f"the value of {what}", sql, types)
        if (kind := kind_of(type_)) is not None and kind not in kinds:
            raise DeclarationError(
                f"{what} is the {aggregate.meaning}, but {sql} is of type {type_}, and it takes {', '.join(kinds)}.",
                f"Choose another aggregate, or give it what it takes, such as {_instead(sql, kind, kinds)!r}.",
            )


_AS_NUMBERS: dict[Kind, str] = {
    "boolean": "cast({} as int)",
    "text": "cast({} as double)",
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "array": "size({})",
    "map": "size({})",
}


def _instead(sql: str, kind: Kind, kinds: tuple[Kind, ...]) -> str:
    """SQL of a kind that is taken, made of the SQL that is not."""
    if kinds == ("boolean",):
        return f"{sql} is not null"
    return _AS_NUMBERS.get(kind, "cast({} as string)").format(sql)
