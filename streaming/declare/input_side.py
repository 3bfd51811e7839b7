"""One of the two inputs of an operator that brings rows of two streams together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streaming.declare.stream import Stream

JoinKind = Literal["inner", "left", "outer"]
"""Which rows give a result: those with a partner, those of the left side also without one, or those of either."""

SideName = Literal["left", "right"]


@dataclass(frozen=True)
class InputSide:
    """The rows of a stream that come in on the `left` or `right`, with the columns that are its keys."""

    name: SideName
    stream: Stream
    keys: tuple[str, ...]
