"""What the preview of a retraction announces for each kind of operator is what happens once it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Files,
    History,
    Joined,
    Json,
    JsonLines,
    Key,
    Keyed,
    Lake,
    Pipeline,
    Selected,
    Stream,
    Table,
    Tumbling,
    View,
    Windowed,
    agg,
)
from streaming.declare.operator import Operator
from streaming.operations import RowChoice, preview_retraction, retract
from streaming.operations.retract import RetractionPreview
from streaming.operators.effects import Effect
from streaming.operators.runtime import runtime_of
from tests.support.instants import NOW, T0, at
from tests.support.runs import run
from tidemark.testing import correct, land_all

DAY = 86_400
ORDERS = Stream(
    name="orders",
    source=Files("landing/orders", files_per_batch=1),
    format=Json(
        "id string, version bigint, at timestamp, customer string, country string, amount bigint, tags array<string>, "
        "gone boolean"
    ),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
CLICKS = replace(
    ORDERS,
    name="clicks",
    source=Files("landing/clicks"),
    format=Json("click string, at timestamp, visitor string"),
    key=(),
    sequence=None,
    deletes=None,
)


def on_order(key: Key, row: Any) -> None:
    key.path = " ".join(filter(None, (key.path, row.id)))
    key.emit(path=key.path)


def on_change(key: Key, row: Any) -> None:
    key.orders = (key.orders or 0) + key.change
    key.emit(id=row.id, change=key.change, orders=key.orders)


LARGE = Selected("large", ORDERS, select=("id", "amount"), where="amount >= 10")
TAGS = Selected("tags", ORDERS, select={"id": "id", "tag": "tag"}, explode={"tag": "tags"})
SEEN = Joined(
    "seen",
    left=CLICKS,
    right=ORDERS,
    on={"visitor": "customer"},
    between=("-1 minute", "1 minute"),
    select={"click": "click", "id": "id"},
)
MINUTES = Windowed("minutes", ORDERS, Tumbling("60 seconds"), {"paid": agg.sum("amount")}, by=("country",))
PATHS = Keyed("paths", ORDERS, ("customer",), "path string", "path string", on_order, order="event", idle="30 seconds")
COUNTS = Keyed(
    "counts",
    ORDERS,
    ("customer",),
    "orders bigint",
    "id string, change int, orders bigint",
    on_change,
    retractions=True,
)
VERSIONS = History("versions", of=ORDERS)
NEWEST = History("newest", of=ORDERS, kind=1)
REVENUE = View(
    "revenue", sql="select country, sum(amount) paid from orders group by country", of=(ORDERS,), key=("country",)
)
TOTAL = View("total", sql="select sum(amount) paid from orders", of=(ORDERS,), key=())
RICH = View("rich", sql="select country from revenue where paid > 100", of=(REVENUE,), key=("country",))
BY_MINUTE = Stream(
    name="by_minute",
    source=Table(MINUTES, what="current"),
    format=Json("country string, window_start timestamp, paid bigint"),
    event_time="window_start",
    clock=BoundedOutOfOrderness("0 seconds"),
)
HOURS = Windowed("hours", BY_MINUTE, Tumbling("1 hour"), {"paid": agg.sum("paid")})
OPERATORS = (LARGE, TAGS, SEEN, MINUTES, PATHS, COUNTS, VERSIONS, NEWEST, REVENUE, TOTAL, RICH)
TOLD = Delivery("told", HOURS, JsonLines("out"), what="current")
SHOP = Pipeline(name="shop", streams=(ORDERS, CLICKS), operators=OPERATORS)
CHAIN = Pipeline(BY_MINUTE, (HOURS,))


def order(
    id: str, version: int, seconds: float, customer: str, country: str, amount: int, tags: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        **{"id": id, "version": version, "at": at(seconds).isoformat(), "customer": customer, "country": country},
        **{"amount": amount, "tags": list(tags), "gone": False},
    }


def follow(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP)
    for operator in (MINUTES, PATHS):
        correct(spark, lake, operator, lambda: NOW)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """
    day 1   00:05  a v1 10 of ann, then v2 12 and v3 14; 00:20 b of ann; 00:25 c of bob; 00:58 z of ann
            00:10  click x of ann, 00:30 click y of bob
    day 2   00:05  d of ann, 100
    day 3   the clock passes all of it
    """
    filled = Lake(str(tmp_path_factory.mktemp("previews") / "lake"))
    clicks = [("x", 10, "ann"), ("y", 30, "bob"), ("end", 2 * DAY, "eve")]
    land_all(
        filled,
        CLICKS,
        [{"click": click, "at": at(seconds).isoformat(), "visitor": of} for click, seconds, of in clicks],
    )
    land_all(
        filled,
        ORDERS,
        [order("a", 1, 5, "ann", "de", 10, ("new", "gift")), order("c", 1, 25, "bob", "fr", 5, ("new",))],
        [order("a", 2, 5, "ann", "de", 12, ("gift", "big")), order("b", 1, 20, "ann", "de", 3)],
        [order("z", 1, 58, "ann", "it", 30), order("d", 1, DAY + 5, "ann", "it", 100, ("big",))],
        [order("end", 1, 2 * DAY, "eve", "fr", 1)],
    )
    follow(spark, filled)
    return filled


@dataclass(frozen=True)
class Happened:
    """The results of an operator that are there no more, and those that are there now, as tuples of some columns."""

    gone: Counter[Any]
    new: Counter[Any]


def current(spark: SparkSession, lake: Lake, operator: Operator, *columns: str) -> Counter[Any]:
    rows = runtime_of(operator, lake).readable["current"](spark).selectExpr(*columns).collect()
    return Counter(tuple(row) for row in rows)


COLUMNS: Mapping[Operator, tuple[str, ...]] = {
    LARGE: ("_day", "id", "amount"),
    TAGS: ("_day", "id", "tag"),
    SEEN: ("_day", "click", "id"),
    MINUTES: ("country", "window_start", "paid"),
    VERSIONS: ("id", "amount", "valid_from", "valid_to"),
    NEWEST: ("id", "amount", "valid_from"),
    REVENUE: ("country", "paid"),
    TOTAL: ("paid",),
}


def looks(spark: SparkSession, lake: Lake) -> dict[Operator, Counter[Any]]:
    return {operator: current(spark, lake, operator, *columns) for operator, columns in COLUMNS.items()}


def files(lake: Lake) -> dict[str, tuple[int, int]]:
    there = (path for path in Path(lake.root).rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in there}


def by_table(preview: RetractionPreview) -> dict[str, Effect]:
    assert preview.unknown == {}
    return {each.table: each for each in preview.effects}


def check_announced(
    spark: SparkSession, lake: Lake, chosen: RowChoice, batch: Callable[[], int | None]
) -> RetractionPreview:
    """Preview, do it, let everything follow, and hold what was announced against what has happened."""
    before, stored = looks(spark, lake), files(lake)
    preview = preview_retraction(spark, lake, SHOP, ORDERS, chosen)
    assert files(lake) == stored, "a preview writes nothing"
    effects = by_table(preview)
    calls = runtime_of(COUNTS, lake).readable["current"](spark).count()

    done = retract(spark, lake, SHOP, ORDERS, chosen, "a test", "ada", lambda: NOW)
    assert done is not None and done.rows == preview.rows
    run(spark, lake, SHOP)
    for operator in (MINUTES, PATHS):
        plan = [entry.day for entry in runtime_of(operator, lake).plan(spark)]
        assert list(effects[operator.name].due or ()) == plan
        correct(spark, lake, operator, lambda: NOW)
    after = looks(spark, lake)
    happened = {each: Happened(before[each] - after[each], after[each] - before[each]) for each in before}

    for operator in (LARGE, TAGS, SEEN, VERSIONS, NEWEST):
        told, real = effects[operator.name].numbers, happened[operator]
        assert (told["taken_back"], told["added"]) == (real.gone.total(), real.new.total()), operator.name
    for operator in (LARGE, TAGS, SEEN):
        days = Counter(row[0] for row in (happened[operator].gone + happened[operator].new).elements())
        parts = effects[operator.name].parts
        assert {part["day"]: part.get("taken back", 0) + part.get("added", 0) for part in parts} == days, operator.name
    for operator in (VERSIONS, NEWEST):
        ids = {row[0] for row in happened[operator].gone + happened[operator].new}
        assert [part["id"] for part in effects[operator.name].parts] == sorted(ids)
    windows = {(row[0], row[1]) for row in happened[MINUTES].gone + happened[MINUTES].new}
    announced = effects["minutes"].windows or ()
    assert {(each.key[0], each.start.replace(tzinfo=None)) for each in announced} == windows
    countries = {row[0] for row in happened[REVENUE].gone + happened[REVENUE].new}
    assert [part["country"] for part in effects["revenue"].parts] == sorted(countries)
    assert effects["revenue"].numbers == {"keys": len(countries), "standing": before[REVENUE].total()}
    assert effects["total"].numbers == {"standing": 1} and happened[TOTAL].new.total() == 1
    hulls = runtime_of(PATHS, lake).readable["corrections"](spark).where(f"_through_batch = {done.id}")
    corrected = {tuple(row) for row in hulls.select("customer", "_session_start").collect()}
    paths = effects["paths"].parts
    assert {(part["customer"], part["from"].replace(tzinfo=None)) for part in paths} == corrected
    assert runtime_of(COUNTS, lake).readable["current"](spark).count() == calls + effects["counts"].numbers["calls"]
    return preview


def test_what_is_announced_happens_and_what_is_put_back_again(spark: SparkSession, lake: Lake) -> None:
    preview = check_announced(spark, lake, RowChoice("customer = 'ann' and country = 'de' or id = 'd'"), lambda: None)
    effects = by_table(preview)
    days = (T0.date(), T0.date() + timedelta(days=1))
    assert preview.rows == 3
    assert effects["large"].parts == tuple({"day": day, "taken back": 1} for day in days)
    print({name: (effect.summary, effect.parts, effect.due) for name, effect in effects.items()})
