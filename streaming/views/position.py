"""How far a view's stream has read the log: what maintenance must leave alone."""

from __future__ import annotations

from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.operators import ReadPosition
from streaming.spark import _numbers, _offset, _reached
from streaming.views.bootstrap import Bootstrap


def position(lake: Lake, view: Windowed) -> ReadPosition | None:
    """The position of the view's stream; None while it has not begun, so that nothing needs to be kept for it."""
    checkpoint = lake.operator_checkpoint(view)
    offsets = _numbers(f"{checkpoint}/offsets")
    if not offsets:
        return None
    newest = offsets[-1]
    at, in_snapshot = _reached(_offset(checkpoint, newest))
    if newest - 1 in offsets:
        # Spark plans the newest batch anew after a restart, also when it was committed.
        before, before_in_snapshot = _reached(_offset(checkpoint, newest - 1))
    else:
        bootstrapped = Bootstrap.of(lake, view) is not None
        before, before_in_snapshot = (at, True) if bootstrapped else (0, False)
    if newest not in _numbers(f"{checkpoint}/commits"):
        at, in_snapshot = before, before_in_snapshot
    return ReadPosition(entries=before, rows=0 if in_snapshot else at)
