"""Revisions, SQL views, histories, selections, chains and reports: each number is explained by its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from platform_assets.reports.why import why_of_report
from quality import Suite, unique
from streaming import (
    BoundedOutOfOrderness,
    Derived,
    Enriched,
    Files,
    History,
    Joined,
    Json,
    Lake,
    LookupRequest,
    Pipeline,
    Rule,
    Selected,
    Stream,
    Table,
    Tumbling,
    View,
    Why,
    Windowed,
    agg,
    why,
)
from streaming.base import ReadError
from streaming.changes import publish
from tests.support.instants import NOW, at
from tests.support.runs import run
from tidemark.testing import correct

orders = Stream(
    "orders",
    Files("landing/orders"),
    Json("order_id bigint, country string, at timestamp, amount bigint, version bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds", max_ahead="30 days"),
    rules=(Rule("amount_present", "amount is not null"),),
    key=("order_id",),
    sequence="version",
)
by_country = Windowed("by_country", orders, Tumbling("10 seconds"), {"total": agg.sum("amount")}, by=("country",))
revenue = View(
    "revenue",
    sql="select country, count(*) as orders, sum(amount) as total from orders group by country",
    of=(orders,),
    key=("country",),
)
windows = View(
    "windows",
    sql="select country, count(*) as windows, sum(total) as total from by_country group by country",
    of=(by_country, orders),
    key=("country",),
)
order_history = History("order_history", orders)
shop = Pipeline(orders, (by_country, revenue, windows, order_history))

per_window = Stream(
    "per_window",
    Table(by_country, what="current"),
    Json("country string, window_start timestamp, total bigint"),
    event_time="window_start",
    clock=Derived(),
)
by_minute = Windowed("by_minute", per_window, Tumbling("1 minute"), {"total": agg.sum("total")}, by=("country",))
minutes = Pipeline(per_window, (by_minute,))


def totals(sources: Sources) -> DataFrame:
    return (
        sources.current(by_country).groupBy("country").agg({"total": "sum"}).toDF("country", "total").orderBy("country")
    )


report = Report(
    shop,
    "Totals.",
    (Section("totals", "By country.", totals, lambda sources: Suite((unique("one_row", ["country"]),))),),
    reads=(by_country,),
)


async def channel(row: Any, request: LookupRequest) -> dict[str, Any]:
    return {"channel": "web"}


def order(number: int, country: str, seconds: float, amount: int | None, version: int = 1) -> dict[str, Any]:
    return {
        "order_id": number,
        "country": country,
        "at": at(seconds).isoformat(),
        "amount": amount,
        "version": version,
    }


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """```
    batch 0    1 de@1=5  2 de@2=7  3 fr@3=1  4 without an amount: rejected
    batch 1    5 fr@90=2, 60 of it@60=1           the windows at 0 are closed: de 12, fr 1
    batch 2    2 de@2=9, version 2                late: it takes version 1 back
    corrected  de 14
    ```
    """
    there = Lake(str(tmp_path_factory.mktemp("shop") / "lake"))
    first = [order(1, "de", 1, 5), order(2, "de", 2, 7), order(3, "fr", 3, 1), order(4, "de", 4, None)]
    run(spark, there, shop, first)
    run(spark, there, shop, [order(5, "fr", 90, 2), *(order(100 + number, "it", 60, 1) for number in range(60))])
    run(spark, there, shop, [order(2, "de", 2, 9, version=2)])
    assert correct(spark, there, by_country, lambda: NOW)
    publish(spark, there, by_country)
    run(spark, there, shop)
    run(spark, there, minutes)
    yield there


def amounts(answer: Why) -> list[int]:
    return sorted(row.values["amount"] for row in answer.counting)


def test_a_revision_that_was_taken_back_is_told_and_the_newer_one_counts(spark: SparkSession, lake: Lake) -> None:
    answer = why(shop, by_country, {"country": "de"}, lake=lake, spark=spark)
    assert (answer.agrees, answer.published[0]["total"], amounts(answer)) == (True, 14, [5, 9])
    gone = [(row.values["amount"], row.change, row.reason) for row in answer.inputs if not row.counts]
    assert gone == [(7, 1, "taken back"), (7, -1, "taken back")]
    assert {row.sequence for row in answer.counting} == {"1", "2"}
    (rejected,) = answer.rejected
    assert rejected.reasons == ("amount_present: not (amount is not null)",) and rejected.batch == 0
    assert [change.now[0]["total"] for change in answer.changes] == [12, 14]
    first = why(shop, by_country, {"country": "de"}, what="first", lake=lake, spark=spark)
    assert (first.agrees, amounts(first)) == (True, [5, 7])


def test_a_key_of_an_sql_view_has_the_rows_that_stand_and_reach_it(spark: SparkSession, lake: Lake) -> None:
    answer = why(shop, revenue, {"country": "de"}, lake=lake, spark=spark)
    assert (answer.agrees, answer.published[0]["total"], amounts(answer)) == (True, 14, [5, 9])
    assert {row.batch for row in answer.counting} == {0, 2}
    assert answer.changes[-1].was[0]["total"] == 12 and answer.changes[-1].now[0]["total"] == 14
    with pytest.raises(ReadError, match=r"no result of SQL view 'revenue' has country=xx.*country=de"):
        why(shop, revenue, {"country": "xx"}, lake=lake, spark=spark)


def test_an_sql_view_over_a_view_comes_down_to_the_rows_of_the_log(spark: SparkSession, lake: Lake) -> None:
    answer = why(shop, windows, {"country": "fr"}, lake=lake, spark=spark)
    assert (answer.agrees, answer.published[0]["total"]) == (True, 1)
    (above,) = answer.upstream
    assert (above.operator, above.agrees, amounts(above)) == ("by_country", True, [1])


def test_a_key_of_a_history_has_all_its_revisions(spark: SparkSession, lake: Lake) -> None:
    answer = why(shop, order_history, {"order_id": 2}, lake=lake, spark=spark)
    assert (answer.agrees, len(answer.published)) == (True, len(answer.recomputed))
    assert [(row.batch, row.values["amount"], row.sequence) for row in answer.inputs] == [(0, 7, "1"), (2, 9, "2")]


def test_a_chain_comes_down_to_the_first_log(spark: SparkSession, lake: Lake) -> None:
    key = {"country": "de", "window_start": at(0)}
    answer = why(minutes, by_minute, key, lake=lake, spark=spark)
    assert answer.agrees and answer.published[0]["total"] == 14
    (above,) = answer.upstream
    assert (above.pipeline, above.operator, above.key["country"]) == ("orders", "by_country", "de")
    assert (above.agrees, amounts(above)) == (True, [5, 9])
    assert all(row.place.endswith((".json, position 0", ".json, position 1")) for row in above.counting)


@pytest.mark.long
def test_a_number_of_a_report_comes_down_to_results_rows_and_verdicts(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(ReadError, match=r"report 'totals' is not published yet .* `tidemark report totals`"):
        why_of_report(spark, lake, report, {"country": "de"})
    judge_and_publish(spark, lake, report, "a run")
    answer = why_of_report(spark, lake, report, {"country": "de"})
    assert (answer.agrees, answer.published[0]["total"], answer.kind) == (True, 14, "report")
    assert [row.values["total"] for row in answer.inputs] == [14]
    (above,) = answer.upstream
    assert (above.operator, above.agrees, amounts(above)) == ("by_country", True, [5, 9])
    assert answer.verdicts and {verdict.outcome for verdict in answer.verdicts} == {"passed"}
    assert answer.versions["run"] == "a run" and "orders/by_country" in answer.versions["tables"]
    with pytest.raises(ReadError, match=r"no row of report 'totals' has country=xx. Near are: country="):
        why_of_report(spark, lake, report, {"country": "xx"})
    with pytest.raises(
        ReadError, match=r"no section of report 'totals' has all of planet. Its columns are: country, total"
    ):
        why_of_report(spark, lake, report, {"planet": "mars"})


def test_a_selected_row_and_a_pair_come_down_to_the_rows_of_the_log(spark: SparkSession, tmp_path: Any) -> None:
    visits = Stream(
        "visits",
        Files("landing/visits"),
        Json("id string, at timestamp, pages bigint"),
        event_time="at",
        clock=BoundedOutOfOrderness("5 seconds", max_ahead="30 days"),
    )
    long_visits = Selected("long_visits", visits, select={"id": "id", "doubled": "pages * 2"}, where="pages > 3")
    twice = Joined("twice", visits, visits, on=("id",), between=("0 seconds", "1 second"))
    asked = Enriched("asked", visits, channel, {"channel": "string"})
    pipeline, lake = Pipeline(visits, (long_visits, twice, asked)), Lake(str(tmp_path / "lake"))
    run(spark, lake, pipeline, [{"id": f"v{n}", "at": at(n).isoformat(), "pages": n} for n in range(6)])
    answer = why(pipeline, long_visits, {"id": "v5"}, lake=lake, spark=spark)
    assert (answer.agrees, answer.published) == (True, ({"id": "v5", "doubled": 10},))
    assert [(row.values["pages"], row.place.endswith("position 5")) for row in answer.inputs] == [(5, True)]
    pair = why(pipeline, twice, {"_left_at": at(3)}, lake=lake, spark=spark)
    assert (pair.agrees, [row.values["pages"] for row in pair.inputs]) == (True, [3])
    answer = why(pipeline, asked, {"id": "v5"}, lake=lake, spark=spark)
    assert (answer.agrees, answer.said) == (None, "it cannot be recomputed: what was answered is in its table alone")
    assert (answer.published[0]["channel"], [row.values["pages"] for row in answer.inputs]) == ("web", [5])
