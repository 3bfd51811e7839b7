"""The fields of a declaration: their values are those that the annotations say, and nobody changes them later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from streaming.base.errors import UnknownChoice, WrongType
from streaming.base.frozen_mapping import FrozenMapping

_WRITE = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
    "Aggregate": "an aggregate, such as agg.mean('amount')",
    "Clock": "a clock, such as BoundedOutOfOrderness('5 minutes')",
    "Connector": "a connector, such as TcpSocket('127.0.0.1', 9999)",
    "Delivery": "another delivery",
    "Format": "a format, such as Json('id string, at timestamp')",
    "Freshness": "Freshness('2 hours', by=('tenant',))",
    "Operator": "an operator such as a view",
    "Pinned": "Pinned(thresholds, by=('id',))",
    "RowFunction": "RowFunction(apply, returns='n bigint')",
    "Rule": "rules, such as Rule('id_present', 'id is not null')",
    "Side": "outputs, such as Side(where='n > 1000')",
    "Source": "a source, such as Files('landing/orders')",
    "Stream": "the stream itself",
    "Subscriptions": "Subscriptions(of=..., column=...)",
    "Usual": "rules, such as Usual('avg(amount)')",
    "Target": "a target, such as JsonLines('exports/orders')",
    "Window": "a window, such as Tumbling('1 hour')",
    "WindowFunction": "WindowFunction(apply, returns='low double')",
}
"""The words for what to write where a class is asked for, by its name; of the others the name is told."""

_SHOWN = {"of": "`of`"}
"""A field as it stands in a sentence, where its name alone would be read as a word of it."""


def settle(declared: object, what: str) -> None:
    """Refuse a value of another type than the field of a declaration is annotated with, and freeze its mappings.

    `what` names the declaration, such as `view 'totals'`. Functions are not looked at.

    Raises:
        WrongType: with the value, and what to write.
        UnknownChoice: with the values there are.
    """
    kind: Any = type(declared)
    for name, hint in _hints(kind).items():
        value = getattr(declared, name)
        _check(f"{_SHOWN.get(name, name)} of {what}", name, value, hint)
        if isinstance(value, Mapping):
            object.__setattr__(declared, name, FrozenMapping(value))


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


def _check(where: str, field: str, value: object, hint: Any) -> None:
    fitting = next((each for each in _alternatives(hint) if _is_a(value, each)), None)
    if fitting is None:
        raise _refusal(where, field, value, hint)
    if isinstance(value, tuple):
        kinds = get_args(fitting)
        # The number of entries is the declaration's own matter.
        for entry, kind in zip(value, kinds if kinds[-1] is not Ellipsis else repeat(kinds[0])):  # noqa: B905
            _check(f"an entry of {where}", field, entry, kind)
    elif isinstance(value, Mapping):
        key, item = get_args(fitting)
        for name, entry in value.items():
            _check(f"a name in {where}", field, name, key)
            _check(f"{name!r} in {where}", field, entry, item)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_a(value: object, hint: Any) -> bool:
    """True if the value is of the outermost type of `hint`."""
    kind = get_origin(hint) or hint
    if kind is Literal:
        return value in get_args(hint)
    if kind in (Any, Callable):
        return True
    # A bool is an int to Python, and never meant as one.
    if isinstance(value, bool) and kind in (int, float):
        return False
    return isinstance(value, int | float if kind is float else kind)


def _refusal(where: str, field: str, value: object, hint: Any) -> WrongType | UnknownChoice:
    choices = tuple(each for kind in _alternatives(hint) if get_origin(kind) is Literal for each in get_args(kind))
    if choices:
        says, told = f"{where.replace(field, f'{field}={value!r}', 1)} is unknown", ", ".join(map(repr, choices))
        return UnknownChoice(says, f"use one of: {told}.", field=field, value=value, choices=choices)
    says = f"{where} is {value!r}, a {type(value).__name__}"
    return WrongType(says, f"write {_written(hint)}.", field=field, value=value)


def _written(hint: Any) -> str:
    """The words for what to write where `hint` is asked for."""
    kinds = [kind for kind in _alternatives(hint) if kind is not NoneType]
    if len(kinds) > 1:
        return ", or ".join([", ".join(map(_written, kinds[:-1])), _written(kinds[-1])])
    kind, args = get_origin(kinds[0]) or kinds[0], get_args(kinds[0])
    if kind is tuple:
        return f"a tuple of {_written(args[0])}" + (", such as ('id',)" if args[0] is str else "")
    if kind is Mapping:
        return f"a dict from name to {_written(args[1])}"
    return "a value" if kind is Any else _WRITE.get(kind.__name__, f"a {kind.__name__}")
