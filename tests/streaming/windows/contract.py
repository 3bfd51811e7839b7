"""What every window kind must do: run it over one of your own with rows that have the columns it reads."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base.intervals import FIRST_INSTANT, literal, optional_micros, to_micros
from streaming.windows.window import MOST_REACH, Window

MS = timedelta(milliseconds=1)


def check_window(spark: SparkSession, window: Window, instants: Iterable[datetime], days: Iterable[date]) -> None:
    """Check a kind over rows at `instants` (column `at`), and its `rows_for_day` on `days`."""
    check_value(window)
    rows = spark.createDataFrame([(instant,) for instant in instants], "at timestamp").withColumn(
        "_day", F.to_date("at")
    )
    check_bounds(window, rows)
    check_lateness(window, rows)
    for day in days:
        check_rows_for_day(window, rows, day)
        by = datetime.combine(day, time(7, 30), UTC)
        for after in (None, by - timedelta(hours=30), by - timedelta(minutes=1)):
            check_times_for_ends(window, rows, after, by)
            check_closing(window, rows, after, by)


def check_value(window: Window) -> None:
    """A declaration: compared, hashed, copied, pickled, told in words."""
    assert hash(window) == hash(copy.deepcopy(window)) and pickle.loads(pickle.dumps(window)) == window
    assert window.fingerprint.startswith(type(window).__name__)
    assert window.reach is None or timedelta() < window.reach <= MOST_REACH
    assert window.closed_by(datetime(2026, 1, 1, tzinfo=UTC)) <= datetime(2026, 1, 1, tzinfo=UTC)


def check_bounds(window: Window, rows: DataFrame) -> None:
    """Bounds are whole windows, none twice, and none ends later than `reach` after its row."""
    bounds = window.bounds(F.col("at"))
    none, last_end = window.has_no_window(F.col("at")), window.last_end(F.col("at"))
    frame = rows.select("at", bounds.alias("windows"), none.alias("none"), last_end.alias("last_end"))
    for row in frame.collect():
        windows = [(each["start"], each["end"]) for each in row["windows"]]
        assert len(set(windows)) == len(windows) and all(start < end for start, end in windows)
        assert row["none"] == (not windows)
        assert row["last_end"] == max((end for _, end in windows), default=None)
        assert window.reach is None or all(end - row["at"] <= window.reach for _, end in windows)


def check_lateness(window: Window, rows: DataFrame) -> None:
    """Late or on time, never both and never neither; late from one instant on; never late without a stamp.

    As many windows of a row are late as are told to be.
    """
    pairs = rows.select("at", F.explode(window.bounds(F.col("at"))).alias("own"))
    grace = F.make_interval(secs=F.lit(window.grace.total_seconds()))
    due = F.col(f"own.{window.decided_by}") + grace
    shifts = [F.make_interval(secs=F.lit(shift.total_seconds())) for shift in (-MS, timedelta(), MS)]
    stamps = pairs.withColumn("stamp", F.explode(F.array(*(due + shift for shift in shifts), F.lit(None))))
    verdicts = stamps.select(
        (F.col("stamp") >= due).alias("expected"),
        window.late(F.col("own"), F.col("stamp")).alias("late"),
    )
    for row in verdicts.distinct().collect():
        assert row["late"] == bool(row["expected"])
    late = F.filter(window.bounds(F.col("at")), lambda own: window.late(own, F.col("stamp")))
    counted = stamps.select(F.size(late).alias("expected"), window.late_windows(F.col("at"), F.col("stamp")))
    for expected, count in counted.distinct().collect():
        assert count == expected


def check_rows_for_day(window: Window, rows: DataFrame, day: date) -> None:
    """Every row of a window that starts on the day is among the rows for that day."""
    starts = F.exists(window.bounds(F.col("at")), lambda own: F.to_date(own["start"]) == F.lit(day))
    assert rows.where(starts & ~window.rows_for_day(day)).isEmpty()
    assert rows.where(starts & ~window.may_start_on(day, F.col("at"))).isEmpty()


def check_times_for_ends(window: Window, rows: DataFrame, after: datetime | None, by: datetime) -> None:
    """Every row of a window that ends in (after, by] has a time within the bounds for these ends."""
    since, before = window.times_for_ends(after, by)
    ends = F.exists(
        window.bounds(F.col("at")),
        lambda own: (own["end"] <= literal(by)) & (F.lit(after is None) | (own["end"] > literal(after))),
    )
    if after is not None and not window.ends_between(after, by):
        assert rows.where(ends).isEmpty()
    within = F.lit(True) if since is None else F.col("at") >= literal(since)
    within = within if before is None else within & (F.col("at") < literal(before))
    assert rows.where(ends & ~within).isEmpty()


def check_closing(window: Window, rows: DataFrame, after: datetime | None, by: datetime) -> None:
    """The windows that Arrow counts rows in are those that close, and were open when each row came."""
    stamps = F.array(F.lit(None), "at", *(literal(by + shift) for shift in (-MS, MS)))
    stamped = rows.withColumn("stamp", F.explode(stamps))
    own = stamped.select("*", F.explode(window.bounds(F.col("at"))).alias("own"))
    ends = (F.col("own.end") <= literal(by)) & (F.lit(after is None) | (F.col("own.end") > literal(after)))
    counted = own.where(ends & ~window.late(F.col("own"), F.col("stamp")))
    micros = [F.unix_micros(name) for name in ("at", "stamp", "own.start", "own.end")]
    expected = sorted(map(repr, map(tuple, counted.select(*micros).collect())))
    arrivals = [tuple(row) for row in stamped.select(*micros[:2]).collect()]
    closing = window.closing(
        np.array([time for time, _ in arrivals], np.int64),
        np.array([to_micros(FIRST_INSTANT) if stamp is None else stamp for _, stamp in arrivals], np.int64),
        optional_micros(after),
        to_micros(by),
    )
    if closing is None:
        return
    found = [
        (*arrival, start := int(begin) + place * closing.period, start + closing.size)
        for arrival, begin, count in zip(arrivals, closing.begins, closing.counts, strict=True)
        for place in range(count)
    ]
    assert sorted(map(repr, found)) == expected
