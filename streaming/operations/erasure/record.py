"""What the lake keeps of erasures: the table `erasures`, which names nobody."""

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
from streaming.operations.erasure.person import Person
from streaming.tables import delta, location

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
    """What was removed of one table: rows, files written anew without them, and files of old versions deleted."""

    rows: int = 0
    rewritten: int = 0
    vacuumed: int = 0


@dataclass(frozen=True)
class Erasure:
    """One erasure: begun, and done once `done_at` is there.

    `digest`: SHA-256 of the salt, the column and the value: who knows the value, or tries all there can be, can tell
    that it was erased. `streams`: those with rows of the person. `generations`: per operator the generation that
    was built without them. `kept`: days per view whose numbers stayed. `tables`: what was removed of each. `checked`:
    tables and files in which nothing is left.
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
    checked: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def begun(cls, pipeline: Named, person: Person, now: datetime) -> Erasure:
        """A new one."""
        salt = secrets.token_hex(16)
        return cls(uuid.uuid4().hex, pipeline.name, person.column, salt, _digest(salt, person), now)

    def is_of(self, pipeline: Named, person: Person) -> bool:
        """Whether it is the erasure of this person."""
        return self.pipeline == pipeline.name and self.digest == _digest(self.salt, person)

    def found(self, table: str, rows: int) -> Erasure:
        """With rows that are about to go of a table, by its place in the lake; told again, they are the same ones."""
        before = self.tables.get(table, Removed())
        return self._with(table, replace(before, rows=max(before.rows, rows)))

    def removed(self, table: str, *, rewritten: int = 0, vacuumed: int = 0) -> Erasure:
        """With files of a table that were written anew, or deleted."""
        before = self.tables.get(table, Removed())
        more = replace(before, rewritten=before.rewritten + rewritten, vacuumed=before.vacuumed + vacuumed)
        return self._with(table, more)

    def _with(self, table: str, removed: Removed) -> Erasure:
        return replace(self, tables={**self.tables, table: removed})

    def write(self, lake: Lake) -> Erasure:
        """Put it into the table, in place of what was there of it; returns it."""
        told = {name: getattr(self, name) for name in ("streams", "generations", "kept", "checked")}
        row = {name: getattr(self, name) for name in _SCHEMA.names if name != "told"}
        tables = {name: asdict(removed) for name, removed in self.tables.items()}
        rows = pa.Table.from_pylist([{**row, "told": json.dumps({**told, "tables": tables})}], _SCHEMA)
        uri = _place(lake)
        if delta.exists(uri):
            write_deltalake(location(uri), rows, mode="overwrite", predicate=f"id = '{self.id}'")
        else:
            about = "Erasures: what was removed of each table, and whose rows they were as a digest only"
            write_deltalake(location(uri), rows, description=about, configuration=delta.CONFIGURATION)
        return self


def erasures(lake: Lake) -> list[Erasure]:
    """The erasures of a lake, oldest first, begun or done."""
    table = delta.open_table(_place(lake))
    rows = [] if table is None else delta.contents(table).to_pylist()
    return sorted((_erasure(row) for row in rows), key=lambda each: each.begun_at)


def _erasure(row: Mapping[str, Any]) -> Erasure:
    told = json.loads(row["told"])
    tables = {name: Removed(**removed) for name, removed in told.pop("tables").items()}
    told["streams"] = tuple(told["streams"])
    return Erasure(**{name: value for name, value in row.items() if name != "told"}, **told, tables=tables)


def _digest(salt: str, person: Person) -> str:
    return hashlib.sha256("\n".join([salt, person.column, person.value]).encode()).hexdigest()


def _place(lake: Lake) -> str:
    return lake.path("erasures")
