"""SQL views: their rows are those of the query over what stands, whatever has come, changed or gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, History, Json, Lake, Pipeline, Stream, Tumbling, View, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import BadQuery, DeclarationError
from streaming.changes import publish
from streaming.declare import CHANGES, CURRENT, ExternalTable
from streaming.operations.retract import RowChoice, retract
from streaming.operators.runtime import frame, runtime_of
from streaming.tables import delta
from tests.support.instants import NOW, at
from tests.support.runs import run
from tidemark.testing import land_all

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, version bigint, at timestamp, customer string, amount decimal(10, 2), op string"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="op = 'd'",
)
CUSTOMERS = Stream(
    name="customers",
    source=Files("landing/customers"),
    format=Json("id string, version bigint, at timestamp, country string, op string"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="op = 'd'",
)
CLICKS = Stream(
    name="clicks",
    source=Files("landing/clicks"),
    format=Json("at timestamp, page string, customer string"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
)
REVENUE = View(
    "revenue",
    """
    select c.country, count(*) as orders, sum(o.amount) as amount
    from orders o left join customers c on o.customer = c.id
    group by c.country
    """,
    of=(ORDERS, CUSTOMERS),
    key=("country",),
)
SHOP = Pipeline(name="shop", streams=(ORDERS, CUSTOMERS), operators=(REVENUE,))


def order(id: str, version: int, customer: str, amount: int, op: str = "u", seconds: int = 0) -> dict[str, Any]:
    return {
        "id": id,
        "version": version,
        "at": at(seconds).isoformat(),
        "customer": customer,
        "amount": amount,
        "op": op,
    }


def customer(id: str, version: int, country: str | None, op: str = "u", seconds: int = 0) -> dict[str, Any]:
    return {"id": id, "version": version, "at": at(seconds).isoformat(), "country": country, "op": op}


def drain(spark: SparkSession, lake: Lake, pipeline: Pipeline = SHOP, **landed: Sequence[dict[str, Any]]) -> None:
    """Land rows by the name of their stream, and run."""
    streams = {stream.name: stream for stream in pipeline.streams}
    for name, rows in landed.items():
        land_all(lake, streams[name], rows)
    run(spark, lake, pipeline)


def current(spark: SparkSession, lake: Lake, view: View = REVENUE) -> list[tuple[Any, ...]]:
    columns = [f"`{name}`" for name in view.columns]
    computed = frame(spark, lake, view).select(*columns).collect()
    published = delta.read(spark, lake.table(view, CURRENT)).select(*columns).collect()
    assert sorted(map(str, computed)) == sorted(map(str, published))
    return sorted((tuple(row) for row in computed), key=str)


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = SHOP) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def signed(spark: SparkSession, lake: Lake, view: View = REVENUE) -> list[tuple[Any, ...]]:
    """Number of the step, sign and values of what the steps have added and taken back."""
    rows = frame(spark, lake, view, "signed")
    return sorted(
        (tuple(row) for row in rows.select("_batch", "_change", *view.columns).collect()),
        key=lambda row: (row[0], str(row[2:]), row[1]),
    )


def test_a_row_follows_changed_rows_of_either_side_of_a_join(spark: SparkSession, lake: Lake) -> None:
    """
    step 0   o1 of ann, o2 of bob; ann is of DE, nobody knows bob
    step 1   bob is of FR: what was of no country is of FR
    step 2   o1 costs more; o2 is cancelled
    step 3   ann moves to FR
    """
    drain(
        spark, lake, orders=[order("o1", 1, "ann", 10), order("o2", 1, "bob", 5)], customers=[customer("ann", 1, "DE")]
    )
    assert current(spark, lake) == [("DE", 1, 10), (None, 1, 5)]
    drain(spark, lake, customers=[customer("bob", 1, "FR")])
    assert current(spark, lake) == [("DE", 1, 10), ("FR", 1, 5)]
    drain(spark, lake, orders=[order("o1", 2, "ann", 12), order("o2", 2, "bob", 5, op="d")])
    assert current(spark, lake) == [("DE", 1, 12)]
    drain(spark, lake, customers=[customer("ann", 2, "FR")])
    assert current(spark, lake) == [("FR", 1, 12)]
    assert signed(spark, lake) == [
        (0, 1, "DE", 1, 10),
        (0, 1, None, 1, 5),
        (1, 1, "FR", 1, 5),
        (1, -1, None, 1, 5),
        (2, -1, "DE", 1, 10),
        (2, 1, "DE", 1, 12),
        (2, -1, "FR", 1, 5),
        (3, -1, "DE", 1, 12),
        (3, 1, "FR", 1, 12),
    ]
    assert broken(spark, lake) == []


def test_few_changes_are_published_without_a_job_of_spark(spark: SparkSession, lake: Lake) -> None:
    drain(spark, lake, orders=[order("o1", 1, "ann", 10)], customers=[customer("ann", 1, "DE")])
    by_hour = Windowed("by_hour", ORDERS, Tumbling("1 hour"), {"orders": agg.count()})
    changed = [order("o1", 2, "ann", 12), order("o2", 1, "bob", 5)]
    drain(spark, lake, Pipeline(name="shop", streams=(ORDERS, CUSTOMERS), operators=(by_hour,)), orders=changed)
    for step in runtime_of(REVENUE, lake).steps(spark, lambda: NOW):
        step.run()
    spark.sparkContext.setJobGroup("published", "what is current of the view")
    assert publish(spark, lake, REVENUE)
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("published")) == []
    assert current(spark, lake) == [("DE", 1, 12), (None, 1, 5)]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_keys_that_no_changed_row_touches_are_not_computed_again(spark: SparkSession, lake: Lake) -> None:
    drain(
        spark, lake, orders=[order("o1", 1, "ann", 10), order("o2", 1, "bob", 5)], customers=[customer("ann", 1, "DE")]
    )
    # A row that no step would have written stays until its key is touched.
    uri = lake.table(REVENUE, CURRENT)
    assert len(delta.read(spark, uri).collect()) == 2
    drain(spark, lake, orders=[order("o3", 1, "bob", 7)])
    assert {row[0] for row in signed(spark, lake)} == {0, 1}
    assert [row[2] for row in signed(spark, lake) if row[0] == 1] == [None, None]


def test_a_batch_without_changes_of_its_sources_moves_only_the_position(spark: SparkSession, lake: Lake) -> None:
    drain(spark, lake, orders=[order("o1", 1, "ann", 10)], customers=[customer("ann", 1, "DE")])
    drain(spark, lake, orders=[order("o1", 1, "ann", 10)])
    assert [row[0] for row in signed(spark, lake)] == [0]
    assert runtime_of(REVENUE, lake).through() == {"orders": 1, "customers": 0}
    assert broken(spark, lake) == []


def test_late_rows_and_rows_taken_back_by_hand_are_followed_without_a_key(spark: SparkSession, lake: Lake) -> None:
    pages = View("pages", "select page, count(*) as clicks from clicks group by page", of=(CLICKS,), key=("page",))
    pipeline = Pipeline(CLICKS, (pages,))
    click = {"page": "a", "customer": "ann"}
    drain(spark, lake, pipeline, clicks=[{**click, "at": at(100).isoformat()}, {**click, "at": at(200).isoformat()}])
    drain(spark, lake, pipeline, clicks=[{**click, "at": at(1).isoformat()}, {**click, "page": "b", "at": None}])
    assert current(spark, lake, pages) == [("a", 3)]
    taken = RowChoice(f"at = timestamp'{at(1).isoformat()}'")
    retract(spark, lake, pipeline, CLICKS, taken, "a robot", "ada", lambda: NOW)
    run(spark, lake, pipeline)
    assert current(spark, lake, pages) == [("a", 2)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_rows_that_are_equal_are_counted(spark: SparkSession, lake: Lake) -> None:
    visits = View("visits", "select page, customer from clicks", of=(CLICKS,), key=("page",))
    pipeline = Pipeline(CLICKS, (visits,))
    click = {"page": "a", "customer": "ann"}
    drain(spark, lake, pipeline, clicks=[{**click, "at": at(1).isoformat()}, {**click, "at": at(2).isoformat()}])
    drain(spark, lake, pipeline, clicks=[{**click, "at": at(3).isoformat()}])
    assert current(spark, lake, visits) == [("a", "ann")] * 3
    assert broken(spark, lake, pipeline) == []


def test_a_row_is_taken_back_by_its_value_where_zeros_differ_in_sign(spark: SparkSession, lake: Lake) -> None:
    """
    step 0   o1 and o2: 0.0 twice, and o3 once
    step 1   o1 is -0.0, o2 is cancelled: one of the two is taken back, whichever zero it is told with
    """
    amounts = View(
        "amounts",
        "select substr(id, 1, 1) as kind, cast(amount as double) * if(customer = 'bob', -1, 1) as amount from orders",
        of=(ORDERS,),
        key=("kind",),
    )
    pipeline = Pipeline(ORDERS, (amounts,))
    drain(spark, lake, pipeline, orders=[order("o1", 1, "ann", 0), order("o2", 1, "ann", 0), order("p3", 1, "ann", 0)])
    drain(spark, lake, pipeline, orders=[order("o1", 2, "bob", 0), order("o2", 2, "ann", 0, op="d")])
    published = delta.read(spark, lake.table(amounts, CURRENT)).select("kind", "amount").collect()
    assert sorted(map(tuple, published)) == [("o", 0.0), ("p", 0.0)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_a_view_without_key_is_computed_whole(spark: SparkSession, lake: Lake) -> None:
    total = View("total", "select count(*) as clicks, max(page) as last from clicks", of=(CLICKS,))
    pipeline = Pipeline(CLICKS, (total,))
    for page in "ab":
        drain(spark, lake, pipeline, clicks=[{"page": page, "customer": "ann", "at": at(1).isoformat()}])
    assert current(spark, lake, total) == [(2, "b")]
    assert broken(spark, lake, pipeline) == []


def test_a_view_reads_what_is_current_of_other_operators(spark: SparkSession, lake: Lake) -> None:
    """An SQL view of a windowed view, of a history, and of an SQL view: one drain brings each up to the last row."""
    history = History("customer_history", CUSTOMERS)
    by_hour = Windowed("by_hour", CLICKS, Tumbling("1 hour"), {"clicks": agg.count()}, by=("customer",))
    located = View(
        "located",
        """
        select c.country, sum(h.clicks) as clicks
        from by_hour h
        join customer_history c
          on h.customer = c.id and h.window_start >= c.valid_from
         and (h.window_start < c.valid_to or c.valid_to is null)
        group by c.country
        """,
        of=(by_hour, history),
        key=("country",),
    )
    most = View("most", "select max(clicks) as clicks from located", of=(located,))
    pipeline = Pipeline(name="site", streams=(CLICKS, CUSTOMERS), operators=(most, by_hour, history, located))
    clicks = [{"at": at(3600 * hour + 1).isoformat(), "page": "a", "customer": "ann"} for hour in (0, 1, 1, 30)]
    drain(spark, lake, pipeline, clicks=clicks, customers=[customer("ann", 1, "DE", seconds=-7200)])
    assert current(spark, lake, located) == [("DE", 3)]
    assert current(spark, lake, most) == [(3,)]
    drain(spark, lake, pipeline, customers=[customer("ann", 2, "FR", seconds=3000)])
    assert current(spark, lake, located) == [("DE", 1), ("FR", 2)]
    assert current(spark, lake, most) == [(2,)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_a_key_that_only_rows_of_the_result_have_is_found_by_computing_all(spark: SparkSession, lake: Lake) -> None:
    """Which rows count is told by an aggregate, and of a row of the amount 0 that does not count there is no share."""
    shares = View(
        "shares",
        """
        select cast(100 / o.amount as int) as share, count(*) as orders
        from orders o join (select customer, count(*) as n from orders group by customer) t on t.customer = o.customer
        where t.n * o.amount <> 0
        group by cast(100 / o.amount as int)
        """,
        of=(ORDERS,),
        key=("share",),
    )
    pipeline = Pipeline(ORDERS, (shares,))
    drain(spark, lake, pipeline, orders=[order("o1", 1, "ann", 10)])
    drain(spark, lake, pipeline, orders=[order("o2", 1, "ann", 0), order("o3", 1, "ann", 10)])
    assert current(spark, lake, shares) == [(10, 2)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_changes_of_a_view_are_published_revision_by_revision(spark: SparkSession, lake: Lake) -> None:
    drain(spark, lake, orders=[order("o1", 1, "ann", 10)], customers=[customer("ann", 1, "DE")])
    drain(spark, lake, customers=[customer("ann", 2, "FR")])
    changes = delta.read(spark, lake.table(REVENUE, CHANGES)).select("_revision", "_change", "country").collect()
    assert sorted(map(tuple, changes)) == [(0, 1, "DE"), (1, -1, "DE"), (1, 1, "FR")]


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ((), "is of nothing"),
        ((ORDERS, ORDERS), "twice in of"),
    ],
)
def test_sources_that_cannot_be_read_are_refused(of: tuple[Any, ...], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        View("revenue", "select id from orders", of=of, key=("id",))


def test_a_word_for_the_clock_beside_a_time_of_a_source_is_refused() -> None:
    history = History("customer_history", CUSTOMERS)
    by_hour = Windowed("by_hour", CLICKS, Tumbling("1 hour"), {"clicks": agg.count()}, by=("customer",))
    hours = View("hours", "select max(window_start) as last from by_hour", of=(by_hour,))
    days = ExternalTable("days", "shared/days", "name string, day date")
    refused = (
        (CLICKS, "clicks.at >= 'today'"),
        (history, "valid_from < 'now'"),
        (by_hour, "window_start >= 'yesterday'"),
        (hours, "last >= 'yesterday'"),
        (days, "day = 'today'"),
    )
    for source, condition in refused:
        with pytest.raises(BadQuery, match="another value each time"):
            View("read", f"select 1 as one from {source.name} join orders where {condition}", of=(source, ORDERS))
    View("read", "select 1 as one from days join orders where name = 'today'", of=(days, ORDERS))
