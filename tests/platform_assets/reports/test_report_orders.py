"""A report in the fewest lines, through the gate."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from docs.examples.orders import orders_per_day, pipeline
from platform_assets.pipeline.reports import report_asset
from platform_assets.reports import publish as publish_module
from platform_assets.reports.errors import NewerIsPublished, NothingToReport
from platform_assets.reports.publication import (
    outdated_files,
    published_as_of,
    read_publication,
    read_report,
    read_sections,
)
from platform_assets.reports.publish import is_up_to_date, judge_and_publish, publish, sources_as_of
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from quality import GateClosed, Pins, Suite, always, judge, pin, unique, verdicts_for
from quality.verdicts import write_rows
from streaming import Tumbling
from streaming.base.errors import DeclarationError, LeaseError, NotBuiltYet
from streaming.lake.lake import Lake
from streaming.tables.history import commits_of
from streaming.views.corrections import correct
from tests.support.instants import NOW
from tests.support.runs import run

DAY = date(2025, 12, 1)


def order(order_id: str, ordered_at: str, amount: float) -> dict[str, object]:
    return {"order_id": order_id, "ordered_at": ordered_at, "amount": amount}


ORDERS = [order("a", "2025-12-01T09:00:00Z", 10.50), order("b", "2025-12-01T10:00:00Z", 4.50)]


def revenue(sources: Sources) -> DataFrame:
    return sources.current(orders_per_day).selectExpr("_day AS day", "revenue", "orders").orderBy("day")


def revenue_suite(sources: Sources) -> Suite:
    return Suite((unique("unique_key", ("day",)), always("revenue_modest", "revenue < 20", "small shop")))


report = Report(pipeline, "Revenue per day.", (Section("revenue_per_day", "Per UTC day.", revenue, revenue_suite),))


def published(lake: Lake) -> tuple[int, list[dict[str, object]], bytes]:
    table = DeltaTable(lake.report("revenue_per_day"))
    csv = Path(f"{lake.report('revenue_per_day')}.csv").read_bytes()
    return table.version(), table.to_pyarrow_table().to_pylist(), csv


@pytest.mark.long
def test_e21_periodic_report(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, ORDERS, end_of_input=True)

    done = judge_and_publish(spark, lake, report, "run-1")

    rows = [{"day": DAY, "revenue": Decimal("15.00"), "orders": 2}]
    csv = b'"day","revenue","orders"\n2025-12-01,15.00,2\n'
    assert published(lake) == (0, rows, csv)
    assert done.versions == {"revenue_per_day": 0}
    commit = commits_of(DeltaTable(lake.report("revenue_per_day")))[0]["userMetadata"]
    assert (commit["run_id"], Pins.from_json(commit["pins"])) == ("run-1", done.pins)
    assert {name: row.outcome for name, row in verdicts_for(lake, "reports/revenue_per_day", 0).items()} == {
        "unique_key": "passed",
        "revenue_modest": "passed",
    }
    assert not list(Path(lake.path("reports")).glob(".*"))

    # As of a batch it is what it was then; nothing is published by it.
    cut = lake.as_of({"orders": 0})
    assert [tuple(row) for row in revenue(sources_as_of(spark, cut, report)).collect()] == []
    assert sources_as_of(spark, lake.as_of({"orders": 1}), report).finished_days == (DAY,)
    assert revenue(sources_as_of(spark, lake.as_of({"orders": 1}), report)).count() == 1
    past = published_as_of(lake.as_of({"orders": 1}), report)
    assert past is not None
    assert (past.run_id, read_sections(lake, past)["revenue_per_day"].to_pylist()) == ("run-1", rows)
    assert published_as_of(lake.as_of({"orders": 0}), report) is None, "nothing was published of that batch alone"

    # Blocked by a late order: the report before it stays as it was.
    run(spark, lake, pipeline, [order("c", "2025-12-01T11:00:00Z", 1.00)])
    with pytest.raises(GateClosed, match="2025-12-01 has 1 late rows"):
        judge_and_publish(spark, lake, report, "run-2")
    with pytest.raises(GateClosed, match=r"has a stale verdict only|has no verdict"):
        run(spark, lake, pipeline, [order("d", "2025-12-01T12:00:00Z", 100.00)])
        publish(spark, lake, report, pin(lake, pipeline), "run-3")
    assert published(lake) == (0, rows, csv)


@pytest.mark.long
def test_an_older_publication_does_not_replace_a_newer_one(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, ORDERS, end_of_input=True)
    older = pin(lake, pipeline)
    judge(spark, lake, pipeline, older, "run-1", lambda: NOW)
    run(spark, lake, pipeline, [order("c", "2025-12-02T11:00:00Z", 1.00)], end_of_input=True)
    newest = judge_and_publish(spark, lake, report, "run-2")
    for pins in (older, newest.pins):
        assert is_up_to_date(lake, report, pins)
    with pytest.raises(NewerIsPublished, match=r"by run run-2 at .*`tidemark report revenue_per_day` publishes"):
        publish(spark, lake, report, older, "run-1")
    publication = read_publication(lake, report.name)
    assert publication is not None and (publication.run_id, publication.pins) == ("run-2", newest.pins)
    assert publish(spark, lake, report, newest.pins, "run-3").versions == {"revenue_per_day": 1}


@pytest.mark.long
def test_one_process_at_a_time_publishes_a_report(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the rows of the first are judged, another one begins."""
    monkeypatch.setattr(publish_module, "_WAITS_FOR_ANOTHER", 0.0)
    run(spark, lake, pipeline, ORDERS, end_of_input=True)
    others: list[str] = []

    def beside(sources: Sources) -> Suite:
        if not others and sources.spark is not None:
            others.append("begun")
            with pytest.raises(LeaseError, match=r"is already held by process .*report, since"):
                judge_and_publish(spark, lake, report, "run-2")
            others.append("refused")
        return revenue_suite(sources)

    first = replace(report, sections=(replace(report.sections[0], suite=beside),))
    judge_and_publish(spark, lake, first, "run-1")
    publication = read_publication(lake, report.name)
    assert others == ["begun", "refused"] and publication is not None and publication.run_id == "run-1"
    judge_and_publish(spark, lake, report, "run-3")
    assert published(lake)[0] == 1


@pytest.mark.long
def test_sections_are_published_together_or_not_at_all(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = replace(report.sections[0], table="revenue_again")
    both = replace(report, sections=(*report.sections, second))
    assert read_report(lake, both.name) is None
    run(spark, lake, pipeline, ORDERS, end_of_input=True)
    judge_and_publish(spark, lake, both, "run-1")
    before, publication = read_report(lake, both.name), read_publication(lake, both.name)
    assert before is not None and publication is not None
    assert set(before) == {"revenue_per_day", "revenue_again"} and outdated_files(lake, publication) == []
    assert is_up_to_date(lake, both, pin(lake, pipeline))

    def dies_after_the_first(*arguments: Any, **options: Any) -> int:
        version = write_rows(*arguments, **options)
        raise KeyboardInterrupt(f"after version {version}")

    with monkeypatch.context() as dies, pytest.raises(KeyboardInterrupt, match="after version 1"):
        dies.setattr(publish_module, "write_rows", dies_after_the_first)
        judge_and_publish(spark, lake, both, "run-2")
    assert read_report(lake, both.name) == before and read_publication(lake, both.name) == publication

    judge_and_publish(spark, lake, both, "run-3")
    completed = read_publication(lake, both.name)
    assert completed is not None and completed.run_id == "run-3"
    assert completed.versions == {"revenue_per_day": 2, "revenue_again": 1}


@pytest.mark.long
def test_a_report_that_breaks_its_own_suite_is_not_published(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, [*ORDERS, order("c", "2025-12-01T11:00:00Z", 5.00)], end_of_input=True)

    with pytest.raises(GateClosed) as caught:
        judge_and_publish(spark, lake, report, "run-1")

    assert str(caught.value).splitlines()[0] == (
        "gate closed: expectation 'revenue_modest' on reports/revenue_per_day version 0 failed: "
        "observed 1 rows, such as day=2025-12-01, revenue=20.00, orders=3; expected: small shop"
    )
    assert not Path(lake.path("reports")).exists()
    assert verdicts_for(lake, "reports/revenue_per_day", 0)["revenue_modest"].outcome == "failed"


def test_a_report_before_any_data_says_what_to_do(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(NotBuiltYet, match="run `tidemark run orders` first"):
        judge_and_publish(spark, lake, report, "run-1")

    run(spark, lake, pipeline, ORDERS)  # ingested, but no window is closed
    with pytest.raises((NotBuiltYet, NothingToReport), match="tidemark run orders"):
        judge_and_publish(spark, lake, report, "run-2")


per_minute = replace(orders_per_day, name="orders_per_minute", window=Tumbling("1 minute"))
every_shop = replace(pipeline, operators=(*pipeline.operators, per_minute))


@pytest.mark.long
def test_late_rows_of_a_view_that_a_report_does_not_read_hold_it_up_no_longer(spark: SparkSession, lake: Lake) -> None:
    of_days = Report(every_shop, "", report.sections, reads=(orders_per_day,))
    run(spark, lake, every_shop, ORDERS, end_of_input=True)
    run(spark, lake, every_shop, [order("c", "2025-12-01T11:00:00Z", 1.00)])
    correct(spark, lake, orders_per_day, [DAY], lambda: NOW)
    with pytest.raises(GateClosed, match="late rows in orders_per_minute"):
        judge_and_publish(spark, lake, replace(of_days, reads=()), "run-1")
    published = judge_and_publish(spark, lake, of_days, "run-2")
    assert set(published.pins.versions()) == {"log", "orders_per_day", "orders_per_day_corrections"}


def test_a_report_reads_what_it_declares_and_nothing_else(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, every_shop, ORDERS, end_of_input=True)
    of_minutes = Report(every_shop, "", report.sections, reads=(per_minute,))
    with pytest.raises(DeclarationError, match=r"reads 'orders_per_day' and declares .* only 'orders_per_minute'"):
        judge_and_publish(spark, lake, of_minutes, "run-1")
    with pytest.raises(DeclarationError, match="reads 'orders_per_minute', which pipeline 'orders' does not"):
        replace(report, reads=(per_minute,))


def test_the_lineage_of_a_report_names_only_the_tables_that_it_reads() -> None:
    def upstream(of: Report) -> set[str]:
        (spec,) = report_asset(of).specs
        return {dep.asset_key.path[-1] for dep in spec.deps}

    of_days = Report(every_shop, "", report.sections, reads=(orders_per_day,))
    assert upstream(of_days) == {"orders_per_day_current"}
    assert upstream(replace(of_days, reads=())) == {"orders_per_day_current", "orders_per_minute_current"}
    assert upstream(replace(of_days, reads=(every_shop.stream,))) == {"log"}
