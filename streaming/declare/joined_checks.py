"""What a join may be given: keys that both streams have and that can be equal, bounds in order, names that are free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args

from streaming.base import (
    DeclarationError,
    check_choice,
    check_mapping,
    check_tuple,
    check_type,
    signed_interval,
)
from streaming.declare.input_side import JoinKind
from streaming.declare.joined_columns import PairColumns
from streaming.declare.stream import Stream

_LATE = ("join", "drop")
_BOUNDS = "two intervals, such as ('-1 hour', '15 minutes')"


def check_joined_types(given: Mapping[str, object]) -> None:
    """Refuse a value of another type than a join asks for; `given` holds its fields by name.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    of = f"of join {given['name']!r}"
    for side in ("left", "right"):
        check_type(f"{side} {of}", given[side], Stream, "the stream of that side")
    check_tuple(f"between {of}", given["between"], str, _BOUNDS)
    check_select(of, given["select"])


def check_select(of: str, select: object) -> None:
    """Refuse a `select` that is neither names of columns nor a mapping from names to SQL.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    columns = "a tuple of columns, or a dict from name to SQL, such as {'twice': 'n * 2'}"
    if isinstance(select, Mapping):
        check_mapping(f"select {of}", select, str, columns)
    elif select is not None:
        check_tuple(f"select {of}", select, str, columns)


def check_words(name: str, kind: str, late: str) -> None:
    """Refuse a kind, or a way with late rows, that there is not.

    Raises:
        DeclarationError: with those there are.
    """
    check_join_kind(f"of join {name!r}", kind)
    check_choice("late", late, f"of join {name!r}", _LATE)


def check_join_kind(of: str, kind: str) -> None:
    """Refuse a kind of join that there is not.

    Raises:
        DeclarationError: with those there are.
    """
    check_choice("kind", kind, of, get_args(JoinKind), "For a right join exchange the two streams.")


def check_sides(name: str, left: Stream, right: Stream) -> None:
    """Refuse two streams of one name.

    Raises:
        DeclarationError: they differ, so that it is not one stream joined with itself.
    """
    if left.name == right.name and left != right:
        raise DeclarationError(f"join {name!r} reads two streams that are called {left.name!r}; rename one of them.")


def check_between(name: str, between: tuple[str, ...]) -> None:
    """Refuse bounds that are not two intervals in order.

    Raises:
        DeclarationError: with what to write.
    """
    if len(between) != 2:
        raise DeclarationError(f"between of join {name!r} has {len(between)} entries; write {_BOUNDS}.")
    lower, upper = between
    if signed_interval(lower) >= signed_interval(upper):
        raise DeclarationError(
            f"between={between!r} of join {name!r} holds no time: {lower!r} is not less than {upper!r}. Write how much "
            f"later the right row is at least and at most, below zero for earlier: {_BOUNDS}."
        )


def check_selected_names(of: str, select: tuple[str, ...] | Mapping[str, str] | None, pair: PairColumns) -> None:
    """Refuse columns of a pair, or of a result, that are called alike.

    Raises:
        DeclarationError: with what is called alike.
    """
    # Spark does not tell `id` from `ID`.
    for what, names in (("a pair", pair.selectable), ("select", tuple(select or ()))):
        counts = Counter(column.lower() for column in names)
        if alike := sorted(column for column, count in counts.items() if count > 1):
            raise DeclarationError(
                f"{what} {of} has {', '.join(map(repr, alike))} twice; rename a column of a stream by a "
                "derived one, or select each once."
            )
    if select is not None and not select:
        raise DeclarationError(f"select {of} names no column; leave it out to keep all.")
