"""A history as the pinned dimension of a keyed function: rows see what was valid at their time, as it was known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    History,
    Json,
    Keyed,
    Lake,
    Pinned,
    Pipeline,
    Stream,
    Table,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError
from streaming.keyed import Key
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import frame
from streaming.service.drain import drain
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tidemark import testing

CUSTOMERS = Stream(
    name="customers",
    source=Files("landing/customers"),
    format=Json("id string, version bigint, at timestamp, segment string, op string"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="op = 'd'",
)
VISITS = Stream(
    name="visits",
    source=Files("landing/visits"),
    format=Json("customer string, at timestamp, number bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
)
SEGMENTS = History("segments", CUSTOMERS)
NEWEST = History("customers_now", CUSTOMERS, kind=1)


def tell_segment(key: Key, row: Any) -> None:
    customer = key.rules.get((row.customer,))
    key.emit(number=row.number, segment=customer and customer.segment, known=len(key.rules))
    key.timer("again", key.at + 20_000_000)


def tell_again(key: Key) -> None:
    customer = key.rules.get(key.key)
    key.emit(number=None, segment=customer and customer.segment, known=len(key.rules))


def told(history: History = SEGMENTS, of: Stream = VISITS, name: str = "told") -> Keyed:
    return Keyed(
        name,
        of,
        ("customer",),
        "",
        "number bigint, segment string, known int",
        tell_segment,
        timers={"again": tell_again},
        rules=Pinned(history),
    )


PIPELINE = Pipeline(name="shop", streams=(VISITS, CUSTOMERS), operators=(told(), SEGMENTS))


def customer(version: int, seconds: float, segment: str | None = None, op: str = "u", id: str = "a") -> dict[str, Any]:
    return {"id": id, "version": version, "at": at(seconds).isoformat(), "segment": segment, "op": op}


def visit(number: int, seconds: float, customer: str = "a") -> dict[str, Any]:
    return {"customer": customer, "at": at(seconds).isoformat(), "number": number}


def run(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE, **rows: Sequence[Any]) -> None:
    for stream in pipeline.streams:
        land_all(lake, stream, *([rows[stream.name]] if rows.get(stream.name) else []))
    drain(spark, lake, pipeline, now=lambda: NOW)


def results(spark: SparkSession, lake: Lake, of: Keyed, *, timers: bool = False) -> list[tuple[Any, ...]]:
    rows = frame(spark, lake, of).where(f"number is {'' if timers else 'not '}null")
    return sorted((tuple(row) for row in rows.select("number", "segment", "known").collect()), key=str)


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


@pytest.mark.long
def test_a_row_sees_the_interval_of_its_time_as_the_history_was_known_with_its_batch(
    spark: SparkSession, lake: Lake
) -> None:
    """
    00:10  v1 new     |----------------|------->
    00:50  v2 gold                     |------->
    00:30  v3 silver        |----------|            told between the first and the second batch of visits
    01:10  v4 gone                             x    told with the third one

    visits        00:05   00:20   00:40   01:00  01:20
    1st batch     none    new     new     gold
    2nd batch                     silver  gold   gold
    3rd batch                             gold   none
    then a timer at 01:40 fires, once v5 is told, which is back from 01:30 on
    """
    told_to = PIPELINE.operators[0]
    assert isinstance(told_to, Keyed)
    run(
        spark,
        lake,
        customers=[customer(1, 10, "new"), customer(2, 50, "gold")],
        visits=[visit(1, 5), visit(2, 20), visit(3, 40), visit(4, 60)],
    )
    first = [(1, None, 0), (2, "new", 1), (3, "new", 1), (4, "gold", 1)]
    assert results(spark, lake, told_to) == first
    run(spark, lake, customers=[customer(3, 30, "silver")], visits=[visit(5, 40), visit(6, 60), visit(7, 80)])
    second = [(5, "silver", 1), (6, "gold", 1), (7, "gold", 1)]
    assert results(spark, lake, told_to) == [*first, *second]
    run(spark, lake, customers=[customer(4, 70, op="d")], visits=[visit(8, 60), visit(9, 80)])
    every = [*first, *second, (8, "gold", 1), (9, None, 0)]
    assert results(spark, lake, told_to) == every
    assert broken(spark, lake, PIPELINE) == []
    run(spark, lake, customers=[customer(5, 90, "back")], visits=[visit(10, 200, "z")])
    every = sorted([*every, (10, None, 1)], key=str)
    timers = results(spark, lake, told_to, timers=True)
    assert timers == [(None, "back", 1)]
    rebuild(spark, lake, PIPELINE, told_to)
    assert results(spark, lake, told_to) == every
    assert results(spark, lake, told_to, timers=True) == timers


@pytest.mark.long
def test_of_kind_1_a_row_sees_the_newest_whatever_its_time(spark: SparkSession, lake: Lake) -> None:
    newest = told(NEWEST)
    pipeline = Pipeline(name="shop", streams=(VISITS, CUSTOMERS), operators=(newest, NEWEST))
    run(
        spark,
        lake,
        pipeline,
        customers=[customer(1, 10, "new"), customer(2, 50, "gold")],
        visits=[visit(1, 5), visit(2, 20)],
    )
    run(spark, lake, pipeline, customers=[customer(3, 30, "silver")], visits=[visit(3, 40)])
    run(spark, lake, pipeline, customers=[customer(4, 70, op="d")], visits=[visit(4, 40)])
    assert results(spark, lake, newest) == [(1, "gold", 1), (2, "gold", 1), (3, "gold", 1), (4, None, 0)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_how_batches_are_cut_into_steps_changes_no_row_that_sees_a_history(spark: SparkSession, lake: Lake) -> None:
    for number, segment in enumerate("abab", 1):
        rows = [customer(number, 10 * (5 - number), segment), customer(number, number, segment, id="b")]
        visits = [visit(number, 25), visit(number + 10, 45, "b")]
        run(spark, lake, customers=rows, visits=visits)
    later = told(name="later")
    pipeline = Pipeline(name="shop", streams=(VISITS, CUSTOMERS), operators=(later, *PIPELINE.operators))
    run(spark, lake, pipeline, visits=[], customers=[])
    for timers in (False, True):
        assert results(spark, lake, later, timers=timers) == results(spark, lake, told(), timers=timers)
    assert broken(spark, lake, pipeline) == []


def test_a_history_whose_rows_follow_from_those_that_look_it_up_is_refused() -> None:
    following = replace(
        CUSTOMERS,
        source=Table(Keyed("told", VISITS, ("customer",), "", "id string, version bigint", tell_segment)),
        format=Json("id string, version bigint"),
        event_time="at",
        derived={"at": "_origin.at"},
        deletes=None,
    )
    with pytest.raises(DeclarationError, match="'told' looks up rows of 'segments', which follow from its own by way"):
        told(History("segments", following))


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"by": ("segment",)}, "by=\\('segment',\\) of Pinned is about rules, and 'segments' is a history"),
        ({"version": "version"}, "version='version' of Pinned is about rules"),
        ({"removed": "op"}, "removed='op' of Pinned is about rules"),
    ],
)
def test_what_only_rules_have_is_refused_of_a_history(declared: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        Pinned(SEGMENTS, **declared)


def test_a_history_that_nobody_computes_is_refused_with_what_to_add() -> None:
    with pytest.raises(DeclarationError, match="looks up rows of history 'segments', which is none of the operators"):
        Pipeline(name="shop", streams=(VISITS, CUSTOMERS), operators=(told(),))


def test_a_history_cannot_be_played_without_spark() -> None:
    with pytest.raises(DeclarationError, match="rows of history 'segments', which only Spark can tell"):
        testing.play(told(), [visit(1, 5)])
