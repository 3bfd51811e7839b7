"""A target that somebody adds: a store with one row per key, as wide-column stores, caches and search indexes are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from streaming import Lake
from streaming.base.errors import FencedError
from streaming.sinks.sink import REVISION, Delivered, Guarantee, NumberedBatch, PutAside, Sink, Target
from tests.streaming.sinks.contract import LAWS, Arrivals, deliver


@dataclass(frozen=True)
class Cells(Target):
    """Rows of two columns, a key and a value, in a file of SQLite."""

    path: str
    key: tuple[str, ...] = ("number",)

    kind: ClassVar[str] = "sqlite"
    guarantee: ClassVar[Guarantee] = "exactly once"
    keeps_keys: ClassVar[bool] = True

    @property
    def address(self) -> str:
        return self.path

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        return CellsSink(self.path, self.key[0])


class CellsSink(Sink):
    def __init__(self, path: str, key: str) -> None:
        self._store = sqlite3.connect(path)
        self._key = key
        with self._store as store:
            store.execute("create table if not exists cells (key primary key, value, revision)")
            store.execute("create table if not exists progress (generation primary key, batch)")

    def delivered_through(self, generation: int) -> int:
        row = self._store.execute("select batch from progress where generation = ?", (generation,)).fetchone()
        return -1 if row is None else int(row[0])

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        through = self.delivered_through(batch.generation)
        if through >= batch.number:
            return
        later = self._store.execute("select 1 from progress where generation > ?", (batch.generation,)).fetchone()
        if later:
            raise FencedError(f"another process delivers there: batch {batch.key} is of an older generation.")
        if batch.number != through + 1:
            raise FencedError(f"batch {batch.key} is not the one that follows {through}.")
        with self._store as store:
            for row in batch.rows.to_pylist():
                cell = (row[self._key], row.get("value"), row[REVISION])
                # A write of an older revision changes nothing.
                store.execute(
                    "insert into cells values (?, ?, ?) on conflict (key) do update set value = excluded.value, "
                    "revision = excluded.revision where revision <= excluded.revision",
                    cell,
                )
            put_aside([])
            store.execute("insert or replace into progress values (?, ?)", (batch.generation, batch.number))

    def count(self) -> int:
        return int(self._store.execute("select count(*) from cells").fetchone()[0])

    def close(self) -> None:
        self._store.close()


def cells(path: Path) -> dict[Any, Any]:
    return dict(sqlite3.connect(path).execute("select key, value from cells").fetchall())


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_target_of_ones_own_keeps_the_contract(law: Callable[[Arrivals], None], tmp_path: Path) -> None:
    path = tmp_path / "store"
    law(Arrivals(Cells(str(path)), Lake(str(tmp_path)), lambda: list(cells(path)) if path.exists() else []))


def test_x13_a_write_stamped_with_event_time_cannot_regress(tmp_path: Path) -> None:
    path = tmp_path / "store"
    given = [("a", 10, 1), ("a", 20, 2), ("b", 5, 1), ("a", 99, 1.5)]
    rows = [{"sensor": sensor, "value": value, REVISION: int(at * 1_000_000)} for sensor, value, at in given]
    for number in (0, 1):
        sink = Cells(str(path), key=("sensor",)).connect(Lake("/nowhere"), Delivered("a/b", key=("sensor",)))
        deliver(sink, NumberedBatch("a/b", 0, number, pa.Table.from_pylist(rows)))
        assert cells(path) == {"a": 20, "b": 5}
