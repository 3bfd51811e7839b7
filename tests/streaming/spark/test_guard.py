"""A guarded expression is null for the rows that it fails for, however Spark computes it, and fails no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.spark import guarded, holds

HOW_SPARK_COMPUTES = {
    "code of a whole stage": {},
    "code of a projection": {"spark.sql.codegen.wholeStage": "false"},
    "no code": {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
}
ROWS = [(1, 1, 0, "x", [1]), (2, 8, 2, "5", [1, 2]), (3, None, 1, "7", None), (4, 2**62, 4, None, [])]
FAILS_FOR = {
    "a / b": {1},
    "a % b": {1},
    "a / b > 1 and a / b < 10": {1},
    "cast(code as int)": {1},
    "cast(a as int)": {4},
    "a * 4": {4},
    "xs[1]": {1, 4},
    "element_at(xs, 2)": {1, 4},
    "cast(concat(code, '0') as date)": {1, 2, 3},
    "to_timestamp(code)": {1, 2, 3},
    "cast(a * 1.0 as decimal(3, 1))": {4},
    "date_add(date'2026-01-01', cast(code as int))": {1},
    "make_date(cast(b as int), 13, 1)": {1, 2, 3, 4},
    "transform(xs, x -> x / (x - 1))": {1, 2},
    "from_json(code, 'x int', map('mode', 'FAILFAST'))": {1, 2, 3},
    "if(a > 1, raise_error('no'), 1)": {2, 4},
    "assert_true(b > 0)": {1},
    "sequence(1, id + 1, cast(b as int))": {1},
    "1 / 0": {1, 2, 3, 4},
    "a": set(),
    "coalesce(try_divide(a, b), 0)": set(),
}


@contextmanager
def computing(spark: SparkSession, how: str) -> Iterator[None]:
    """Spark computes in one of the ways that it has."""
    for key, value in HOW_SPARK_COMPUTES[how].items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in HOW_SPARK_COMPUTES[how]:
            spark.conf.unset(key)


@pytest.mark.parametrize("how", HOW_SPARK_COMPUTES)
def test_a_guarded_expression_is_null_for_exactly_the_rows_that_it_fails_for(spark: SparkSession, how: str) -> None:
    # From a file, as Spark computes rows that it knows while it plans.
    rows = spark.createDataFrame(ROWS, "id int, a bigint, b bigint, code string, xs array<int>").repartition(1)
    all_guards = [guarded(F.expr(sql), "id").alias(str(place)) for place, sql in enumerate(FAILS_FOR)]
    with computing(spark, how):
        judged = rows.select("id", *(guard.isNull() for guard in all_guards)).collect()
        # Whatever else asks for the values in common.
        twice = rows.select("id", holds(F.expr("a / b > 1"), "id"), holds(F.expr("a / b < 10"), "id")).orderBy("id")
        fit = [tuple(row) for row in twice.collect()]
        quotient = guarded(F.expr("a / b"), "id")["value"]
        total = rows.agg(F.sum(quotient), F.max(quotient), F.count_if(holds(F.expr("a / b > 1"), "id"))).first()
        left = rows.where(holds(F.expr("a / b > 1"), "id")).where(holds(F.expr("a / b < 10"), "id")).select("id")
        passing = [row[0] for row in left.collect()]
        pairs = rows.alias("l").join(rows.alias("r"), holds(F.expr("l.a / r.b > 1"), "l.id")).count()
        elements = rows.select(F.explode(guarded(F.expr("array(a / b, a % b)"), "id")["value"])).count()
    failed = {sql: {row["id"] for row in judged if row[place + 1]} for place, sql in enumerate(FAILS_FOR)}
    assert failed == FAILS_FOR
    assert fit == [(1, False, False), (2, True, True), (3, False, False), (4, True, False)]
    assert total is not None and tuple(total) == (2.0**60 + 4, 2.0**60, 2)
    assert passing == [2]
    assert pairs == len([1 for _, a, *_ in ROWS for *_, b in [row[:3] for row in ROWS] if a and b and a / b > 1])
    assert elements == 2 * 3


def test_without_the_guard_the_same_expression_stops_the_query(spark: SparkSession) -> None:
    rows = spark.createDataFrame(ROWS, "id int, a bigint, b bigint, code string, xs array<int>").repartition(1)
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        rows.select(F.expr("a / b > 1 and a / b < 10")).collect()
