"""Python sees what SQL has: functions of every kind hand on values of every type, and none of them is changed."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming import Lake
from streaming.declare import Operator
from streaming.log import read_log
from streaming.operators import runtime_of
from tests.support.pipelines.echoes import KEPT, NAMES, calls, echoes, groups, keys, pipeline, rows, windows
from tidemark.testing import run

WHATS = ("extreme", "nothing", "least")


def as_text(frame: DataFrame, names: tuple[str, ...], prefix: str = "") -> list[str]:
    """The columns as Spark writes them: dates as numbers, because its JSON has none of years beyond 9999."""
    written = []
    for name in names:
        column = f"`{prefix}{name}`"
        if name in ("until", "day"):
            column = f"{'unix_micros' if name == 'until' else 'unix_date'}({column})"
        if name == "nested":
            column = (
                f"transform({column}, e -> if(e is null, null, struct(e.v, unix_micros(e.at), unix_date(e.day), e.n)))"
            )
        written.append(f"to_json(struct(what, {column} as {name}), map('ignoreNullFields', 'false'))")
    return sorted(row[0] for row in frame.selectExpr(f"concat_ws(' ', {', '.join(written)})").collect())


@pytest.mark.long
def test_functions_of_every_kind_hand_on_what_sql_has(spark: SparkSession, lake: Lake) -> None:
    def results(operator: Operator) -> DataFrame:
        return runtime_of(operator, lake).readable["current"](spark)

    batches = [
        [{"id": "a", "what": what, "at": f"2026-03-02T09:{minute}:00Z"} for what in WHATS] for minute in ("00", "01")
    ]
    for batch in batches:
        run(spark, lake, pipeline, batch)
    run(spark, lake, pipeline, end_of_input=True)

    log = read_log(spark, lake, echoes).where("_day is not null")
    expected = as_text(log, NAMES)
    assert len(expected) == 6 and len(set(expected)) == 3
    for operator in (windows, groups, rows):
        assert as_text(results(operator), NAMES) == expected, operator.name
    assert as_text(results(calls), NAMES, prefix="e_") == expected
    # One row of each key was emitted out of the state that a step before had written.
    assert as_text(results(keys), KEPT) == sorted(as_text(log, KEPT)[::2])
