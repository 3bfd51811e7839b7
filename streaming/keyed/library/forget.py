"""The timer function of pieces that keep a key for a time only."""

from __future__ import annotations

from streaming.keyed.fold import Key


def forget(key: Key) -> None:
    """Keep nothing of the key."""
    key.clear()
