"""The progress of a table of an enrichment, which the table itself records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltalake import DeltaTable

from streaming.base import FencedError
from streaming.declare import Enriched
from streaming.log import Batch

STEP = "step"
_THROUGH, _ROW = "through", "row"


@dataclass(frozen=True, order=True)
class Place:
    """The rows of the log's batches up to `through` are taken, and the first `row` valid ones of the batch after it."""

    through: int = -1
    row: int = 0

    @property
    def last(self) -> int:
        """The newest batch of which rows are taken."""
        return self.through + (1 if self.row else 0)


@dataclass(frozen=True)
class Reached:
    """The number of the step that wrote the table last, -1 where none did, and how far the log was taken by then."""

    step: int = -1
    place: Place = Place()

    @classmethod
    def of(cls, table: DeltaTable | None) -> Reached:
        """The progress that an open table records."""
        numbers = [None if table is None else table.transaction_version(name) for name in (STEP, _THROUGH, _ROW)]
        step, through, row = (-1 if number is None else number for number in numbers)
        return cls(step, Place(through, max(row, 0)))

    def numbers(self) -> dict[str, int]:
        """All of it, as a table keeps it."""
        return {STEP: self.step, _THROUGH: self.place.through, _ROW: self.place.row}

    def fence(self, enriched: Enriched, table: DeltaTable) -> None:
        """Refuse to write what follows from here where the table is elsewhere by now.

        Raises:
            FencedError: another process has taken over.
        """
        there = Reached.of(table)
        if there != self:
            raise FencedError(
                f"enrichment {enriched.name!r} was at step {self.step} and is at step {there.step} now, so another "
                "process has taken over while this one was away. Nothing is lost; let the other one run, or stop it "
                f"and start again (`tidemark status {enriched.folder}` names it)."
            )


def valid_rows(batch: Batch) -> int:
    """The number of valid rows in a batch."""
    return batch.summary.rows - batch.rejected


def taken(at: Place, behind: Sequence[Batch], most: int) -> Place:
    """The place the log is taken to after `at` with at most `most` further rows; `behind` are the batches after it."""
    for batch in behind:
        left = valid_rows(batch) - at.row
        if left > most:
            return Place(at.through, at.row + most)
        at, most = Place(batch.number), most - left
    return at


def rows_between(at: Place, to: Place, batches: Sequence[Batch]) -> int:
    """The number of valid rows between two places; `batches` are those in between, of which the last may be cut."""
    whole = sum(valid_rows(batch) for batch in batches if at.through < batch.number <= to.through)
    return whole - at.row + to.row
