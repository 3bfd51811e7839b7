"""What the names of an operator's tables, and of reads of them, add to its own."""

from __future__ import annotations

CORRECTIONS, UPDATES, OPEN, LATE, STATE = "corrections", "updates", "open", "late", "state"
"""Corrections, updates and open windows of a view, late rows (a read), and what an operator keeps between two steps."""

CURRENT = "current"
"""Current results, which are a read of those tables that hold results."""

FIRST = "first"
"""First results, which are the operator's own table."""

PENDING = "pending"
"""Rows of an enrichment that wait for an answer."""

FAILED = "failed"
"""What an operator cannot be computed for (rows, pairs, windows), or rows that a lookup did not answer."""

UNMATCHED = "unmatched"
"""Rows of a join that had no partner in time."""


def corrections_of(output: str) -> str:
    """The suffix of the corrections of an output: of the results ("") CORRECTIONS."""
    return f"{output}_{CORRECTIONS}" if output else CORRECTIONS
