"""Golden tests of joins within bounds of time, all in one lake and few runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from docs.examples import city_temperatures, clicks, event_weather, nearby_events, tokens
from streaming import Pipeline, drain
from streaming.audit.laws import audit
from streaming.clocks import joint_watermark
from streaming.declare.limits import Limits
from streaming.lake.lake import Lake
from streaming.log import read_batches
from streaming.operators.runtime import runtime_of
from streaming.service.alerts import AlertStatus, evaluate
from streaming.service.observer import Observer
from streaming.service.overview import Overview
from streaming.service.reporter import Reporter
from streaming.service.run import Run
from streaming.service.status import ProcessStatus
from streaming.service.watch import Watch
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.runs import tuples

JOINS = Pipeline(
    name="joins",
    streams=(*nearby_events.pipeline.streams, *tokens.pipeline.streams, *clicks.pipeline.streams),
    operators=(nearby_events.around, nearby_events.afterwards, tokens.merged, clicks.campaign_clicks),
)
HOUR, MINUTE, MS = 3_600, 60, 0.001
TEN = 10 * HOUR


def event(seconds: float, id_: str | None = "k") -> dict[str, Any]:
    return {"id": id_, "at": at(seconds).isoformat()}


def token(name: str, text: str, key: str) -> dict[str, Any]:
    return {key: "t", "event": name, "event_timestamp": f"2026-01-01T{text}Z"}


def click(ad: str, seconds: float) -> dict[str, Any]:
    return {"ad_id": ad, "clicked_at": at(seconds).isoformat()}


def ad(name: str, campaign: str, seconds: float) -> dict[str, Any]:
    return {"ad_id": name, "campaign": campaign, "since": at(seconds).isoformat()}


def read(spark: SparkSession, lake: Lake, operator: Any, what: str = "current") -> DataFrame:
    return runtime_of(operator, lake).readable[what](spark)


def city(code: str, minute: int) -> dict[str, Any]:
    return {"city_code": code, "at": at(60 * minute).isoformat()}


def warmth(code: str, minute: int, degrees: float) -> dict[str, Any]:
    return {"city_code": code, "ts": at(60 * minute).isoformat(), "temperature": degrees}


@pytest.fixture(scope="module")
def joined(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after one run of all of them up to the end of input."""
    lake = Lake(str(tmp_path_factory.mktemp("joins")))
    land_all(lake, nearby_events.departed, [event(TEN), event(TEN, None)])
    around = (9 * HOUR, 9 * HOUR - MS, TEN + 15 * MINUTE, TEN + 15 * MINUTE + MS)
    later = (11 * HOUR, 11 * HOUR - MS, 12 * HOUR, 12 * HOUR + MS)
    land_all(lake, nearby_events.arrived, [event(TEN, None), *map(event, (*around, *later))])
    first = [("A", "12:29:50"), ("B", "12:29:55"), ("C", "12:29:45"), ("D", "12:30:05")]
    second = [("W", "12:29:52"), ("X", "12:29:58"), ("Y", "12:29:48"), ("Z", "12:30:08")]
    land_all(lake, tokens.issued, *([token(name, text, "token_a")] for name, text in first))
    land_all(lake, tokens.used, *([token(name, text, "token_b")] for name, text in second))
    land_all(lake, clicks.clicks, [click("x", 10), click("x", 20), click("y", 30)])
    land_all(lake, clicks.ads, [ad("x", "c1", 0)])
    drain(spark, lake, JOINS, end_of_input=True, now=lambda: NOW)
    return lake


def partners(spark: SparkSession, lake: Lake, operator: Any) -> list[timedelta]:
    rows = read(spark, lake, operator).collect()
    return sorted(row["_right_at"] - row["_left_at"] for row in rows)


def test_j1_both_edges_of_the_bounds_join_and_a_millisecond_beyond_does_not(spark: SparkSession, joined: Lake) -> None:
    # Rows without a key, which are there on both sides, join nobody.
    assert partners(spark, joined, nearby_events.around) == [-timedelta(hours=1), timedelta(minutes=15)]


def test_j2_bounds_may_both_lie_after_the_row(spark: SparkSession, joined: Lake) -> None:
    assert partners(spark, joined, nearby_events.afterwards) == [timedelta(hours=1), timedelta(hours=2)]


def test_j3_tokens_of_two_systems_make_sixteen_pairs_whatever_came_out_of_order(
    spark: SparkSession, joined: Lake
) -> None:
    rows = tuples(read(spark, joined, tokens.merged), "token", "first", "second")
    assert rows == [("t", first, second) for first in "ABCD" for second in "WXYZ"]
    marks = {
        stream.name: [batch.after.watermark for batch in read_batches(joined, stream)[::-1][:4]]
        for stream in (tokens.issued, tokens.used)
    }

    def of(*seconds: int) -> list[datetime]:
        return [datetime(2026, 1, 1, 12, 29, second, tzinfo=UTC) for second in seconds]

    assert marks == {"issued": of(40, 45, 45, 55), "used": of(42, 48, 48, 58)}
    assert joint_watermark(each[-1] for each in marks.values()) == of(55)[0]
    # C and Y, equal to the watermarks of their streams, are on time.
    stamps = read(spark, joined, tokens.merged).where("first = 'C' and second = 'Y'")
    assert tuples(stamps, "_watermark", "_at") == [(of(48)[0], of(48)[0])]


@pytest.mark.long
def test_j8_clicks_count_for_their_campaign_and_those_on_unknown_ads_wait_for_one(
    spark: SparkSession, joined: Lake
) -> None:
    def by_campaign() -> list[Any]:
        return tuples(read(spark, joined, clicks.campaign_clicks).groupBy("campaign").count())

    assert by_campaign() == [(None, 1), ("c1", 2)]
    assert tuples(read(spark, joined, clicks.campaign_clicks, "unmatched"), "ad_id", "campaign") == [("y", None)]
    # The declaration of y comes after its deadline; what late rows bring joins at once.
    land_all(joined, clicks.ads, [ad("y", "c2", 5)])
    land_all(joined, nearby_events.departed, [event(HOUR)])
    land_all(joined, nearby_events.arrived, [event(HOUR)])
    drain(spark, joined, JOINS, now=lambda: NOW)
    assert by_campaign() == [("c1", 2), ("c2", 1)]
    assert tuples(read(spark, joined, clicks.campaign_clicks, "unmatched"), "ad_id") == [("y",)]
    assert partners(spark, joined, nearby_events.around).count(timedelta()) == 1
    assert [finding for finding in audit(spark, joined, clicks.pipeline) if not finding.holds] == []


@pytest.mark.long
def test_j9_temperatures_that_were_asked_for_meet_the_events_of_their_city_and_their_mean_follows(
    spark: SparkSession, lake: Lake
) -> None:
    land_all(lake, city_temperatures.events, [city("BER", 1), city("PAR", 2), city("BER", 3)])
    land_all(lake, city_temperatures.temperatures, [warmth("BER", 1, 10), warmth("BER", 2, 20), warmth("PAR", 1, 5)])
    # Somebody asks for Rome, where nothing happens.
    land_all(lake, city_temperatures.temperatures, [warmth("ROM", 1, 25)])
    drain(spark, lake, city_temperatures.pipeline, end_of_input=True, now=lambda: NOW)
    met = read(spark, lake, city_temperatures.weather_of_events).groupBy("city_code").count()
    assert tuples(met) == [("BER", 4), ("PAR", 1)]
    drain(spark, lake, event_weather.pipeline, end_of_input=True, now=lambda: NOW)
    means = tuples(read(spark, lake, event_weather.mean_at_events), "city_code", "temperature")
    assert means == [("BER", 15.0), ("PAR", 5.0)]


@pytest.mark.long
def test_j11_streams_of_different_speed_lose_nothing_and_their_skew_is_told_until_they_are_together(
    spark: SparkSession, lake: Lake
) -> None:
    statuses: list[ProcessStatus] = []

    def judged() -> AlertStatus:
        run = Run(spark, lake, tokens.pipeline, Observer(lambda: NOW))
        reporter = Reporter(run, Watch(lambda: NOW), lambda: NOW, lambda measures: None, statuses.append)
        reporter.begin()
        reporter.end()
        overview = Overview(tokens.pipeline, "running", NOW, "", None, 0, (), statuses[-1])
        return next(each for each in evaluate(overview, Limits(), NOW) if each.name == "stream_clocks_are_together")

    # The fast side is taken in one file per batch, as it is declared, and the slow one stands where it was.
    hours = [f"{hour:02}:00:00" for hour in range(4)]
    land_all(lake, tokens.issued, *([token(text, text, "token_a")] for text in hours))
    land_all(lake, tokens.used, [token(hours[0], hours[0], "token_b")])
    drained = drain(spark, lake, tokens.pipeline, now=lambda: NOW)
    assert drained.queries["issued.log"].batches == 4
    skewed = judged()
    assert (skewed.passed, skewed.numbers) == (False, {"watermark_skew_seconds": 3 * HOUR})
    assert skewed.text == "used is 180 min behind issued, with which merged joins it"
    assert statuses[-1].watermark == statuses[-1].watermarks["used"] == at(-10)

    land_all(lake, tokens.used, [token(text, text, "token_b") for text in hours[1:]])
    drain(spark, lake, tokens.pipeline, now=lambda: NOW)
    assert judged().passed
    assert tuples(read(spark, lake, tokens.merged), "first", "second") == [(text, text) for text in hours]
