"""The keys by which rows of two streams meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from streaming.base import DeclarationError, FrozenMapping, kind_of
from streaming.declare.meeting import how_rounded
from streaming.declare.stream import Stream

_WRITE = "a tuple of the columns that both streams have, such as ('id',), or a dict such as {'id': 'order_id'}"
JoinKind = Literal["inner", "left", "outer"]
"""Which rows give a result: those with a partner, those of the left side also without one, or those of either."""

SideName = Literal["left", "right"]


def keys_of(of: str, on: tuple[str, ...] | Mapping[str, str]) -> FrozenMapping[str, str]:
    """The keys of the left stream, each with that of the right one; `of` says whose they are.

    Raises:
        DeclarationError: `on` is empty, or repeats a key.
    """
    if isinstance(on, Mapping):
        keys = {left.strip("`"): right.strip("`") for left, right in on.items()}
    else:
        keys = {name.strip("`"): name.strip("`") for name in on}
        if len(keys) < len(on):
            raise DeclarationError(f"on={on!r} {of} repeats a key", "name each once.", field="on", value=on)
    if not keys:
        raise DeclarationError(
            f"on {of} names no key, so that every row would meet every other one",
            f"write {_WRITE}. Where all rows belong together, derive a column that is the same in all of them.",
        )
    return FrozenMapping(keys)


def check_keys_there(of: str, keys: Mapping[str, str], left: Stream, right: Stream) -> None:
    """Refuse a key that a stream does not have, one that is there twice, and one whose values can never be equal.

    Raises:
        DeclarationError: with the columns that there are, or both types.
    """
    for side, stream, names in (("left", left, list(keys)), ("right", right, list(keys.values()))):
        for name in names:
            if name not in stream.columns:
                raise DeclarationError(
                    f"key {name!r} {of} is no column of its {side} stream {stream.name!r}, which has "
                    f"{', '.join(stream.columns)}.",
                    "Correct the name, or map the left one's to the right one's.",
                    stream=stream.name,
                    choices=tuple(stream.columns),
                )
        if len(set(names)) < len(names):
            raise DeclarationError(
                f"on {of} names a key of its {side} stream {stream.name!r} twice", "name each once.", stream=stream.name
            )
    for own, other in keys.items():
        kinds = (kind_of(left.types[own]), kind_of(right.types[other]))
        if "map" in kinds or (None not in kinds and kinds[0] != kinds[1]):
            raise DeclarationError(
                f"key {own!r} {of} is of type {left.types[own]} in {left.name!r}, and {other!r} of type "
                f"{right.types[other]} in {right.name!r}, which cannot be compared",
                "derive a column of the same type.",
            )


def check_keys_meet_exactly(of: str, keys: Mapping[str, str], left: Stream, right: Stream) -> None:
    """Refuse keys of which Spark would round one to compare it with the other.

    Raises:
        DeclarationError: with both types.
    """
    for own, other in keys.items():
        types = (left.types[own], right.types[other])
        if (how := how_rounded(*types)) is None:
            continue
        raise DeclarationError(
            f"key {own!r} {of} is of type {types[0]} in {left.name!r}, and {other!r} of type {types[1]} in "
            f"{right.name!r}; Spark would compare them {how}.",
            "Derive a column of the same type.",
        )


@dataclass(frozen=True)
class InputSide:
    """The rows of a stream that come in on the `left` or `right`, with the columns that are its keys."""

    name: SideName
    stream: Stream
    keys: tuple[str, ...]
