"""Views counted again by another engine: right where all is right, and where the engine of the platform itself errs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    SessionWindow,
    Sliding,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.operators import Finding
from streaming.tables import delta
from streaming.views.corrections import correct, plan
from streaming.windows.window import Periodic
from tests.support.instants import NOW, T0
from tests.support.runs import run
from tidemark.testing import Payload

stream = Stream(
    "sales",
    Files("landing/sales"),
    Json("id string, at timestamp, n bigint, amount decimal(38,18), x double, day date"),
    "at",
    BoundedOutOfOrderness("5 seconds"),
    derived={"root": "sqrt(x)"},
)
EVERYTHING = {
    "rows": agg.count(),
    "of_a": agg.count("id = 'a' and (n > 1 or n is null)"),
    "total": agg.sum("n"),
    "amount": agg.sum("amount"),
    "x": agg.sum("x"),
    "mean": agg.mean("x"),
    "mean_n": agg.mean("n"),
    "lowest": agg.minimum("root"),
    "highest": agg.maximum("root"),
    "earliest": agg.minimum("at"),
    "last_day": agg.maximum("day"),
    "first_name": agg.minimum("id"),
    "ids": agg.count_distinct("id"),
}
tumbling = Windowed("tumbling", stream, Tumbling("10 seconds", "3 seconds"), EVERYTHING, by=("id",))
sliding = Windowed("sliding", stream, Sliding("10 seconds", "3 seconds"), EVERYTHING, where="n > 0 or id <> 'b'")
sessions = Windowed("sessions", stream, SessionWindow("4 seconds"), EVERYTHING, by=("id",))
updated = Windowed(
    "updated", stream, Tumbling("10 seconds"), EVERYTHING, late="update", allowed_lateness="1 minute", by=("day",)
)
uncounted = Windowed("uncounted", stream, Tumbling("10 seconds"), {"middle": agg.median("x")}, by=("id",))
pipeline = Pipeline(stream, (tumbling, sliding, sessions, updated, uncounted))


def sale(id: str | None, second: float, **values: object) -> Payload:
    return {"id": id, "at": f"2026-01-01T00:00:{second:06.3f}Z", "day": "2026-01-01", **values}


BATCHES: Sequence[Sequence[Payload]] = (
    (
        sale("a", 1, n=9007199254740993, amount=12345678901234567890.000000000000000001, x=1e16),
        sale("a", 2, n=1, x=1.0),
        sale("a", 3, n=None, x=-1e16),
        sale(None, 2.5, n=-4, x=-2.0),
        sale("b", 12.999999, n=0, x=0.0),
        sale("b", 13, n=2, x=-0.0),
    ),
    (sale("b", 30, n=7, x=0.1), sale("a", 17, n=3, x=123456789.12)),
    # Seconds 1 and 14 come when windows up to 25 s are closed.
    (sale("a", 1, n=5, x=-3.0), sale("b", 14, n=6, x=4.0), sale("a", 55, n=1)),
)


def independent(findings: Sequence[Finding]) -> list[tuple[str, str, bool]]:
    return [(finding.law, finding.subject, finding.holds) for finding in findings if finding.independent]


@pytest.fixture
def corrected(spark: SparkSession, lake: Lake) -> Lake:
    """A lake with late rows, some of them corrected, some updated."""
    assert T0.isoformat().startswith("2026-01-01T00:00:00")
    run(spark, lake, pipeline, *BATCHES, end_of_input=True)
    for view in (tumbling, sliding):
        correct(spark, lake, view, [pending.day for pending in plan(spark, lake, view)], lambda: NOW)
    return lake


@pytest.mark.long
def test_results_of_every_kind_are_counted_again_and_what_came_past_the_engine_is_found(
    spark: SparkSession, corrected: Lake
) -> None:
    findings = list(audit(spark, corrected, pipeline))
    assert [finding for finding in findings if not finding.holds] == []
    fixed = [(law, view.name, True) for view in (tumbling, sliding) for law in ("first result", "convergence")]
    assert independent(findings) == [
        *fixed,
        ("first result", "sessions", True),
        ("first result", "updated", True),
        ("convergence", "updated", True),
        ("first result", "uncounted", True),
        ("convergence", "uncounted", True),
    ]
    told = {finding.subject: finding.compared for finding in findings if finding.law == "first result"}
    assert told["uncounted"].endswith("; without middle") and "without" not in told["tumbling"]
    # The day of the view that nobody corrected waits for its correction.
    checked = {(finding.law, finding.subject): finding.checked for finding in findings if finding.independent}
    assert checked.pop(("convergence", "uncounted")) == 0 and min(checked.values()) > 3

    def changed(name: str) -> Column:
        return F.col(name) + 1

    first = delta.read(spark, corrected.first(tumbling)).where("id = 'b' and rows = 1").withColumn("x", changed("x"))
    delta.append(first, corrected.first(tumbling), says={})
    broken = {(law, name) for law, name, holds in independent(list(audit(spark, corrected, pipeline))) if not holds}
    assert broken == {("first result", "tumbling"), ("convergence", "tumbling")}


def test_a_fault_of_the_engine_itself_is_found_though_its_own_laws_hold(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Periodic._start
    # Windows a second off, for what is published and for what it is compared with alike.
    monkeypatch.setattr(Periodic, "_start", lambda self, at: start(self, at) + F.lit(1_000_000))
    only = Pipeline(stream, (tumbling,))
    run(spark, lake, only, *BATCHES, end_of_input=True)
    findings = [finding for finding in audit(spark, lake, only) if finding.subject == "tumbling"]
    assert {finding.independent: finding.holds for finding in findings if finding.law == "first result"} == {
        True: False,
        False: True,
    }


@pytest.mark.long
def test_doubles_added_in_another_order_break_no_law_and_a_digit_beyond_that_does(
    spark: SparkSession, lake: Lake
) -> None:
    """A session over two batches adds 123456789.12 + 0.1 and -123456789.12 + 0.2 apart; its last digits are others."""
    view = Windowed("sums", stream, SessionWindow("4 seconds"), {"total": agg.sum("x")}, by=("id",))
    only = Pipeline(stream, (view,))
    run(spark, lake, only, (sale("a", 1, x=123456789.12), sale("a", 2, x=0.1)))
    run(spark, lake, only, (sale("a", 3, x=-123456789.12), sale("a", 4, x=0.2)), end_of_input=True)
    assert delta.read(spark, lake.first(view)).collect()[0]["total"] != 0.1 + 0.2
    assert [finding for finding in audit(spark, lake, only) if not finding.holds] == []
    spark.sql(f"alter table delta.`{lake.first(view)}` set tblproperties ('delta.appendOnly' = 'false')")
    DeltaTable.forPath(spark, lake.first(view)).update(set={"total": "total + 1e-6"})
    found = [finding for finding in audit(spark, lake, only) if not finding.holds]
    assert [(finding.law, finding.independent) for finding in found if finding.law == "first result"] == [
        ("first result", False),
        ("first result", True),
    ]
