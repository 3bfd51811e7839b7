"""The contract of a sink: one numbered batch, delivered idempotently."""

from streaming.sinks.sink import Guarantee, NumberedBatch, RefusedRow, Sink

__all__ = [
    "Guarantee",
    "NumberedBatch",
    "RefusedRow",
    "Sink",
]
