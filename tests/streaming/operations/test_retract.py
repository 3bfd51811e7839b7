"""Rows that are valid and wrong are taken back by hand, put back, and corrected like any late change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Files,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    Selected,
    SessionWindow,
    Sliding,
    Snapshots,
    Stream,
    Table,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError, OperatorError, RetractionError, StreamingError
from streaming.deliveries.outboxes import outbox_for
from streaming.log import (
    RETRACTED_FROM,
    RETRACTIONS,
    Retraction,
    commit_batch,
    first_retraction,
    read_log,
    retractions,
    standing,
    valid,
)
from streaming.operations import Person, RowChoice, erase, preview_retraction, rebuild, retract
from streaming.operations.retract import check_retractable
from streaming.operators.declaration import check_retractions
from streaming.operators.runtime import runtime_of
from streaming.revisions import standing_rows
from streaming.sources import unit_table_of
from streaming.tables import delta, storage
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run
from tidemark.testing import correct

READINGS = Stream(
    name="readings",
    source=Files("landing/readings"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
)
MINUTES = Windowed("minutes", READINGS, Tumbling("60 seconds"), {"rows": agg.count(), "total": agg.sum("value")})
SLID = Windowed(
    "slid", READINGS, Sliding("60 seconds", "20 seconds"), {"rows": agg.count(), "most": agg.maximum("value")}
)
PIPELINE = Pipeline(READINGS, (MINUTES, SLID))
ORDERS = replace(
    READINGS,
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, version bigint, at timestamp, value bigint, gone boolean"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
OF_ORDERS = replace(MINUTES, of=ORDERS)
SHOP = Pipeline(ORDERS, (OF_ORDERS,))


def reading(id: str, seconds: float, value: int) -> dict[str, Any]:
    return {"id": id, "at": at(seconds).isoformat(), "value": value}


def order(id: str, version: int, seconds: float, value: int) -> dict[str, Any]:
    return {**reading(id, seconds, value), "version": version, "gone": False}


def take_back(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, where: str | None = None, undoes: int | None = None
) -> Retraction | None:
    chosen = RowChoice(where, undoes)
    return retract(spark, lake, pipeline, pipeline.stream, chosen, "typed twice", "ada", lambda: NOW)


def taken(retraction: Retraction | None) -> Retraction:
    assert retraction is not None
    return retraction


def windows(results: Any) -> list[tuple[int, int, int]]:
    columns = ("unix_seconds(window_start)", "rows", "total")
    return sorted((row[0] - int(T0.timestamp()), row[1], row[2]) for row in results.selectExpr(*columns).collect())


def first(spark: SparkSession, lake: Lake, view: Windowed = MINUTES) -> list[tuple[int, int, int]]:
    return windows(runtime_of(view, lake).readable["first"](spark))


def current(spark: SparkSession, lake: Lake, view: Windowed = MINUTES) -> list[tuple[int, int, int]]:
    return windows(read_current(spark, lake, view))


def orders(spark: SparkSession, lake: Lake) -> list[tuple[str, int]]:
    return sorted((row.id, row.version) for row in standing_rows(spark, lake, ORDERS).collect())


def check(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> None:
    broken = [finding for finding in audit(spark, lake, pipeline) if not finding.holds]
    assert not broken


def test_a_row_that_is_taken_back_in_time_is_in_no_first_result_and_a_late_one_is_corrected(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, PIPELINE, [reading("a", 1, 1), reading("b", 2, 10), reading("c", 70, 100)])
    before = delta.version_of(lake.log(READINGS))
    outcome = preview_retraction(spark, lake, PIPELINE, READINGS, RowChoice("id = 'c'"))
    assert (outcome.rows, outcome.days, outcome.due["minutes"]) == (1, {T0.date(): 1}, ())
    assert [(each.start, each.before, each.after) for each in outcome.changes["minutes"]] == [
        (at(60), {"rows": 1, "total": 100}, None)
    ]
    assert delta.version_of(lake.log(READINGS)) == before

    # The window of c is open, and that of b is not closed by anything that came before 130.
    in_time = taken(take_back(spark, lake, PIPELINE, "id = 'c'"))
    run(spark, lake, PIPELINE, [reading("d", 71, 1000), reading("e", 200, 1)])
    assert first(spark, lake) == [(0, 2, 11), (60, 1, 1000)]

    late = taken(take_back(spark, lake, PIPELINE, "value in (10, 1000)"))
    assert (late.rows, late.who, late.reason, late.where) == (2, "ada", "typed twice", "value in (10, 1000)")
    run(spark, lake, PIPELINE)
    assert first(spark, lake) == current(spark, lake) == [(0, 2, 11), (60, 1, 1000)]
    assert [entry.late_pairs for entry in runtime_of(MINUTES, lake).plan(spark)] == [2]
    correct(spark, lake, MINUTES, lambda: NOW)
    correct(spark, lake, SLID, lambda: NOW)
    assert first(spark, lake) == [(0, 2, 11), (60, 1, 1000)]
    assert current(spark, lake) == [(0, 1, 1)]
    check(spark, lake)

    undone = taken(take_back(spark, lake, PIPELINE, undoes=late.id))
    assert (undone.undoes, undone.rows) == (late.id, 2)
    run(spark, lake, PIPELINE)
    correct(spark, lake, MINUTES, lambda: NOW)
    correct(spark, lake, SLID, lambda: NOW)
    assert current(spark, lake) == [(0, 2, 11), (60, 1, 1000)]
    assert [each.id for each in retractions(lake, PIPELINE)] == [in_time.id, late.id, undone.id]
    # Nothing is taken back twice, or put back twice.
    assert take_back(spark, lake, PIPELINE, "id = 'c'") is None
    assert take_back(spark, lake, PIPELINE, undoes=late.id) is None
    assert sorted(row.id for row in valid(standing(read_log(spark, lake, READINGS))).collect()) == ["a", "b", "d", "e"]
    check(spark, lake)


def test_a_session_falls_apart_when_somebody_takes_back_the_row_that_held_it_together(
    spark: SparkSession, lake: Lake
) -> None:
    """
    0   a at 00:00 (1), b at 00:25 (2), c at 00:50 (4)    one session
        y at 05:00 (8), z at 05:10 (16)                   open, and kept as sums
    1   b and y are taken back                            two sessions, one of z alone, which is open
    2   end at 10:00                                      z is published
    3   what was taken back is put back                   one session again, and y is late
    """
    visits = replace(MINUTES, name="visits", window=SessionWindow("30 seconds"))
    pipeline = Pipeline(READINGS, (visits,))
    run(spark, lake, pipeline, [reading("a", 0, 1), reading("b", 25, 2), reading("c", 50, 4)])
    run(spark, lake, pipeline, [reading("y", 300, 8), reading("z", 310, 16)])
    assert first(spark, lake, visits) == [(0, 3, 7)]
    outcome = preview_retraction(spark, lake, pipeline, READINGS, RowChoice("value in (2, 8)"))
    foretold = [(each.start, each.before, each.after) for each in outcome.changes["visits"]]
    assert foretold == [
        (at(0), None, {"rows": 1, "total": 1}),
        (at(0), {"rows": 3, "total": 7}, None),
        (at(50), None, {"rows": 1, "total": 4}),
        (at(300), {"rows": 2, "total": 24}, None),
        (at(310), None, {"rows": 1, "total": 16}),
    ]
    done = taken(take_back(spark, lake, pipeline, "value in (2, 8)"))
    run(spark, lake, pipeline)
    correct(spark, lake, visits, lambda: NOW)
    assert current(spark, lake, visits) == [(0, 1, 1), (50, 1, 4)]
    check(spark, lake, pipeline)
    run(spark, lake, pipeline, [reading("end", 600, 0)])
    correct(spark, lake, visits, lambda: NOW)
    assert first(spark, lake, visits) == [(0, 3, 7), (310, 1, 16)]
    assert current(spark, lake, visits) == [(0, 1, 1), (50, 1, 4), (310, 1, 16)]
    taken(take_back(spark, lake, pipeline, undoes=done.id))
    run(spark, lake, pipeline)
    correct(spark, lake, visits, lambda: NOW)
    assert current(spark, lake, visits) == [(0, 3, 7), (300, 2, 24)]
    check(spark, lake, pipeline)


def test_a_preview_tells_each_day_of_a_session_that_waits_for_a_correction(spark: SparkSession, lake: Lake) -> None:
    """
    23:59:50 a · 00:00:05 b, of the next day   one session of two days, published at 01:00
    b is taken back                            both days wait
    """
    visits = replace(MINUTES, name="visits", window=SessionWindow("30 seconds"))
    pipeline = Pipeline(READINGS, (visits,))
    midnight = 86_400
    run(spark, lake, pipeline, [reading("a", midnight - 10, 1), reading("b", midnight + 5, 2)])
    run(spark, lake, pipeline, [reading("end", midnight + 3600, 4)])
    foretold = preview_retraction(spark, lake, pipeline, READINGS, RowChoice("id = 'b'")).due["visits"]
    taken(take_back(spark, lake, pipeline, "id = 'b'"))
    run(spark, lake, pipeline)
    due = [entry.day for entry in runtime_of(visits, lake).plan(spark)]
    assert [*foretold] == due == [T0.date(), T0.date() + timedelta(days=1)]


@pytest.mark.long
def test_what_was_corrected_before_anything_was_taken_back_stands_beside_what_is_corrected_after_it(
    spark: SparkSession, lake: Lake
) -> None:
    """
    a at 23:59:40, b at 00:00:20, and between them c at 00:00:00, which is late: one session of the day before
    x and y are another two of that day, and become one by z, which is late; z is taken back, so that day alone is due
    """
    visits = replace(MINUTES, name="visits", window=SessionWindow("30 seconds"), by=("id",))
    pipeline, day = Pipeline(READINGS, (visits,)), 86_400
    run(spark, lake, pipeline, [reading("a", day - 20, 1), reading("x", day - 90, 1), reading("x", day - 50, 2)])
    run(spark, lake, pipeline, [reading("a", day + 20, 2), reading("end", day + 200, 0)])
    run(spark, lake, pipeline, [reading("a", day, 4), reading("x", day - 70, 4)])
    correct(spark, lake, visits, lambda: NOW)
    assert current(spark, lake, visits) == [(day - 90, 3, 7), (day - 20, 3, 7)]
    check(spark, lake, pipeline)
    taken(take_back(spark, lake, pipeline, "id = 'x' and value = 4"))
    run(spark, lake, pipeline)
    assert len(runtime_of(visits, lake).plan(spark)) == 1
    correct(spark, lake, visits, lambda: NOW)
    assert current(spark, lake, visits) == [(day - 90, 1, 1), (day - 50, 1, 2), (day - 20, 3, 7)]
    check(spark, lake, pipeline)
    rebuild(spark, lake, pipeline, visits, now=lambda: NOW)
    run(spark, lake, pipeline)
    assert current(spark, lake, visits) == [(day - 90, 1, 1), (day - 50, 1, 2), (day - 20, 3, 7)]
    check(spark, lake, pipeline)


@pytest.mark.long
def test_a_revision_that_is_taken_back_is_a_delete_of_its_own_sequence(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, [order("a", 5, 1, 1), order("b", 5, 2, 10), order("z", 1, 200, 0)])
    assert first(spark, lake, OF_ORDERS) == [(0, 2, 11)]
    outcome = preview_retraction(spark, lake, SHOP, ORDERS, RowChoice("value < 100 and id <> 'z'"))
    assert (outcome.rows, outcome.due) == (2, {"minutes": (T0.date(),)})
    assert [each.after for each in outcome.changes["minutes"]] == [None]
    gone = taken(take_back(spark, lake, SHOP, "id in ('a', 'b')"))
    assert orders(spark, lake) == [("z", 1)]

    # An older revision, or a copy, changes nothing; a newer one adds the row again.
    run(spark, lake, SHOP, [order("a", 4, 1, 7), order("a", 5, 1, 1), order("b", 6, 2, 20)])
    assert orders(spark, lake) == [("b", 6), ("z", 1)]
    undone = taken(take_back(spark, lake, SHOP, undoes=gone.id))
    assert undone.rows == 1
    assert orders(spark, lake) == [("a", 5), ("b", 6), ("z", 1)]
    run(spark, lake, SHOP)
    correct(spark, lake, OF_ORDERS, lambda: NOW)
    assert first(spark, lake, OF_ORDERS) == [(0, 2, 11)]
    assert current(spark, lake, OF_ORDERS) == [(0, 2, 21)]
    check(spark, lake, SHOP)
    # What was put back is taken back again, by its own retraction or by a condition.
    again = taken(take_back(spark, lake, SHOP, undoes=undone.id))
    assert orders(spark, lake) == [("b", 6), ("z", 1)]
    assert taken(take_back(spark, lake, SHOP, undoes=again.id)).rows == 1
    assert taken(take_back(spark, lake, SHOP, "id = 'a'")).rows == 1
    assert orders(spark, lake) == [("b", 6), ("z", 1)]
    check(spark, lake, SHOP)
    # All of it follows from the log alone.
    for uri in (lake.log(ORDERS), lake.batches(ORDERS), lake.standing(ORDERS)):
        storage.remove_folder(uri)
    run(spark, lake, SHOP)
    assert orders(spark, lake) == [("b", 6), ("z", 1)]
    check(spark, lake, SHOP)


def refused(pipeline: Pipeline) -> RetractionError:
    with pytest.raises(RetractionError) as caught:
        check_retractable(pipeline, pipeline.stream)
    return caught.value


def test_who_takes_each_row_for_one_that_stands_keeps_rows_from_being_taken_back() -> None:
    visits = SessionWindow("30 seconds")
    updated = replace(MINUTES, name="updated", window=visits, late="update", allowed_lateness="1 minute")
    assert "view 'updated' follows them" in str(refused(Pipeline(READINGS, (updated,))))
    dropping = replace(MINUTES, name="dropping", late="drop")
    assert "view 'dropping' follows them" in str(refused(Pipeline(READINGS, (dropping,))))
    selected = Selected("chosen", READINGS, select=("id",))
    assert "'chosen' follows them" in str(refused(Pipeline(READINGS, (MINUTES, selected))))
    sent = Delivery("sent", READINGS, JsonLines("out/sent"))
    assert "delivery 'sent'" in str(refused(Pipeline(READINGS, (MINUTES,), deliveries=(sent,))))
    copies = replace(READINGS, name="copies", source=Table(READINGS))
    both = Pipeline(name="both", streams=(READINGS, copies), operators=(MINUTES,))
    assert "stream 'copies' of pipeline 'both'" in str(refused(both))
    rest = (Delivery("gone", READINGS, JsonLines("out/gone"), what="rejected"),)
    check_retractable(Pipeline(READINGS, (MINUTES,), deliveries=rest), READINGS)
    check_retractable(SHOP, ORDERS)


def test_what_is_declared_over_a_log_with_retractions_is_refused_when_it_runs(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [reading("a", 1, 1), reading("b", 100, 1)])
    taken(take_back(spark, lake, PIPELINE, "id = 'a'"))
    dropping = replace(MINUTES, name="dropping", late="drop")
    with pytest.raises(OperatorError, match="of which rows were taken back, last by batch 1"):
        check_retractions(lake, dropping)
    check_retractions(lake, MINUTES)
    with pytest.raises(StreamingError, match="'dropping' cannot follow stream 'readings'"):
        run(spark, lake, Pipeline(READINGS, (MINUTES, dropping)))
    assert not delta.exists(lake.table(dropping))
    with pytest.raises(DeclarationError, match="some were taken back"):
        unit_table_of(READINGS, lake, "")
    outbox = outbox_for(READINGS, Delivery("sent", READINGS, JsonLines("out/sent")), lake)
    with pytest.raises(DeclarationError, match="some were taken back"):
        outbox.end(0)


def test_a_log_that_tells_its_newest_retraction_alone_is_asked_for_the_first(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions did not write the number of the first such batch: its commit tells, and the next one writes it.

    ```
    batch 1    takes a back, and only the newest number is written
    batch 2    takes b back
    ```
    """

    def commit_as_before(*arguments: Any) -> Any:
        numbers = {name: each for name, each in arguments[-1].items() if name != RETRACTED_FROM}
        return commit_batch(*(*arguments[:-1], numbers))

    run(spark, lake, PIPELINE, [reading("a", 1, 1), reading("b", 100, 1)])
    assert first_retraction(lake, READINGS) is None
    with monkeypatch.context() as before:
        before.setattr("streaming.log.ingest.commit_batch", commit_as_before)
        assert taken(take_back(spark, lake, PIPELINE, "id = 'a'")).id == 1
    log = lake.log(READINGS)
    assert [delta.opened(log).transaction_version(name) for name in (RETRACTIONS, RETRACTED_FROM)] == [1, None]
    assert first_retraction(lake, READINGS) == 1
    assert taken(take_back(spark, lake, PIPELINE, "id = 'b'")).id == 2
    assert first_retraction(lake, READINGS) == 1
    assert [delta.opened(log).transaction_version(name) for name in (RETRACTIONS, RETRACTED_FROM)] == [2, 1]


def test_a_condition_that_cannot_be_computed_and_an_unknown_retraction_write_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, PIPELINE, [reading("a", 1, 1)])
    before = delta.version_of(lake.log(READINGS))
    for where in ("cast(id as int) = 1", "1 / (value - 1) > 0"):
        with pytest.raises(RetractionError, match="cannot be computed"):
            take_back(spark, lake, PIPELINE, where)
    with pytest.raises(DeclarationError, match="nothing_like_it"):
        take_back(spark, lake, PIPELINE, "nothing_like_it = 1")
    with pytest.raises(RetractionError, match="has no retraction 0"):
        take_back(spark, lake, PIPELINE, undoes=0)
    with pytest.raises(RetractionError, match="reason"):
        retract(spark, lake, PIPELINE, READINGS, RowChoice("true"), " ", "ada", lambda: NOW)
    with pytest.raises(RetractionError, match="do not say"):
        RowChoice("true", 1)
    assert delta.version_of(lake.log(READINGS)) == before
    assert retractions(lake, PIPELINE) == []


@pytest.mark.long
def test_the_next_extract_brings_back_a_row_that_it_still_has(spark: SparkSession, lake: Lake) -> None:
    stream = replace(
        ORDERS,
        source=Files("landing/orders", files_per_batch=1),
        sequence=None,
        deletes=None,
        snapshots=Snapshots(at_most_gone=0.9),
    )
    shop = Pipeline(stream, (replace(MINUTES, of=stream),))

    def extract(*ids: str) -> None:
        run(spark, lake, shop, [order(id, 1, 1, ord(id)) for id in ids])

    extract("a", "b", "c")
    # The same rows once more: what stands is of the first extract.
    extract("a", "b", "c")
    gone = taken(take_back(spark, lake, shop, "id in ('a', 'b')"))
    assert (gone.rows, orders(spark, lake)) == (2, [("c", 1)])
    check(spark, lake, shop)
    extract("a", "c")
    assert orders(spark, lake) == [("a", 1), ("c", 1)]
    # Of the two rows one stands again, and the other one is put back.
    assert taken(take_back(spark, lake, shop, undoes=gone.id)).rows == 1
    assert orders(spark, lake) == [("a", 1), ("b", 1), ("c", 1)]
    extract("a", "c")
    assert orders(spark, lake) == [("a", 1), ("c", 1)]
    check(spark, lake, shop)


@pytest.mark.long
def test_a_person_is_erased_with_what_was_taken_back_and_as_of_reads_and_rebuilds_see_the_rows_of_then(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, PIPELINE, [reading("a", 1, 1), reading("b", 2, 10), reading("c", 200, 1)])
    done = taken(take_back(spark, lake, PIPELINE, "id = 'a'"))
    run(spark, lake, PIPELINE)
    correct(spark, lake, MINUTES, lambda: NOW)
    assert (current(spark, lake), current(spark, lake.as_of({"readings": 0}))) == ([(0, 1, 10)], [(0, 2, 11)])
    rebuild(spark, lake, PIPELINE, MINUTES, now=lambda: NOW)
    run(spark, lake, PIPELINE)
    assert (first(spark, lake), current(spark, lake)) == ([(0, 2, 11)], [(0, 1, 10)])
    check(spark, lake)
    erase(spark, lake, PIPELINE, Person("id", "a"))
    assert [(each.id, each.rows, each.where, each.reason) for each in retractions(lake, PIPELINE)] == [
        (done.id, 1, None, None)
    ]
    assert read_log(spark, lake, READINGS).where("id = 'a'").count() == 0
    assert (first(spark, lake), current(spark, lake)) == ([(0, 1, 10)], [(0, 1, 10)])
    check(spark, lake)
