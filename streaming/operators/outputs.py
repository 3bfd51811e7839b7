"""The tables of an operator over logs, each of which says how far it is, and what they still have to follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import batches_after
from streaming.operators.reached import Reached
from streaming.operators.slices import Batches, in_pieces
from streaming.tables import delta

At = TypeVar("At", bound=Reached)


class Outputs(Generic[At]):
    """The tables that each step of an operator writes one after the other, its own last, because readers go by it.

    A step begins where the table `begins_at` is: the operator's own, or the state that it writes after that.
    """

    def __init__(self, lake: Lake, operator: Operator, reached: type[At], *, begins_at: str = "") -> None:
        self._lake = lake
        self._operator = operator
        self._reached = reached
        self._begins_at = begins_at
        beside = [table.suffix for table in operator.streamed if table.suffix]
        self.suffixes = [*beside, ""]

    def at(self, suffix: str) -> At:
        """How far a table is."""
        return self._reached.of(self._operator, delta.open_table(self._lake.table(self._operator, suffix)))

    def position(self) -> At:
        """Where the next step begins."""
        return self.at(self._begins_at)

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """What is to be followed, in pieces of at most `most_rows` rows of each log; follow one, then ask for the next.

        Where a step died between two of its commits, the next one ends where that one was to end.
        """
        for end in dict.fromkeys((self._next_end(), None)):
            yield from in_pieces(self.behind(end), most_rows)

    def behind(self, end: Reached | None = None) -> Batches:
        """The batches of each log that are to be followed, up to `end` where there is one."""
        at = self.position().through
        new = {stream.name: batches_after(self._lake, stream, at[stream.name]) for stream in self._operator.follows}
        if end is None:
            return new
        return {name: [each for each in batches if each.number <= end.through[name]] for name, batches in new.items()}

    def _next_end(self) -> At | None:
        """Where the next step must end, because a table is there already; None where none is ahead."""
        at, others = self.position(), (suffix for suffix in self.suffixes if suffix != self._begins_at)
        return next((table for table in map(self.at, others) if at.is_behind(table)), None)
