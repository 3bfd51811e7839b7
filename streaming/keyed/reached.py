"""How far a table of a keyed function is in each of its logs: the table says so itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from deltalake import DeltaTable

from streaming import operators
from streaming.base import FrozenMapping, optional_instant, optional_micros
from streaming.declare import Operator
from streaming.operators import GENERATION, generation_of

_THROUGH, _CLOSED = "through", "closed"


@dataclass(frozen=True)
class Reached(operators.Reached):
    """The same of the streams whose rows the function is called for, and not of those that it pins."""

    @classmethod
    def of(cls, operator: Operator, table: DeltaTable | None) -> Self:
        """What an open table says; nothing is followed where there is no table yet."""
        names = _names([stream.name for stream in operator.follows])
        numbers = {
            stream: [None if table is None else table.transaction_version(name) for name in of_stream]
            for stream, of_stream in names.items()
        }
        return cls(
            through=FrozenMapping({name: -1 if batch is None else batch for name, (batch, _) in numbers.items()}),
            watermarks=FrozenMapping({name: optional_instant(mark) for name, (_, mark) in numbers.items()}),
            generation=generation_of(table),
        )

    def numbers(self) -> dict[str, int]:
        """All of it as a table keeps it, watermarks in microseconds since the epoch."""
        numbers = {GENERATION: self.generation} if self.generation else {}
        for stream, (through, closed) in _names(list(self.through)).items():
            mark = optional_micros(self.watermarks[stream])
            numbers |= {through: self.through[stream], **({} if mark is None else {closed: mark})}
        return numbers

    def metadata(self, after: Self) -> dict[str, object]:
        """What the commit of a step from here says, for people: where it ends and where it began."""
        if len(self.through) == 1:
            return {"through": max(after.through.values()), "after": max(self.through.values())}
        return {"through": dict(after.through), "after": dict(self.through)}


def _names(streams: list[str]) -> dict[str, tuple[str, str]]:
    """The numbers of a table that tell how far it is in the log of each stream, and where the clock was then."""
    if len(streams) == 1:
        return {streams[0]: (_THROUGH, _CLOSED)}
    return {stream: (f"{_THROUGH}.{stream}", f"{_CLOSED}.{stream}") for stream in streams}
