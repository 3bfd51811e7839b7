"""The laws of the design, recomputed from a lake as it stands."""

from streaming.audit.findings import (
    Finding,
)
from streaming.audit.laws import (
    audit,
)

__all__ = [
    "Finding",
    "audit",
]
