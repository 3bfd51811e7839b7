"""What is stored equals what must be, or the difference is counted: also for values that Spark does not compare."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming.operators import are_close, comparable, differing_rows


def frame(spark: SparkSession, *values: str) -> DataFrame:
    """One row for each SQL value."""
    return spark.sql(" union all ".join(f"select {value} v" for value in values))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("timestamp'2026-01-01 00:00:00.000001'", "timestamp'2026-01-01 00:00:00.000002'"),
        ("map('a', 1)", "map('a', 2)"),
        ("map('a', 1)", "cast(null as map<string, int>)"),
        ("map('a', 1, 'b', cast(null as int))", "map('a', 1)"),
        ("array(named_struct('m', map('a', array(1.5D))))", "array(named_struct('m', map('a', array(2.5D))))"),
        ("named_struct('m', map('a', 1))", "cast(null as struct<m: map<string, int>>)"),
        ("map(1, map('a', timestamp'2026-01-01'))", "map(1, map('a', timestamp'2026-01-01 00:00:00.000001'))"),
    ],
)
def test_values_that_differ_are_counted_on_both_sides(spark: SparkSession, one: str, other: str) -> None:
    assert differing_rows(frame(spark, one, one), frame(spark, one, other)) == 2
    assert differing_rows(frame(spark, one, other), frame(spark, other, one)) == 0


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
        ("map('n', double('nan'))", "map('n', double('nan'))"),
        ("array(map('x', map('a', 1, 'b', 2)))", "array(map('x', map('b', 2, 'a', 1)))"),
    ],
)
def test_the_order_of_a_maps_entries_is_no_difference(spark: SparkSession, one: str, same: str) -> None:
    assert differing_rows(frame(spark, one), frame(spark, same)) == 0


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        ("0.1D + 0.2D - 0.3D", "0D", True),
        ("1e15D + 1", "1e15D", True),
        ("1.0D", "1.00001D", False),
        ("double('NaN')", "double('NaN')", True),
        ("double('NaN')", "1D", False),
        ("double('Infinity')", "1D", False),
        ("double('Infinity')", "double('-Infinity')", False),
        ("array(1D, 0.1D + 0.2D - 0.3D)", "array(1D, 0D)", True),
        ("array(1D, null)", "array(1D, 0D)", False),
        ("array(1D)", "array(1D, 0D)", False),
        ("named_struct('a', array(0.1D + 0.2D - 0.3D), 'b', 'x')", "named_struct('a', array(0D), 'b', 'x')", True),
        ("named_struct('a', array(0D), 'b', 'x')", "named_struct('a', array(0D), 'b', 'y')", False),
        ("named_struct('a', 0D)", "cast(null as struct<a: double>)", False),
        ("map('a', 1)", "map('a', 1)", True),
        ("1L", "2L", False),
    ],
)
def test_doubles_may_differ_by_rounding_at_any_depth(spark: SparkSession, one: str, other: str, are: bool) -> None:
    rows = spark.sql(f"select {one} one, {other} other")
    close = are_close(rows["one"], rows["other"], rows.schema["one"].dataType)
    assert [row[0] for row in rows.select(close).collect()] == [are]


def test_rows_with_maps_can_be_sorted_and_hashed(spark: SparkSession) -> None:
    maps = frame(spark, "map('b', 1)", "map('a', 2)", "map('a', 1)")
    rows = maps.orderBy(comparable(maps, "v")).collect()
    assert [row["v"] for row in rows] == [{"a": 1}, {"a": 2}, {"b": 1}]
