"""State of an older declaration: which may go on with it, and how every key becomes one of today's, in one commit.

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
from streaming.keyed.fold import as_json
from streaming.keyed.schemas import CopiesRows
from streaming.keyed.state_table import (
    BUCKETS,
    DUE,
    HASH,
    SOURCE,
    TIMERS,
    Buckets,
    hash_of,
    in_buckets,
    source_number,
    spark_schema,
)
from streaming.keyed.tasks import REPORT, WRITTEN, BucketFile
from streaming.lake import Lake
from streaming.operators import Outputs, Progress, declaration_properties
from streaming.tables import TaskFile, delta, recorded_declaration, set_properties

_STATE, _FUNCTION, _TIMER, _RESULT = "state", "function", "timer", "result"
_OUTPUTS, _ON_ERROR = "side output", "on error"
_MIGRATED = "migrated"
"""The number of the state's table that tells how many of the migrations in its property are done."""

_MIGRATIONS = "migrations"


def changed_text(keyed: Keyed, state: DeltaTable | None) -> str | None:
    """A warning where the functions' text is not the one that made the open `state`; None where it is."""
    recorded = None if state is None else state.transaction_version(SOURCE)
    if state is None or recorded is None or recorded == source_number(keyed):
        return None
    made = recorded_declaration(state)
    if made is not None and (version_of(made["makes"]) != keyed.version or copied_fewer_columns(keyed, made["makes"])):
        return None
    return (
        f"the source text of keyed function {keyed.name!r} has changed since its last step, and its version is still "
        f"{keyed.version}. It goes on. If it gives other results for the same rows, raise the version and run "
        f"`tidemark rebuild {keyed.name}`."
    )


def counts_as(keyed: Keyed, makes: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint `makes` of an older declaration, taken for today's as far as today's goes on from its state."""
    declared = keyed.fingerprint
    if copied_fewer_columns(keyed, makes):
        makes = {**makes, **{part: declared[part] for part in (_FUNCTION, _STATE, _RESULT, _OUTPUTS)}}
    if added_outputs(keyed, makes):
        makes = {**makes, _OUTPUTS: declared[_OUTPUTS]}
    if keyed.diverts and not keyed.corrected:
        # A row that failed was never passed before, so that the output for such rows lacks none.
        makes = {**makes, _ON_ERROR: declared[_ON_ERROR]}
    if is_migrated(keyed, makes):
        return {**makes, _STATE: declared[_STATE], _FUNCTION: declared[_FUNCTION], _TIMER: declared[_TIMER]}
    if _STATE in makes and _takes_over(_schema(makes[_STATE]), keyed.state_schema):
        return {**makes, _STATE: declared[_STATE]}
    return makes


def copied_fewer_columns(keyed: Keyed, makes: dict[str, Any]) -> bool:
    """True if a declaration with the fingerprint `makes` differs only in columns of whole rows that it lacked."""
    if not isinstance(keyed.on_row, CopiesRows) or not {_FUNCTION, _STATE, _RESULT, _OUTPUTS} <= makes.keys():
        return False
    columns = tuple(name for name in _schema(makes[_RESULT]).names if name in keyed.on_row.columns)
    function = f"{described(replace(keyed.on_row, columns=columns))} version {keyed.version}"
    if makes[_FUNCTION] != function or makes[_OUTPUTS].keys() != keyed.sides.keys():
        return False
    tables = [(makes[_STATE], keyed.state), (makes[_RESULT], keyed.result)]
    tables += [(ddl, keyed.sides[name]) for name, ddl in makes[_OUTPUTS].items()]
    return all(_has_fields_of(_schema(old), _schema(new)) for old, new in tables)


def is_migrated(keyed: Keyed, makes: dict[str, Any]) -> bool:
    """True if `migrate` makes today's state of the one that a declaration with the fingerprint `makes` left.

    The version was raised, and no timer is gone that a key may wait for; or the state alone is another one.
    """
    if keyed.migrate is None or not {_STATE, _FUNCTION, _TIMER} <= makes.keys():
        return False
    if version_of(makes) < keyed.version:
        return bool(makes[_TIMER].keys() <= keyed.timers.keys())
    same = all(makes[part] == keyed.fingerprint[part] for part in (_FUNCTION, _TIMER))
    return same and _schema(makes[_STATE]) != keyed.state_schema


def added_outputs(keyed: Keyed, makes: dict[str, Any]) -> list[str]:
    """The side outputs that an older declaration with the fingerprint `makes` did not have; they begin with a step.

    Empty where one of its own is gone or has other columns, and where late rows are corrected: of the days that are,
    the new outputs would lack what the others have.
    """
    before = makes.get(_OUTPUTS, keyed.sides)
    if keyed.corrected or any(keyed.sides.get(name) != ddl for name, ddl in before.items()):
        return []
    return [name for name in keyed.sides if name not in before]


def is_of_today(keyed: Keyed, makes: dict[str, Any]) -> bool:
    """True if the state that a declaration with the fingerprint `makes` left is today's."""
    same = makes.get(_FUNCTION, keyed.fingerprint[_FUNCTION]) == keyed.fingerprint[_FUNCTION]
    return bool(same and _schema(makes.get(_STATE, keyed.state)) == keyed.state_schema)


def version_of(makes: dict[str, Any]) -> int:
    """The version of the function in a fingerprint."""
    return int(str(makes[_FUNCTION]).rpartition(" ")[2])


def added_fields(keyed: Keyed, state: str) -> list[str]:
    """The fields that today's state has, and the one declared as `state` had not."""
    before = _schema(state).names
    return [name for name in keyed.state_schema.names if name not in before]


def _schema(state: str) -> pa.Schema:
    return arrow_schema(state) if state.strip() else pa.schema([])


def _takes_over(old: pa.Schema, new: pa.Schema) -> bool:
    """True if each old field is there, and its type takes every value of the old one."""
    return all(field.name in new.names and _is_as_wide(field.type, new.field(field.name).type) for field in old)


def _has_fields_of(old: pa.Schema | pa.StructType, new: pa.Schema | pa.StructType) -> bool:
    """True if each old field is there, of the type that it had; a struct may have more fields."""
    there = {field.name: field.type for field in new}
    return all(
        _has_fields_of(field.type, there[field.name])
        if pa.types.is_struct(field.type) and pa.types.is_struct(there.get(field.name))
        else there.get(field.name) == field.type
        for field in old
    )


def _is_as_wide(old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_signed_integer(old) and pa.types.is_signed_integer(new):
        return bool(new.bit_width >= old.bit_width)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _is_as_wide(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return bool(old.key_type == new.key_type) and _is_as_wide(old.item_type, new.item_type)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        same = [field.name for field in old] == [field.name for field in new]
        return same and all(_is_as_wide(each.type, of.type) for each, of in zip(old, new, strict=True))
    return bool(old == new)


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
            set_properties(table, declaration_properties(keyed, **more), needed=True)


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
