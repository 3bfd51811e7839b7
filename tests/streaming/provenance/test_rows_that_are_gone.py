"""Results whose rows, or which themselves, are not there any more: what can still be told of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Json, Lake, Pipeline, Selected, Why, agg, why
from streaming.base import ReadError
from streaming.declare import Windowed
from streaming.operations import Person, erase
from streaming.operations.retention import drop_days
from tests.support.delivering import by_id, reading, readings
from tests.support.instants import NOW, at
from tests.support.runs import run

DAYS = 86_400.0
kept = replace(readings, retention="2 days")
of_kept = replace(by_id, of=kept)
large = Selected("large", kept, select={"id": "id", "value": "value"}, where="value > 4")
KEPT = Pipeline(kept, (of_kept, large))
FIRST_WINDOW = {"id": "a", "window_start": "2026-01-01T00:00"}


@pytest.fixture
def lake(tmp_path: Any) -> Lake:
    return Lake(str(tmp_path / "lake"))


def lose(lake: Lake, view: Windowed, suffix: str, where: str) -> None:
    """Take rows out of a table of results, which Tidemark never does."""
    table = DeltaTable(lake.table(view, suffix))
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.delete(where)


def test_rows_that_retention_dropped_leave_nothing_to_recompute(spark: SparkSession, lake: Lake) -> None:
    """```
    day 0    a@0=5, a@40=1
    day 6    a@6d=7, a@6d40s=1
             a@6d80s=1               late rows are of the fourth day or later by now: days before go
    ```
    """
    run(spark, lake, KEPT, [reading("a", 0, 5), reading("a", 40)])
    run(spark, lake, KEPT, [reading("a", 6 * DAYS, 7), reading("a", 6 * DAYS + 40)])
    run(spark, lake, KEPT, [reading("a", 6 * DAYS + 80)])
    assert why(KEPT, of_kept, FIRST_WINDOW, lake=lake, spark=spark).agrees is True
    (dropped,) = drop_days(lambda: spark, lake, KEPT)
    assert dropped.before is not None and dropped.before > date(2026, 1, 1)
    words = f"it cannot be recomputed: rows of days before {dropped.before} were dropped by the retention"
    for operator, key in ((of_kept, FIRST_WINDOW), (large, {"id": "a", "value": 5})):
        answer = why(KEPT, operator, key, lake=lake, spark=spark)
        assert (answer.agrees, answer.holds, len(answer.published), answer.recomputed) == (None, True, 1, ())
        assert answer.said.startswith(words)
    assert why(KEPT, of_kept, {**FIRST_WINDOW, "window_start": at(6 * DAYS)}, lake=lake, spark=spark).agrees is True
    assert why(KEPT, large, {"value": 7}, lake=lake, spark=spark).agrees is True
    for suffix in ("", "current"):
        lose(lake, of_kept, suffix, "total = 5")
    with pytest.raises(ReadError, match="no result of view 'by_id' has id=a window_start=2026-01-01T00:00"):
        why(KEPT, of_kept, FIRST_WINDOW, lake=lake, spark=spark)


def test_numbers_that_outlive_an_erasure_are_not_called_wrong(spark: SparkSession, lake: Lake) -> None:
    totals = replace(by_id, name="totals", by=())
    pipeline = Pipeline(readings, (totals,))
    run(spark, lake, pipeline, [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40)])
    erase(spark, lake, pipeline, Person.of("id=b"), keep_numbers=True, now=lambda: NOW)
    answer = why(pipeline, totals, {"window_start": at(0)}, lake=lake, spark=spark)
    assert (answer.agrees, answer.published[0]["total"]) == (None, 12)
    assert answer.said == "it cannot be recomputed: rows of 2026-01-01 were erased, and its numbers were kept"


@pytest.mark.parametrize(("suffix", "what"), [("current", "current"), ("", "first")])
def test_a_result_that_is_lost_is_told(spark: SparkSession, lake: Lake, suffix: str, what: Any) -> None:
    """```
    batch 0    a@1=5  b@3=7  a@40=1     the windows at 0 are closed
    ```
    """
    pipeline = Pipeline(readings, (by_id,))
    run(spark, lake, pipeline, [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40)])
    lose(lake, by_id, suffix, "id = 'a'")
    lost = why(pipeline, by_id, FIRST_WINDOW, what=what, lake=lake, spark=spark)
    assert (lost.agrees, lost.holds, lost.published) == (False, False, ())
    assert lost.said.startswith("NOTHING IS PUBLISHED THOUGH IT IS DUE: its rows give id=a window_start=2026-01-01T00")
    there = why(pipeline, by_id, {**FIRST_WINDOW, "id": "b"}, what=what, lake=lake, spark=spark)
    assert there.agrees is True
    still_open = why(pipeline, by_id, {**FIRST_WINDOW, "window_start": at(40)}, what=what, lake=lake, spark=spark)
    assert (still_open.agrees, still_open.holds) == (None, True)


def test_values_that_are_equal_in_sql_are_the_same(spark: SparkSession, lake: Lake) -> None:
    """NaN, also as a key, a null beside the text `null`, an instant with an offset, doubles that are nearly nothing."""
    stream = replace(
        readings,
        name="measures",
        format=Json("id string, at timestamp, value double"),
        derived={"level": "if(value < 0, double('NaN'), value)"},
    )
    levels = Windowed(
        "levels", stream, by_id.window, {"rows": agg.count(), "least": agg.minimum("value")}, by=("level",)
    )
    sums = Windowed("sums", stream, by_id.window, {"total": agg.sum("value")}, by=("id",))
    copies = Selected("copies", stream, select={"id": "id", "nothing": "double('NaN')", "value": "value"})
    pipeline = Pipeline(stream, (sums, copies, levels))
    values = [("a", 0.1), ("a", 0.2), ("a", -0.3), ("null", 1.0), (None, 2.0)]
    rows: list[Any] = [
        {"id": id_, "at": at(place).isoformat(), "value": value} for place, (id_, value) in enumerate(values)
    ]
    run(spark, lake, pipeline, rows, [{"id": "a", "at": at(40).isoformat(), "value": 0.0}])

    def asked(operator: Any, key: dict[str, Any]) -> Why:
        return why(pipeline, operator, key, lake=lake, spark=spark)

    answer = asked(copies, {"id": "a", "value": 0.1})
    assert (answer.agrees, len(answer.published)) == (True, 1)
    assert asked(sums, {"id": "a", "window_start": "2026-01-01T02:00+02:00"}).agrees is True
    of_null, of_text = asked(sums, {"id": None}), asked(sums, {"id": "null"})
    assert (of_null.agrees, of_null.published[0]["total"]) == (True, 2.0)
    assert (of_text.agrees, of_text.published[0]["total"]) == (True, 1.0)
    of_nan = asked(levels, {"level": "NaN"})
    assert (of_nan.agrees, [row.values["value"] for row in of_nan.counting]) == (True, [-0.3])
    first_a = "id = 'a' and window_start < '2026-01-01T00:00:30Z'"
    for published, agrees in (("0.0", True), ("cast('1e-12' as double)", False)):
        DeltaTable(lake.table(sums, "current")).update(predicate=first_a, updates={"total": published})
        assert asked(sums, {**FIRST_WINDOW}).agrees is agrees
