"""The contract of a sink: one numbered batch, delivered idempotently."""
