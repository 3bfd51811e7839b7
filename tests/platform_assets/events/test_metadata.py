"""The metadata of a table, as events of Dagster carry it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from platform_assets.events.metadata import table_metadata


def test_types_of_columns_are_told_as_sql_reads_them(tmp_path: Path) -> None:
    place = pa.struct([("room no", pa.int32()), ("floors", pa.list_(pa.int16()))])
    write_deltalake(tmp_path, pa.table({"n": pa.array([1], pa.int64()), "place": pa.array([None], place)}))
    columns = table_metadata(str(tmp_path))["dagster/column_schema"].columns
    told = {column.name: column.type for column in columns}
    assert told == {"n": "bigint", "place": "struct<`room no`:int,floors:array<smallint>>"}
