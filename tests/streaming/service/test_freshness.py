"""Freshness value by value: hours of a day on which shops fall silent, come again and are retired."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Freshness,
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
from streaming.base import DeclarationError
from streaming.service.alerts import evaluate
from streaming.service.freshness import NewestTimes, ValueCounts, Watched, is_fresh, lateness_texts
from streaming.service.overview import Overview
from streaming.service.status import ProcessStatus, QueryStatus, ValuesStatus
from streaming.windows import Window

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
INSTANT = pa.timestamp("us", "UTC")
tills = Stream(
    name="tills",
    source=Files("landing/tills"),
    format=Json("shop string, country string, at timestamp, amount double"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 minutes"),
    fresh_within=Freshness("2 hours", by=("shop",), retired_after="10 days", named=2),
)
takings = Windowed(
    "takings",
    tills,
    Tumbling("1 hour"),
    {"rows": agg.count()},
    by=("country",),
    fresh_within=Freshness("6 hours", by=("country",)),
)
pipeline = Pipeline(tills, (takings,))

Row = tuple[str | None, datetime]


def hours_ago(hours: float) -> datetime:
    return NOON - timedelta(hours=hours)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def take(lake: Lake, rows: Sequence[Row], rejected: Sequence[str] = ()) -> None:
    """Append a batch to the log: valid rows, and one without a day for each rejected one."""
    shops = [shop for shop, _ in rows] + [*rejected]
    times = [time for _, time in rows] + [NOON] * len(rejected)
    days = [time.date() for _, time in rows] + [None] * len(rejected)
    columns = {
        "shop": pa.array(shops, pa.string()),
        "at": pa.array(times, INSTANT),
        "_day": pa.array(days, pa.date32()),
    }
    write_deltalake(lake.log(tills), pa.table(columns), mode="append", partition_by=["_day"])


def at_noon(lake: Lake) -> ValuesStatus:
    return ValueCounts(lake, pipeline).at(NOON)["tills/log"]


def told(status: ValuesStatus) -> list[tuple[str, datetime]]:
    return [(late.value, late.newest) for late in status.named]


def test_a_value_is_late_when_its_newest_row_is_older_than_the_bound_and_not_a_microsecond_before(lake: Lake) -> None:
    bound = hours_ago(2)
    take(lake, [("Kiel", bound), ("Bonn", bound - timedelta(microseconds=1)), ("Bonn", hours_ago(7))])
    status = at_noon(lake)
    assert (status.known, status.late) == (2, 1)
    assert told(status) == [("shop=Bonn", bound - timedelta(microseconds=1))]


def test_those_furthest_behind_are_named_and_all_are_counted(lake: Lake) -> None:
    take(lake, [("Kiel", hours_ago(3)), ("Bonn", hours_ago(5)), ("Jena", hours_ago(4)), ("Ulm", hours_ago(1))])
    status = at_noon(lake)
    assert (status.known, status.late) == (4, 3)
    assert told(status) == [("shop=Bonn", hours_ago(5)), ("shop=Jena", hours_ago(4))]


def test_a_value_that_was_silent_for_longer_is_retired_until_it_comes_again(lake: Lake) -> None:
    counts = ValueCounts(lake, pipeline)
    days_10 = hours_ago(240)
    take(lake, [("Kiel", days_10), ("Bonn", days_10 - timedelta(microseconds=1)), ("Ulm", hours_ago(1))])
    first = counts.at(NOON)["tills/log"]
    assert (first.known, told(first)) == (2, [("shop=Kiel", days_10)])
    later = counts.at(NOON + timedelta(minutes=1))["tills/log"]
    assert (later.known, later.late) == (1, 0)
    take(lake, [("Bonn", hours_ago(3))])
    again = counts.at(NOON)["tills/log"]
    assert (again.known, told(again)) == (3, [("shop=Kiel", days_10), ("shop=Bonn", hours_ago(3))])


def test_a_rejected_row_makes_nobody_fresh_and_null_is_a_value(lake: Lake) -> None:
    take(lake, [("Kiel", hours_ago(3)), (None, hours_ago(4))], rejected=["Kiel", "Ulm"])
    assert told(at_noon(lake)) == [("shop=null", hours_ago(4)), ("shop=Kiel", hours_ago(3))]


def test_whoever_counts_along_says_what_somebody_says_who_reads_the_whole_log(lake: Lake) -> None:
    """Drawn batches, put together or with a shop erased now and then, against the greatest times by a dict."""
    draw = random.Random(20260310)
    counts, newest = ValueCounts(lake, pipeline), dict[str, datetime]()
    for step in range(12):
        rows = [(f"shop {draw.randrange(9)}", hours_ago(draw.uniform(0, 300))) for _ in range(draw.randrange(1, 12))]
        take(lake, rows)
        for shop, time in rows:
            newest[shop] = max(time, newest.get(shop, time))
        if step % 5 == 4:
            DeltaTable(lake.log(tills)).optimize.compact()
        if step % 4 == 3:
            erased = draw.choice(sorted(newest))
            del newest[erased]
            DeltaTable(lake.log(tills)).delete(f"shop = '{erased}'")
        known = {shop: time for shop, time in newest.items() if NOON - time <= timedelta(days=10)}
        late = sorted((time, shop) for shop, time in known.items() if NOON - time > timedelta(hours=2))
        for status in (counts.at(NOON)["tills/log"], at_noon(lake)):
            assert (status.known, status.late) == (len(known), len(late))
            assert told(status) == [(f"shop={shop}", time) for time, shop in late[:2]]


def test_a_log_that_was_built_anew_is_counted_anew_and_one_that_is_not_there_has_no_values(lake: Lake) -> None:
    counts = ValueCounts(lake, pipeline)
    assert counts.at(NOON)["tills/log"].known == 0
    take(lake, [("Kiel", hours_ago(1))])
    assert counts.at(NOON)["tills/log"].known == 1
    Path(lake.log(tills)).rename(lake.log(tills) + "_gone")
    take(lake, [("Bonn", hours_ago(1)), ("Ulm", hours_ago(3))])
    assert told(counts.at(NOON)["tills/log"]) == [("shop=Ulm", hours_ago(3))]


def test_of_a_view_the_newest_window_of_each_value_counts(lake: Lake) -> None:
    ends = [hours_ago(7), hours_ago(6), hours_ago(9)]
    windows = {
        "country": pa.array(["DE", "AT", "DE"]),
        "window_end": pa.array(ends, INSTANT),
        "_day": pa.array([end.date() for end in ends], pa.date32()),
    }
    write_deltalake(lake.table(takings), pa.table(windows), partition_by=["_day"])
    status = ValueCounts(lake, pipeline).at(NOON)["tills/takings"]
    assert (status.known, told(status)) == (2, [("country=DE", hours_ago(7))])


@pytest.mark.parametrize(
    "window",
    [Tumbling("7 days"), Sliding("7 days", "1 day"), SessionWindow(gap="2 days")],
    ids=lambda window: type(window).__name__,
)
def test_a_window_that_began_before_a_value_would_retire_and_ended_after_it_is_known_after_a_restart(
    lake: Lake, window: Window
) -> None:
    """Windows are filed under the day of their start: the retirement of ten days falls within this one."""
    freshness = Freshness("8 days", by=("country",), retired_after="10 days")
    weeks = Windowed("weeks", tills, window, {"rows": agg.count()}, by=("country",), fresh_within=freshness)
    start, end = datetime(2026, 2, 22, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    assert start < NOON - freshness.remembered < end < NOON - freshness.length
    row = {
        "country": pa.array(["DE"]),
        "window_end": pa.array([end], INSTANT),
        "_day": pa.array([start.date()], pa.date32()),
    }
    write_deltalake(lake.table(weeks), pa.table(row), partition_by=["_day"])
    status = ValueCounts(lake, Pipeline(tills, (weeks,))).at(NOON)["tills/weeks"]
    assert (status.known, told(status)) == (1, [("country=DE", end)])


def test_a_value_that_was_erased_is_named_no_longer(lake: Lake) -> None:
    counts = ValueCounts(lake, pipeline)
    take(lake, [("Kiel", hours_ago(3)), ("Bonn", hours_ago(4))])
    take(lake, [("Bonn", hours_ago(6)), ("Ulm", hours_ago(50))])
    assert counts.at(NOON)["tills/log"].late == 3
    DeltaTable(lake.log(tills)).delete("shop = 'Bonn'")
    after = counts.at(NOON)["tills/log"]
    assert (after.known, told(after)) == (2, [("shop=Ulm", hours_ago(50)), ("shop=Kiel", hours_ago(3))])


def test_values_that_are_retired_are_not_remembered(lake: Lake) -> None:
    """Each day brings a hundred other shops, and a shop retires after ten days."""
    times = NewestTimes(lake, Watched(tills, Freshness("2 hours", by=("shop",), retired_after="10 days")))
    for day in range(30):
        noon = NOON + timedelta(days=day)
        take(lake, [(f"shop {day} {number}", noon) for number in range(100)])
        assert times.status(noon).known == min(day + 1, 11) * 100
        assert times.remembered == min(day + 1, 11) * 100


def running(lake: Lake, watermark: datetime) -> Overview:
    process = ProcessStatus(
        pid=1,
        started=NOON,
        at=NOON,
        passed=NOON,
        watermark=watermark,
        watermark_moved=NOON,
        watermarks={"tills": watermark},
        queries={"takings": QueryStatus(watermark=watermark)},
        values=ValueCounts(lake, pipeline).at(NOON),
    )
    return Overview(pipeline, "running", NOON, "", None, 0, (), process)


def test_the_alert_names_who_is_late_for_how_long_and_how_many_there_are(lake: Lake) -> None:
    take(lake, [("Kiel", hours_ago(3)), ("Bonn", hours_ago(50)), ("Jena", hours_ago(4)), ("Ulm", hours_ago(1))])
    overview = running(lake, hours_ago(1))
    (alert,) = (each for each in evaluate(overview, pipeline.limits, NOON) if each.name == "stream_is_fresh")
    assert not alert.passed and alert.numbers == {"late_values": 3}
    assert alert.text == (
        "stream 'tills' has had nothing of shop=Bonn for 2 d, shop=Jena for 4 h 0 min and 1 more: "
        "3 of 4 values late, of 2 hours"
    )
    assert not is_fresh(overview, tills, NOON) and is_fresh(overview, takings, NOON)


def test_without_late_values_the_watermark_alone_decides(lake: Lake) -> None:
    take(lake, [("Kiel", hours_ago(1))])
    assert [*lateness_texts(running(lake, hours_ago(2)), NOON)] == []
    (line,) = lateness_texts(running(lake, hours_ago(2.5)), NOON)
    assert line == "stream 'tills' is 2 h 30 min old by its watermark, of 2 hours"
    assert not is_fresh(running(lake, hours_ago(2.5)), tills, NOON)
    assert not is_fresh(replace(running(lake, NOON), process=None), tills, NOON)


@pytest.mark.parametrize(
    ("freshness", "says"),
    [
        ({"within": "2 hours", "retired_after": "1 hour"}, "retired before it is late"),
        ({"within": "2 hours", "by": ("shop", "shop")}, "repeats a column"),
        ({"within": "2 hours", "named": 0}, "would name none"),
        ({"within": "0 hours"}, "no length of time"),
    ],
)
def test_a_freshness_that_cannot_be_is_refused(freshness: dict[str, object], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        Freshness(**freshness)  # type: ignore[arg-type]


def test_a_column_that_is_not_there_or_cannot_be_compared_is_refused_with_those_there_are() -> None:
    with pytest.raises(DeclarationError, match=r"by 'till', which is no column of it.*shop, country, at"):
        replace(tills, fresh_within=Freshness("2 hours", by=("till",)))
    with pytest.raises(DeclarationError, match=r"by 'amount', which is of type double"):
        replace(tills, fresh_within=Freshness("2 hours", by=("amount",)))
    with pytest.raises(DeclarationError, match=r"by 'shop', which is no column of it.*use some of: country"):
        replace(takings, fresh_within=Freshness("2 hours", by=("shop",)))
