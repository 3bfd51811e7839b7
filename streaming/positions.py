"""How far a view's stream has read the log, by its checkpoint: what maintenance must leave alone."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow.fs as pa_fs

from streaming import delta
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
    files = delta.files(lake.root)
    checkpoint = lake.checkpoint(view.of, view.name).removeprefix(f"{lake.path()}/")
    offsets = _numbers(files, f"{checkpoint}/offsets")
    if not offsets:
        return None
    newest = offsets[-1]
    at, in_snapshot = _offset(files, f"{checkpoint}/offsets/{newest}")
    if newest - 1 in offsets:
        # Spark plans the newest batch anew after a restart, also when it was committed.
        before, before_in_snapshot = _offset(files, f"{checkpoint}/offsets/{newest - 1}")
    else:
        bootstrapped = Bootstrap.of(lake, view) is not None
        before, before_in_snapshot = (at, True) if bootstrapped else (0, False)
    if newest not in _numbers(files, f"{checkpoint}/commits"):
        at, in_snapshot = before, before_in_snapshot
    return Position(entries=before, rows=0 if in_snapshot else at)


def _numbers(files: pa_fs.FileSystem, folder: str) -> list[int]:
    selector = pa_fs.FileSelector(folder, allow_not_found=True)
    return sorted(int(info.base_name) for info in files.get_file_info(selector) if info.base_name.isdigit())


def _offset(files: pa_fs.FileSystem, path: str) -> tuple[int, bool]:
    """Version of the log, and whether it is that of the snapshot, at which a batch of the query ends."""
    with files.open_input_stream(path) as stream:
        offset = json.loads(stream.read().decode().splitlines()[-1])
    return offset["reservoirVersion"], offset.get("isInitialSnapshot", offset.get("isStartingVersion", False))
