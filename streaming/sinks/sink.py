"""The contract of a sink: the place outside the lake that a delivery carries rows to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

Guarantee = Literal["exactly once", "at least once"]
"""What a target promises when a batch is delivered again: `exactly once` where it is transactional or idempotent."""


@dataclass(frozen=True)
class NumberedBatch:
    """Rows of a table in a fixed cut: the same number of the same delivery always holds the same rows.

    `delivery` and `generation` name the delivery and the generation of the table it reads, `number` counts from 0.
    """

    delivery: str
    generation: int
    number: int
    rows: pa.Table

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt at this batch, and for no other batch."""
        return f"{self.delivery}/{self.generation}/{self.number}"


@dataclass(frozen=True)
class RefusedRow:
    """A row that the target refused: its position in the batch, and what the target said."""

    position: int
    error: str


class Sink(ABC):
    """A target, as a connection that one process holds.

    To add one, implement the methods and let `tests/streaming/sinks/contract.py` run over it.
    """

    guarantee: Guarantee

    @abstractmethod
    def delivered_through(self, delivery: str, generation: int) -> int:
        """The greatest number of a batch that the target itself knows to be delivered whole; -1 for none.

        A target that keeps no progress returns -1: then progress is kept in the lake, after the delivery.
        """

    @abstractmethod
    def deliver(self, batch: NumberedBatch) -> Sequence[RefusedRow]:
        """Deliver a batch, and with it the progress where the target keeps it; returns the rows it refused.

        Delivering a batch again leaves the target as the first time did, where the guarantee is `exactly once`.

        Raises:
            SinkError: the target refused the batch as a whole, or is away; nothing of it counts, and it is sent again.
        """
