"""Revisions, SQL views, histories, selections, chains and reports: each number is explained by its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
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
    RowFunction,
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
from streaming.provenance.log_rows import rows_near
from streaming.service.drain import drain
from streaming.tables import Between
from tests.support.feeds import land_all
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
listed = Selected("listed", orders, select={"order_id": "order_id", "amounts": "array(amount)"}, where="amount > 6")
shop = Pipeline(orders, (by_country, revenue, windows, order_history, listed))

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


def corrected(spark: SparkSession, there: Lake) -> None:
    """Correct what is late by now, and publish it."""
    assert correct(spark, there, by_country, lambda: NOW)
    publish(spark, there, by_country)


def sold(spark: SparkSession, there: Lake) -> Lake:
    """```
    batch 0    1 de@1=5  2 de@2=7  3 fr@3=1  4 without an amount: rejected
    batch 1    5 fr@90=2, 60 of it@60=1           the windows at 0 are closed: de 12, fr 1
    batch 2    2 de@2=9, version 2                late: it takes version 1 back
    corrected  de 14
    ```
    """
    first = [order(1, "de", 1, 5), order(2, "de", 2, 7), order(3, "fr", 3, 1), order(4, "de", 4, None)]
    run(spark, there, shop, first)
    run(spark, there, shop, [order(5, "fr", 90, 2), *(order(100 + number, "it", 60, 1) for number in range(60))])
    run(spark, there, shop, [order(2, "de", 2, 9, version=2)])
    corrected(spark, there)
    return there


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake of `sold`, with the chain that follows what is current of it."""
    there = sold(spark, Lake(str(tmp_path_factory.mktemp("shop") / "lake")))
    run(spark, there, shop)
    run(spark, there, minutes)
    return there


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
    of_log = len(DeltaTable(lake.log(orders)).file_uris())
    assert (answer.files.read, answer.files.of) == (of_log, of_log)
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


def test_changes_of_a_row_with_a_list_are_told(spark: SparkSession, lake: Lake) -> None:
    answer = why(shop, listed, {"order_id": 2}, lake=lake, spark=spark)
    assert (answer.agrees, answer.published[0]["amounts"], amounts(answer)) == (True, [9], [9])
    (change,) = answer.changes
    assert (change.was, [row["amounts"] for row in change.now]) == ((), [[9]])


def test_a_chain_comes_down_to_the_first_log(spark: SparkSession, lake: Lake) -> None:
    key = {"country": "de", "window_start": at(0)}
    answer = why(minutes, by_minute, key, lake=lake, spark=spark)
    assert answer.agrees and answer.published[0]["total"] == 14
    (above,) = answer.upstream
    assert (above.pipeline, above.operator, above.key["country"]) == ("orders", "by_country", "de")
    assert (above.agrees, amounts(above)) == (True, [5, 9])
    assert [(row.place.rpartition("/")[2], row.line) for row in above.counting] == [
        ("0000.json, line 1", 1),
        ("0002.json, line 1", 1),
    ]


@pytest.mark.long
def test_a_number_of_a_report_comes_down_to_results_rows_and_verdicts(spark: SparkSession, tmp_path: Path) -> None:
    """```
    published  de 14, fr 1
    batch 3    2 de@2=2, version 3    3 de@3=1, version 2        late: de 8, and nothing of fr
    corrected
    ```
    """
    lake = sold(spark, Lake(str(tmp_path / "lake")))
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
    assert answer.notes == ()
    run(spark, lake, shop, [order(2, "de", 2, 2, version=3), order(3, "de", 3, 1, version=2)])
    corrected(spark, lake)
    older, gone = (why_of_report(spark, lake, report, {"country": country}) for country in ("de", "fr"))
    assert (older.agrees, older.published[0]["total"], older.upstream[0].published[0]["total"]) == (True, 14, 8)
    window = "window_start=2026-01-01T00:00:00 window_end=2026-01-01T00:00:10"
    assert older.notes == (f"by_country country=de {window} has changed since the report was published",)
    first_of_fr = f"by_country country=fr {window} is not current any more: publish the report again"
    assert first_of_fr in gone.notes


visits = Stream(
    "visits",
    Files("landing/visits"),
    Json("id string, at timestamp, pages bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds", max_ahead="30 days"),
)
clicks = replace(visits, name="clicks", source=Files("landing/clicks"))


def doubled(row: Any, opened: Any) -> Iterator[dict[str, Any]]:
    """Each row twice, one with its pages doubled."""
    yield {"id": row.id, "pages": row.pages}
    yield {"id": row.id, "pages": row.pages * 2}


def raising(row: Any, opened: Any) -> Iterator[dict[str, Any]]:
    raise ValueError("no such page")


long_visits = Selected("long_visits", visits, select={"id": "id", "doubled": "pages * 2"}, where="pages > 3")
twice = Selected("twice", visits, function=RowFunction(doubled, "id string, pages bigint"))
both = Selected("both", (visits, clicks), select={"id": "id", "pages": "pages"}, where="pages > 0")
clicked = Joined("clicked", visits, clicks, on=("id",), between=("-1 second", "1 second"))
asked = Enriched("asked", visits, channel, {"channel": "string"})
site = Pipeline(name="site", streams=(visits, clicks), operators=(long_visits, twice, both, clicked, asked))


@pytest.fixture(scope="module")
def site_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """```
    visits     v0@0=0  v1@1=1 ... v5@5=5
    clicks     v0@0.5=10  v1@1.5=11 ... v5@5.5=15
    ```
    """
    there = Lake(str(tmp_path_factory.mktemp("site") / "lake"))
    for stream, later, more in ((visits, 0.0, 0), (clicks, 0.5, 10)):
        land_all(there, stream, [{"id": f"v{n}", "at": at(n + later).isoformat(), "pages": n + more} for n in range(6)])
    drain(spark, there, site, now=lambda: NOW)
    return there


def told(spark: SparkSession, lake: Lake, of: Any, **key: Any) -> Why:
    return why(site, of, key, lake=lake, spark=spark)


def pages_of(answer: Why) -> list[tuple[str, int]]:
    return sorted((row.stream, row.values["pages"]) for row in answer.inputs)


def test_a_selected_row_comes_down_to_the_row_of_the_log(spark: SparkSession, site_lake: Lake) -> None:
    answer = told(spark, site_lake, long_visits, id="v5")
    assert (answer.agrees, answer.published) == (True, ({"id": "v5", "doubled": 10},))
    assert [(row.values["pages"], row.place.endswith(".json, line 6")) for row in answer.inputs] == [(5, True)]
    first = why(site, long_visits, {"id": "v5"}, what="first", lake=site_lake, spark=spark)
    assert (first.agrees, first.published) == (True, answer.published)


def test_rows_of_thousands_of_times_are_looked_up_at_once(site_lake: Lake) -> None:
    times = [at(number / 1_000) for number in range(20_000)]
    near = rows_near(site_lake, visits, [{"at": time} for time in times], Between(at(0), at(20)))
    assert [row["pages"] for row in near.valid.sort_by("at").to_pylist()] == [0, 1, 2, 3, 4, 5]
    named = rows_near(site_lake, visits, [{"id": "v1"}, {"id": "v4"}], Between(at(0), at(20)))
    assert sorted(named.valid.column("pages").to_pylist()) == [1, 4]
    few = rows_near(site_lake, visits, [{"at": at(2)}, {"at": at(3.5)}], Between(at(0), at(20)))
    assert few.valid.column("pages").to_pylist() == [2]


def test_what_a_function_made_of_a_row_is_made_again(spark: SparkSession, site_lake: Lake) -> None:
    with pytest.raises(ReadError, match="id=v3 is true of 2 results"):
        told(spark, site_lake, twice, id="v3")
    answer = told(spark, site_lake, twice, id="v3", pages=6)
    assert (answer.agrees, answer.recomputed, pages_of(answer)) == (True, answer.published, [("visits", 3)])


def test_a_function_that_raises_by_now_is_told(
    spark: SparkSession, site_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(twice, function=RowFunction(raising, "id string, pages bigint"))
    answer = why(replace(site, operators=(broken,)), broken, {"id": "v3", "pages": 6}, lake=site_lake, spark=spark)
    assert (answer.agrees, pages_of(answer)) == (None, [("visits", 3)])
    assert "its SQL or function raised" in answer.said and "no such page" in answer.said


def test_a_row_selected_of_several_streams_comes_down_to_the_one_that_it_is_of(
    spark: SparkSession, site_lake: Lake
) -> None:
    answer = told(spark, site_lake, both, id="v2", pages=12)
    assert (answer.agrees, answer.published, pages_of(answer)) == (True, ({"id": "v2", "pages": 12},), [("clicks", 12)])


def test_a_pair_comes_down_to_the_row_of_either_side(spark: SparkSession, site_lake: Lake) -> None:
    answer = told(spark, site_lake, clicked, _left_at=at(3))
    assert answer.agrees and pages_of(answer) == [("clicks", 13), ("visits", 3)]
    by_side = {row.stream: row.event_time for row in answer.inputs}
    assert by_side == {"visits": at(3), "clicks": at(3.5)}


def test_what_was_answered_is_told_and_what_it_was_asked_by_comes_down_to_the_log(
    spark: SparkSession, site_lake: Lake
) -> None:
    answer = told(spark, site_lake, asked, id="v5")
    assert (answer.agrees, answer.published[0]["channel"]) == (True, "web")
    row, given = answer.inputs
    assert (row.stream, row.values["pages"]) == ("visits", 5)
    assert (given.stream, given.values) == ("asked", {"channel": "web"})
    assert given.place == "asked 2026-01-01 12:00:00, attempt 1, version 1 of the call"
    assert answer.notes == (
        "channel is what was answered, once, and is taken as it is stored: nobody can ask that again",
    )
