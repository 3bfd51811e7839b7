"""Functions over whole rows whose stream gets a column: they go on, and what a rebuild would give is there already."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from streaming import Json, Keyed, Lake, Pipeline, Stream
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration
from streaming.keyed import latest
from streaming.keyed.library import deduplicated
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from streaming.tables import delta
from tests.support.delivering import reading, readings
from tests.support.instants import NOW
from tests.support.runs import run

COLUMNS = "id string, at timestamp, value bigint"


def functions(stream: Stream) -> tuple[Keyed, Keyed]:
    return deduplicated("once", stream, ("id",)), latest("newest", stream, ("id",))


def with_columns(columns: str) -> tuple[Pipeline, tuple[Keyed, Keyed]]:
    stream = replace(readings, format=Json(columns))
    return Pipeline(stream, functions(stream)), functions(stream)


@pytest.mark.long
def test_a_column_that_is_added_is_null_in_rows_from_before_it_as_after_a_rebuild(
    spark: SparkSession, lake: Lake
) -> None:
    before, _ = with_columns(COLUMNS)
    run(spark, lake, before, [reading("a", 1, 1), reading("b", 2, 2), reading("a", 3, 3), reading("z", 20)])
    after, (once, newest) = with_columns(f"city string, {COLUMNS}")
    run(spark, lake, after, [reading(id_, 21, 4) | {"city": "x"} for id_ in "abc"] + [reading("a", 40) | {"city": "y"}])
    assert all(finding.holds for finding in audit(spark, lake, after))

    def rows(keyed: Keyed, suffix: str) -> list[tuple[str, int, str | None]]:
        found = delta.read(spark, lake.table(keyed, suffix)).select("id", "value", "city").collect()
        return sorted(map(tuple, found), key=str)

    def all_rows() -> list[list[tuple[str, int, str | None]]]:
        return [rows(once, ""), rows(once, "duplicates"), rows(newest, "")]

    went_on = all_rows()
    assert went_on == [
        [("a", 1, None), ("b", 2, None), ("c", 4, "x"), ("z", 1, None)],
        [("a", 1, "y"), ("a", 3, None), ("a", 4, "x"), ("b", 4, "x")],
        [("a", 1, None), ("a", 3, None), ("b", 2, None)],
    ]
    kept = delta.read(spark, lake.table(newest, "state")).select("id", "newest.value", "newest.city").collect()
    assert sorted(map(tuple, kept)) == [("a", 4, "x"), ("b", 4, "x"), ("c", 4, "x"), ("z", 1, None)]
    for keyed in (once, newest):
        rebuild(spark, lake, after, keyed, now=lambda: NOW)
    assert all_rows() == went_on


@pytest.mark.parametrize("columns", ["id string, at timestamp", "id string, at timestamp, value double"])
def test_a_column_that_is_gone_or_has_another_type_is_refused(spark: SparkSession, lake: Lake, columns: str) -> None:
    before, _ = with_columns(COLUMNS)
    run(spark, lake, before, [reading("a", 1, 1)])
    without_rules = replace(readings, format=Json(columns), rules=())
    for keyed in functions(without_rules):
        with pytest.raises(ChangedDeclaration, match=f"tidemark rebuild {keyed.name}"):
            runtime_of(keyed, lake).check()
