"""What a window join or a co-group may be given: keys that both streams have, columns that there are, free names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streaming.base import (
    DeclarationError,
    check_column_name,
    check_names,
    check_type,
)
from streaming.declare.join_keys import check_keys_there
from streaming.declare.stream import Stream
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


def check_meeting(of: str, on: Mapping[str, str], left: Stream, right: Stream, window: Window) -> None:
    """Refuse keys that a stream does not have or that cannot be equal, and a window that reads what a stream has not.

    Raises:
        DeclarationError: with the columns that there are.
    """
    check_keys_there(of, on, left, right)
    for name in on:
        if name in ("left", "right"):
            raise DeclarationError(
                f"on {of} has the key {name!r}, under which late rows are shown with all their columns; derive a "
                f"column of another name in stream {left.name!r}, such as derived={{'{name}_key': '{name}'}}."
            )
    for side, stream in (("left", left), ("right", right)):
        for expression in window.expressions:
            check_names(f"the window {of}, at the {side},", expression, stream.columns)
    for ours, theirs in on.items():
        types = left.types[ours], right.types[theirs]
        if None not in types and types[0] != types[1]:
            raise DeclarationError(
                f"on {of} compares {ours!r} of stream {left.name!r}, which is {types[0]}, with {theirs!r} of stream "
                f"{right.name!r}, which is {types[1]}; derive a column of the same type in one of the streams, such as "
                f"derived={{'{theirs}_key': 'cast({theirs} as {types[0]})'}}."
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
    names = {name.lower() for name in identity}
    for name in values:
        check_column_name(name)
        if name.lower() in names:
            raise DeclarationError(
                f"result {name!r} of {what} has the name of a key, a window column or another result "
                f"({', '.join(identity)}); rename it."
            )
        names.add(name.lower())
