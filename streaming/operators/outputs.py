"""The tables of an operator over logs, each of which says how far it is, and what they still have to follow."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import batches_after
from streaming.operators.reached import Reached
from streaming.operators.slices import Batches, in_pieces
from streaming.tables import delta


class Outputs:
    """The tables that each step of an operator writes one after the other, its own last, because readers go by it."""

    def __init__(self, lake: Lake, operator: Operator) -> None:
        self._lake = lake
        self._operator = operator
        beside = [table.suffix for table in operator.tables if table.suffix]
        self.suffixes = [*beside, ""]

    def at(self, suffix: str) -> Reached:
        """How far a table is."""
        return Reached.of(self._operator, delta.open_table(self._lake.table(self._operator, suffix)))

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """What is to be followed, in pieces of at most `most_rows` rows of each log; follow one, then ask for the next.

        Where a step died between two of its commits, the next one ends where that one was to end.
        """
        for end in dict.fromkeys((self._next_end(), None)):
            yield from in_pieces(self._behind(end), most_rows)

    def _next_end(self) -> Reached | None:
        """Where the next step must end, because a table is there already; None where none is ahead."""
        at = self.at("")
        return next((table for table in map(self.at, self.suffixes[:-1]) if at.is_behind(table)), None)

    def _behind(self, end: Reached | None) -> Batches:
        at = self.at("").through
        new = {stream.name: batches_after(self._lake, stream, at[stream.name]) for stream in self._operator.reads}
        if end is None:
            return new
        return {name: [each for each in batches if each.number <= end.through[name]] for name, batches in new.items()}
