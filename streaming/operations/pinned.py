"""The versions of tables that savepoints keep from going, and their cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations.savepoint import SavedTable, Savepoint, savepoints
from streaming.tables import delta


@dataclass(frozen=True)
class Pinned:
    """Data files of `versions`, and log entries since the first of `entries`, that savepoints need of one table."""

    versions: frozenset[int] = frozenset()
    entries: frozenset[int] = frozenset()


def pinned(lake: Lake, pipeline: Pipeline) -> Mapping[str, Pinned]:
    """The versions and log entries that the savepoints of a pipeline need, by the tables' places in the lake."""
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
    """The cost of a savepoint: bytes of its copies, and of files that would be gone without it."""
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
    """True if the table is still there: one that was removed and made anew has other versions."""
    table = delta.open_table(uri)
    return table is not None and str(table.metadata().id) == saved.identity
