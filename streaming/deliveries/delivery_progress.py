"""The progress of a delivery, for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeliveryProgress:
    """The progress of a delivery: its batch and generation, rows sent and dead, and how far behind its table it is.

    `behind`: units (batches, revisions, or microseconds of window ends) that it has yet to deliver; 0 for none.
    """

    generation: int
    delivered: int
    rows: int
    dead: int
    behind: int
