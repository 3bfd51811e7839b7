"""Histories of whole extracts: when rows were new, changed, gone and there again, by what the extracts tell of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, History, Json, Lake, Pipeline, Rule, Snapshots, Stream, why
from streaming.audit.laws import audit
from streaming.base import DeclarationError
from streaming.operators.runtime import frame
from streaming.service.drain import drain
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.seeds import draws

CUSTOMERS = Stream(
    name="customers",
    source=Files("landing/customers", files_per_batch=1),
    format=Json("id bigint, segment string, updated_at timestamp, exported_at timestamp"),
    event_time="updated_at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    rules=(Rule("segment", "segment <> ''"),),
    key=("id",),
    snapshots=Snapshots(at_most_gone=0.5, taken_at="exported_at"),
)
BY_EXTRACT = History("by_extract", CUSTOMERS)
BY_ROW = History("by_row", CUSTOMERS, since="updated_at")
TRACKED = History("tracked", CUSTOMERS, track=("segment",), since="updated_at")
NEWEST = History("newest", CUSTOMERS, kind=1)
PIPELINE = Pipeline(CUSTOMERS, (BY_EXTRACT, BY_ROW, TRACKED, NEWEST))


def extract(seconds: int, *customers: tuple[int, str, int]) -> list[dict[str, Any]]:
    """The customers of an extract, of each its number, its segment, and when its row was updated."""
    return [
        {"id": id, "segment": segment, "updated_at": at(since).isoformat(), "exported_at": at(seconds).isoformat()}
        for id, segment, since in customers
    ]


def run(spark: SparkSession, lake: Lake, pipeline: Pipeline, *extracts: Sequence[Any], minutes: int = 0) -> None:
    land_all(lake, pipeline.stream, *extracts)
    drain(spark, lake, pipeline, now=lambda: NOW + timedelta(minutes=minutes))


def intervals(spark: SparkSession, lake: Lake, history: History) -> list[tuple[Any, ...]]:
    """Number and segment of a customer, and from when until when, in seconds of the drawing."""
    begins = int(at(0).timestamp())
    until = f"unix_seconds(valid_to) - {begins}" if history.kind == 2 else "null"
    rows = frame(spark, lake, history)
    told = rows.selectExpr("id", "segment", f"unix_seconds(valid_from) - {begins}", until).collect()
    return sorted((tuple(row) for row in told), key=str)


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def test_rows_that_are_new_changed_gone_and_there_again_have_the_times_of_their_extracts(
    spark: SparkSession, lake: Lake
) -> None:
    """
    extract taken at   01:00            02:00             03:00
    customer 1         new (00:10)      new               new             one interval
    customer 2         new (00:20)      gold (01:30)      gold            changed
    customer 3         new (00:30)      -                 new (00:30)     gone, and there again as it was
    customer 4         new (00:30)      new (00:30)       -               gone
    customer 5         -                new (01:40)       new             new
    """
    run(spark, lake, PIPELINE, extract(60, (1, "new", 10), (2, "new", 20), (3, "new", 30), (4, "new", 30)))
    second = extract(120, (1, "new", 10), (2, "gold", 90), (4, "new", 30), (5, "new", 100))
    third = extract(180, (1, "new", 10), (2, "gold", 90), (3, "new", 30), (5, "new", 100))
    run(spark, lake, PIPELINE, second, third)
    assert intervals(spark, lake, BY_EXTRACT) == [
        *((1, "new", 60, None),),
        *((2, "gold", 120, None), (2, "new", 60, 120)),
        *((3, "new", 180, None), (3, "new", 60, 120)),
        *((4, "new", 60, 180),),
        *((5, "new", 120, None),),
    ]
    # By the times of their rows all begin when they say, but for customer 3, who was not there at 02:00.
    assert (
        intervals(spark, lake, BY_ROW)
        == intervals(spark, lake, TRACKED)
        == [
            *((1, "new", 10, None),),
            *((2, "gold", 90, None), (2, "new", 20, 90)),
            *((3, "new", 180, None), (3, "new", 30, 120)),
            *((4, "new", 30, 180),),
            *((5, "new", 100, None),),
        ]
    )
    assert [row[:2] for row in intervals(spark, lake, NEWEST)] == [(1, "new"), (2, "gold"), (3, "new"), (5, "new")]
    assert broken(spark, lake, PIPELINE) == []
    # One customer's intervals follow from its rows, and from the extracts that have none of it.
    for history, number, gone in ((BY_EXTRACT, 3, 1), (BY_ROW, 3, 1), (BY_EXTRACT, 4, 2)):
        answer = why(PIPELINE, history, {"id": number}, lake=lake, spark=spark)
        assert (answer.agrees, {row.values["id"] for row in answer.inputs}) == (True, {number})
        assert answer.notes == (f"it is gone by 1 extract: batch {gone}, which has no row of it",)
        # Those with its rows, and once more those of the extracts that tell about it.
        files = len(DeltaTable(lake.log(CUSTOMERS.revisions)).file_uris())
        assert answer.files.of == 2 * files and answer.files.read > files


@pytest.mark.long
def test_an_extract_that_is_refused_or_has_rejected_rows_ends_no_interval(spark: SparkSession, lake: Lake) -> None:
    """
    extract taken at   01:00   02:00             03:00             04:00
    customers          1 to 4  1: cut off        1, 2, "": bad row  1, 2
    """
    pipeline = Pipeline(CUSTOMERS, (BY_EXTRACT,))
    whole = [(number, "new", 10) for number in range(1, 5)]
    run(spark, lake, pipeline, extract(60, *whole), extract(120, whole[0]))
    run(spark, lake, pipeline, extract(180, *whole[:2], (3, "", 10)))
    assert intervals(spark, lake, BY_EXTRACT) == [(number, "new", 60, None) for number in range(1, 5)]
    answer = why(pipeline, BY_EXTRACT, {"id": 1}, lake=lake, spark=spark)
    assert answer.agrees is True
    assert [(row.batch, row.reason) for row in answer.inputs] == [(0, ""), (1, "its extract was refused"), (2, "")]
    run(spark, lake, pipeline, extract(240, *whole[:2]))
    ended = [(number, "new", 60, None if number < 3 else 240) for number in range(1, 5)]
    assert intervals(spark, lake, BY_EXTRACT) == ended
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_without_a_time_of_extracts_it_is_when_each_came_and_with_files_it_may_be_theirs(
    spark: SparkSession, lake: Lake
) -> None:
    own = Files("landing/silent", files_per_batch=1)
    silent = replace(CUSTOMERS, name="silent", source=own, snapshots=Snapshots(at_most_gone=1.0))
    by_file = replace(CUSTOMERS, snapshots=Snapshots(at_most_gone=1.0, taken_at="_origin.modified"))
    for stream in (silent, by_file):
        history = History(
            f"of_{stream.name}", replace(stream, format=Json("id bigint, segment string, updated_at timestamp"))
        )
        pipeline = Pipeline(history.of, (history,))
        one, two = ({"id": number, "segment": "new", "updated_at": at(10).isoformat()} for number in (1, 2))
        run(spark, lake, pipeline, [one, two])
        run(spark, lake, pipeline, [one], minutes=60)
        first, second = intervals(spark, lake, history)
        assert first[:2] == (1, "new") and first[3] is None
        assert second[:2] == (2, "new") and second[2] == first[2] and second[3] >= second[2]
        if stream is silent:
            came = int((NOW - at(0)).total_seconds())
            assert (second[2], second[3]) == (came, came + 3600)
        assert broken(spark, lake, pipeline) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_intervals_of_drawn_extracts_are_what_the_extracts_say_however_steps_are_cut(
    spark: SparkSession, lake: Lake, seed: int
) -> None:
    chance = draws(f"histories of extracts {seed}")
    stream = replace(CUSTOMERS, snapshots=Snapshots(at_most_gone=1.0, taken_at="exported_at"), rules=())
    history = History("h", stream)
    extracts = []
    for number in range(1, 7):
        ids = chance.sample(range(8), chance.randint(1, 8))
        extracts.append(extract(60 * number, *((id, chance.choice(("new", "gold")), 10) for id in ids)))
    pipeline = Pipeline(stream, (history,))
    cut = chance.randint(1, 5)
    run(spark, lake, pipeline, *extracts[:cut])
    run(spark, lake, pipeline, *extracts[cut:])
    expected: list[tuple[Any, ...]] = []
    for id in range(8):
        states = [next((row["segment"] for row in rows if row["id"] == id), None) for rows in extracts]
        began: tuple[str, int] | None = None
        for number, state in enumerate([*states, "end"], 1):
            if began is not None and (state != began[0]):
                expected.append((id, *began, None if state == "end" else 60 * number))
                began = None
            if began is None and state not in (None, "end"):
                began = (state, 60 * number)
    assert intervals(spark, lake, history) == sorted(expected, key=str)
    assert broken(spark, lake, pipeline) == []


@pytest.mark.parametrize(
    ("taken_at", "says"),
    [("exported", "exported"), ("segment", "which is no timestamp"), ("max(exported_at)", "takes many rows together")],
)
def test_a_time_of_extracts_that_is_none_is_refused(taken_at: str, says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        replace(CUSTOMERS, snapshots=Snapshots(taken_at=taken_at))
