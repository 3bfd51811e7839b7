"""A column whose type is to be another one: what the refusal advises can be done, and no row is lost by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Json, Lake, Pipeline, agg
from streaming.base.errors import LogError
from tests.support.delivering import by_id, reading, readings
from tests.support.runs import read_current, run


@pytest.mark.parametrize(
    ("old", "new", "value", "total"),
    [
        ("decimal(12,2)", "decimal(14,2)", 123456789012.25, Decimal("123456789013.75")),
        ("float", "double", 0.1, 1.6),
    ],
)
def test_a_wider_type_is_a_column_of_its_own_beside_the_old_one(
    spark: SparkSession, lake: Lake, old: str, new: str, value: float, total: object
) -> None:
    def summed(columns: str, sql: str, fields: Mapping[str, str]) -> Pipeline:
        stream = replace(readings, format=Json(f"id string, at timestamp, {columns}", fields=fields), rules=())
        return Pipeline(stream, (replace(by_id, of=stream, aggregates={"total": agg.sum(sql)}),))

    def of(second: float, amount: float) -> dict[str, Any]:
        return {**reading("a", second), "value": amount}

    run(spark, lake, summed(f"value {old}", "value", {}), [of(1, 1.5)])
    advised = r"'new_value': 'value', 'value': 'old_value'.*coalesce\(new_value, value\)"
    with pytest.raises(LogError, match=advised):
        run(spark, lake, summed(f"value {new}", "value", {}), [of(2, value)])
    fields = {"new_value": "value", "value": "old_value"}
    both = summed(f"value {old}, new_value {new}", "coalesce(new_value, value)", fields)
    drained = run(spark, lake, both, [of(30, 1)])
    assert drained.heads["readings"].rejected == 0
    (view,) = both.views
    assert [row["total"] for row in read_current(spark, lake, view).collect()] == [total]
