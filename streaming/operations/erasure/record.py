"""The record of erasures in the lake: the table `erasures`, which names nobody."""

from __future__ import annotations

import hashlib
import json
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from streaming.lake import Lake, Named
from streaming.operations.erasure.rows import Person
from streaming.tables import delta

COMMIT = "erasure"
"""The number that a table keeps of the last commit by which an erasure took rows out of it."""

_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("pipeline", pa.string()),
        ("column", pa.string()),
        ("salt", pa.string()),
        ("digest", pa.string()),
        ("begun_at", pa.timestamp("us", "UTC")),
        ("done_at", pa.timestamp("us", "UTC")),
        ("told", pa.string()),
    ]
)


@dataclass(frozen=True)
class Removed:
    """Counts of a removal from a table: rows, files written anew without them, and files of old versions deleted."""

    rows: int = 0
    rewritten: int = 0
    vacuumed: int = 0

    def __add__(self, more: Removed) -> Removed:
        return Removed(self.rows + more.rows, self.rewritten + more.rewritten, self.vacuumed + more.vacuumed)


@dataclass(frozen=True)
class UnderWay:
    """The removal under way in one `table`, which is noted before, so that no death makes it forgotten.

    `number`: what the table keeps as `COMMIT` once its rows are taken out; null while old files are deleted.
    """

    table: str
    removed: Removed
    number: int | None = None


@dataclass(frozen=True)
class Erasure:
    """One erasure: begun, and done once `done_at` is there.

    `digest`: SHA-256 of the salt, the column and the value: who knows the value, or tries all there can be, can tell
    that it was erased. `streams`: those with rows of the person. `generations`: per operator the generation that
    was built without them. `kept`: days per view whose numbers stayed. `tables`: what was removed of each, but for what
    is `under_way`. `checked`: tables and files in which nothing is left.
    """

    id: str
    pipeline: str
    column: str
    salt: str
    digest: str
    begun_at: datetime
    done_at: datetime | None = None
    streams: tuple[str, ...] = ()
    generations: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, list[str]] = field(default_factory=dict)
    tables: Mapping[str, Removed] = field(default_factory=dict)
    under_way: UnderWay | None = None
    checked: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def begun(cls, pipeline: Named, person: Person, now: datetime) -> Erasure:
        """A new one."""
        salt = secrets.token_hex(16)
        return cls(uuid.uuid4().hex, pipeline.name, person.column, salt, _digest(salt, person), now)

    def is_of(self, pipeline: Named, person: Person) -> bool:
        """True if it is the erasure of this person in this pipeline."""
        return self.pipeline == pipeline.name and self.digest == _digest(self.salt, person)

    def is_unfinished_in(self, pipeline: Named) -> bool:
        """True if the erasure was begun in this pipeline and not done."""
        return self.pipeline == pipeline.name and self.done_at is None

    def begins(self, table: str, removed: Removed, number: int | None = None) -> Erasure:
        """With what is about to be removed of a table, by its place in the lake; nothing else may be under way."""
        return replace(self, under_way=UnderWay(table, removed, number))

    def ended(self, removed: Removed) -> Erasure:
        """With what was removed of the table that was under way."""
        assert self.under_way is not None
        table = self.under_way.table
        tables = {**self.tables, table: self.tables.get(table, Removed()) + removed}
        return replace(self, tables=tables, under_way=None)

    def write(self, lake: Lake) -> Erasure:
        """Put it into the table, in place of what was there of it; returns it."""
        details: dict[str, Any] = {name: getattr(self, name) for name in ("streams", "generations", "kept", "checked")}
        row = {name: getattr(self, name) for name in _SCHEMA.names if name != "told"}
        details["tables"] = {name: asdict(removed) for name, removed in self.tables.items()}
        details["under_way"] = None if self.under_way is None else asdict(self.under_way)
        rows = pa.Table.from_pylist([{**row, "told": json.dumps(details)}], _SCHEMA)
        uri = _place(lake)
        about = "Erasures: what was removed of each table, and whose rows they were as a digest only"
        table = delta.opened_or_created(uri, _SCHEMA, description=about)
        write_deltalake(table, rows, mode="overwrite", predicate=f"id = '{self.id}'")
        return self


def erasures(lake: Lake) -> list[Erasure]:
    """The erasures of a lake, oldest first, begun or done."""
    table = delta.open_table(_place(lake))
    rows = [] if table is None else delta.contents(table).to_pylist()
    return sorted((_erasure(row) for row in rows), key=lambda each: each.begun_at)


def _erasure(row: Mapping[str, Any]) -> Erasure:
    details = json.loads(row["told"])
    tables = {name: Removed(**removed) for name, removed in details.pop("tables").items()}
    details["streams"] = tuple(details["streams"])
    # An older release noted none.
    under_way = details.pop("under_way", None)
    if under_way is not None:
        details["under_way"] = UnderWay(**{**under_way, "removed": Removed(**under_way["removed"])})
    return Erasure(**{name: value for name, value in row.items() if name != "told"}, **details, tables=tables)


def _digest(salt: str, person: Person) -> str:
    return hashlib.sha256("\n".join([salt, person.column, person.value]).encode()).hexdigest()


def _place(lake: Lake) -> str:
    return lake.path("erasures")
