"""What the preview of a retraction announces for each kind of operator is what happens once it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Files,
    History,
    Joined,
    Json,
    JsonLines,
    Keyed,
    Lake,
    Pinned,
    Pipeline,
    RowFunction,
    Selected,
    Stream,
    Table,
    Tumbling,
    View,
    Windowed,
    agg,
)
from streaming.changes import publish
from streaming.declare.operator import Operator
from streaming.operations import RowChoice, preview_retraction, retract
from streaming.operators.effects import Effect
from tests.support.instants import NOW, T0, at
from tests.support.runs import run
from tests.support.tally import Tally
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
    clock=BoundedOutOfOrderness("2 minutes", max_ahead="30 days"),
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


def on_order(key: Any, row: Any) -> None:
    key.path = " ".join(filter(None, (key.path, row.id)))
    key.emit(path=key.path)


def on_change(key: Any, row: Any) -> None:
    key.orders = (key.orders or 0) + key.change
    key.emit(id=row.id, change=key.change, orders=key.orders)


def on_raising(row: Any, opened: None) -> Iterator[dict[str, Any]]:
    if row.amount:
        raise ValueError(f"no page {row.id}")
    yield {"id": row.id}


def on_bought(key: Any, row: Any) -> None:
    order = key.rules.get((row.click,))
    key.emit(amount=order and order.amount)


LARGE = Selected("large", ORDERS, select={"id": "id", "tag": "tag"}, where="amount >= 10", explode={"tag": "tags"})
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
REVENUE = View(
    "revenue", sql="select country, sum(amount) paid from orders group by country", of=(ORDERS,), key=("country",)
)
TOTAL = View("total", sql="select sum(amount) paid from orders", of=(ORDERS,), key=())
SHOP = Pipeline(
    name="shop",
    streams=(ORDERS, CLICKS),
    operators=(LARGE, SEEN, MINUTES, PATHS, COUNTS, VERSIONS, REVENUE, TOTAL),
)
BY_MINUTE = Stream(
    name="by_minute",
    source=Table(MINUTES, what="current"),
    format=Json("country string, window_start timestamp, paid bigint"),
    event_time="window_start",
    clock=BoundedOutOfOrderness("0 seconds"),
)
HOURS = Windowed("hours", BY_MINUTE, Tumbling("1 hour"), {"paid": agg.sum("paid")})
RICH = View("rich", sql="select country from revenue where paid > 100", of=(REVENUE,), key=("country",))


def order(
    id: str, version: int, seconds: float, customer: str, country: str, amount: int, *tags: str
) -> dict[str, Any]:
    return {
        **{"id": id, "version": version, "at": at(seconds).isoformat(), "customer": customer, "country": country},
        **{"amount": amount, "tags": tags, "gone": False},
    }


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """
    day 1   00:05  a v1 10 of ann in de, then v2 12
            00:10  click x of ann; 00:30 click y of bob
            00:20  b of ann in de, 3
            00:25  c of bob in fr, 5
            00:58  z of ann in it, 30
    day 2   00:05  d of ann in it, 100
    day 3   the clock has passed all of it
    """
    filled = Lake(str(tmp_path_factory.mktemp("previews") / "lake"))
    clicks = [("x", 10, "ann"), ("y", 30, "bob"), ("end", 2 * DAY, "eve")]
    told = [{"click": click, "at": at(seconds).isoformat(), "visitor": of} for click, seconds, of in clicks]
    land_all(filled, CLICKS, told)
    land_all(
        filled,
        ORDERS,
        [order("a", 1, 5, "ann", "de", 10, "new", "gift"), order("c", 1, 25, "bob", "fr", 5, "new")],
        [
            *(order("a", 2, 5, "ann", "de", 12, "gift", "big"), order("b", 1, 20, "ann", "de", 3)),
            *(order("z", 1, 58, "ann", "it", 30), order("d", 1, DAY + 5, "ann", "it", 100, "big")),
            order("end", 1, 2 * DAY, "eve", "fr", 1),
        ],
    )
    run(spark, filled, SHOP)
    return filled


def settle(spark: SparkSession, lake: Lake) -> dict[str, list[str]]:
    """Let everything follow: steps, then corrections, then what is current of these; the days that were corrected."""
    run(spark, lake, SHOP)
    days = {each.name: correct(spark, lake, each, lambda: NOW) for each in (MINUTES, PATHS)}
    publish(spark, lake, MINUTES)
    return days


COLUMNS: Mapping[Operator, tuple[str, ...]] = {
    LARGE: ("_day", "id", "tag"),
    SEEN: ("_day", "click", "id"),
    MINUTES: ("country", "window_start", "paid"),
    VERSIONS: ("id", "amount", "valid_from", "valid_to"),
    REVENUE: ("country", "paid"),
    TOTAL: ("paid",),
}
Look = Mapping[Operator, Counter[tuple[Any, ...]]]


def stored(uri: str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table as they lie there."""
    return [tuple(row.values()) for row in DeltaTable(uri).to_pyarrow_table(columns=list(columns)).to_pylist()]


def look(lake: Lake) -> Look:
    """What is current of each operator, all that one function has given, and what was corrected of the other one."""
    look = {each: Counter(stored(lake.table(each, "current"), *columns)) for each, columns in COLUMNS.items()}
    look[COUNTS] = Counter(stored(lake.table(COUNTS), "customer", "id", "change", "orders", "_written_at"))
    corrections = lake.corrections(PATHS)
    is_there = DeltaTable.is_deltatable(corrections)
    hulls = stored(corrections, "customer", "_session_start", "_late_rows") if is_there else ()
    return {**look, PATHS: Counter(hulls)}


def files(lake: Lake) -> dict[str, tuple[int, int]]:
    there = (path for path in Path(lake.root).rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in there}


def previewed(spark: SparkSession, lake: Lake, chosen: RowChoice) -> dict[str, Effect]:
    """The effects that are announced, by table; the lake is as before."""
    before = files(lake)
    preview = preview_retraction(spark, lake, SHOP, ORDERS, chosen)
    assert files(lake) == before
    assert preview.unknown == {}
    return {each.table: each for each in preview.effects}


def done(spark: SparkSession, lake: Lake, chosen: RowChoice) -> int:
    taken = retract(spark, lake, SHOP, ORDERS, chosen, "a test", "ada", lambda: NOW)
    assert taken is not None
    return taken.id


def check(effects: Mapping[str, Effect], before: Look, corrected: Mapping[str, list[str]], after: Look) -> None:
    """Hold what was announced against what has happened since."""
    for name, dates in corrected.items():
        assert [day.isoformat() for day in effects[name].due or ()] == dates
    gone, new = ({each: (a[each] - b[each]) for each in before} for a, b in ((before, after), (after, before)))
    for each in (LARGE, SEEN, VERSIONS):
        numbers = effects[each.name].numbers
        assert (numbers["taken_back"], numbers["added"]) == (gone[each].total(), new[each].total()), each.name
    for each in (LARGE, SEEN):
        days = {part["_day"]: part.get("_taken_back", 0) + part.get("_added", 0) for part in effects[each.name].parts}
        assert days == Counter(row[0] for row in (gone[each] + new[each]).elements()), each.name
    changed = {each: sorted({row[0] for row in gone[each] + new[each]}) for each in (VERSIONS, REVENUE, TOTAL)}
    assert [part["id"] for part in effects["versions"].parts] == changed[VERSIONS]
    assert [part["country"] for part in effects["revenue"].parts] == changed[REVENUE]
    assert effects["revenue"].numbers == {"keys": len(changed[REVENUE]), "standing": before[REVENUE].total()}
    assert effects["total"].numbers == {"standing": 1} and len(changed[TOTAL]) == 2
    windows = effects["minutes"].windows or ()
    assert {(*each.key, each.start) for each in windows} == {row[:2] for row in gone[MINUTES] + new[MINUTES]}
    # A day is corrected as a whole; of these stretches of activity a row has come late since.
    hulls = {row[:2] for row in new[PATHS]}
    assert {(part["customer"], part["_from"]) for part in effects["paths"].parts} == hulls
    assert effects["counts"].numbers["calls"] == new[COUNTS].total()


def test_what_a_preview_announces_of_each_kind_of_operator_happens(spark: SparkSession, lake: Lake) -> None:
    chosen, before = RowChoice("customer = 'ann' and country = 'de' or id = 'd'"), look(lake)
    effects = previewed(spark, lake, chosen)
    first, second = T0.date(), T0.date() + timedelta(days=1)
    assert {name: effect.summary for name, effect in effects.items()} == {
        "large": "3 rows would be taken back",
        "seen": "2 pairs would be taken back",
        "minutes": "2 windows would change",
        "paths": "2 stretches of activity of 1 key would be computed anew",
        "counts": "the function would be called for 3 rows taken back, of 1 key",
        "versions": "3 intervals would be taken back, of 3 keys",
        "revenue": "2 keys would be computed anew, of 3 rows that the view has now",
        "total": "all would be computed anew, which is 1 row now",
    }
    assert effects["large"].parts == ({"_day": first, "_taken_back": 2}, {"_day": second, "_taken_back": 1})
    assert {name: effects[name].due for name in ("minutes", "paths", "large")} == {
        "minutes": (first, second),
        "paths": (first, second),
        "large": None,
    }
    done(spark, lake, chosen)
    check(effects, before, settle(spark, lake), look(lake))


@pytest.mark.long
def test_what_a_preview_announces_of_rows_that_are_put_back_happens(spark: SparkSession, lake: Lake) -> None:
    taken = done(spark, lake, RowChoice("id in ('c', 'z')"))
    settle(spark, lake)
    undo, before = RowChoice(undoes=taken), look(lake)
    effects = previewed(spark, lake, undo)
    assert effects["seen"].summary == "2 pairs would be added"
    assert effects["counts"].summary == "the function would be called for 2 rows added, of 2 keys"
    assert effects["versions"].summary == "2 intervals would be added, of 2 keys"
    done(spark, lake, undo)
    check(effects, before, settle(spark, lake), look(lake))


def test_followers_of_what_would_change_are_named_at_any_depth(spark: SparkSession, lake: Lake) -> None:
    told = Delivery("told", HOURS, JsonLines("out"), what="current")
    of_first = Delivery("of_first", HOURS, JsonLines("out"), what="first")
    bought = Keyed("bought", CLICKS, ("visitor",), "", "amount bigint", on_bought, rules=Pinned(VERSIONS))
    pipeline = Pipeline(
        name="shop",
        streams=(ORDERS, CLICKS, BY_MINUTE),
        operators=(MINUTES, VERSIONS, REVENUE, RICH, bought, HOURS),
        deliveries=(told, of_first),
    )
    preview = preview_retraction(spark, lake, pipeline, ORDERS, RowChoice("id = 'c'"))
    assert [each.table for each in preview.effects] == ["minutes", "versions", "revenue"]
    assert [str(each) for each in preview.followers] == [
        "stream by_minute of pipeline shop follows minutes, and is told of each change",
        "keyed function bought of pipeline shop looks up versions, which rows from then on see changed",
        "SQL view rich of pipeline shop follows revenue, and is told of each change",
        "delivery told of pipeline shop follows hours, and is told of each change",
    ]


@dataclass(frozen=True)
class SignedTally(Tally):
    """An operator of a user's own that takes signed rows."""

    refuses_changes = ""


def test_an_operator_that_cannot_tell_is_named_and_others_are_told(spark: SparkSession, lake: Lake) -> None:
    broken = replace(MINUTES, name="broken", aggregates={"share": agg.sum("100 div (amount - 5)")})
    raising = Selected("raising", ORDERS, function=RowFunction(on_raising, "id string"))
    mine = SignedTally("mine", (ORDERS,))
    pipeline = Pipeline(ORDERS, (broken, raising, mine, REVENUE))
    preview = preview_retraction(spark, lake, pipeline, ORDERS, RowChoice("id = 'z'"))
    assert [each.table for each in preview.effects] == ["revenue"]
    assert preview.unknown["mine"] == "its kind does not tell what rows to come would change"
    assert "DIVIDE_BY_ZERO" in preview.unknown["broken"]
    assert "ValueError: no page z" in preview.unknown["raising"]


@pytest.mark.long
def test_of_a_history_that_forgets_the_keys_are_told_and_how_many_intervals_they_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    filled, stream = Lake(str(tmp_path / "lake")), replace(ORDERS, forget="30 days")
    pipeline = Pipeline(stream, (replace(VERSIONS, of=stream),))
    came = [order("a", 1, 5, "ann", "de", 10), order("b", 1, 5, "bob", "de", 1)]
    run(spark, filled, pipeline, came, [order("a", 2, 7, "ann", "de", 12)])
    (effect,) = preview_retraction(spark, filled, pipeline, stream, RowChoice("id = 'a'")).effects
    assert effect.summary == "intervals of 1 key would be computed anew, of which there are 2 now"
    assert (effect.numbers, effect.parts, effect.more) == ({"keys": 1, "standing": 2}, ({"id": "a"},), 0)
