"""From the state that an older declaration left to today's: every key once, in one commit of the table.

The table's property says first what is to be migrated, then the commit of the rows says by a number that it was. So
whoever dies in between finds it still to be done, and whoever has the older declaration is refused from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.base import (
    ChangedDeclaration,
    FunctionError,
    arrow_schema,
    computes_as_sql,
    counted,
    kept_as,
    python_values,
    raised,
)
from streaming.declare import STATE, Keyed, described
from streaming.keyed.buckets import Buckets
from streaming.keyed.compatible import added_fields, added_outputs, is_migrated, is_of_today, version_of
from streaming.keyed.fold import as_json
from streaming.keyed.frame import hash_of, in_buckets
from streaming.keyed.schemas import CopiesRows, spark_schema
from streaming.keyed.source_text import SOURCE, source_number
from streaming.keyed.state_table import BUCKETS, DUE, HASH, TIMERS
from streaming.keyed.tasks import REPORT, WRITTEN, BucketFile
from streaming.lake import Lake
from streaming.operators import Outputs, Progress, declaration_properties, recorded_declaration
from streaming.tables import TaskFile, delta

_MIGRATED = "migrated"
"""The number of the state's table that tells how many of the migrations in its property are done."""

_MIGRATIONS = "migrations"


def check_whole(lake: Lake, keyed: Keyed) -> None:
    """Refuse to migrate state that is behind results: the rest of that step is the older function's.

    Raises:
        ChangedDeclaration: with what to do first.
    """
    outputs = Outputs(lake, keyed, begins_at=STATE)
    tables = {suffix: delta.open_table(lake.table(keyed, suffix)) for suffix in (*outputs.suffixes, STATE)}
    recorded = [recorded_declaration(table) for table in tables.values() if table is not None]
    if not any(is_migrated(keyed, made["makes"]) for made in recorded if made is not None):
        return
    state = Progress.of(keyed, tables.pop(STATE))
    if any(state.is_behind(Progress.of(keyed, table)) for table in tables.values()):
        raise ChangedDeclaration(
            f"keyed function {keyed.name!r} has another state or version by now, and a step of the older one was "
            "killed between two of its commits, so its state is behind its results. Run it once more with the older "
            f"declaration, which ends that step, and then with this one; or build it anew with `tidemark rebuild "
            f"{keyed.name}`. Nothing was changed."
        )


def migrate_state(spark: SparkSession, lake: Lake, keyed: Keyed, schema: pa.Schema) -> str | None:
    """Make today's state, of the columns in `schema`, of the one that an older declaration left, and record it.

    Returns in words what was done. To be called by whoever steps the function, once its declaration is checked.

    Raises:
        FunctionError: `migrate` raised, or returned what is no state. Nothing was changed.
    """
    uri = lake.table(keyed, STATE)
    table = delta.open_table(uri)
    recorded = None if table is None else recorded_declaration(table)
    if table is None or recorded is None:
        return None
    migrations = _migrations(keyed, recorded, _done(table))
    if len(migrations) <= _done(table):
        return None
    before = migrations[-1]
    made = _made(spark, keyed, uri, table, before["state"], _WriteMigrated(keyed, before["version"], uri, schema))
    _record(lake, keyed, migrations)
    rows = delta.row_count(table)
    left = made.commit(table, {_MIGRATED: before}, {_MIGRATED: len(migrations), SOURCE: source_number(keyed)})
    return _said(keyed, before, left, rows - left)


def cut_state(spark: SparkSession, lake: Lake, keyed: Keyed, schema: pa.Schema) -> None:
    """Cut the state into buckets where an older release has left it, in one commit; no row becomes another."""
    uri = lake.table(keyed, STATE)
    table = delta.open_table(uri)
    if table is None or HASH in [field.name for field in table.schema().fields]:
        return
    as_it_is = replace(keyed, migrate=None)
    made = _made(spark, keyed, uri, table, keyed.state, _WriteMigrated(as_it_is, keyed.version, uri, schema))
    made.commit(table, {BUCKETS: made.buckets.count}, {})


def migrations_of(lake: Lake, keyed: Keyed) -> list[str]:
    """In words, what the state of a keyed function was migrated from since it was built, oldest first."""
    table = delta.open_table(lake.table(keyed, STATE))
    recorded = None if table is None else recorded_declaration(table)
    migrations = [] if recorded is None else recorded.get(_MIGRATIONS, [])
    return [f"from version {each['version']} by {each['by'] or 'adding and widening fields'}" for each in migrations]


def later_outputs(lake: Lake, keyed: Keyed) -> list[str]:
    """The side outputs that begin later than the results, whose table an older declaration without them made."""
    table = delta.open_table(lake.table(keyed))
    recorded = None if table is None else recorded_declaration(table)
    return [] if recorded is None else added_outputs(keyed, recorded["makes"])


def _migrations(keyed: Keyed, recorded: dict[str, Any], done: int) -> list[dict[str, Any]]:
    """Those that are recorded, `done` of them, and the one that is to come; one that was begun is ended first."""
    migrations: list[dict[str, Any]] = recorded.get(_MIGRATIONS, [])
    makes = recorded["makes"]
    if len(migrations) > done or is_of_today(keyed, makes):
        return migrations
    by = None if keyed.migrate is None else described(keyed.migrate)
    return [*migrations, {"version": version_of(makes), "state": makes["state"], "by": by}]


def _done(table: DeltaTable) -> int:
    return max(table.transaction_version(_MIGRATED) or 0, 0)


@dataclass(frozen=True)
class _Made:
    """The files that replace all files of a state table, in buckets; nothing is committed yet."""

    keyed: Keyed
    task: _WriteMigrated
    buckets: Buckets
    files: list[TaskFile]

    def commit(self, table: DeltaTable, metadata: dict[str, Any], numbers: dict[str, int]) -> int:
        """Put it in the place of what the table, as it was opened, holds; returns the keys there are."""
        at = Progress.of(self.keyed, table)
        return delta.commit_files(
            self.task.uri,
            self.files,
            says=metadata,
            numbers={**numbers, BUCKETS: self.buckets.count},
            fence=lambda now: at.fence(self.keyed, now),
            mode="overwrite",
            schema=Schema.from_json(spark_schema(self.task.schema, partitioned=False).json()),
        )


def _made(spark: SparkSession, keyed: Keyed, uri: str, table: DeltaTable, state: str, write: _WriteMigrated) -> _Made:
    """The files that `write` makes of the rows of an open table whose state fields were declared as `state`."""
    buckets = Buckets.of_size(delta.row_count(table), delta.size(uri))
    fields = arrow_schema(state).names if state.strip() else []
    task = replace(write, fields=tuple(fields), buckets=buckets)
    keys = [F.col(f"`{name}`") for name in keyed.by]
    kept = (F.col(f"`{name}`") for name in fields)
    # Read by its version: whatever is written meanwhile is for the fence.
    rows = delta.read(spark, uri, table.version()).select(hash_of(keys).alias(HASH), DUE, *keys, *kept, TIMERS)
    reports = in_buckets(rows, buckets).sortWithinPartitions(HASH).mapInArrow(task, WRITTEN).collect()
    for report in reports:
        if report["error"] is not None:
            raise FunctionError(report["error"])
    files = [
        TaskFile(row["path"], row["size"], row["rows"], row["day"], row["statistics"])
        for row in reports
        if row["path"] is not None
    ]
    return _Made(keyed, task, buckets, files)


def _record(lake: Lake, keyed: Keyed, migrations: list[dict[str, Any]]) -> None:
    """Let every table say that it is of today's declaration, the state's last: whoever dies before begins anew."""
    for spec in sorted(keyed.tables, key=lambda spec: spec.is_state):
        table = delta.open_table(lake.table(keyed, spec.suffix))
        if table is not None:
            more = {_MIGRATIONS: migrations} if spec.is_state else {}
            table.alter.set_table_properties(declaration_properties(keyed, **more), raise_if_not_exists=False)


def _said(keyed: Keyed, before: dict[str, Any], kept: int, gone: int) -> str:
    of = f"keyed function {keyed.name!r}"
    if isinstance(keyed.on_row, CopiesRows):
        return f"{of} has all columns of its stream by now: rows from before a column was added have null there."
    if keyed.migrate is None:
        added = ", ".join(added_fields(keyed, before["state"])) or "wider types"
        return (
            f"{of} has new state, {added}: keys that are there begin without it, and what was emitted stays. "
            f"`tidemark rebuild {keyed.name}` computes everything with it."
        )
    forgotten = f", {counted(gone, 'key')} kept nothing" if gone else ""
    return (
        f"{of} goes on as version {keyed.version}: {described(keyed.migrate)} has migrated the state of version "
        f"{before['version']}, {counted(kept, 'key')}{forgotten}. What was emitted stays."
    )


class Migrated:
    """Makes today's state of each key: by `migrate`, where that is declared, else as it is, with what is new unset."""

    def __init__(self, keyed: Keyed, version: int) -> None:
        self._keyed = keyed
        self._version = version
        self._kept = {field.name: kept_as(field.type) for field in keyed.state_schema}

    def __call__(self, key: tuple[Any, ...], state: dict[str, Any]) -> tuple[Any, ...]:
        """The fields in order, as Arrow takes them.

        Raises:
            FunctionError: `migrate` raised, or returned what is no state.
        """
        given = as_json(state)
        try:
            made = self._as_it_is(state) if self._keyed.migrate is None else self._keyed.migrate(state, self._version)
            self._check(made)
            return tuple(self._field(name, made.get(name)) for name in self._kept)
        except Exception as error:
            raise FunctionError(
                f"keyed function {self._keyed.name!r} cannot go on from the state of key {key!r}: migrate failed with "
                f"{raised(error)}. State of version {self._version}: {given}. Correct `migrate`, or "
                f"build the function anew with `tidemark rebuild {self._keyed.name}`. Nothing was changed."
            ) from error

    def _as_it_is(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state with null for the columns that a whole row in it did not have yet."""
        structs = {field.name: field.type for field in self._keyed.state_schema if pa.types.is_struct(field.type)}
        whole = {
            name: {entry.name: state[name].get(entry.name) for entry in structs[name]}
            for name in structs.keys() & state.keys()
            if state[name] is not None
        }
        return {**state, **whole}

    def _check(self, made: object) -> None:
        fields = ", ".join(self._kept) or "none"
        if not isinstance(made, Mapping):
            raise TypeError(f"it returned {made!r}, which is no dict of state fields ({fields})")
        if unknown := [name for name in made if name not in self._kept]:
            raise ValueError(
                f"it returned {', '.join(map(repr, unknown))}, which is not declared; fields are: {fields}"
            )

    def _field(self, name: str, value: Any) -> Any:
        try:
            return self._kept[name](value)
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from error


@dataclass(frozen=True)
class _WriteMigrated:
    """Write today's state of the rows of an older table, whose state has `fields`, into the table at `uri`, in buckets.

    The columns are the hash, the first timer, the keys, those fields and all timers, by hash. A key is left out of
    which nothing is kept.
    """

    keyed: Keyed
    version: int
    uri: str
    schema: pa.Schema
    fields: tuple[str, ...] = ()
    buckets: Buckets = field(default_factory=lambda: Buckets.of_size(0, 0))

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        migrated, reports = Migrated(self.keyed, self.version), []
        file: BucketFile | None = None
        number: int | None = None
        try:
            for row in (row for batch in batches for row in self._rows(batch, migrated)):
                bucket = self.buckets.of(row[0])
                if file is None or bucket != number:
                    reports += [] if file is None else [file.close()]
                    file, number = BucketFile(bucket, self.uri, self.schema), bucket
                file.add(row)
            reports += [] if file is None else [file.close()]
        except FunctionError as error:
            # Raised here, it would come back as a text within Spark's own traces.
            reports = [{"error": str(error)}]
        yield pa.RecordBatch.from_pylist(reports, schema=REPORT)

    def _rows(self, batch: pa.RecordBatch, migrated: Migrated) -> Iterator[tuple[Any, ...]]:
        ends = 2 + len(self.keyed.by)
        for row in zip(*map(python_values, batch.columns), strict=True):
            hash_of_key, due, *key = row[:ends]
            state, timers = row[ends:-1], row[-1]
            made = migrated(tuple(key), dict(zip(self.fields, state, strict=True)))
            if timers or any(value is not None for value in made):
                yield (hash_of_key, due, *key, *made, list((timers or {}).items()))
