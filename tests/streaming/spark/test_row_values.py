"""What an aggregate takes of a row can be computed without the others, and is all that may fail for a row alone."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.spark import guarded, row_values

ROWS = [(1, "1", 2, [1]), (2, "x", 0, [1, 0]), (3, "7", None, None), (4, None, 4, [])]
FAILS_FOR = {
    "sum(cast(code as int))": {2},
    "sum(cast(code as int)) / count(*)": {2},
    "count(1)": set(),
    "sum(n)": set(),
    "count_if(8 div n > 3)": {2},
    "min_by(id, struct(8 div n, id))": {2},
    "first(8 div n) ignore nulls": {2},
    "any_value(8 div n)": {2},
    "count(distinct cast(code as int), 8 div n)": {2},
    "sum(cast(code as int)) filter (where id <> 2)": set(),
    "sum(id) filter (where cast(code as int) > 0)": {2},
    "percentile_cont(0.5) within group (order by 8 div n)": {2},
    "array_sort(collect_list(struct(id as place, cast(code as int) as value))).value": {2},
    "size(transform(collect_set(transform(xs, x -> 8 div x)), y -> y))": {2},
    # Of all rows together, whatever becomes of it.
    "1 div (count(n) - count(n))": set(),
    "max(code)": set(),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("sql", "fails_for"), FAILS_FOR.items())
def test_the_rows_that_make_an_aggregate_fail_are_those_of_which_what_it_takes_cannot_be_computed(
    spark: SparkSession, sql: str, fails_for: set[int]
) -> None:
    rows = spark.createDataFrame(ROWS, "id bigint, code string, n bigint, xs array<bigint>")
    values = row_values(sql)
    failing = rows.where(guarded(F.struct(*values), "id").isNull()).collect() if values else []
    assert {row["id"] for row in failing} == fails_for
    if fails_for:
        assert rows.where(~F.col("id").isin(*fails_for)).agg(F.expr(sql)).collect()
