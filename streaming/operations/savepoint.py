"""Takes a savepoint: a named, consistent cut of all tables of a pipeline, while it runs.

Each operator is cut at an instant at which none of its tables changed, so what is saved of it is what a kill at that
instant would leave. It follows some batch of its log, and every step is a function of the log: a restore steps on from
there, as a restart does. So operators need not be at the same batch, and the log is cut last, when it has all of them.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from importlib.metadata import version as release_of
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from deltalake import DeltaTable

from streaming.base import RELEASE, SavepointError, can_be_name, check_name, utc_now
from streaming.declare import CHANGES, DEAD, Delivery, Operator, Pipeline, Stream
from streaming.lake import Lake, Named, place_of_batches, place_of_log
from streaming.log import QUERY, archive_batches, head
from streaming.operators import generation_of
from streaming.service import LeasePlace, take_lease
from streaming.spark import copy_checkpoint, query_id
from streaming.tables import copy_table, delta, storage

if TYPE_CHECKING:
    from streaming.deliveries import Ledger

_LIBRARIES = ("pyspark", "deltalake")
_LOOK_EVERY = 0.02
_WAITS = 60.0

Read = TypeVar("Read")
RECORD = "savepoint.json"


def savepoint(
    lake: Lake, pipeline: Pipeline, name: str | None = None, now: Callable[[], datetime] = utc_now
) -> Savepoint:
    """Take a savepoint of a pipeline, which may run; by default it is named after the instant.

    State is copied, because its versions are removed within hours. Of all other tables the version is noted, and
    `maintain` keeps what it needs until the savepoint is dropped. Whatever kills it, there is either the savepoint or
    none.

    Raises:
        SavepointError: the name is taken, nothing was ingested yet, or the tables did not come to rest for a minute.
        LeaseError: another process takes one.
    """
    # Two of one name would copy into one folder.
    with take_lease(lake, LeasePlace(f"{pipeline.name}/savepoints"), "savepoint"):
        return _taken(lake, pipeline, name, now)


def _taken(lake: Lake, pipeline: Pipeline, name: str | None, now: Callable[[], datetime]) -> Savepoint:
    name = _unused_name(lake, pipeline, now()) if name is None else name
    check_name("savepoint", name)
    if Savepoint.read(lake, pipeline, name) is not None:
        raise SavepointError(
            f"pipeline {pipeline.name!r} has a savepoint {name!r} already; choose another name, or drop it with "
            f"`tidemark savepoint {pipeline.name} {name} --drop`."
        )
    if all(head(lake, stream) is None for stream in pipeline.streams):
        raise SavepointError(
            f"there is nothing to save of pipeline {pipeline.name!r} in {lake.root!r} yet; run `tidemark run "
            f"{pipeline.name}` first."
        )
    # What is left of one that was killed.
    storage.remove_folder(lake.savepoint(pipeline, name))
    # Deliveries before the tables that they read, and these before the logs: each is behind what comes later.
    ledgers, delivered = _cut_deliveries(lake, pipeline.deliveries)
    through: dict[str, Mapping[str, int]] = {}
    tables = [*delivered]
    for operator in pipeline.operators:
        through[operator.name], operator_tables = _at_rest(partial(_cut_operator, lake, operator), operator.name)
        tables += [_kept(lake, pipeline, name, operator, table) for table in operator_tables]
    batches: dict[str, int] = {}
    for stream in pipeline.streams:
        if stream.revised:
            tables += _cut_changes(lake, pipeline, name, stream)
        newest = _cut_log(lake, pipeline, name, stream.revisions, tables)
        if newest is not None:
            batches[stream.name] = newest
    saved = Savepoint(
        name,
        pipeline.name,
        now(),
        batches,
        through,
        tuple(tables),
        {stream.name: stream.source.location(lake) for stream in pipeline.streams},
        {operator.name: fingerprint_of(operator) for operator in pipeline.operators},
        ledgers,
        {"tidemark": RELEASE, **{each: release_of(each) for each in _LIBRARIES}},
    )
    saved.write(lake, pipeline)
    return saved


def fingerprint_of(operator: Operator) -> Mapping[str, object]:
    """The operator's fingerprint as JSON gives it back."""
    fingerprint: Mapping[str, object] = json.loads(json.dumps(dict(operator.whole_fingerprint)))
    return fingerprint


def _cut_operator(lake: Lake, operator: Operator) -> tuple[Mapping[str, int], list[SavedTable]] | None:
    """The progress of the operator and its tables now; None in the midst of a switch to tables that were built anew."""
    from streaming.operators import runtime_of

    specs = (*operator.tables, *operator.published)
    opened = {spec.suffix: delta.open_table(lake.table(operator, spec.suffix)) for spec in specs}
    own = opened[""]
    if any(generation_of(table) > generation_of(own) for table in opened.values()):
        return None
    history = {spec.suffix for spec in operator.tables if spec.keeps_history}
    tables = [
        _saved(operator, suffix, table, 0 if suffix in history else None)
        for suffix, table in opened.items()
        if table is not None
    ]
    return dict(runtime_of(operator, lake).through()), tables


def _kept(lake: Lake, pipeline: Pipeline, name: str, operator: Operator, table: SavedTable) -> SavedTable:
    """The table with a copy of it, if it is one of state."""
    state = {lake.table(operator, spec.suffix) for spec in operator.tables if spec.is_state}
    if lake.path(table.place) not in state:
        return table
    opened = delta.opened(lake.path(table.place), table.version)
    copy_table(opened, lake.savepoint(pipeline, name, "state", table.place))
    return replace(table, kept_at=f"state/{table.place}")


def _cut_deliveries(lake: Lake, deliveries: Iterable[Delivery]) -> tuple[dict[str, dict[str, int]], list[SavedTable]]:
    ledgers: dict[str, dict[str, int]] = {}
    tables: list[SavedTable] = []
    for delivery in deliveries:
        ledger, delivery_tables = _at_rest(partial(_cut_delivery, lake, delivery), delivery.name)
        if ledger is not None:
            ledgers[delivery.name] = dict(vars(ledger))
        tables += delivery_tables
    return ledgers, tables


def _cut_delivery(lake: Lake, delivery: Delivery) -> tuple[Ledger | None, list[SavedTable]]:
    from streaming.deliveries import ledger_of

    opened = {suffix: delta.open_table(lake.table(delivery, suffix)) for suffix in (DEAD, CHANGES)}
    tables = [_saved(delivery, suffix, table, None) for suffix, table in opened.items() if table is not None]
    return ledger_of(lake, delivery), tables


def _cut_log(lake: Lake, pipeline: Pipeline, name: str, stream: Stream, tables: list[SavedTable]) -> int | None:
    """Add log and archive of a stream to `tables`, and a copy of its checkpoint; returns the log's newest batch."""
    uri = lake.log(stream)
    before = delta.version_of(uri)
    if before is None:
        return None
    # What the archive has at this version is in commits up to `before`; the others are in the log's own history.
    archive_batches(lake, stream)
    archive = delta.open_table(lake.batches(stream))
    log = delta.open_table(uri)
    assert log is not None
    newest = head(lake, stream, log.version())
    if archive is not None:
        tables.append(_described(archive, place_of_batches(stream), None))
    # After the log: it then has all that was dropped from that version.
    dropped = delta.open_table(lake.dropped(stream))
    if dropped is not None:
        tables.append(_described(dropped, f"{stream.name}/dropped", None))
    tables.append(_described(log, place_of_log(stream), before))
    if stream.revised:
        return None if newest is None else newest.number
    source, memory = stream.source, {} if newest is None else newest.source
    checkpoint = source.checkpoint(lake.checkpoint(stream, QUERY), memory)
    query = query_id(checkpoint)
    query_batch = None if query is None else log.transaction_version(query)
    if query_batch is not None:
        to = source.checkpoint(lake.savepoint(pipeline, name, "checkpoints", stream.name), memory)
        copy_checkpoint(checkpoint, to, query_batch)
    return None if newest is None else newest.number


def _cut_changes(lake: Lake, pipeline: Pipeline, name: str, stream: Stream) -> list[SavedTable]:
    """The table of what stands of a stream with a key, and a copy of it, then its changes, which are no older.

    Both are behind the log of what came, from which the next step goes on.
    """
    tables: list[SavedTable] = []
    standing = delta.open_table(lake.standing(stream))
    if standing is not None:
        table = _described(standing, f"{stream.name}/standing", None)
        copy_table(standing, lake.savepoint(pipeline, name, "state", table.place))
        tables.append(replace(table, kept_at=f"state/{table.place}"))
    _cut_log(lake, pipeline, name, stream, tables)
    return tables


def _saved(owner: Operator | Delivery, suffix: str, table: DeltaTable, back_to: int | None) -> SavedTable:
    return _described(table, f"{owner.folder}/{owner.table_name(suffix)}", back_to)


def _described(table: DeltaTable, place: str, back_to: int | None) -> SavedTable:
    size = int(sum(table.get_add_actions()["size_bytes"].to_pylist()))
    return SavedTable(place, str(table.metadata().id), table.version(), size, back_to=back_to)


def _at_rest(read: Callable[[], Read | None], name: str) -> Read:
    """The value that `read` gives twice in a row, so that there was an instant at which all of it was so."""
    until, before = monotonic() + _WAITS, read()
    while monotonic() < until:
        after = read()
        if after is not None and after == before:
            return after
        before = after
        Event().wait(_LOOK_EVERY)
    raise SavepointError(
        f"the tables of {name!r} were written all the time for a minute, or are just being put in place by `tidemark "
        "rebuild`, so they could not be cut. Nothing was saved; run the command again, or start the pipeline, which "
        "finishes what was rebuilt."
    )


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

    @property
    def batches_in_words(self) -> str:
        """The newest batch of each log, for people."""
        return ", ".join(f"batch {batch:,} of {stream}" for stream, batch in self.batches.items())

    def of(self, place: str) -> SavedTable | None:
        """The table that lies at a place below the lake's root; None where it was not there yet."""
        return next((table for table in self.tables if table.place == place), None)

    def write(self, lake: Lake, pipeline: Named) -> None:
        """Put the record in place whole: from then on there is the savepoint."""
        document = {**asdict(self), "taken_at": self.taken_at.isoformat()}
        storage.put_whole(lake.savepoint(pipeline, self.name, RECORD), json.dumps(document).encode())

    @classmethod
    def read(cls, lake: Lake, pipeline: Named, name: str) -> Savepoint | None:
        """The savepoint of that name; None where there is none."""
        text = storage.read_text(lake.savepoint(pipeline, name, RECORD))
        if text is None:
            return None
        document = json.loads(text)
        tables = tuple(SavedTable(**table) for table in document.pop("tables"))
        return cls(**{**document, "tables": tables, "taken_at": datetime.fromisoformat(document["taken_at"])})


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


def _unused_name(lake: Lake, pipeline: Named, at: datetime) -> str:
    """A name for a savepoint that is taken now."""
    name = f"s{at:%Y%m%d_%H%M%S}"
    return name if Savepoint.read(lake, pipeline, name) is None else f"{name}_{uuid.uuid4().hex[:6]}"


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
