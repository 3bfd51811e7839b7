"""What a join may be given: keys that both streams have and that can be equal, bounds in order, names that are free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from streaming.base import (
    DeclarationError,
    check_mapping,
    check_tuple,
    check_type,
    kind_of,
    signed_interval,
)
from streaming.declare.joined_columns import PairColumns
from streaming.declare.stream import Stream

_KINDS, _LATE = ("inner", "left", "outer"), ("join", "leave")
_BOUNDS = "two intervals, such as ('-1 hour', '15 minutes')"


def check_joined_types(given: Mapping[str, object]) -> None:
    """Refuse a value of another type than a join asks for; `given` holds its fields by name.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    of = f"of join {given['name']!r}"
    for side in ("left", "right"):
        check_type(f"{side} {of}", given[side], Stream, "the stream of that side")
    keys = "a tuple of key columns, such as ('id',), or of pairs where they are called otherwise, such as (('a', 'b'),)"
    check_type(f"on {of}", given["on"], tuple, keys)
    for key in given["on"] if isinstance(given["on"], tuple) else ():
        check_type(f"an entry of on {of}", key, (str, tuple), keys)
        if isinstance(key, tuple) and (len(key) != 2 or not all(isinstance(name, str) for name in key)):
            raise DeclarationError(f"an entry of on {of} is {key!r}; write {keys}.")
    if not given["on"]:
        raise DeclarationError(
            f"on {of} names no key, so that every row would meet every other one; write {keys}. Where all rows belong "
            "together, derive a column that is the same in all of them."
        )
    check_tuple(f"between {of}", given["between"], str, _BOUNDS)
    select, columns = given["select"], "a tuple of columns, or a dict from name to SQL, such as {'twice': 'n * 2'}"
    if isinstance(select, Mapping):
        check_mapping(f"select {of}", select, str, columns)
    elif select is not None:
        check_tuple(f"select {of}", select, str, columns)


def check_words(name: str, kind: str, late: str) -> None:
    """Refuse a kind, or a way with late rows, that there is not.

    Raises:
        DeclarationError: with those there are.
    """
    for what, value, valid in (("kind", kind, _KINDS), ("late", late, _LATE)):
        if value not in valid:
            raise DeclarationError(f"{what}={value!r} of join {name!r} is none; use {', '.join(map(repr, valid))}.")


def check_sides(name: str, left: Stream, right: Stream) -> None:
    """Refuse two streams of one name.

    Raises:
        DeclarationError: they differ, so that it is not one stream joined with itself.
    """
    if left.name == right.name and left != right:
        raise DeclarationError(f"join {name!r} reads two streams that are called {left.name!r}; rename one of them.")


def check_keys(name: str, left: Stream, right: Stream, keys: tuple[tuple[str, str], ...]) -> None:
    """Refuse a key that a stream does not have, and one whose values can never be equal.

    Raises:
        DeclarationError: with the columns that there are, or both types.
    """
    for side, stream, place in (("left", left, 0), ("right", right, 1)):
        for key in keys:
            if key[place] not in stream.columns:
                raise DeclarationError(
                    f"key {key[place]!r} of join {name!r} is no column of its {side} stream {stream.name!r}, which has "
                    f"{', '.join(stream.columns)}. Correct the name, or declare a pair of names."
                )
        if len({key[place] for key in keys}) < len(keys):
            raise DeclarationError(f"join {name!r} names a key of its {side} stream twice; name each once.")
    for own, other in keys:
        kinds = (kind_of(left.types[own]), kind_of(right.types[other]))
        if "map" in kinds or (None not in kinds and kinds[0] != kinds[1]):
            raise DeclarationError(
                f"key {own!r} of join {name!r} is of type {left.types[own]} in {left.name!r}, and {other!r} of type "
                f"{right.types[other]} in {right.name!r}, which cannot be compared; derive a column of the same type."
            )


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


def check_selected_names(name: str, select: tuple[str, ...] | Mapping[str, str] | None, pair: PairColumns) -> None:
    """Refuse columns of a pair, or of a result, that are called alike.

    Raises:
        DeclarationError: with what is called alike.
    """
    # Spark does not tell `id` from `ID`.
    for what, names in (("a pair", pair.selectable), ("select", tuple(select or ()))):
        counts = Counter(column.lower() for column in names)
        if alike := sorted(column for column, count in counts.items() if count > 1):
            raise DeclarationError(
                f"{what} of join {name!r} has {', '.join(map(repr, alike))} twice; rename a column of a stream by a "
                "derived one, or select each once."
            )
    if select is not None and not select:
        raise DeclarationError(f"select of join {name!r} names no column; leave it out to keep all.")
