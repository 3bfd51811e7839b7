"""Streams with a key: what is added, taken back and stands, by hand along drawn timelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Joined,
    Json,
    Lake,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import ChangedDeclaration, DeclarationError
from streaming.declare import LATE
from streaming.log import archive_batches, head, read_log
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from streaming.reading.selection import Choice
from streaming.reading.stored import stored_rows
from streaming.revisions.steps import of_revisions, rows_now
from streaming.tables import storage
from streaming.views import as_batch
from tests.support.instants import NOW, at
from tests.support.runs import read_current, run, tuples
from tidemark.testing import correct, land

COLUMNS = "order_id string, version bigint, at timestamp, country string, amount decimal(10,2), op string"
ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json(COLUMNS),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("order_id",),
    sequence="version",
    deletes="op = 'd'",
)
BY_MINUTE = Windowed(
    "by_minute", ORDERS, Tumbling("1 minute"), {"orders": agg.count(), "paid": agg.sum("amount")}, by=("country",)
)
PIPELINE = Pipeline(ORDERS, (BY_MINUTE,))


def order(
    order_id: str, version: int, seconds: float | None, country: str | None, amount: Any, op: str = "u"
) -> dict[str, Any]:
    time = None if seconds is None else at(seconds).isoformat()
    return {"order_id": order_id, "version": version, "at": time, "country": country, "amount": amount, "op": op}


def second(seconds: float) -> int:
    return int(at(seconds).timestamp())


def changes(spark: SparkSession, lake: Lake, stream: Stream = ORDERS) -> list[tuple[Any, ...]]:
    """Batch, sign, order, version and amount of each row of the changes."""
    rows = read_log(spark, lake, stream).where("_day is not null")
    chosen = rows.selectExpr("_batch", "_origin.change", "order_id", "version", "cast(amount as double)").collect()
    return sorted(tuple(row) for row in chosen)


def current(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    rows = read_current(spark, lake, BY_MINUTE).selectExpr(
        "country", "unix_seconds(window_start)", "orders", "cast(paid as double)"
    )
    return sorted(tuple(row) for row in rows.collect())


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def test_a_newer_revision_takes_back_the_one_that_stands_with_its_old_values(spark: SparkSession, lake: Lake) -> None:
    """
    00:05  a v1  10.00       00:20  b v1  7.00
    00:05  a v2  12.00  (the same event time, another amount)
    02:00  c v1   1.00  closes the first minute
    """
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10), order("b", 1, 20, "DE", 7)])
    run(spark, lake, PIPELINE, [order("a", 2, 5, "DE", 12)])
    run(spark, lake, PIPELINE, [order("c", 1, 120, "DE", 1)])
    assert changes(spark, lake) == [
        (0, 1, "a", 1, 10.0),
        (0, 1, "b", 1, 7.0),
        (1, -1, "a", 1, 10.0),
        (1, 1, "a", 2, 12.0),
        (2, 1, "c", 1, 1.0),
    ]
    assert current(spark, lake) == [("DE", second(0), 2, 19.0)]
    assert broken(spark, lake) == []
    newest = head(lake, ORDERS)
    assert newest is not None and newest.number == 2


def test_no_task_keeps_a_list_of_the_rows_of_a_window(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10), order("z", 1, 200, "DE", 1)])
    results = as_batch(spark, lake, BY_MINUTE)
    assert "collect_list" not in results._jdf.queryExecution().toString()
    assert sorted(tuple(row) for row in results.select("country", "orders").collect()) == [("DE", 1), ("DE", 1)]


@pytest.mark.long
def test_an_order_that_moves_to_another_country_and_minute_leaves_the_old_window(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10), order("z", 1, 200, "DE", 1)])
    assert current(spark, lake) == [("DE", second(0), 1, 10.0)]
    run(spark, lake, PIPELINE, [order("a", 2, 65, "FR", 10), order("y", 1, 201, "DE", 1)])
    correct(spark, lake, BY_MINUTE, lambda: NOW)
    assert current(spark, lake) == [("FR", second(60), 1, 10.0)]
    assert broken(spark, lake) == []


def test_a_delete_needs_nothing_but_key_and_sequence_and_stays_as_a_tombstone(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [order("a", 3, 5, "DE", 10), order("b", 1, 6, "DE", 1)])
    run(spark, lake, PIPELINE, [order("a", 5, None, None, None, "d")])
    # What was sent before the delete comes after it.
    run(spark, lake, PIPELINE, [order("a", 4, 5, "DE", 99)])
    assert changes(spark, lake) == [(0, 1, "a", 3, 10.0), (0, 1, "b", 1, 1.0), (1, -1, "a", 3, 10.0)]
    # A key that is gone may come again.
    run(spark, lake, PIPELINE, [order("a", 6, 7, "DE", 2)])
    assert changes(spark, lake)[-1] == (3, 1, "a", 6, 2.0)
    assert broken(spark, lake) == []


def test_what_comes_out_of_order_twice_from_another_partition_or_again_has_its_place(
    spark: SparkSession, lake: Lake
) -> None:
    """
    batch   goes back   ties       without key   moves           comes again
    0, p0   a v3 30     t v1 10    v1 1          m v1 1          r v1 1
    1, p0   a v2 20     t v1 11                                  r v2, deleted
    2, p1                                        m v2 2
    3, p0   a v4 40                              m v1 1          r v1 1
    4, p0                                        m v3 3          r v3 3

    stands  a v4 40     t v1 10    rejected      m v3 3          r v3 3
    """
    stream = replace(ORDERS, source=Files("landing/orders", partition=r"/(p[0-9])-[^/]*$"))
    pipeline = Pipeline(stream, (replace(BY_MINUTE, of=stream),))
    gone = order("r", 2, None, None, None, "d")
    a, t, m, r = (lambda version, amount, key=key: order(key, version, 5, "DE", amount) for key in "atmr")
    batches = (
        ("p0", [a(3, 30), t(1, 10), m(1, 1), r(1, 1), {**a(1, 1), "order_id": None}]),
        ("p0", [a(2, 20), t(1, 11), gone]),
        ("p1", [m(2, 2)]),
        ("p0", [a(4, 40), m(1, 1), r(1, 1)]),
        ("p0", [m(3, 3), r(3, 3)]),
    )
    for number, (part, rows) in enumerate(batches):
        land(lake.path("landing/orders"), rows, name=f"{part}-{number}.json")
        run(spark, lake, pipeline)
    assert changes(spark, lake, stream) == [
        *((0, 1, "a", 3, 30.0), (0, 1, "m", 1, 1.0), (0, 1, "r", 1, 1.0), (0, 1, "t", 1, 10.0)),
        (1, -1, "r", 1, 1.0),
        *((2, -1, "m", 1, 1.0), (2, 1, "m", 2, 2.0)),
        *((3, -1, "a", 3, 30.0), (3, 1, "a", 4, 40.0)),
        *((4, -1, "m", 2, 2.0), (4, 1, "m", 3, 3.0), (4, 1, "r", 3, 3.0)),
    ]
    stand = [(row["order_id"], row["version"]) for row in rows_now(spark, lake, stream).collect()]
    assert stand == [("a", 4), ("m", 3), ("r", 3), ("t", 1)]
    rejected = read_log(spark, lake, stream.revisions).where("_rejected is not null")
    assert [row["_rejected"] for row in rejected.collect()] == [["key: not (`order_id` is not null)"]]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.sampled
@pytest.mark.parametrize("op", ["u", "d"])
def test_a_row_without_key_or_sequence_is_rejected_with_the_reason(spark: SparkSession, lake: Lake, op: str) -> None:
    rows = [order("a", 1, 5, "DE", 1), {**order("a", 1, 5, "DE", 1, op), "order_id": None}]
    run(spark, lake, PIPELINE, [*rows, {**order("b", 1, 5, "DE", 1, op), "version": None}])
    log = read_log(spark, lake, ORDERS.revisions).where("_day is null")
    assert sorted(row["_rejected"] for row in log.collect()) == [
        ["key: not (`order_id` is not null)"],
        ["sequence: not ((version) is not null)"],
    ]
    assert len(changes(spark, lake)) == 1


@pytest.mark.long
def test_what_came_changes_and_rows_that_stand_are_shown(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [order("b", 1, 5, "DE", 10), order("a", 1, 20, "DE", 7)])
    run(spark, lake, PIPELINE, [order("b", 2, 5, "DE", 12), order("a", 2, None, None, None, "d")])
    shown = {
        what: Choice(rows).table().num_rows
        for what in ("log", "changes", "rows", "rejected")
        if (rows := stored_rows(lake, PIPELINE, BY_MINUTE, what)) is not None
    }
    assert shown == {"log": 4, "changes": 5, "rows": 1, "rejected": 0}
    signed = stored_rows(lake, PIPELINE, BY_MINUTE, "changes")
    assert signed is not None
    by_spark = of_revisions(lake, ORDERS)["changes"](spark)
    assert signed.columns == tuple(by_spark.columns) and signed.columns[0] == "_change"
    assert Choice(signed).table()["_change"].to_pylist() == [row["_change"] for row in by_spark.collect()]
    stood = rows_now(spark, lake.as_of({"orders": 0}), ORDERS).collect()
    assert [(row["order_id"], row["version"]) for row in stood] == [("a", 1), ("b", 1)]
    assert [(row["order_id"], row["version"]) for row in rows_now(spark, lake, ORDERS).collect()] == [("b", 2)]
    assert "rows of orders can be taken back" in runtime_of(BY_MINUTE, lake).explain(spark)["computed"]


@pytest.mark.long
def test_another_key_is_refused_and_the_way_out_makes_the_changes_anew(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10)])
    other = replace(ORDERS, key=("order_id", "country"))
    pipeline = Pipeline(other, (replace(BY_MINUTE, of=other),))
    with pytest.raises(ChangedDeclaration, match="Give the old declaration back"):
        run(spark, lake, pipeline)
    archive_batches(lake, ORDERS)
    for uri in (lake.log(ORDERS), lake.standing(ORDERS)):
        storage.remove_folder(uri)
    run(spark, lake, pipeline)
    assert changes(spark, lake, other) == [(0, 1, "a", 1, 10.0)]


@pytest.mark.sampled
@pytest.mark.parametrize("is_archived", [True, False])
def test_changes_that_are_lost_follow_from_the_log_anew(spark: SparkSession, lake: Lake, is_archived: bool) -> None:
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10), order("b", 1, 5, "DE", 10)])
    run(spark, lake, PIPELINE, [order("a", 2, 5, "DE", 11)])
    before = changes(spark, lake)
    if is_archived:
        archive_batches(lake, ORDERS)
    storage.remove_folder(lake.log(ORDERS))
    run(spark, lake, PIPELINE, [order("z", 1, 200, "DE", 1)])
    assert changes(spark, lake) == [*before, (2, 1, "z", 1, 1.0)]
    assert current(spark, lake) == [("DE", second(0), 2, 21.0)]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_a_view_of_a_stream_that_gets_a_key_is_not_gone_on_with(spark: SparkSession, lake: Lake) -> None:
    plain = replace(ORDERS, key=(), sequence=None, deletes=None)
    rows = [order("a", 1, 5, "DE", 10), {**order("a", 2, 5, "DE", 11), "order_id": None}, order("z", 1, 200, "DE", 1)]
    run(spark, lake, Pipeline(plain, (replace(BY_MINUTE, of=plain),)), [*rows, order("a", 2, 5, "DE", 12)])
    with pytest.raises(ChangedDeclaration, match="tidemark rebuild by_minute"):
        run(spark, lake, PIPELINE, [order("a", 3, 5, "DE", 13)])
    # What came before without a key is no revision.
    assert [row["order_id"] for row in rows_now(spark, lake, ORDERS).collect()] == ["a", "z"]
    rebuild(spark, lake, PIPELINE, BY_MINUTE)
    run(spark, lake, PIPELINE)
    assert current(spark, lake) == [("DE", second(0), 1, 13.0)]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_what_stands_is_made_anew_from_the_log_when_it_is_lost(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10)])
    run(spark, lake, PIPELINE, [order("a", 2, 5, "DE", 11)])
    storage.remove_folder(lake.standing(ORDERS))
    run(spark, lake, PIPELINE, [order("a", 3, 5, "DE", 12)])
    assert [each[1:4] for each in changes(spark, lake)[-2:]] == [(-1, "a", 2), (1, "a", 3)]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_a_column_that_is_added_later_is_null_in_what_stood_before(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10)])
    wider = replace(ORDERS, format=Json(f"{COLUMNS}, note string"))
    pipeline = Pipeline(wider, (replace(BY_MINUTE, of=wider),))
    run(spark, lake, pipeline, [{**order("a", 2, 5, "DE", 11), "note": "new"}])
    notes = read_log(spark, lake, wider).selectExpr("_origin.change", "note").where("_batch = 1").collect()
    assert sorted((row[0], row[1]) for row in notes) == [(-1, None), (1, "new")]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"key": (), "sequence": "version", "deletes": None}, "has no key"),
        ({"sequence": None}, "which of two revisions is the newer one"),
        ({"key": ("nobody",)}, "no column"),
        ({"retention": "400 days"}, "would drop rows that stand"),
        ({"sequence": "nobody + 1"}, "nobody"),
        ({"rules": (Rule("key", "amount > 0"),)}, "rename it"),
    ],
)
def test_a_key_by_which_nothing_stands_is_refused(changed: dict[str, Any], refusal: str) -> None:
    with pytest.raises(DeclarationError, match=refusal):
        replace(ORDERS, **changed)


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"sequence": "cast(current_timestamp() as bigint)"}, "calls current_timestamp"),
        ({"deletes": "rand() > 0.5"}, "calls rand"),
        ({"deletes": "at < 'today'"}, "reads the clock by 'today'"),
        ({"sequence": "unix_seconds(timestamp 'now')"}, "reads the clock by 'now'"),
        ({"sequence": "map(version, 1)"}, "which of two values is the greater"),
    ],
)
def test_what_nobody_can_compute_again_or_order_is_refused_before_a_row_is_read(
    spark: SparkSession, lake: Lake, changed: dict[str, Any], refusal: str
) -> None:
    stream = replace(ORDERS, **changed)
    with pytest.raises(DeclarationError, match=refusal):
        run(spark, lake, Pipeline(stream, (replace(BY_MINUTE, of=stream),)), [order("a", 1, 5, "DE", 10)])


def test_a_view_that_leaves_late_rows_out_is_refused() -> None:
    with pytest.raises(DeclarationError, match="late='drop' would leave out what takes a row back"):
        Pipeline(ORDERS, (replace(BY_MINUTE, late="drop"),))


def test_whoever_takes_each_row_for_one_that_stands_is_refused() -> None:
    met = Joined("met", ORDERS, ORDERS, on=("order_id",), between=("0 seconds", "1 hour"), kind="left")
    with pytest.raises(DeclarationError, match="rows are taken back"):
        Pipeline(ORDERS, (met,))


@pytest.mark.long
def test_a_stream_with_a_key_stands_beside_one_without(spark: SparkSession, lake: Lake) -> None:
    visits = Stream(
        name="visits",
        source=Files("landing/visits"),
        format=Json("page string, at timestamp"),
        event_time="at",
        clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    )
    by_page = Windowed("by_page", visits, Tumbling("1 minute"), {"visits": agg.count()}, by=("page",))
    shop = Pipeline(name="shop", streams=(visits, ORDERS), operators=(by_page, BY_MINUTE))
    for number in (1, 2):
        land(lake.path("landing/visits"), [{"page": "a", "at": at(number).isoformat()}])
        land(lake.path("landing/orders"), [order("a", number, 5, "DE", 10 * number)])
        run(spark, lake, shop, [])
    land(lake.path("landing/orders"), [order("z", 1, 200, "DE", 1)])
    run(spark, lake, shop, [{"page": "z", "at": at(200).isoformat()}])
    assert current(spark, lake) == [("DE", second(0), 1, 20.0)]
    assert tuples(read_current(spark, lake, by_page), "page", "visits") == [("a", 2)]
    assert broken(spark, lake, shop) == []


@pytest.mark.long
def test_late_rows_of_a_view_tell_which_were_added_and_which_taken_back(spark: SparkSession, lake: Lake) -> None:
    """
    00:05  a v1  10.00       02:00  b v1  1.00  closes the first minute
    00:05  a v2  12.00       late: takes back 10.00, adds 12.00
    """
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10)], [order("b", 1, 120, "DE", 1)])
    run(spark, lake, PIPELINE, [order("a", 2, 5, "DE", 12)])
    late = runtime_of(BY_MINUTE, lake).readable["late"](spark)
    told = late.selectExpr("order_id", "cast(amount as double)", "_change").collect()
    assert sorted(map(tuple, told)) == [("a", 10.0, -1), ("a", 12.0, 1)]
    assert [spec.name for spec in BY_MINUTE.columns_of(LATE)] == late.columns
