"""Golden tests of a window join and a co-group on the same rows, in one run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, CoGrouped, Files, Json, Pipeline, Stream, Tumbling, WindowJoined, drain
from streaming.audit.laws import audit
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.runs import tuples


def both_lists(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    yield {"ours": [row.v for row in left], "theirs": [row.v for row in right]}


ours, theirs = (
    Stream(name, Files(f"landing/{name}"), Json("k string, at timestamp not null, v string"), "at", clock)
    for name, clock in (("ours", BoundedOutOfOrderness("1 second")), ("theirs", BoundedOutOfOrderness("2 seconds")))
)
VALUES = {"ours": "left_v", "theirs": "right_v"}
joined = WindowJoined("joined", ours, theirs, ("k",), Tumbling("5 seconds"), VALUES)
hourly = WindowJoined("hourly", ours, theirs, ("k",), Tumbling("1 hour"), VALUES)
result = "ours array<string>, theirs array<string>"
grouped = CoGrouped("grouped", ours, theirs, ("k",), Tumbling("5 seconds"), result, both_lists)
of_itself = WindowJoined("of_itself", ours, ours, ("k",), Tumbling("5 seconds"), {"one": "left_v", "other": "right_v"})
PIPELINE = Pipeline(name="meeting", streams=(ours, theirs), operators=(joined, hourly, grouped, of_itself))
HOUR = 3600.0


def rows(timeline: str) -> list[dict[str, Any]]:
    """Rows in the notation `k@2=v`: key (`-` for null), seconds after T0, value."""
    payloads = []
    for entry in timeline.split():
        key, _, rest = entry.partition("@")
        seconds, _, value = rest.partition("=")
        payloads.append({"k": None if key == "-" else key, "at": at(float(seconds)).isoformat(), "v": value})
    return payloads


@pytest.fixture(scope="module")
def met(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after one run to the end of the input."""
    lake = Lake(str(tmp_path_factory.mktemp("met")))
    land_all(lake, ours, rows(f"k@2=2 k@1=1 one@3=1 -@4=n h@{HOUR - 0.5}=a"))
    land_all(lake, theirs, rows(f"k@0=x k@4.999=y k@3=z k@5=no -@4=n h@{HOUR + 0.5}=b"))
    drain(spark, lake, PIPELINE, now=lambda: NOW, end_of_input=True)
    return lake


def test_j4_rows_of_a_key_meet_in_their_window_only(spark: SparkSession, met: Lake) -> None:
    pairs = runtime_of(joined, met).readable["current"](spark)
    six = [("k", at(0), at(5), ours, theirs) for ours in "12" for theirs in "xyz"]
    # One side alone makes no pair, and a null equals nothing, not even a null.
    assert tuples(pairs, *joined.columns) == six
    own = runtime_of(of_itself, met).readable["current"](spark)
    assert tuples(own.where("k = 'k'"), "one", "other") == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    in_hours = runtime_of(hourly, met).readable["first"](spark)
    # a at half a second before the hour and b at half a second past it are in the same window of no length.
    assert {row[0] for row in tuples(in_hours, "k")} == {"k"}
    assert in_hours.count() == 8


def test_j5_a_function_gets_both_lists_of_a_key_and_window_and_one_may_be_empty(spark: SparkSession, met: Lake) -> None:
    lists = runtime_of(grouped, met).readable["current"](spark)
    assert tuples(lists, "k", "window_start", "ours", "theirs") == [
        (None, at(0), ["n"], ["n"]),
        ("h", at(HOUR - 5), ["a"], []),
        ("h", at(HOUR), [], ["b"]),
        ("k", at(0), ["1", "2"], ["x", "z", "y"]),
        ("k", at(5), [], ["no"]),
        ("one", at(0), ["1"], []),
    ]


def test_a_join_is_audited_by_the_logs_that_it_reads_whatever_else_the_pipeline_has(
    spark: SparkSession, met: Lake
) -> None:
    alone = Pipeline(name="meeting", streams=(ours, theirs), operators=(of_itself,))
    laws = [finding for finding in audit(spark, met, alone) if finding.subject == of_itself.name]
    assert laws and all(finding.holds for finding in laws)
