"""How far a view's stream has read the log, by its checkpoint: what maintenance must leave alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from streaming import storage
from streaming.bootstrap import Bootstrap
from streaming.lake import Lake
from streaming.windowed import Windowed


@dataclass(frozen=True)
class Position:
    """Two versions of the log: `entries` is the first whose commit a restart looks at, `rows` the first whose rows are
    not in the view yet; 0 while it still reads the snapshot it began with.
    """

    entries: int
    rows: int


def position(lake: Lake, view: Windowed) -> Position | None:
    """The position of the view's stream; None while it has not begun, so that nothing needs to be kept for it."""
    checkpoint = lake.checkpoint(view.of, view.name)
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
    return Position(entries=before, rows=0 if in_snapshot else at)


def stamps_before(checkpoint: str, batch: int) -> int | None:
    """The first version of the log whose stamps a batch of a view's query does not go by; None where nobody knows.

    A batch closes windows by the stamps of those before it (fact S3), so that is where the one before it ended.
    """
    if batch == 0:
        return 0
    offset = _offset(checkpoint, batch - 1)
    if offset is None:
        return None
    at, in_snapshot = _reached(offset)
    # A commit of very many files may be read in parts; the first one brings its stamp.
    return 0 if in_snapshot else at + (offset["index"] >= 0)


def _numbers(folder: str) -> list[int]:
    return sorted(int(info.base_name) for info in storage.listed(folder) if info.base_name.isdigit())


def _offset(checkpoint: str, batch: int) -> dict[str, Any] | None:
    """Where a batch of the query ends, in the words of Delta's source; None where that is not known."""
    text = storage.read_text(f"{checkpoint}/offsets/{batch}")
    return None if text is None else json.loads(text.splitlines()[-1])


def _reached(offset: dict[str, Any] | None) -> tuple[int, bool]:
    """Version of the log, and whether it is that of the snapshot, of an offset."""
    assert offset is not None, "it was listed and is gone"
    return offset["reservoirVersion"], offset.get("isInitialSnapshot", offset.get("isStartingVersion", False))
