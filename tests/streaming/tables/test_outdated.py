"""Rows of some keys are taken out of the files that hold them, and of no other."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streaming.base import RewrittenError
from streaming.tables import delta
from streaming.tables.matching import ROWS_OF_FILE, WriteOthers, groups_on

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("share", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("parts", pa.list_(pa.int64())),
        ("value", pa.int64()),
        ("_day", pa.date32()),
    ]
)
KEY = ("id", "share", "at", "parts")
Row = tuple[str | None, float | None, datetime | None, list[int] | None, int, date]


def rows(*values: Row) -> pa.Table:
    columns = zip(*values, strict=True)
    return pa.table([pa.array(each, type_) for each, type_ in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def append(uri: str, *values: Row, copies: int = 1) -> None:
    schema = from_arrow_schema(SCHEMA)
    delta.create(uri, schema, append_only=False, description="")
    repeated = rows(*values).take(pa.array([*range(len(values))] * copies))
    delta.stage_rows(uri, repeated, schema).commit({})


def taking_out(uri: str, *keys: Row) -> WriteOthers:
    table = delta.opened(uri)
    stored = pa.schema([field for field in SCHEMA if field.name != "_day"])
    days = {key[-1] for key in keys}
    return WriteOthers(uri, stored, (), rows(*keys).select([*KEY]), groups_on(table, days))


def texts(values: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in values)


ONE: Row = ("a", 0.5, NOON, [1], 1, MONDAY)
OTHERS: list[Row] = [
    ("b", 0.5, NOON, [1], 2, MONDAY),
    ("a", 0.25, NOON, [1], 3, MONDAY),
    ("a", 0.5, None, [1], 4, MONDAY),
    ("a", 0.5, NOON, [2], 5, MONDAY),
    ("a", 0.5, NOON, None, 6, MONDAY),
]
UNKNOWN: Row = (None, math.nan, None, None, 7, MONDAY)
LATER: Row = ("a", 0.5, NOON, [1], 8, TUESDAY)


@pytest.mark.parametrize("by_tasks", [False, True])
def test_rows_of_just_the_outdated_keys_are_taken_out(spark: SparkSession, tmp_path: Path, by_tasks: bool) -> None:
    uri = str(tmp_path / "table")
    append(uri, ONE, *OTHERS, UNKNOWN)
    append(uri, LATER)
    before = {path: day for path, day in _files(uri).items() if day == TUESDAY}
    task = taking_out(uri, ONE, UNKNOWN)
    replaced = task.run_by(spark) if by_tasks else task.run()
    staged = delta.stage_rows(uri, rows(ONE).slice(0, 0), from_arrow_schema(SCHEMA))
    staged.replacing(replaced.files, replaced.paths).commit({})
    left = DeltaTable(uri).to_pyarrow_table().to_pylist()
    assert texts(left) == texts(rows(*OTHERS, LATER).to_pylist())
    assert before.items() <= _files(uri).items(), "no file of another day is written anew"


def test_a_file_without_an_outdated_row_stays_and_small_ones_with_one_become_one(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    append(uri, ONE)
    append(uri, *OTHERS)
    assert taking_out(uri, ("c", *ONE[1:])).run().paths == ()
    replaced = taking_out(uri, ONE).run()
    assert {*replaced.paths} == {*_files(uri)} and [file.rows for file in replaced.files] == [len(OTHERS)]


def test_large_files_are_not_put_together(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    for _ in range(2):
        append(uri, ONE, copies=ROWS_OF_FILE // 2 + 1)
    append(uri, ONE)
    assert sorted(len(group.paths) for group in groups_on(delta.opened(uri), {MONDAY})) == [1, 2]


def test_a_file_that_somebody_has_rewritten_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    append(uri, ONE)
    append(uri, *OTHERS)
    replaced = taking_out(uri, ONE).run()
    staged = delta.stage_rows(uri, rows(ONE).slice(0, 0), from_arrow_schema(SCHEMA))
    delta.opened(uri).optimize.compact()
    with pytest.raises(RewrittenError, match="is not there any more"):
        staged.replacing(replaced.files, replaced.paths).commit({})


def _files(uri: str) -> dict[str, date]:
    listed = pa.table(delta.opened(uri).get_add_actions(flatten=True))
    return dict(zip(listed["path"].to_pylist(), listed["partition._day"].to_pylist(), strict=True))
