"""How far a view's stream has read the log: what maintenance must leave alone."""

from __future__ import annotations

from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.operators import ReadPosition
from streaming.spark import batch_numbers, offset_of, version_reached
from streaming.views.bootstrap import Bootstrap


def position(lake: Lake, view: Windowed) -> ReadPosition | None:
    """The position of the view's stream; None while it has not begun, so that nothing needs to be kept for it."""
    checkpoint = lake.operator_checkpoint(view)
    offsets = batch_numbers(f"{checkpoint}/offsets")
    if not offsets:
        return None
    newest = offsets[-1]
    at, in_snapshot = version_reached(offset_of(checkpoint, newest))
    if newest - 1 in offsets:
        # Spark plans the newest batch anew after a restart, also when it was committed.
        before, before_in_snapshot = version_reached(offset_of(checkpoint, newest - 1))
    else:
        bootstrapped = Bootstrap.of(lake, view) is not None
        before, before_in_snapshot = (at, True) if bootstrapped else (0, False)
    if newest not in batch_numbers(f"{checkpoint}/commits"):
        at, in_snapshot = before, before_in_snapshot
    return ReadPosition(entries=before, rows=0 if in_snapshot else at)
