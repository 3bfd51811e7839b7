"""How far a table of a keyed function is in each of its logs: the table says so itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from deltalake import DeltaTable

from streaming.base import FencedError, FrozenMapping, optional_instant, optional_micros
from streaming.declare import Keyed
from streaming.log import Batch
from streaming.operators import GENERATION, generation_of

_THROUGH, _CLOSED = "through", "closed"


@dataclass(frozen=True)
class Reached:
    """The batches of each stream's log up to `through` are followed, -1 where none is.

    `closed` has the clock of each stream after that batch, null before its first valid row. `generation` counts how
    often the function's tables were built anew.
    """

    through: Mapping[str, int] = field(default_factory=lambda: FrozenMapping({}))
    closed: Mapping[str, datetime | None] = field(default_factory=lambda: FrozenMapping({}))
    generation: int = 0

    @classmethod
    def of(cls, keyed: Keyed, table: DeltaTable | None) -> Reached:
        """What an open table says; nothing is followed where there is no table yet."""
        through: dict[str, int] = {}
        closed: dict[str, datetime | None] = {}
        for stream in keyed.streams:
            names = _names(keyed, stream.name)
            batch, mark = (None if table is None else table.transaction_version(name) for name in names)
            through[stream.name] = -1 if batch is None else batch
            closed[stream.name] = optional_instant(mark)
        return cls(FrozenMapping(through), FrozenMapping(closed), generation_of(table))

    @property
    def watermark(self) -> datetime | None:
        """What the clocks of all streams have passed: the least of them; null before each has one."""
        marks = [mark for mark in self.closed.values() if mark is not None]
        return min(marks) if len(marks) == len(self.closed) else None

    @property
    def has_begun(self) -> bool:
        """Whether a step was made from here or before."""
        return any(number >= 0 for number in self.through.values())

    def is_behind(self, other: Reached) -> bool:
        """Whether `other` has followed a batch that is not followed here."""
        return any(self.through[name] < number for name, number in other.through.items())

    def after(self, batches: Mapping[str, Sequence[Batch]]) -> Reached:
        """Where the table is once it has followed these `batches` as well, by stream."""
        newest = {name: each[-1] for name, each in batches.items() if each}
        return replace(
            self,
            through=FrozenMapping({**self.through, **{name: batch.number for name, batch in newest.items()}}),
            closed=FrozenMapping({**self.closed, **{name: batch.after.watermark for name, batch in newest.items()}}),
        )

    def numbers(self, keyed: Keyed) -> dict[str, int]:
        """All of it as a table keeps it, clocks in microseconds since the epoch."""
        numbers = {GENERATION: self.generation} if self.generation else {}
        for name, batch in self.through.items():
            mark = optional_micros(self.closed[name])
            kept = zip(_names(keyed, name), (batch, mark), strict=True)
            numbers |= {each: number for each, number in kept if number is not None}
        return numbers

    def metadata(self, after: Reached) -> dict[str, object]:
        """What the commit of a step from here says, for people: where it ends and where it began."""
        if len(self.through) == 1:
            return {"through": max(after.through.values()), "after": max(self.through.values())}
        return {"through": dict(after.through), "after": dict(self.through)}

    def fence(self, keyed: Keyed, table: DeltaTable) -> None:
        """Refuse to write what follows from here where the table is elsewhere by now.

        Raises:
            FencedError: another process has taken over.
        """
        there = Reached.of(keyed, table)
        if there != self:
            raise FencedError(
                f"keyed function {keyed.name!r} was at batch {self} and is at batch {there} now, so another process "
                "has taken over while this one was away. Nothing is lost; let the other one run, or stop it and start "
                f"again (`tidemark status {keyed.folder}` names it)."
            )

    def __str__(self) -> str:
        if len(self.through) == 1:
            return f"{max(self.through.values()):,}"
        return ", ".join(f"{number:,} of {name}" for name, number in self.through.items())


def _names(keyed: Keyed, stream: str) -> tuple[str, str]:
    """The numbers of a table that tell how far it is in the log of the stream."""
    suffix = "" if len(keyed.streams) == 1 else f".{stream}"
    return f"{_THROUGH}{suffix}", f"{_CLOSED}{suffix}"
