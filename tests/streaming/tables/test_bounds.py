"""Bounds in Delta's log leave no row out, whoever filters by which column, and whatever values there are."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from deltalake import DeltaTable, Schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from streaming.base import T
from streaming.tables import TableAbout, arrow_schema_of, bounded_columns, delta, describe, files_added

_COLUMNS = pa.schema(
    {
        "n": pa.int64(),
        "flag": pa.bool_(),
        "tiny": pa.int8(),
        "short": pa.int16(),
        "whole": pa.int32(),
        "number": pa.int64(),
        "text": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "single": pa.float32(),
        "ratio": pa.float64(),
        "price": pa.decimal128(10, 2),
        "large": pa.decimal128(38, 18),
        "raw": pa.binary(),
        "place": pa.struct({"x": pa.int32(), "name": pa.string()}),
        "many": pa.list_(pa.int32()),
    }
)
_SIMPLE = {"flag", "tiny", "short", "whole", "number", "text", "day", "at"}
"""Those by whose plain values `to_pyarrow_table` takes filters."""
_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def _whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | st.integers(-2, 2)


_AT = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)) | st.integers(-3_000, 3_000).map(
    lambda micros: datetime(1970, 1, 1) + timedelta(microseconds=micros)
)
_TEXT = st.text(max_size=3) | st.integers(30, 34).map("\U0010ffff".__mul__) | st.just("a" * 5_000)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": _whole(8),
    "short": _whole(16),
    "whole": _whole(32),
    "number": _whole(64),
    "text": _TEXT,
    "day": st.dates(),
    "at": _AT.map(lambda at: at.replace(tzinfo=UTC)),
    "local": _AT,
    "single": st.floats(width=32),
    "ratio": st.floats() | st.sampled_from([0.0, -0.0, 0.1, math.inf, math.nan]),
    "price": st.decimals(-99_999_999, 99_999_999, places=2),
    "large": st.decimals(-(10**19), 10**19, places=18),
    "raw": st.binary(max_size=3),
    "place": st.fixed_dictionaries({"x": st.none() | _whole(32), "name": st.none() | st.text(max_size=2)}),
    "many": st.lists(_whole(32), max_size=2),
}
_BOUNDED = [name for name in _VALUES if name not in {"single", "ratio", "price", "large", "raw", "place", "many"}]

_rows = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in _VALUES.items()}), max_size=4)
_Filters = Mapping[str, tuple[str, Any]]


def _filters() -> st.SearchStrategy[_Filters]:
    def of(name: str) -> st.SearchStrategy[tuple[str, Any]]:
        one = st.tuples(st.sampled_from([*_TESTS]), _VALUES[name])
        return one | st.tuples(st.just("in"), st.lists(_VALUES[name], min_size=1, max_size=3)) | st.just(("null", None))

    return st.fixed_dictionaries({name: of(name) for name in _VALUES if name not in {"place", "many"}})


def _written(uri: str, files: Sequence[Sequence[Mapping[str, Any]]], bounded: Sequence[str]) -> pa.Table:
    """The rows, each with its number, of a table that has a file of each part."""
    schema = T.StructType.fromJson(json.loads(Schema.from_arrow(_COLUMNS).to_json()))
    about = TableAbout(bounded=tuple(bounded))
    table = delta.create(uri, schema, append_only=False, description="values of all types", about=about)
    columns, parts, count = arrow_schema_of(table), list[pa.Table](), 0
    for rows in files:
        numbered = [{**row, "n": count + place} for place, row in enumerate(rows)]
        count += len(rows)
        part = pa.Table.from_pylist(numbered, columns)
        parts.append(part)
        if rows:
            delta.stage_rows(uri, part, schema, statistics=bounded).commit({})
    return pa.concat_tables([columns.empty_table(), *parts])


def _is_wanted(value: Any, test: str, other: Any) -> bool:
    if test == "null":
        return value is None
    if value is None:
        return False
    return any(value == each for each in other) if test == "in" else bool(_TESTS[test](value, other))


def _expression(name: str, type_: pa.DataType, test: str, other: Any) -> pc.Expression:
    if test == "null":
        return pc.field(name).is_null()
    if test == "in":
        return pc.field(name).isin(pa.array(other, type_))
    expression: pc.Expression = _TESTS[test](pc.field(name), pa.scalar(other, type_))
    return expression


def _numbers(rows: pa.Table) -> list[int]:
    return sorted(rows["n"].to_pylist())


def _by_polars(frame: polars.LazyFrame, name: str, test: str, other: Any) -> list[int]:
    column, type_ = polars.col(name), frame.collect_schema()[name]
    if test == "null":
        wanted = column.is_null()
    elif test == "in":
        wanted = column.is_in(polars.Series(other, dtype=type_).implode())
    else:
        wanted = _TESTS[test](column, polars.lit(other, dtype=type_))
    return sorted(frame.filter(wanted).select("n").collect()["n"].to_list())


def _by_duckdb(rows: Any, name: str, test: str, other: Any) -> list[int]:
    values = other if test == "in" else [] if test == "null" else [other]
    column = f'"{name}"'
    marks = ", ".join("?" for _ in values)
    wanted = {"null": f"{column} is null", "in": f"{column} in ({marks})"}.get(test, f"{column} {test} {marks}")
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.register("t", rows)
        return sorted(row[0] for row in connection.execute(f"select n from t where {wanted}", values).fetchall())


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _check(uri: str, rows: pa.Table, filters: _Filters, *, others: bool) -> None:
    table = DeltaTable(uri)
    dataset = table.to_pyarrow_dataset()
    values = rows.to_pylist()
    for name, (test, other) in filters.items():
        type_ = rows.schema.field(name).type
        if test != "null":
            # As the column has it, such as a float of 32 bits.
            other = pa.array(other, type_).to_pylist() if test == "in" else pa.scalar(other, type_).as_py()
        expected = [row["n"] for row in values if _is_wanted(row[name], test, other)]
        if test == "in" and any(map(_is_nan, other)):
            # Arrow's sets have NaN, and yet it finds none beside equal numbers, whatever Delta says of the file.
            alone = pa.dataset.dataset(table.file_uris(), schema=rows.schema) if table.file_uris() else None
            expected = [] if alone is None else _numbers(alone.to_table(filter=_expression(name, type_, test, other)))
        if test == "in" and 0.0 in other and pa.types.is_floating(type_):
            # Arrow by itself, without Delta, takes a Parquet file of nothing but 0.0 for one of -0.0, which it tells
            # apart in sets.
            continue
        expression = _expression(name, type_, test, other)
        assert _numbers(dataset.to_table(filter=expression)) == expected, (name, test, other)
        assert _numbers(table.to_pyarrow_table(filters=expression)) == expected, (name, test, other)
        if name in _SIMPLE and test != "null":
            assert _numbers(table.to_pyarrow_table(filters=[(name, test, other)])) == expected, (name, test, other)
        has_nan = any(map(_is_nan, [*rows[name].to_pylist(), *(other if test == "in" else [other])]))
        if not others or has_nan:
            # To these NaN is the greatest number, and equal to itself.
            continue
        assert _by_duckdb(dataset, name, test, other) == expected, (name, test, other)
        assert _by_polars(polars.scan_delta(uri), name, test, other) == expected, (name, test, other)
        assert _by_polars(polars.scan_delta(uri, use_pyarrow=True), name, test, other) == expected, (name, test, other)


_bounded = st.lists(st.sampled_from(_BOUNDED), unique=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(_rows, max_size=3), _bounded, _filters())
def test_arrow_finds_every_row_by_every_column(
    files: Sequence[Sequence[Mapping[str, Any]]], bounded: Sequence[str], filters: _Filters
) -> None:
    with TemporaryDirectory() as folder:
        rows = _written(f"{folder}/t", files, bounded)
        _check(f"{folder}/t", rows, filters, others=False)
        DeltaTable(f"{folder}/t").optimize.compact()
        _check(f"{folder}/t", rows, filters, others=False)


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(_rows, max_size=3), _bounded, _filters())
def test_duckdb_and_polars_find_every_row_by_every_column(
    files: Sequence[Sequence[Mapping[str, Any]]], bounded: Sequence[str], filters: _Filters
) -> None:
    with TemporaryDirectory() as folder:
        rows = _written(f"{folder}/t", files, bounded)
        assert DeltaTable(f"{folder}/t").to_pyarrow_table().num_rows == rows.num_rows
        _check(f"{folder}/t", rows, filters, others=True)


def test_an_older_table_is_right_once_it_names_the_columns_with_bounds(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table(
        {"n": pa.array([1, 2], pa.int64()), "text": ["a", None], "none": pa.array([None, None], pa.int64())}
    )
    schema = T.StructType.fromJson(json.loads(Schema.from_arrow(rows.schema).to_json()))
    DeltaTable.create(uri, rows.schema)
    delta.stage_rows(uri, rows, schema, statistics=("n", "none")).commit({})

    def found() -> list[int]:
        dataset = DeltaTable(uri).to_pyarrow_dataset()
        return [
            dataset.count_rows(filter=pc.field("text") == "a"),
            dataset.count_rows(filter=pc.field("none").is_null()),
        ]

    assert found() == [0, 2]
    describe(delta.opened(uri), TableAbout(bounded=("n", "none")))
    assert found() == [1, 2] and bounded_columns(delta.opened(uri)) == ["n", "none"]
    assert delta.opened(uri).version() == 2
    describe(delta.opened(uri), TableAbout(bounded=("n", "none")))
    assert delta.opened(uri).version() == 2


def test_a_table_with_reader_features_gets_no_more_of_them(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), pa.schema({"at": pa.timestamp("us"), "n": pa.int64()}))
    before = table.protocol().reader_features
    describe(table, TableAbout(key=("n",), bounded=("n",)))
    assert (table.version(), table.protocol().reader_features) == (0, before)


def test_names_of_any_signs_are_named_as_delta_has_them(tmp_path: Path) -> None:
    names = ("plain", "two words", "a,b", "tick`s", "ünd", "9th", "dotted.name")
    columns = pa.schema([pa.field(name, pa.int64()) for name in (*names, "other")])
    table = DeltaTable.create(str(tmp_path / "t"), columns)
    describe(table, TableAbout(bounded=names))
    assert bounded_columns(table) == [*names]


def test_delta_rs_knows_the_bounds_of_columns_after_structs(tmp_path: Path) -> None:
    inner = pa.struct({"a b": pa.list_(pa.int32()), "x": pa.int32()})
    outer = pa.struct({"left": inner, "n": pa.int32(), "right": pa.struct({"deep": inner})})
    columns = pa.schema({"outer": outer, "_batch": pa.int64(), "inner": inner, "at": pa.timestamp("us", "UTC")})
    uri, schema = str(tmp_path / "t"), T.StructType.fromJson(json.loads(Schema.from_arrow(columns).to_json()))
    table = delta.create(uri, schema, append_only=False, description="", about=TableAbout(bounded=("_batch", "at")))
    assert bounded_columns(table) == ["_batch", "at"]
    row = {"outer": None, "_batch": 7, "inner": {"a b": [1], "x": 1}, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    rows = pa.Table.from_pylist([row], arrow_schema_of(table))
    delta.stage_rows(uri, rows, schema, statistics=("_batch", "at")).commit({})
    added = files_added(delta.opened(uri))
    assert added["min._batch"].to_pylist() == [7] and added["max.at"].null_count == 0
    dataset = DeltaTable(uri).to_pyarrow_dataset()
    assert dataset.count_rows(filter=pc.field("inner", "x") == 1) == 1
    assert dataset.count_rows(filter=pc.field("outer").is_null()) == 1


@pytest.mark.long
def test_spark_leaves_files_out_by_the_bounds_that_a_table_names(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    frame = spark.createDataFrame([((1,), 1, "a"), (None, 2, None)], "place struct<x: int>, n bigint, text string")
    delta.create(uri, frame.schema, append_only=False, description="", about=TableAbout(bounded=("n",)))
    for n in (1, 2):
        delta.stage(frame.where(f"n = {n}"), uri, statistics=("n",)).commit({})
    found = spark.read.format("delta").load(uri)
    assert [row["text"] for row in found.where("n = 1").collect()] == ["a"]
    assert len(found.where("n = 1").inputFiles()) == 1
    assert [row["n"] for row in found.where("text is null").collect()] == [2]
