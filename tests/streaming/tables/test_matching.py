"""Rows are looked up by keys of any types: those are found that are written as the key is, and no other."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from streaming.tables.matching import Keys, rows_among

VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "whole": (pa.int32(), (None, 0, 1, -1)),
    "text": (pa.string(), (None, "", "a", "A", "None")),
    "money": (pa.decimal128(9, 2), (None, Decimal("0.00"), Decimal("1.10"))),
    "share": (pa.float32(), (None, 0.0, -0.0, math.nan, 1.5)),
    "sum": (pa.float64(), (None, 0.0, -0.0, math.nan, 1.5)),
    "at": (pa.timestamp("us", "UTC"), (None, datetime(2026, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))),
    "day": (pa.date32(), (None, date(1, 1, 1), date(2026, 1, 1))),
    "is": (pa.bool_(), (None, True, False)),
    "bytes": (pa.binary(), (None, b"", b"\xff")),
    "parts": (pa.list_(pa.int8()), (None, [], [None], [1])),
    "place": (pa.struct([("x", pa.float64())]), (None, {"x": None}, {"x": 0.0}, {"x": -0.0}, {"x": math.nan})),
}


def drawn(chance: random.Random, names: Sequence[str], number: int) -> pa.Table:
    columns = {name: pa.array(chance.choices(VALUES[name][1], k=number), VALUES[name][0]) for name in names}
    return pa.table(columns)


def texts(rows: pa.Table) -> list[str]:
    return [repr(tuple(row.values())) for row in rows.to_pylist()]


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_just_these_keys_are_found(seed: int) -> None:
    chance = random.Random(seed)
    names = chance.sample([*VALUES], chance.randint(1, 4))
    keys, rows = drawn(chance, names, chance.randrange(12)), drawn(chance, [*VALUES], 300)
    wanted = {*texts(keys)}
    (batch,) = rows.combine_chunks().to_batches()
    assert Keys(keys).are_of(batch).tolist() == [text in wanted for text in texts(rows.select(names))]


def test_rows_are_read_of_files_old_and_new_up_to_a_number(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("added", pa.string())])
    pq.write_table(pa.table({"id": [1, 2], "other": [0, 0]}), tmp_path / "old")
    pq.write_table(pa.table({"added": ["a", "b"], "id": [2, 3]}), tmp_path / "new")
    files, keys = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), Keys(pa.table({"id": [2, 4]}))
    found = rows_among(files, ["old", "new"], columns, keys, 2)
    assert found is not None and found.to_pylist() == [{"id": 2, "added": None}, {"id": 2, "added": "a"}]
    assert rows_among(files, ["old", "new"], columns, keys, 1) is None
    none = rows_among(files, [], columns, keys, 1)
    assert none is not None and none.schema == columns and none.num_rows == 0
