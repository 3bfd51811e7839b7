"""What the newest changes of a delivery follow from: the table of changes says so itself."""

from __future__ import annotations

from dataclasses import dataclass

from deltalake import DeltaTable

from streaming.tables import delta

NOTHING_CLOSED = -(2**62)


@dataclass(frozen=True)
class Seen:
    """What the newest changes follow from: `closed` (a watermark in microseconds) of the first results, the updates
    through a batch, a version of the corrections, a `step` of a join, all of one generation; `revision` numbers the
    changes.

    `again`: the next changes repeat everything, whatever was told.
    """

    revision: int = -1
    closed: int = NOTHING_CLOSED
    updates: int = -1
    corrections: int = delta.BEFORE
    step: int = -1
    of_generation: int = 0
    again: int = 0

    @classmethod
    def of(cls, table: DeltaTable | None) -> Seen:
        """What an open table of changes says."""
        kept = {name: None if table is None else table.transaction_version(name) for name in cls.__annotations__}
        return cls(**{name: number for name, number in kept.items() if number is not None})
