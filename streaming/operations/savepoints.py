"""Savepoints that are there: which, how one is found by its name, and how it is dropped."""

from __future__ import annotations

import uuid
from datetime import datetime

from streaming.base import SavepointError, can_be_name
from streaming.lake import Lake, Named
from streaming.operations.saved import RECORD, Savepoint
from streaming.tables import storage


def savepoints(lake: Lake, pipeline: Named) -> list[Savepoint]:
    """The savepoints of a pipeline, oldest first."""
    names = storage.folders(lake.savepoint(pipeline, "").rstrip("/"))
    records = filter(None, (Savepoint.read(lake, pipeline, name) for name in names))
    return sorted(records, key=lambda each: (each.taken_at, each.name))


def find_savepoint(lake: Lake, pipeline: Named, name: str) -> Savepoint:
    """The savepoint of that name.

    Raises:
        SavepointError: there is none; with those there are.
    """
    # What is asked for may be anything, such as the path to a savepoint of another pipeline.
    savepoint = Savepoint.read(lake, pipeline, name) if can_be_name(name) else None
    if savepoint is None:
        there = ", ".join(each.name for each in savepoints(lake, pipeline)) or "none"
        raise SavepointError(
            f"pipeline {pipeline.name!r} has no savepoint {name!r} in {lake.root!r}; there are: {there}. "
            f"`tidemark savepoint {pipeline.name}` takes one."
        )
    return savepoint


def drop_savepoint(lake: Lake, pipeline: Named, name: str) -> Savepoint:
    """Remove a savepoint; what only it kept goes with the next maintenance. Returns what it was.

    Raises:
        SavepointError: there is none of that name.
    """
    savepoint = find_savepoint(lake, pipeline, name)
    # The record first: whatever kills this, no savepoint is left that lacks a part.
    storage.remove(lake.savepoint(pipeline, name, RECORD))
    storage.remove_folder(lake.savepoint(pipeline, name))
    return savepoint


def unused_name(lake: Lake, pipeline: Named, at: datetime) -> str:
    """A name for a savepoint that is taken now."""
    name = f"s{at:%Y%m%d_%H%M%S}"
    return name if Savepoint.read(lake, pipeline, name) is None else f"{name}_{uuid.uuid4().hex[:6]}"
