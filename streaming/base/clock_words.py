"""Words such as `today`, which Spark replaces by its clock where a text becomes a date or a timestamp."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sqlglot import exp

from streaming.base.sql import PARSER_ERRORS


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[\x00-\x20]*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""The beginning of such a text; a time zone may follow. `epoch` is always the same instant."""

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_OF_ONE_TYPE = frozenset({"coalesce", "equal_null", "greatest", "if", "ifnull", "least", "nullif", "nvl", "nvl2"})
"""Functions of values that Spark brings to one type."""

_GIVE_TIMES = _names(
    """
    add_months convert_timezone date date_add date_from_unix_date date_sub date_trunc dateadd from_utc_timestamp
    last_day make_date make_timestamp make_timestamp_ltz make_timestamp_ntz next_day timestamp timestamp_micros
    timestamp_millis timestamp_seconds to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_utc_timestamp trunc
    try_make_timestamp try_to_date try_to_timestamp
    """
)
_TAKE_TIMES = _GIVE_TIMES | _names(
    """
    date_diff date_format date_part datediff datepart day dayname dayofmonth dayofweek dayofyear extract hour minute
    month monthname months_between quarter second unix_date unix_micros unix_millis unix_seconds weekday weekofyear year
    """
)
"""Functions that take a date or a timestamp: a text that they are given becomes one."""

_SAME_TYPE = frozenset({"max", "min", "coalesce", "greatest", "ifnull", "least", "nullif", "nvl"})
"""Functions whose result is of the type of their arguments."""

Knows = Callable[[exp.Column], bool]
"""Tells of a column that it is known to be a date or a timestamp."""


def clock_word(tree: exp.Expr, is_time: Knows) -> exp.Literal | None:
    """The first word in a tree that Spark takes for what its clock says; None where there is none.

    A text that is compared with what may be a text, too, stays that text: `status = 'today'`.
    """
    for literal in tree.find_all(exp.Literal):
        if literal.is_string and _WORD.match(literal.this):
            value: exp.Expr = literal
            while isinstance(value.parent, exp.Paren):
                value = value.parent
            if value.parent is not None and _becomes_time(value, value.parent, is_time):
                return literal
    return None


def is_known_time(node: exp.Expr, is_time: Knows) -> bool:
    """True if a value is known to be a date or a timestamp."""
    if isinstance(node, exp.Column):
        return is_time(node)
    if isinstance(node, exp.Cast):
        return node.to.this in exp.DataType.TEMPORAL_TYPES
    if isinstance(node, (exp.Paren, exp.Window, exp.Filter)):
        return is_known_time(node.this, is_time)
    if isinstance(node, (exp.Add, exp.Sub)):
        return is_known_time(node.this, is_time) or is_known_time(node.expression, is_time)
    name = _name_of(node)
    return name in _GIVE_TIMES or (
        name in _SAME_TYPE and any(is_known_time(each, is_time) for each in node.iter_expressions())
    )


def _becomes_time(value: exp.Expr, parent: exp.Expr, is_time: Knows) -> bool:
    if isinstance(parent, exp.Cast):
        return is_known_time(parent, is_time)
    return _name_of(parent) in _TAKE_TIMES or any(is_known_time(each, is_time) for each in _beside(value, parent))


def _beside(value: exp.Expr, parent: exp.Expr) -> Iterator[exp.Expr]:
    """The other values that Spark brings to one type with a value of the node `parent`."""
    case = parent.parent if isinstance(parent, exp.If) else parent
    if isinstance(case, exp.Case):
        branches = [each for each in case.args["ifs"] if each is not parent or value.arg_key != "true"]
        if value.arg_key == "this":
            yield from [case.this] if case.this is not None else []
        else:
            yield from (each.args["true"] for each in branches)
            yield from [case.args["default"]] if case.args.get("default") is not None else []
    elif isinstance(parent, _COMPARISONS) or _name_of(parent) in _OF_ONE_TYPE:
        yield from (each for each in parent.iter_expressions() if each is not value)


def _name_of(node: exp.Expr) -> str:
    """The name of a called function in lower case, as Spark has it; "" for what is no call."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    try:
        return node.sql("spark").partition("(")[0].lower() if isinstance(node, exp.Func) else ""
    except PARSER_ERRORS:
        # What the parser has read, and cannot write, is none of the functions that are asked for.
        return ""
