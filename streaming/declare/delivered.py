"""The rows that can be delivered, and the names that deliveries give to their tables."""

from __future__ import annotations

from typing import Literal

What = Literal["first", "current", "rows", "rejected", "late", "dead"]
"""The rows that are delivered: first results, changes of current ones, valid, rejected or late rows, dead letters."""

DEAD, CHANGES, PROGRESS = "dead", "changes", "delivered"
"""The suffixes that the names of a delivery's tables add to its own."""

DEAD_LETTER = ("generation", "batch", "position", "payload", "error", "attempt", "origin", "at")
"""The columns of a dead letter."""

OFFERS: dict[str, tuple[What, ...]] = {
    "stream": ("rows", "rejected", "late"),
    "view": ("first", "current", "late"),
    "delivery": ("dead",),
}
"""The rows that can be delivered, by what they are of; the first is what is meant if nothing is said."""
