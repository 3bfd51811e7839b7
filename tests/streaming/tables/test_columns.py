"""What a table takes of columns that it does not have as they are: fields are added, and no type is changed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streaming.base.errors import LogError
from streaming.tables import delta

DEEP = pa.struct([("x", pa.float64())])
OLD: dict[str, pa.DataType] = {
    "id": pa.string(),
    "st": pa.struct([("a", pa.int32()), ("deep", DEEP)]),
    "xs": pa.list_(pa.struct([("p", pa.int32())])),
    "m": pa.map_(pa.string(), pa.int32()),
}
DEEPER = pa.struct([("x", pa.float64()), ("y", pa.date32())])
ELEMENTS = pa.list_(pa.struct([("p", pa.int32()), ("q", pa.list_(pa.int32()))]))
NEW = {**OLD, "st": pa.struct([("b", pa.string()), ("a", pa.int32()), ("deep", DEEPER)]), "xs": ELEMENTS}
BOTH = {**NEW, "st": pa.struct([("a", pa.int32()), ("deep", DEEPER), ("b", pa.string())])}


def columns(types: dict[str, pa.DataType]) -> StructType:
    return from_arrow_schema(pa.schema(list(types.items())))


def test_fields_are_added_to_structs_at_every_depth_and_old_rows_read_null_there(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    delta.create(uri, columns(OLD), append_only=True, description="")
    old = {"id": "old", "st": {"a": 1, "deep": {"x": 0.5}}, "xs": [{"p": 1}], "m": [("k", 1)]}
    write_deltalake(uri, pa.Table.from_pylist([old], schema=pa.schema(list(OLD.items()))), mode="append")

    delta.widen(uri, columns(NEW))
    # By the old declaration nothing changes: there is a way back.
    delta.widen(uri, columns(OLD))

    assert delta.schema_of(uri) == columns(BOTH)
    table = DeltaTable(uri)
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    read = {**old, "st": {"a": 1, "deep": {"x": 0.5, "y": None}, "b": None}, "xs": [{"p": 1, "q": None}]}
    assert table.to_pyarrow_table().to_pylist() == [read]
    queried = pa.table(QueryBuilder().register("t", table).execute("select id, st, xs from t").read_all())
    assert queried.to_pylist() == [{name: value for name, value in read.items() if name != "m"}]


@pytest.mark.parametrize(
    "other",
    [
        ("id", pa.int32()),
        ("st", pa.struct([("a", pa.int64())])),
        ("st", pa.struct([("A", pa.int32())])),
        ("xs", pa.list_(pa.struct([("p", pa.string())]))),
        ("xs", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("m", pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
    ],
    ids=str,
)
def test_another_type_is_refused_with_both_and_advice_that_can_be_followed(
    tmp_path: Path, other: tuple[str, pa.DataType]
) -> None:
    uri = str(tmp_path / "table")
    delta.create(uri, columns(OLD), append_only=True, description="")
    with pytest.raises(LogError, match=r"has the column .* and what is to be written has .*fields=\{'new_"):
        delta.widen(uri, columns(dict([other])))
    assert delta.version_of(uri) == 0
