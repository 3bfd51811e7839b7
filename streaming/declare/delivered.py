"""What can be delivered, and the names that deliveries give to their tables."""

from __future__ import annotations

from typing import Literal

What = Literal["first", "current", "rows", "rejected", "late", "dead"]
"""What is delivered: first results, changes of what is current, valid, rejected or late rows, or dead letters."""

DEAD, CHANGES, PROGRESS = "dead", "changes", "delivered"
"""What the names of a delivery's tables add to its own."""

DEAD_LETTER = ("generation", "batch", "position", "payload", "error", "attempt", "origin", "at")
"""The columns of a dead letter."""

OFFERS: dict[str, tuple[What, ...]] = {
    "stream": ("rows", "rejected", "late"),
    "view": ("first", "current", "late"),
    "delivery": ("dead",),
}
"""What there is to deliver, by what it is of; the first is what is meant if nothing is said."""
