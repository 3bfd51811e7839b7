"""What the retention of logs keeps and drops, in words."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.base import counted
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations import Dropped, kept_days


def told_drop(entry: Dropped) -> str:
    """One line on what was dropped of a log, and why nothing more was."""
    done = "nothing to drop"
    if entry.days or entry.rows:
        done = (
            f"{counted(entry.rows, 'row')} of {counted(entry.days, 'day')} before {entry.before} dropped from the log"
        )
    return f"{entry.stream}: {done}; what follows stays: {entry.keeps}"


def told_kept(lake: Lake, pipeline: Pipeline) -> Iterator[str]:
    """A line for each log that drops days, or has dropped some."""
    for kept in kept_days(lake, pipeline):
        declared = "everything" if kept.stream.retention is None else kept.stream.retention
        since = "" if kept.kept_from is None else f"; rows of days before {kept.kept_from} are rejected"
        gone = f"; {counted(kept.rows, 'row')} of days before {kept.dropped_before} are dropped, results stay"
        yield f"retention of {kept.stream.name}: {declared}{since}{'' if kept.dropped_before is None else gone}"
