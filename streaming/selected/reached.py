"""How far a table of a selection is, and what its filter did so far: the table says so itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltalake import DeltaTable

from streaming.base import FencedError, FrozenMapping
from streaming.declare import Selected
from streaming.log import Batch
from streaming.operators import FilterCounts, generation_of

_THROUGH, _BATCH, _ROWS_IN, _KEPT = "through.{}", "batch", "rows_in", "kept"


@dataclass(frozen=True)
class Reached:
    """The batches of each stream's log up to `through` are followed; -1 where none is.

    `batch` is the newest of the table's own sequence: of one stream that of its log, of several the number of the step.
    """

    through: Mapping[str, int] = field(default_factory=lambda: FrozenMapping({}))
    batch: int = -1
    counts: FilterCounts = field(default_factory=FilterCounts)
    generation: int = 0

    @classmethod
    def of(cls, selected: Selected, table: DeltaTable | None) -> Reached:
        """What an open table says; nothing is followed where there is no table yet."""
        numbers = {
            name: None if table is None else table.transaction_version(name)
            for name in (*(_THROUGH.format(stream.name) for stream in selected.reads), _BATCH, _ROWS_IN, _KEPT)
        }
        through = {stream.name: numbers[_THROUGH.format(stream.name)] for stream in selected.reads}
        batch = numbers[_BATCH]
        return cls(
            FrozenMapping({name: -1 if number is None else number for name, number in through.items()}),
            -1 if batch is None else batch,
            FilterCounts(numbers[_ROWS_IN] or 0, numbers[_KEPT] or 0),
            generation_of(table),
        )

    def is_behind(self, other: Reached) -> bool:
        """Whether `other` has followed a batch that is not followed here."""
        return any(self.through[name] < number for name, number in other.through.items())

    def after(self, batches: Mapping[str, Sequence[Batch]]) -> Reached:
        """Where the table is once it has followed these `batches` as well, by stream."""
        newest = {name: each[-1].number for name, each in batches.items() if each}
        through = FrozenMapping({**self.through, **newest})
        return replace(self, through=through, batch=self.batch + 1 if len(through) > 1 else max(through.values()))

    def numbers(self) -> dict[str, int]:
        """All of it but the generation, as a table keeps it."""
        through = {_THROUGH.format(name): number for name, number in self.through.items()}
        return {**through, _BATCH: self.batch, _ROWS_IN: self.counts.rows_in, _KEPT: self.counts.kept}

    def fence(self, selected: Selected, table: DeltaTable) -> None:
        """Refuse to write what follows from here where the table is elsewhere by now.

        Raises:
            FencedError: another process has taken over.
        """
        there = Reached.of(selected, table)
        if there != self:
            raise FencedError(
                f"selection {selected.name!r} was at batch {self.batch} and is at batch {there.batch} now, so another "
                "process has taken over while this one was away. Nothing is lost; let the other one run, or stop it "
                f"and start again (`tidemark status {selected.folder}` names it)."
            )
