"""Histories of streams with a key: which intervals they have, by hand along drawn timelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import History, Lake, Pipeline
from streaming.audit.laws import audit
from streaming.base import DeclarationError, StreamingError
from streaming.operations.retract import RowChoice, retract
from streaming.operators.runtime import frame
from tests.support.customers import CUSTOMERS
from tests.support.instants import NOW, at
from tests.support.runs import run

HISTORY = History("customer_history", CUSTOMERS)
BY_SEGMENT = History("segments", CUSTOMERS, track=("segment",))
NEWEST = History("customers_now", CUSTOMERS, kind=1)
PIPELINE = Pipeline(CUSTOMERS, (HISTORY, BY_SEGMENT, NEWEST))


def customer(
    version: int,
    seconds: float | None,
    segment: str | None = None,
    city: str | None = None,
    id: str = "a",
    *,
    gone: bool = False,
) -> dict[str, Any]:
    time = None if seconds is None else at(seconds).isoformat()
    return {"id": id, "version": version, "at": time, "segment": segment, "city": city, "gone": gone}


def intervals(spark: SparkSession, lake: Lake, history: History = HISTORY, id: str = "a") -> list[tuple[Any, ...]]:
    """From when until when a customer was in which segment and city, in seconds of the drawing."""
    begins = int(at(0).timestamp())
    until = "unix_seconds(valid_to)" if history.kind == 2 else "null"
    rows = frame(spark, lake, history).where(f"id = '{id}'")
    told = rows.selectExpr(f"unix_seconds(valid_from) - {begins}", f"{until} - {begins}", "segment", "city").collect()
    return [tuple(row) for row in told]


def changes(spark: SparkSession, lake: Lake, history: History = HISTORY) -> list[tuple[Any, ...]]:
    """Batch, sign, segment, beginning and reason of what the history adds and takes back."""
    begins = int(at(0).timestamp())
    rows = frame(spark, lake, history, "signed")
    told = rows.selectExpr("_batch", "_change", "segment", f"unix_seconds(valid_from) - {begins}", "_reason")
    return sorted(tuple(row) for row in told.collect())


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def test_a_late_change_splits_the_interval_that_it_falls_into(spark: SparkSession, lake: Lake) -> None:
    """
    00:10  v1 new       |------------------------->
    00:50  v3 gold      |-------------|----------->      closes the first interval
    00:30  v2 silver    |------|------|----------->      comes last, and splits it
    """
    run(spark, lake, PIPELINE, [customer(1, 10, "new", "Bonn")])
    run(spark, lake, PIPELINE, [customer(3, 50, "gold", "Bonn")])
    assert intervals(spark, lake) == [(10, 50, "new", "Bonn"), (50, None, "gold", "Bonn")]
    run(spark, lake, PIPELINE, [customer(2, 30, "silver", "Bonn")])
    assert intervals(spark, lake) == [(10, 30, "new", "Bonn"), (30, 50, "silver", "Bonn"), (50, None, "gold", "Bonn")]
    assert intervals(spark, lake, NEWEST) == [(50, None, "gold", "Bonn")]
    assert changes(spark, lake) == [
        (0, 1, "new", 10, "first"),
        (1, -1, "new", 10, "update"),
        (1, 1, "gold", 50, "first"),
        (1, 1, "new", 10, "update"),
        (2, -1, "new", 10, "correction"),
        (2, 1, "new", 10, "correction"),
        (2, 1, "silver", 30, "correction"),
    ]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_nothing_is_valid_between_a_delete_and_the_row_that_comes_again(spark: SparkSession, lake: Lake) -> None:
    """
    00:10  v1 new       |---------|
    00:40  v2 deleted             x
    01:00  v3 new again                  |------->
    """
    run(spark, lake, PIPELINE, [customer(1, 10, "new", "Bonn"), customer(2, 40, gone=True)])
    assert intervals(spark, lake) == intervals(spark, lake, BY_SEGMENT) == [(10, 40, "new", "Bonn")]
    assert intervals(spark, lake, NEWEST) == []
    run(spark, lake, PIPELINE, [customer(3, 60, "new", "Bonn")])
    assert intervals(spark, lake, BY_SEGMENT) == [(10, 40, "new", "Bonn"), (60, None, "new", "Bonn")]
    assert intervals(spark, lake, NEWEST) == [(60, None, "new", "Bonn")]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_a_delete_without_a_time_is_of_the_time_at_which_it_came(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [customer(1, 10, "new", "Bonn")])
    run(spark, lake, PIPELINE, [customer(2, None, gone=True)])
    ((begins, ends, *_),) = intervals(spark, lake)
    assert begins == 10 and ends > 10
    assert broken(spark, lake) == []


@pytest.mark.long
def test_a_change_outside_of_what_is_tracked_begins_no_interval(spark: SparkSession, lake: Lake) -> None:
    """
    00:10  v1 new, Bonn    |------------------------>
    00:30  v2 new, Köln    |------------------------>   the same interval, in Köln
    00:50  v3 gold, Köln   |--------------|--------->
    00:40  v4 gold, Bonn   |---------|-------------->   late: it was gold before already
    """
    run(spark, lake, PIPELINE, [customer(1, 10, "new", "Bonn"), customer(2, 30, "new", "Köln")])
    assert intervals(spark, lake, BY_SEGMENT) == [(10, None, "new", "Köln")]
    run(spark, lake, PIPELINE, [customer(3, 50, "gold", "Köln")])
    run(spark, lake, PIPELINE, [customer(4, 40, "gold", "Bonn")])
    assert intervals(spark, lake, BY_SEGMENT) == [(10, 40, "new", "Köln"), (40, None, "gold", "Köln")]
    assert len(intervals(spark, lake)) == 4
    assert broken(spark, lake) == []


@pytest.mark.long
def test_of_one_time_the_greatest_sequence_counts_and_of_one_sequence_the_first(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, PIPELINE, [customer(2, 10, "gold", "Bonn"), customer(1, 10, "new", "Bonn")])
    run(spark, lake, PIPELINE, [customer(2, 10, "told twice", "Bonn")])
    for history in (HISTORY, BY_SEGMENT, NEWEST):
        assert intervals(spark, lake, history) == [(10, None, "gold", "Bonn")]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_how_batches_are_cut_into_steps_changes_no_row_of_a_history(spark: SparkSession, lake: Lake) -> None:
    rows = [customer(version, 10 * version, segment, "Bonn") for version, segment in enumerate("abca", 1)]
    for row in rows:
        run(spark, lake, PIPELINE, [row])
    later = replace(HISTORY, name="later")
    run(spark, lake, Pipeline(CUSTOMERS, (*PIPELINE.operators, later)), [])
    assert changes(spark, lake, later) == changes(spark, lake)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"of": replace(CUSTOMERS, key=(), sequence=None, deletes=None)}, "which has no key"),
        ({"track": ("segment", "size")}, "has 'size', which is no column; track some of: version, at, segment, city"),
        ({"track": ("id",)}, "has 'id', which is part of the key"),
        ({"track": ()}, "names no column"),
        ({"since": "city"}, "is no timestamp column of stream 'customers'; these are: at"),
        ({"of": replace(CUSTOMERS, derived={"valid_to": "at"})}, "has a column 'valid_to'"),
    ],
)
def test_a_history_that_nobody_could_tell_is_refused_with_the_way_out(given: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        History(**{"name": "h", "of": CUSTOMERS, **given})


@pytest.mark.long
def test_another_kind_of_history_is_refused_on_its_tables(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, Pipeline(CUSTOMERS, (HISTORY,)), [customer(1, 10, "new", "Bonn")])
    with pytest.raises(StreamingError, match="track was nothing and is segment"):
        run(spark, lake, Pipeline(CUSTOMERS, (replace(HISTORY, track=("segment",)),)), [customer(2, 20, "x", "Bonn")])


@pytest.mark.long
def test_a_row_that_is_taken_back_by_hand_was_never_valid_and_is_again_once_it_is_put_back(
    spark: SparkSession, lake: Lake
) -> None:
    """
    00:10  v1 new       |---------|
    00:40  v2 gold                |------------>    taken back by hand: nothing stands, as after a delete; put back
    00:50  v3 silver                  |-------->
    """
    run(spark, lake, PIPELINE, [customer(1, 10, "new", "Bonn"), customer(2, 40, "gold", "Bonn")])
    gold = RowChoice(where="segment = 'gold'")
    taken = retract(spark, lake, PIPELINE, CUSTOMERS, gold, "a typo", "ada", lambda: NOW)
    run(spark, lake, PIPELINE)
    assert taken is not None and intervals(spark, lake) == [(10, 40, "new", "Bonn")]
    assert intervals(spark, lake, NEWEST) == []
    assert changes(spark, lake)[-1] == (1, -1, "gold", 40, "correction")
    assert broken(spark, lake) == []
    retract(spark, lake, PIPELINE, CUSTOMERS, RowChoice(undoes=taken.id), "it was none", "ada", lambda: NOW)
    run(spark, lake, PIPELINE, [customer(3, 50, "silver", "Bonn")])
    assert intervals(spark, lake) == [(10, 40, "new", "Bonn"), (40, 50, "gold", "Bonn"), (50, None, "silver", "Bonn")]
    assert broken(spark, lake) == []
