"""Every window kind to the microsecond, in one Spark job: bounds and lateness as the oracle has them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import LocalDays, SessionWindow, Sliding, Tumbling, Window
from streaming.base.intervals import from_micros
from tests.laws import windows
from tests.laws.oracle import SECOND, Event, Verdict, micros
from tests.laws.readings import LOCAL_MIDNIGHT
from tests.laws.strategies import GRAINS
from tests.laws.timeline import Row, View
from tests.laws.windows import Assign

HOUR = 3_600 * SECOND
DECLARED: dict[str, tuple[Window, Assign]] = {
    "millisecond": (Tumbling("1 millisecond"), windows.tumbling(1_000)),
    "seven": (Tumbling("7 seconds", "3 seconds"), windows.tumbling(7 * SECOND, 3 * SECOND)),
    "days": (Tumbling("1 day", "5 hours"), windows.tumbling(24 * HOUR, 5 * HOUR)),
    "sliding": (Sliding("10 seconds", "4 seconds"), windows.sliding(10 * SECOND, 4 * SECOND)),
    "exact": (Sliding("90 minutes", "30 minutes", "15 minutes"), windows.sliding(3 * HOUR // 2, HOUR // 2, HOUR // 4)),
    "many": (Sliding("61 seconds", "7 seconds", "3 seconds"), windows.sliding(61 * SECOND, 7 * SECOND, 3 * SECOND)),
    "gapped": (Sliding("3 seconds", "7 seconds", "2 seconds"), windows.sliding(3 * SECOND, 7 * SECOND, 2 * SECOND)),
    "new_york": (LocalDays("America/New_York"), windows.local_days("America/New_York")),
    "kathmandu": (LocalDays("Asia/Kathmandu"), windows.local_days("Asia/Kathmandu")),
    "session": (SessionWindow("4 seconds"), windows.gaps(lambda event: 4 * SECOND)),
}
YEAR_1, YEAR_9999 = -62_135_000_000 * SECOND, 253_402_000_000 * SECOND
AUTUMN = micros(LOCAL_MIDNIGHT) + (237 * 24 + 1) * HOUR
"""The midnight at which the day of 25 hours in New York ends."""


def _instants() -> list[int]:
    """The bounds of every window about some marked instants, each with its neighbours."""
    marked = (0, -1, -12 * HOUR, micros(LOCAL_MIDNIGHT), micros(LOCAL_MIDNIGHT) - 23 * HOUR, AUTUMN, AUTUMN - 25 * HOUR)
    bounds = {
        bound
        for at in marked
        for _, assign in DECLARED.values()
        for window in assign(Event(None, at, None))
        for bound in window
    }
    return sorted({at + grain for at in (*bounds, *marked) for grain in GRAINS} | {YEAR_1, YEAR_9999})


@pytest.mark.long
def test_windows_and_their_lateness_are_the_oracles_to_the_microsecond(spark: SparkSession) -> None:
    at, stamp = F.timestamp_micros("at"), F.timestamp_micros("stamp")
    frame = spark.createDataFrame(
        [
            (instant, stamped)
            for instant in _instants()
            for stamped in (None, instant, *(instant + shift * SECOND + grain for shift in (1, 3) for grain in (0, -1)))
        ],
        "at bigint, stamp bigint",
    ).select(
        "at",
        "stamp",
        *(
            F.struct(
                F.transform(
                    window.bounds(at), lambda each: F.struct(F.unix_micros(each["start"]), F.unix_micros(each["end"]))
                ).alias("windows"),
                window.late_windows(at, stamp).alias("late"),
            ).alias(name)
            for name, (window, _) in DECLARED.items()
        ),
    )
    rows = frame.collect()
    for name, (window, assign) in DECLARED.items():
        view = View(name, assign, lambda events: [()], 0, merging=window.merging)
        for row in rows:
            pairs = view.pairs([Row(b"", "", 0, 0, row["stamp"], Verdict(Event(None, row["at"], None)))])
            expected = ([pair.own for pair in pairs], sum(pair.is_late for pair in pairs))
            actual = ([tuple(each) for each in row[name]["windows"]], row[name]["late"])
            assert actual == expected, (name, from_micros(row["at"]), row["stamp"])
    assert len(rows) > 500
