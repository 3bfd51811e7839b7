"""Savepoints, retention and control streams, where rows were taken back by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples import model_scores
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, RowChoice, Stream, Tumbling, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import RetractionError
from streaming.log import Retraction, retractions
from streaming.operations import restore, restore_to, retract, savepoint
from streaming.operations.retention import Dropped, drop_days
from streaming.operations.retract import check_retractable
from tests.support.instants import NOW, T0
from tests.support.runs import read_current, run
from tidemark.testing import correct

READINGS = Stream(
    name="readings",
    source=Files("landing/readings"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("1 hour", max_ahead="30 days"),
)
HOURS = Windowed("hours", READINGS, Tumbling("1 hour"), {"rows": agg.count(), "total": agg.sum("value")})
PIPELINE = Pipeline(READINGS, (HOURS,))
KEPT = replace(READINGS, retention="2 days")
OF_KEPT = Pipeline(KEPT, (replace(HOURS, of=KEPT),))


def reading(id: str, day: int, hour: float, value: int) -> dict[str, Any]:
    return {"id": id, "at": (T0 + timedelta(days=day, hours=hour)).isoformat(), "value": value}


def take_back(spark: SparkSession, lake: Lake, of: Pipeline, chosen: RowChoice) -> Retraction | None:
    return retract(spark, lake, of, of.stream, chosen, "typed twice", "ada", lambda: NOW)


def hours(spark: SparkSession, lake: Lake, of: Pipeline = PIPELINE) -> list[tuple[int, int]]:
    """Day and total of each hour that has rows."""
    rows = read_current(spark, lake, of.views[0]).selectExpr("day(window_start) - 1", "total").collect()
    return sorted(tuple(row) for row in rows)


def broken(spark: SparkSession, lake: Lake, of: Pipeline = PIPELINE) -> list[object]:
    return [finding for finding in audit(spark, lake, of) if not finding.holds]


def corrected(spark: SparkSession, lake: Lake, of: Pipeline = PIPELINE) -> None:
    run(spark, lake, of)
    correct(spark, lake, of.views[0], lambda: NOW)


@pytest.mark.long
def test_a_savepoint_has_the_retractions_of_its_instant_and_a_restored_lake_goes_on_from_them(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """
    day 0, 01:00  a=10, b=1        day 0, 09:00  c=5  closes the hours before
    a is taken back, `then` is taken, and that is undone
    """
    run(spark, lake, PIPELINE, [reading("a", 0, 1, 10), reading("b", 0, 1, 1)], [reading("c", 0, 9, 5)])
    savepoint(lake, PIPELINE, "before", lambda: NOW)
    first = take_back(spark, lake, PIPELINE, RowChoice("id = 'a'"))
    assert first is not None
    corrected(spark, lake)
    savepoint(lake, PIPELINE, "then", lambda: NOW)
    assert hours(spark, lake) == [(0, 1)]
    assert take_back(spark, lake, PIPELINE, RowChoice(undoes=first.id)) is not None
    corrected(spark, lake)
    assert hours(spark, lake) == [(0, 11)]

    earlier, later = Lake(str(tmp_path / "earlier")), Lake(str(tmp_path / "later"))
    restore_to(lake, PIPELINE, "before", earlier)
    assert (retractions(earlier, PIPELINE), hours(spark, earlier)) == ([], [(0, 11)])
    restore_to(lake, PIPELINE, "then", later)
    assert retractions(later, PIPELINE) == [first]
    assert hours(spark, later) == [(0, 1)]
    # Both lakes of one history go on apart.
    for each, chosen in ((earlier, RowChoice("id = 'b'")), (later, RowChoice(undoes=first.id))):
        assert take_back(spark, each, PIPELINE, chosen) is not None
        corrected(spark, each)
        assert broken(spark, each) == []
    assert (hours(spark, earlier), hours(spark, later)) == ([(0, 10)], [(0, 11)])

    # In its own lake the log stays, so the retractions do, and the view steps over them again.
    restore(spark, lake, PIPELINE, "before", lambda: NOW)
    corrected(spark, lake)
    assert [each.undoes for each in retractions(lake, PIPELINE)] == [None, first.id]
    assert hours(spark, lake) == [(0, 11)]
    assert broken(spark, lake) == []


def dropped(spark: SparkSession, lake: Lake) -> Dropped:
    (retention,) = drop_days(lambda: spark, lake, OF_KEPT)
    return retention


@pytest.mark.long
def test_a_row_and_what_takes_it_back_leave_the_log_with_their_day_once_it_is_corrected(
    spark: SparkSession, lake: Lake
) -> None:
    """
    day 0  a=10, b=1      day 1  c=5      day 4  d=2: day 0 may go
    a of day 0 is taken back: day 0 waits for its correction, so nothing goes before that
    """
    run(spark, lake, OF_KEPT, [reading("a", 0, 1, 10), reading("b", 0, 1, 1), reading("c", 1, 1, 5)])
    run(spark, lake, OF_KEPT, [reading("d", 4, 1, 2)])
    first = take_back(spark, lake, OF_KEPT, RowChoice("id = 'a'"))
    assert first is not None
    run(spark, lake, OF_KEPT)
    assert dropped(spark, lake).rows == 0
    correct(spark, lake, OF_KEPT.views[0], lambda: NOW)
    assert hours(spark, lake, OF_KEPT) == [(0, 1), (1, 5)]

    assert dropped(spark, lake).rows == 3, "a, b, and what takes a back"
    assert hours(spark, lake, OF_KEPT) == [(0, 1), (1, 5)], "what was published stays"
    assert retractions(lake, OF_KEPT) == [first]
    assert take_back(spark, lake, OF_KEPT, RowChoice(undoes=first.id)) is None, "nothing of it is left"
    assert broken(spark, lake, OF_KEPT) == []
    # Of the days that are left rows can be taken back.
    assert take_back(spark, lake, OF_KEPT, RowChoice("true")) is not None
    corrected(spark, lake, OF_KEPT)
    assert broken(spark, lake, OF_KEPT) == []


@pytest.mark.parametrize("stream", [model_scores.scored, model_scores.models], ids=["data", "control"])
def test_neither_rules_nor_rows_that_were_judged_by_them_are_taken_back(stream: Stream) -> None:
    with pytest.raises(RetractionError, match="keyed function 'scores' follows them") as refused:
        check_retractable(model_scores.pipeline, stream)
    assert refused.value.facts["stream"] == stream.name
