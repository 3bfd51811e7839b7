"""The flights' report on a handful of departures whose numbers can be checked by hand."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from platform_assets.demo.reports.on_time_performance import bias, draw
from platform_assets.reports.errors import UnknownReport
from platform_assets.reports.files import put
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import declared_reports, find_report
from quality import GateClosed
from streaming.base.intervals import utc_now
from streaming.lake.lake import Lake
from streaming.views.corrections import correct
from tests.support.runs import run

DAY = date(2013, 1, 1)


def flight(origin: str, sched_dep: str, delay: float | None, carrier: str = "UA") -> dict[str, Any]:
    return {
        "flight": 1,
        "carrier": carrier,
        "origin": origin,
        "dest": "LAX",
        "tailnum": None,
        "sched_dep": f"2013-01-{sched_dep}:00Z",
        "dep_delay": delay,
        "cancelled": delay is None,
    }


MORNING = [
    flight("EWR", "01T10:00", 0),
    flight("EWR", "01T10:10", 3),
    flight("EWR", "01T10:20", 6),
    flight("EWR", "01T10:30", None),  # cancelled: no part of a mean
    flight("JFK", "01T10:00", None),  # nobody left: no mean at all
    flight("LGA", "01T10:00", -5, carrier="ZZ"),  # a carrier that the dimension does not know
]
NOON = [flight("EWR", "01T12:00", 27)]
CLOSING = [flight("EWR", "02T12:00", 0)]
LATE = [flight("EWR", "01T10:40", 180), flight("JFK", "01T15:00", 60, carrier="B6")]  # the second: a window of its own


@pytest.mark.long
def test_first_and_current_stand_side_by_side_weighted_by_the_flights_that_left(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, pipeline, MORNING, NOON, CLOSING, LATE)
    report = find_report("on_time_performance")
    with pytest.raises(GateClosed, match=r"`tidemark correct flights --day 2013-01-01`"):
        judge_and_publish(spark, lake, report, "run-1")
    assert not Path(lake.path("reports")).exists()
    correct(spark, lake, departures_by_origin, [DAY], utc_now)

    done = judge_and_publish(spark, lake, report, "run-2")

    rows = done.tables["on_time_performance"].to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        # day, origin, flights, cancelled, mean delay, share on time: first and current each; late rows, complete
        # EWR first: (0 + 3 + 6 + 27) / 4, not the mean of 3 and 27; then one more at 180
        (DAY, "EWR", 5, 6, 1, 1, 9.0, 43.2, 0.75, 0.6, 1, True),
        (DAY, "JFK", 1, 2, 1, 1, None, 60.0, None, 0.0, 1, True),
        (DAY, "LGA", 1, 1, 0, 0, -5.0, -5.0, 1.0, 1.0, 0, True),
    ]
    carriers = done.tables["on_time_performance_carriers"].to_pylist()
    assert [(row["carrier"], row["name"], row["flights"], row["mean_dep_delay"]) for row in carriers] == [
        ("UA", "United Air Lines Inc.", 7, 43.2),
        ("B6", "JetBlue Airways", 1, 60.0),
        ("ZZ", "ZZ", 1, -5.0),
    ]
    assert sum(row["flights"] for row in carriers) == sum(row["current_flights"] for row in rows)
    assert done.png is not None
    assert Path(done.png).read_bytes().startswith(b"\x89PNG")
    assert all(Path(path).is_file() for paths in done.files.values() for path in paths)
    delays = bias(rows)
    assert (delays.first, delays.current) == (pytest.approx(6.2), pytest.approx(38.714, abs=1e-3))
    assert draw(done.tables["on_time_performance"]).get_suptitle() == (
        "First results said 6.2 minutes mean delay, the truth is 38.7"
    )


@pytest.mark.long
def test_a_finished_day_that_lacks_an_origin_blocks_and_is_named(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, [flight("EWR", "01T10:00", 1), flight("JFK", "01T10:00", 1)], CLOSING)

    with pytest.raises(GateClosed) as caught:
        judge_and_publish(spark, lake, find_report("on_time_performance"), "run-1")

    assert (
        str(caught.value)
        .splitlines()[0]
        .startswith(
            "gate closed: expectation 'every_origin_and_day' on reports/on_time_performance version 0 failed: "
            "observed 1 rows, such as day=2013-01-01, origin=LGA"
        )
    )


def test_reports_are_found_by_name() -> None:
    assert list(declared_reports()) == ["on_time_performance"]
    with pytest.raises(UnknownReport, match="'nope'; declared are: on_time_performance"):
        find_report("nope")


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(spark: SparkSession, tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        put(spark, f"file://{tmp_path}/a.csv", content)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.csv", b"new")]
