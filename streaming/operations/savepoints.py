"""Savepoints that are there: what each is a cut of, what it keeps, and how it is dropped."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from deltalake import DeltaTable

from streaming.base import SavepointError, can_be_name
from streaming.declare import Pipeline
from streaming.lake import Lake, Named
from streaming.tables import delta, storage

_RECORD = "savepoint.json"


@dataclass(frozen=True)
class SavedTable:
    """A table at the `version` of a savepoint: its `place` below the lake's root, its identity, its bytes of data.

    `kept_at`: the place of a copy, of a table whose versions its writer removes; empty where maintenance keeps the
    version itself. The history is needed back to the version `back_to`; null where it tells nothing.
    """

    place: str
    identity: str
    version: int
    size: int
    kept_at: str = ""
    back_to: int | None = None


@dataclass(frozen=True)
class Savepoint:
    """A consistent cut of all tables of a pipeline.

    `batches`: the newest batch of each log. `through`: the batches up to which each operator follows the logs that it
    reads, which are not above them; from there its steps go on. `made_by`: the fingerprint of each operator. `sources`:
    where each stream's source was. `deliveries`: what the ledger of each said. `releases`: of what wrote the tables.
    """

    name: str
    pipeline: str
    taken_at: datetime
    batches: Mapping[str, int]
    through: Mapping[str, Mapping[str, int]]
    tables: tuple[SavedTable, ...]
    sources: Mapping[str, str]
    made_by: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    deliveries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    releases: Mapping[str, str] = field(default_factory=dict)

    def of(self, place: str) -> SavedTable | None:
        """The table that lies at a place below the lake's root; None where it was not there yet."""
        return next((table for table in self.tables if table.place == place), None)

    def write(self, lake: Lake, pipeline: Named) -> None:
        """Put the record in place whole: from then on there is the savepoint."""
        document = {**asdict(self), "taken_at": self.taken_at.isoformat()}
        storage.put_whole(lake.savepoint(pipeline, self.name, _RECORD), json.dumps(document).encode())

    @classmethod
    def read(cls, lake: Lake, pipeline: Named, name: str) -> Savepoint | None:
        """The savepoint of that name; None where there is none."""
        text = storage.read_text(lake.savepoint(pipeline, name, _RECORD))
        if text is None:
            return None
        document = json.loads(text)
        tables = tuple(SavedTable(**table) for table in document.pop("tables"))
        return cls(**{**document, "tables": tables, "taken_at": datetime.fromisoformat(document["taken_at"])})


@dataclass(frozen=True)
class Pinned:
    """What savepoints need of one table: data files of the `versions`, and log entries since the first of `entries`."""

    versions: frozenset[int] = frozenset()
    entries: frozenset[int] = frozenset()


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
    storage.remove(lake.savepoint(pipeline, name, _RECORD))
    storage.remove_folder(lake.savepoint(pipeline, name))
    return savepoint


def pinned(lake: Lake, pipeline: Pipeline) -> Mapping[str, Pinned]:
    """What the savepoints of a pipeline need of tables in the lake, by the tables' places."""
    versions: dict[str, set[int]] = defaultdict(set)
    entries: dict[str, set[int]] = defaultdict(set)
    for saved in savepoints(lake, pipeline):
        for table in saved.tables:
            uri = lake.path(table.place)
            if not table.kept_at and _is_same(uri, table):
                versions[uri].add(table.version)
                entries[uri] |= {table.version, table.version if table.back_to is None else table.back_to}
    return {uri: Pinned(frozenset(versions[uri]), frozenset(entries[uri])) for uri in versions}


def kept_bytes(lake: Lake, saved: Savepoint) -> int:
    """What a savepoint costs: bytes of its copies, and of files that would be gone without it."""
    return sum(_kept_of(lake, table) for table in saved.tables)


def _kept_of(lake: Lake, table: SavedTable) -> int:
    if table.kept_at:
        return table.size
    then, now = (delta.open_table(lake.path(table.place), version) for version in (table.version, None))
    if then is None or now is None:
        return 0
    live = set(now.get_add_actions()["path"].to_pylist())
    return sum(size for path, size in _files(then) if path not in live)


def _files(table: DeltaTable) -> Iterator[tuple[str, int]]:
    added = table.get_add_actions()
    return zip(added["path"].to_pylist(), added["size_bytes"].to_pylist(), strict=True)


def _is_same(uri: str, saved: SavedTable) -> bool:
    """Whether the table is still there: one that was removed and made anew has other versions."""
    table = delta.open_table(uri)
    return table is not None and str(table.metadata().id) == saved.identity


def unused_name(lake: Lake, pipeline: Named, at: datetime) -> str:
    """A name for a savepoint that is taken now."""
    name = f"s{at:%Y%m%d_%H%M%S}"
    return name if Savepoint.read(lake, pipeline, name) is None else f"{name}_{uuid.uuid4().hex[:6]}"
