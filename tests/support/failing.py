"""A map before a target that raises once a number of rows has passed it, in each process anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from streaming.lake.lake import Lake
from streaming.sinks.sink import Delivered, Guarantee, NumberedBatch, PutAside, Sink, Target


class RowFailed(RuntimeError):
    """The row that the map does not survive."""


@dataclass(frozen=True)
class FailingMap(Target):
    """Rows go through to `to`; the one after `passes` raises. What keeps no batch whole has by then what passed."""

    to: Target
    passes: int = 16

    kind: ClassVar[str] = "test"
    guarantee: ClassVar[Guarantee] = "at least once"

    @property
    def address(self) -> str:
        return self.to.address

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        return _FailingSink(self.to.connect(lake, delivered), self.passes, whole=self.to.guarantee == "exactly once")


@dataclass
class _FailingSink(Sink):
    inner: Sink
    left: int
    whole: bool = field(kw_only=True)

    def delivered_through(self, generation: int) -> int | None:
        return self.inner.delivered_through(generation)

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        if batch.rows.num_rows > self.left:
            if not self.whole:
                self.inner.deliver(batch.part(0, self.left), lambda refused: None)
            raise RowFailed(f"row {self.left + 1} of batch {batch.number}")
        self.left -= batch.rows.num_rows
        self.inner.deliver(batch, put_aside)
