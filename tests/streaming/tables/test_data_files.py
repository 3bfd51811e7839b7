"""Files that tasks write: in what form each column is in them, of any type and however often its values repeat."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.tables import TaskFiles

Numbers = Literal["none", "zstd"] | None
ROWS = 3_000
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
REPEATING = {
    "city": pa.array([f"c{n % 50}" for n in range(ROWS)]),
    "version": pa.array([n % 7 for n in range(ROWS)]),
    "due": pa.nulls(ROWS, pa.timestamp("us", "UTC")),
    "place": pa.array([{"zone": n % 3, "far": {"name": f"f{n % 2}"}} for n in range(ROWS)]),
    "tags": pa.array([None if n % 5 == 0 else [f"t{n % 4}"] * (n % 3) for n in range(ROWS)]),
}
DIVERSE = {
    "id": pa.array(range(ROWS)),
    "name": pa.array([f"name {n}" for n in range(ROWS)]),
    "at": pa.array([MONDAY + timedelta(seconds=n) for n in range(ROWS)]),
    "amount": pa.array([Decimal(n) / 100 for n in range(ROWS)], pa.decimal128(12, 2)),
    "timers": pa.array(
        [[(f"timer {n}", MONDAY + timedelta(days=n))] for n in range(ROWS)], pa.map_("string", "date32")
    ),
    "steps": pa.array([[{"at": n}] for n in range(ROWS)]),
}


def written(folder: Path, rows: pa.Table, diverse_numbers: Numbers = "none") -> pq.ParquetFile:
    files = TaskFiles(str(folder), rows.schema, diverse_numbers=diverse_numbers)
    for batch in rows.to_batches(max_chunksize=1_000):
        files.write(batch)
    (file,) = files.close()
    return pq.ParquetFile(folder / file.path)


def forms(file: pq.ParquetFile) -> dict[str, tuple[bool, str]]:
    """For each column in a file whether it has a dictionary, and its compression."""
    group = file.metadata.row_group(0)
    columns = (group.column(place) for place in range(group.num_columns))
    return {each.path_in_schema: (each.has_dictionary_page, each.compression) for each in columns}


@pytest.mark.parametrize(("diverse_numbers", "codec"), [("none", "UNCOMPRESSED"), ("zstd", "ZSTD")])
def test_values_that_repeat_have_a_dictionary_and_those_that_do_not_have_none(
    tmp_path: Path, diverse_numbers: Numbers, codec: str
) -> None:
    file = written(tmp_path, pa.table({**REPEATING, **DIVERSE}), diverse_numbers)
    repeating, numbers, texts = (True, "SNAPPY"), (False, codec), (False, "ZSTD")
    assert forms(file) == {
        **dict.fromkeys(("city", "version", "due", "place.zone", "place.far.name", "tags.list.element"), repeating),
        **dict.fromkeys(("id", "at", "amount", "timers.key_value.value", "steps.list.element.at"), numbers),
        **dict.fromkeys(("name", "timers.key_value.key"), texts),
    }


@pytest.mark.parametrize("count", [1, 2, ROWS])
def test_rows_come_back_as_they_were_whatever_form_their_columns_have(tmp_path: Path, count: int) -> None:
    # The second half has other values than those by which the form was chosen.
    halves = pa.table({**REPEATING, **DIVERSE}).slice(0, count), pa.table({**REPEATING, **DIVERSE}).slice(ROWS - count)
    rows = pa.concat_tables(halves)
    assert written(tmp_path, rows).read().equals(rows)


def test_without_a_sample_each_column_has_a_dictionary_and_is_compressed(tmp_path: Path) -> None:
    assert {*forms(written(tmp_path, pa.table({**REPEATING, **DIVERSE}), None)).values()} == {(True, "SNAPPY")}
