from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from pyspark.sql import SparkSession

from docs.examples.orders import pipeline as orders
from quality import Expectation, Suite, fresh, run_suite
from quality.find import log_suite, results_suite
from streaming import Freshness
from streaming.declare import Stream

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
SCHEMA = "shop string, country string, at timestamp, _day date, _watermark timestamp, _rejected array<string>"


def minutes_ago(minutes: float) -> datetime:
    return NOON - timedelta(minutes=minutes)


@pytest.fixture(scope="module")
def rows() -> list[tuple[str | None, str, datetime]]:
    """Shops of two countries, each with a newest row of its own age: about the bound, and about being retired."""
    ages = [0, 119, 120, 120.5, 500, 24 * 60 - 1, 24 * 60 + 1]
    shops = ["Kiel", "Bonn", "Jena", "Ulm", "Köln", None, "Trier"]
    newest = [(shop, "DE", minutes_ago(age)) for shop, age in zip(shops, ages, strict=True)]
    older = [(shop, country, time - timedelta(minutes=7 * n)) for (shop, country, time), n in product(newest, (1, 2))]
    return [*older, *newest, ("Kiel", "AT", minutes_ago(200))]


def test_values_are_late_by_the_clock_of_the_version_that_is_judged(
    spark: SparkSession, rows: list[tuple[str | None, str, datetime]]
) -> None:
    valid = [(*row, row[2].date(), NOON, None) for row in rows]
    # A rejected row has no day, and makes nobody fresh.
    frame = spark.createDataFrame([*valid, ("Ulm", "DE", NOON, None, NOON, ["bad"])], SCHEMA)

    def judged(name: str, *by: str) -> Expectation:
        valid_time = "CASE WHEN _day IS NOT NULL THEN at END"
        return fresh(name, by, "2 hours", time=valid_time, clock="max(_watermark)", retired_after="1 day")

    one, two, own_clock = run_suite(
        lambda: frame,
        Suite(
            (
                judged("shops", "shop"),
                judged("pairs", "shop", "country"),
                fresh("own_clock", ("country",), "3 hours", time="at"),
            )
        ),
    )

    def late(columns: int) -> int:
        newest: dict[tuple[str | None, ...], datetime] = {}
        for row in rows:
            key = row[:2][:columns]
            newest[key] = max(row[2], newest.get(key, row[2]))
        return sum(timedelta(hours=2) < NOON - time <= timedelta(days=1) for time in newest.values())

    assert (one.outcome, one.value) == ("failed", late(1)) and late(1) == 3
    assert (two.outcome, two.value) == ("failed", late(2)) and late(2) == 4
    assert (own_clock.outcome, own_clock.value) == ("failed", 1) and "country=AT" in own_clock.observed
    assert "shop=None" in one.observed or "shop=null" in one.observed


def test_a_stream_that_asks_for_its_values_has_an_expectation_that_warns() -> None:
    stream: Stream = orders.stream
    by = next(iter(stream.types))
    assert "values_are_fresh" not in [each.name for each in log_suite(stream).expectations]
    asked = log_suite(replace(stream, fresh_within=Freshness("2 hours", by=(by,)))).expectations[-1]
    assert (asked.name, asked.level) == ("values_are_fresh", "warn")
    whole = log_suite(replace(stream, fresh_within="2 hours"))
    assert "values_are_fresh" not in [each.name for each in whole.expectations]


def test_a_view_that_asks_for_its_values_has_an_expectation_of_its_first_results() -> None:
    view = replace(orders.views[0], by=("order_id",))
    asked = replace(view, fresh_within=Freshness("2 hours", by=view.by[:1]))
    suite, laws = results_suite(asked), results_suite(view)
    assert suite is not None and laws is not None
    *others, fresh_values = suite.expectations
    assert (fresh_values.name, fresh_values.level) == ("values_are_fresh", "warn") and others == [*laws.expectations]
    assert fresh_values == fresh("values_are_fresh", view.by[:1], "2 hours", level="warn")
    assert results_suite(asked, "corrections") == results_suite(view, "corrections")
