"""What a window join or a co-group may be given: keys that both streams have, columns that there are, free names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlglot
from sqlglot import exp

from streaming.base import (
    EVENT_TIME,
    DeclarationError,
    Types,
    check_column_name,
    check_mapping,
    check_names,
    check_tuple,
    check_type,
    check_value,
)
from streaming.declare.stream import Stream
from streaming.declare.view_checks import check_keys
from streaming.windows import Window

_POLICIES = ("correct", "drop")


def check_two_sided_types(kind: str, given: Mapping[str, object]) -> None:
    """Refuse a value of another type than is asked for; `given` holds the fields of a declaration by name.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    of = f"of {kind} {given['name']!r}"
    for side in ("left", "right"):
        check_type(f"{side}= {of}", given[side], Stream, "the stream whose rows come in on that side")
    check_type(f"window {of}", given["window"], Window, "a window, such as Tumbling('1 hour')")
    advice = "a tuple of the columns that both streams have, such as ('id',), or a dict such as {'id': 'order_id'}"
    if isinstance(given["on"], Mapping):
        check_mapping(f"on {of}", given["on"], str, advice)
    else:
        check_tuple(f"on {of}", given["on"], str, advice)
    named = tuple(given["on"])  # type: ignore[arg-type]
    if len(set(named)) != len(named):
        raise DeclarationError(f"on={given['on']!r} {of} repeats a key; name each once.")
    if not given["on"]:
        raise DeclarationError(f"on {of} is empty, so that every row would meet every other; write {advice}.")


def check_on(what: str, on: Mapping[str, str], left: Stream, right: Stream, window: Window) -> None:
    """Refuse keys that a stream does not have or that cannot be equal, and a window that reads what a stream has not.

    Raises:
        DeclarationError: with the columns that there are.
    """
    for side, stream, keys in (("left", left, tuple(on)), ("right", right, tuple(on.values()))):
        check_keys(f"on, at the {side} of {what},", keys, stream.types)
        for expression in window.expressions:
            check_names(f"the window of {what}, at the {side},", expression, stream.columns)
        if len(set(keys)) != len(keys):
            raise DeclarationError(f"on of {what} names a key of stream {stream.name!r} twice; name each once.")
    for ours, theirs in on.items():
        if ours in ("left", "right"):
            raise DeclarationError(
                f"on of {what} has the key {ours!r}, which is what SQL calls a side; derive it under another name in "
                f"stream {left.name!r}, such as derived={{'{ours}_key': '{ours}'}}."
            )
        types = left.types[ours], right.types[theirs]
        if None not in types and types[0] != types[1]:
            raise DeclarationError(
                f"on of {what} compares {ours!r} of stream {left.name!r}, which is {types[0]}, with {theirs!r} of "
                f"stream {right.name!r}, which is {types[1]}; derive a column of the same type in one of the streams, "
                f"such as derived={{'{theirs}_key': 'cast({theirs} as {types[0]})'}}."
            )


def check_late(what: str, late: object) -> None:
    """Refuse a policy for late rows that there is not.

    Raises:
        DeclarationError: with those there are.
    """
    if late not in _POLICIES:
        why = " Only a view over one stream is updated by the stream process." if late == "update" else ""
        raise DeclarationError(
            f"late={late!r} of {what} is no policy; use one of: {', '.join(map(repr, _POLICIES))}.{why}"
        )


def check_result_names(what: str, values: Iterable[str], identity: tuple[str, ...]) -> None:
    """Refuse the name of a result that is taken or comes twice.

    Raises:
        DeclarationError: with the names that are taken.
    """
    seen = {name.lower() for name in identity}
    for name in values:
        check_column_name(name)
        if name.lower() in seen:
            raise DeclarationError(
                f"result {name!r} of {what} has the name of a key, a window column or another result "
                f"({', '.join(identity)}); rename it."
            )
        seen.add(name.lower())


def check_selected(what: str, sql: str, left: Stream, right: Stream) -> str | None:
    """Refuse SQL that reads other columns than `left.<column>` and `right.<column>`; returns its Spark type if known.

    Raises:
        DeclarationError: with the columns that there are.
    """
    check_value(what, sql, {"left": None, "right": None})
    streams = {"left": left, "right": right}
    tree = sqlglot.parse_one(sql, dialect="spark")
    types: dict[str, str | None] = {}
    for side, name in columns_read(sql):
        readable: Types = {**streams[side].types, EVENT_TIME: "timestamp"}
        if name not in readable:
            raise DeclarationError(
                f"{what} reads {f'{side}.{name}' if name else side} in {sql!r}; columns there are: "
                f"{', '.join(f'{side}.{column}' for column in streams[side].columns)}. Correct the name."
            )
        types[f"{side}_{name}"] = readable[name]
    flat = tree.transform(_flattened).sql("spark")
    return check_value(what, flat, types)


def columns_read(sql: str) -> list[tuple[str, str]]:
    """The columns that SQL over two sides reads, as (side, column); a side itself is with an empty name."""
    columns = sqlglot.parse_one(sql, dialect="spark").find_all(exp.Column)
    paths = ([part.name for part in column.parts] for column in columns)
    return list(dict.fromkeys((path[0], path[1] if len(path) > 1 else "") for path in paths))


def _flattened(node: exp.Expr) -> exp.Expr:
    """`left.a.b` as the field `b` of a column `left_a`, so that its type can be told."""
    if not isinstance(node, exp.Column) or len(node.parts) < 2:
        return node
    first, second, *fields = (part.name for part in node.parts)
    flat: exp.Expr = exp.column(f"{first}_{second}", quoted=True)
    for field in fields:
        flat = exp.Dot(this=flat, expression=exp.to_identifier(field, quoted=True))
    return flat
