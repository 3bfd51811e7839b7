"""How far a window join or a co-group is in each log: the table of its first results says so itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from deltalake import DeltaTable

from streaming.base import FencedError, FrozenMapping, optional_instant, to_micros
from streaming.declare import TwoSided
from streaming.joins.clock import joint_watermark
from streaming.lake import Lake
from streaming.log import Batch, head
from streaming.operators import generation_of
from streaming.tables import delta

_THROUGH, _CLOCK = "through.{}", "clock.{}"


@dataclass(frozen=True)
class JointPosition:
    """The batches of each stream's log up to `through` are followed, -1 where none is.

    `clocks` are the watermarks of the logs after them, null before the first valid row. `generation` counts how often
    the tables were built anew.
    """

    through: Mapping[str, int] = field(default_factory=lambda: FrozenMapping({}))
    clocks: Mapping[str, datetime | None] = field(default_factory=lambda: FrozenMapping({}))
    generation: int = 0

    @classmethod
    def of(cls, operator: TwoSided, table: DeltaTable | None) -> JointPosition:
        """What an open table says; nothing is followed where there is no table yet."""
        through: dict[str, int] = {}
        clocks: dict[str, datetime | None] = {}
        for stream in operator.reads:
            number = None if table is None else table.transaction_version(_THROUGH.format(stream.name))
            micros = None if table is None else table.transaction_version(_CLOCK.format(stream.name))
            through[stream.name] = -1 if number is None else number
            clocks[stream.name] = optional_instant(micros)
        return cls(FrozenMapping(through), FrozenMapping(clocks), generation_of(table))

    @classmethod
    def now(cls, lake: Lake, operator: TwoSided) -> JointPosition:
        """Where its table is now."""
        return cls.of(operator, delta.open_table(lake.table(operator)))

    @classmethod
    def at_heads(cls, lake: Lake, operator: TwoSided) -> JointPosition:
        """Where it is once it has followed all that is in its logs; starts no Spark."""
        nowhere = cls.of(operator, None)
        newest = {stream.name: head(lake, stream) for stream in operator.reads}
        return nowhere.after({name: [batch] for name, batch in newest.items() if batch is not None})

    @property
    def watermark(self) -> datetime | None:
        """The joint clock: the least of the logs' watermarks, null while one of them has none."""
        clocks = tuple(self.clocks.values())
        return joint_watermark(clocks)

    @property
    def has_begun(self) -> bool:
        """Whether a batch of each log is followed."""
        return all(number >= 0 for number in self.through.values())

    def after(self, batches: Mapping[str, Sequence[Batch]]) -> JointPosition:
        """Where it is once it has followed these `batches` as well, by stream, in order and without a gap."""
        newest = {name: each[-1] for name, each in batches.items() if each}
        through = {name: batch.number for name, batch in newest.items()}
        clocks = {name: batch.after.watermark for name, batch in newest.items()}
        return replace(
            self,
            through=FrozenMapping({**self.through, **through}),
            clocks=FrozenMapping({**self.clocks, **clocks}),
        )

    def numbers(self) -> dict[str, int]:
        """All of it but the generation, as a table keeps it, watermarks in microseconds since the epoch."""
        through = {_THROUGH.format(name): number for name, number in self.through.items()}
        known = {name: clock for name, clock in self.clocks.items() if clock is not None}
        return through | {_CLOCK.format(name): to_micros(clock) for name, clock in known.items()}

    def fence(self, operator: TwoSided, table: DeltaTable) -> None:
        """Refuse to write what follows from here where the table is elsewhere by now.

        Raises:
            FencedError: another process has taken over.
        """
        there = JointPosition.of(operator, table)
        if there != self:
            raise FencedError(
                f"{operator.kind_name} {operator.name!r} was at {self.in_words()} and is at {there.in_words()} now, so "
                "another process has taken over while this one was away. Nothing is lost; let the other one run, or "
                f"stop it and start again (`tidemark status {operator.folder}` names it)."
            )

    def in_words(self) -> str:
        """The batch of each log."""
        return " and ".join(f"batch {number} of {name}" for name, number in self.through.items())
