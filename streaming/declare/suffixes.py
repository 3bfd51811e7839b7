"""What the names of an operator's tables, and of reads of them, add to its own."""

from __future__ import annotations

CORRECTIONS, UPDATES, OPEN, LATE, STATE = "corrections", "updates", "open", "late", "state"

CURRENT = "current"
"""Current results, which are a read of those tables that hold results."""
