"""The tables of an operator over logs, each of which says how far it is, and what they still have to follow."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import batches_after
from streaming.operators.progress import Progress
from streaming.operators.stepped import Batches, in_pieces
from streaming.tables import delta


class Outputs:
    """The tables that each step of an operator writes one after the other, its own last, because readers go by it.

    A step begins where the table `begins_at` is: the operator's own, or the state that it writes after that.
    """

    def __init__(self, lake: Lake, operator: Operator, *, begins_at: str = "") -> None:
        self._lake = lake
        self._operator = operator
        self._begins_at = begins_at
        beside = [table.suffix for table in operator.streamed if table.suffix]
        self.suffixes = [*beside, ""]

    def at(self, suffix: str) -> Progress:
        """The progress of the table with this suffix."""
        return Progress.of(self._operator, delta.open_table(self._lake.table(self._operator, suffix)))

    def position(self) -> Progress:
        """Where the next step begins."""
        return self.at(self._begins_at)

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log; follow one, then ask for the next.

        Where a step died between two of its commits, the next one ends where that one was to end.
        """
        position = self.position()
        ahead = self._ahead_of(position)
        if ahead is not None:
            new = self.behind(position)
            yield from in_pieces(
                {name: [each for each in new[name] if each.number <= end] for name, end in ahead.through.items()},
                most_rows,
            )
            position = self.position()
        yield from in_pieces(self.behind(position), most_rows)

    def behind(self, position: Progress) -> Batches:
        """The batches of each log that are to be followed from a position on."""
        streams = self._operator.follows
        return {each.name: batches_after(self._lake, each, position.through[each.name]) for each in streams}

    def _ahead_of(self, position: Progress) -> Progress | None:
        """Where a table is that is ahead of the others; None where none is."""
        others = (self.at(suffix) for suffix in self.suffixes if suffix != self._begins_at)
        return next((table for table in others if position.is_behind(table)), None)
