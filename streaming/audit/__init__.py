"""The laws of the design, recomputed from a lake as it stands."""

from streaming.audit.laws import audit

__all__ = [
    "audit",
]
