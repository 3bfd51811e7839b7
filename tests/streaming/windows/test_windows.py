"""Windows to the millisecond: which ones a row belongs to, and when a row is late for one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from docs.examples.late_counts import count_by_sensor, pipeline
from docs.examples.late_counts import readings as stream
from streaming import Custom, LocalDays, Pipeline, SessionWindow, Sliding, Tumbling, Window, log
from streaming.base.errors import DeclarationError
from streaming.lake.lake import Lake
from streaming.views.results import late_pairs, read_first
from tests.support.feeds import readings
from tests.support.instants import T0, at
from tests.support.runs import run, tuples

MS = timedelta(milliseconds=1)
US = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)

Bounds = tuple[datetime, datetime]


def micros(instant: datetime) -> int:
    return (instant - EPOCH) // US


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text + "+00:00")


def assigned(spark: SparkSession, windows: Sequence[Window], instants: Iterable[int]) -> list[list[list[Bounds]]]:
    """For each instant (microseconds since the epoch) and each window kind the bounds, in microseconds; one job."""
    rows = spark.createDataFrame(list(enumerate(instants)), "place bigint, micros bigint")
    rows = rows.withColumn("at", F.timestamp_micros("micros"))
    kinds = [
        F.transform(
            window.bounds(F.col("at")), lambda w: F.array(F.unix_micros(w["start"]), F.unix_micros(w["end"]))
        ).alias(f"w{number}")
        for number, window in enumerate(windows)
    ]
    assignments = rows.select("place", *kinds).orderBy("place").collect()
    return [[[(start, end) for start, end in windows_of_row] for windows_of_row in row[1:]] for row in assignments]


def test_a_window_includes_its_start_and_excludes_its_end(spark: SparkSession) -> None:
    ten, hour, day = Tumbling("10 seconds"), Tumbling("1 hour", "15 minutes"), Tumbling("1 day")
    gaps, sliding = Sliding("10 seconds", "15 seconds"), Sliding("10 seconds", "5 seconds", "2 seconds")
    session = SessionWindow("10 seconds")
    cases: list[tuple[Window, datetime, list[Bounds]]] = [
        (ten, at(0), [(at(0), at(10))]),
        (ten, at(10) - MS, [(at(0), at(10))]),
        (ten, at(10), [(at(10), at(20))]),
        (ten, at(10) + MS, [(at(10), at(20))]),
        (ten, EPOCH - MS, [(EPOCH - 10000 * MS, EPOCH)]),  # before the epoch the start is rounded down as well
        (ten, EPOCH, [(EPOCH, EPOCH + 10000 * MS)]),
        (hour, T0 + HOUR / 4 - MS, [(T0 - HOUR * 3 / 4, T0 + HOUR / 4)]),
        (hour, T0 + HOUR / 4, [(T0 + HOUR / 4, T0 + HOUR * 5 / 4)]),
        (hour, EPOCH, [(EPOCH - HOUR * 3 / 4, EPOCH + HOUR / 4)]),
        (day, T0 - MS, [(T0 - 24 * HOUR, T0)]),
        (day, FIRST, [(FIRST, FIRST + 24 * HOUR)]),
        (Tumbling("1 millisecond"), at(0.001), [(at(0.001), at(0.002))]),
        (Tumbling("1 hour", "-15 minutes"), at(44 * 60), [(at(-15 * 60), at(45 * 60))]),
        (Tumbling("1 hour", "-15 minutes"), at(45 * 60), [(at(45 * 60), at(105 * 60))]),
        (gaps, EPOCH, [(EPOCH, EPOCH + 10000 * MS)]),
        (gaps, EPOCH + 10000 * MS - MS, [(EPOCH, EPOCH + 10000 * MS)]),
        (gaps, EPOCH + 10000 * MS, []),
        (gaps, EPOCH + 15000 * MS - MS, []),
        (gaps, EPOCH + 15000 * MS, [(EPOCH + 15000 * MS, EPOCH + 25000 * MS)]),
        (gaps, EPOCH - MS, []),
        (gaps, EPOCH - 5001 * MS, [(EPOCH - 15000 * MS, EPOCH - 5000 * MS)]),
        (sliding, at(2), [(at(-3), at(7)), (at(2), at(12))]),
        (sliding, at(2) - MS, [(at(-8), at(2)), (at(-3), at(7))]),
        (session, at(3), [(at(3), at(13))]),
        (session, EPOCH - MS, [(EPOCH - MS, EPOCH + 9999 * MS)]),
    ]
    kinds = list({window: None for window, _, _ in cases})
    assignments = assigned(spark, kinds, [micros(instant) for _, instant, _ in cases])
    for (window, instant, expected), row in zip(cases, assignments, strict=True):
        wanted = [(micros(start), micros(end)) for start, end in expected]
        assert row[kinds.index(window)] == wanted, (window, instant)


def test_a_local_day_runs_from_midnight_to_midnight_whatever_the_clocks_do(spark: SparkSession) -> None:
    cases = [
        # 23 hours: from EST to EDT
        ("America/New_York", "2026-03-08T05:00:00", "2026-03-08T05:00:00", "2026-03-09T04:00:00"),
        ("America/New_York", "2026-03-09T03:59:59.999", "2026-03-08T05:00:00", "2026-03-09T04:00:00"),
        ("America/New_York", "2026-03-09T04:00:00", "2026-03-09T04:00:00", "2026-03-10T04:00:00"),
        ("America/New_York", "2026-03-08T04:59:59.999", "2026-03-07T05:00:00", "2026-03-08T05:00:00"),
        # 25 hours: back from EDT to EST
        ("America/New_York", "2026-11-01T04:00:00", "2026-11-01T04:00:00", "2026-11-02T05:00:00"),
        ("America/New_York", "2026-11-02T04:59:59.999", "2026-11-01T04:00:00", "2026-11-02T05:00:00"),
        # no midnight: 2018-11-04 begins at one o'clock
        ("America/Sao_Paulo", "2018-11-04T02:59:59.999", "2018-11-03T03:00:00", "2018-11-04T03:00:00"),
        ("America/Sao_Paulo", "2018-11-04T03:00:00", "2018-11-04T03:00:00", "2018-11-05T02:00:00"),
        # midnight twice: one o'clock becomes midnight once more, on the same day
        ("America/Havana", "2026-11-01T04:00:00", "2026-11-01T04:00:00", "2026-11-02T05:00:00"),
        ("America/Havana", "2026-11-01T05:00:00", "2026-11-01T04:00:00", "2026-11-02T05:00:00"),
        # midnight twice: a minute past it becomes a minute past eleven of the day before
        ("America/St_Johns", "2010-11-07T02:30:00", "2010-11-07T02:30:00", "2010-11-08T03:30:00"),
        ("America/St_Johns", "2010-11-07T02:31:00", "2010-11-07T02:30:00", "2010-11-08T03:30:00"),
        ("America/St_Johns", "2010-11-07T02:29:59.999", "2010-11-06T02:30:00", "2010-11-07T02:30:00"),
        # a day that never was: 2011-12-30
        ("Pacific/Apia", "2011-12-30T09:59:59.999", "2011-12-29T10:00:00", "2011-12-30T10:00:00"),
        ("Pacific/Apia", "2011-12-30T10:00:00", "2011-12-30T10:00:00", "2011-12-31T10:00:00"),
    ]
    kinds = [LocalDays(zone) for zone in dict.fromkeys(case[0] for case in cases)]
    assignments = assigned(spark, kinds, [micros(utc(case[1])) for case in cases])
    for (zone, instant, start, end), row in zip(cases, assignments, strict=True):
        assert row[kinds.index(LocalDays(zone))] == [(micros(utc(start)), micros(utc(end)))], (zone, instant)


def test_custom_windows_are_none_one_or_many_and_those_that_are_no_windows_are_left_out(spark: SparkSession) -> None:
    def around(*offsets: tuple[int, int]) -> str:
        pairs = (f"struct(at + interval {a} seconds, at + interval {b} seconds)" for a, b in offsets)
        return f"array({', '.join(pairs)})"

    cases = {
        "null": [],
        "array()": [],
        around((0, 5)): [(0, 5)],
        around((0, 5), (-5, 5), (0, 5)): [(0, 5), (-5, 5)],  # the same one twice is one
        around((3, 5)): [(3, 5)],  # it need not hold the row
        around((0, 10), (-10, 0)): [(0, 10), (-10, 0)],  # as far as `within` allows
        around((0, 11), (-11, 0), (1, 2)): [(1, 2)],  # further than that
        around((5, 0), (5, 5)): [],  # ends before it starts, or at once
        "array(struct(at, cast(null as timestamp)), null)": [],
    }
    assignments = assigned(spark, [Custom(sql, within="10 seconds") for sql in cases], [micros(T0)])[0]
    for (sql, expected), windows in zip(cases.items(), assignments, strict=True):
        assert windows == [(micros(at(start)), micros(at(end))) for start, end in expected], sql


def test_a_session_gap_by_column_may_be_a_fraction_and_is_no_session_where_it_is_not_positive(
    spark: SparkSession,
) -> None:
    gaps = {"2": 2.0, "0.25D": 0.25, "0": None, "-1": None, "cast(null as int)": None}
    assignments = assigned(spark, [SessionWindow(seconds_of=sql) for sql in gaps], [micros(T0)])[0]
    assert assignments == [[] if gap is None else [(micros(T0), micros(at(gap)))] for gap in gaps.values()]


def _length(length: int) -> str:
    return f"{length} milliseconds"


def test_1000_instants_are_in_the_windows_that_floor_arithmetic_gives(spark: SparkSession) -> None:
    """Thirty tumbling and sliding windows of random sizes, at instants that lie on their bounds or next to them."""
    chance = random.Random(4)
    shapes = []
    for number in range(30):
        size = chance.choice([1, 7, 999, 1000, 5000, 60_000, 3_600_000, 86_400_000, chance.randint(1, 10**8)])
        slide = size if number < 12 else max(1, size * chance.randint(1, 24) // 6)
        slide = max(slide, size // 20 + 1)
        shapes.append((size, slide, chance.randrange(slide)))
    windows = [
        Tumbling(_length(size), _length(offset))
        if size == slide
        else Sliding(_length(size), _length(slide), _length(offset))
        for size, slide, offset in shapes
    ]
    edge = (micros(FIRST), micros(LAST), 0, -1, 1)
    instants = list(edge)
    while len(instants) < 1000:
        size, slide, offset = chance.choice(shapes)
        period = chance.randint(-(10**12) // slide, 4 * 10**12 // slide)
        bound = (offset + period * slide + chance.choice([0, size])) * 1000
        instants.append(bound + chance.choice([-1000, -1, 0, 1, 1000, chance.randrange(10**9)]))

    checked = 0
    for instant, row in zip(instants, assigned(spark, windows, instants), strict=True):
        for (size, slide, offset), bounds in zip(shapes, row, strict=True):
            newest = (instant - offset * 1000) // (slide * 1000)
            expected = []
            for number in range(newest - size // slide - 1, newest + 1):
                start = (offset + number * slide) * 1000
                if start <= instant < start + size * 1000:
                    expected.append((start, start + size * 1000))
            assert bounds == expected, (instant, size, slide, offset)
            checked += 1
    assert checked == 30_000


def test_1000_instants_are_in_the_local_days_that_their_zones_calendar_gives(spark: SparkSession) -> None:
    chance = random.Random(4)
    names = ["America/New_York", "America/Sao_Paulo", "America/Havana", "America/St_Johns", "Australia/Lord_Howe"]
    names += ["Pacific/Apia", "Asia/Kathmandu", "Europe/Paris"]
    zones = [ZoneInfo(name) for name in names]

    def midnight(day: date, zone: ZoneInfo) -> int:
        return micros(datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC))

    instants: list[int] = []
    while len(instants) < 1000:
        day, zone = date(1990, 1, 1) + timedelta(days=chance.randrange(12_700)), chance.choice(zones)
        # Half of them within two days of a change of clocks, where there is one at all.
        changes = [
            d
            for d in range(366)
            if midnight(day + timedelta(d + 1), zone) - midnight(day + timedelta(d), zone) != 24 * HOUR // US
        ]
        if changes and chance.random() < 0.5:
            day += timedelta(days=chance.choice(changes) + chance.choice([0, 1]))
        instants.append(
            midnight(day, zone) + chance.choice([-1000, 0, 1000, 60 * 10**6, chance.randrange(90_000) * 10**6])
        )

    for instant, row in zip(instants, assigned(spark, [LocalDays(name) for name in names], instants), strict=True):
        for zone, bounds in zip(zones, row, strict=True):
            around = (EPOCH + instant * US).date()
            starts = sorted({midnight(around + timedelta(days=days), zone) for days in range(-3, 4)})
            expected = [(a, b) for a, b in pairwise(starts) if a <= instant < b]
            assert bounds == expected, (instant, zone)


def test_a_correction_of_a_day_reads_every_row_that_a_window_of_that_day_may_hold(spark: SparkSession) -> None:
    day, days = T0.date(), 24 * HOUR
    before, after = "at - interval 7 hours, at - interval 6 hours", "at + interval 1 hour, at + interval 7 hours"
    kinds: list[Window] = [
        Tumbling("10 minutes"),
        Tumbling("7 hours", "1 hour"),
        Tumbling("7 hours", "-2 hours"),
        Sliding("36 hours", "9 hours"),
        LocalDays("America/New_York"),
        Custom(f"array(struct({before}), struct({after}))", within="7 hours"),
        SessionWindow("10 seconds"),
    ]
    instants = [T0 - 3 * days + number * HOUR for number in range(7 * 24)]
    edges = [T0, T0 - MS, T0 - 10_000 * MS, T0 + days, T0 + days - MS]
    rows = spark.createDataFrame([(instant,) for instant in instants + edges], "at timestamp")
    rows = rows.withColumn("_day", F.to_date("at"))

    for window in kinds:
        verdicts = rows.select(
            "at",
            F.exists(window.bounds(F.col("at")), lambda w: F.to_date(w["start"]) == F.lit(day)).alias("held"),
            window.rows_for_day(day).alias("near"),
        ).collect()
        held = [row["at"].astimezone(UTC) for row in verdicts if row["held"]]
        near = {row["at"].astimezone(UTC) for row in verdicts if row["near"]}
        assert held and set(held) <= near, window
        # Windows that divide a day have no row of another.
        if window == Tumbling("10 minutes"):
            assert {instant.date() for instant in near} == {day}
        # A row of the evening before tells that the session began before midnight.
        if isinstance(window, SessionWindow):
            assert T0 - 10_000 * MS in near


@given(
    size=st.integers(1, 40),
    slide=st.integers(1, 40),
    offset=st.integers(0, 39),
    after=st.integers(-100, 100),
    longer=st.integers(0, 50),
)
def test_a_window_is_known_to_end_where_counting_seconds_meets_an_end(
    size: int, slide: int, offset: int, after: int, longer: int
) -> None:
    offset %= slide
    by = after + longer
    kinds: list[Window] = [Sliding(f"{size} seconds", f"{slide} seconds", f"{offset} seconds")]
    if size == slide:
        kinds.append(Tumbling(f"{size} seconds", f"{offset} seconds"))
    met = any((second - offset - size) % slide == 0 for second in range(after + 1, by + 1))
    for window in kinds:
        assert window.ends_between(EPOCH + timedelta(seconds=after), EPOCH + timedelta(seconds=by)) == met


@pytest.mark.parametrize(
    ("window", "closes"),
    [
        (Tumbling("10 seconds"), at(10)),
        (Sliding("10 seconds", "10 seconds"), at(10)),
        (LocalDays("UTC"), T0 + 24 * HOUR),
        (Custom("array(struct(at, at + interval 7 seconds))", within="10 seconds"), at(7)),
        (SessionWindow("10 seconds"), at(0) + MS),  # the end is not known yet: the row counts, which must lie before
    ],
)
def test_a_pair_is_late_from_the_stamp_that_closes_its_window_on(
    spark: SparkSession, window: Window, closes: datetime
) -> None:
    stamps = {None: False, closes - MS: False, closes: True, closes + MS: True}
    rows = spark.createDataFrame([(at(0), stamp) for stamp in stamps], "at timestamp, stamp timestamp")

    pair = window.bounds(F.col("at"))[0]
    verdicts = rows.select(
        "stamp",
        window.late(pair, F.col("stamp")).alias("late"),
        window.late_windows(F.col("at"), F.col("stamp")).alias("counted"),
    )

    lateness = {stamp: rest for stamp, *rest in tuples(verdicts)}
    assert lateness == {stamp: [late, int(late)] for stamp, late in stamps.items()}


@pytest.mark.long
def test_a_stream_closes_a_window_at_the_watermark_that_equals_its_end_and_not_a_millisecond_before(
    spark: SparkSession, lake: Lake
) -> None:
    def first() -> list[tuple[str, datetime, int]]:
        return tuples(read_first(spark, lake, count_by_sensor), "id", "window_end", "readings")

    run(
        spark,
        lake,
        pipeline,
        readings("a@0, a@14.999"),  # watermark 9.999: the window that ends at 10 is open
        readings("a@9.999, a@10"),  # the last instant of that window, on time, and the first of the next one
    )
    assert first() == []

    run(
        spark,
        lake,
        pipeline,
        readings("a@15"),  # watermark 10: the window closes
        readings("a@9.999, a@10.001"),  # the first is late now, the second's window is open
    )
    assert first() == [("a", at(10), 2)]

    run(spark, lake, pipeline, readings("a@25.001"))  # watermark 20.001: a millisecond past the end closes as well
    assert first() == [("a", at(10), 2), ("a", at(20), 4)]
    late = late_pairs(log.read_log(spark, lake, stream), count_by_sensor)
    assert tuples(late, "event_time", "_watermark") == [(at(9.999), at(10))]


def test_the_end_of_input_closes_a_window_that_ends_between_two_milliseconds(spark: SparkSession, lake: Lake) -> None:
    odd = Custom("array(struct(event_time, event_time + interval '1.000001' second))", within="2 seconds")
    view = replace(count_by_sensor, window=odd)
    run(spark, lake, Pipeline(stream, (view,)), readings("a@0"), end_of_input=True)
    assert tuples(read_first(spark, lake, view), "id", "window_end", "readings") == [("a", at(1) + US, 1)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("declare", "advice"),
    [
        (lambda: Tumbling("0 seconds"), "size='0 seconds' of a tumbling window is empty; give it a length"),
        (lambda: Sliding("5 seconds", "0 seconds"), "slide='0 seconds' of a sliding window is empty"),
        (lambda: Tumbling("5 seconds", "5 seconds"), "offset '5 seconds' is not smaller.*use the remainder"),
        (lambda: SessionWindow(), "give exactly one of the two"),
        (lambda: SessionWindow("5 seconds", seconds_of="gap"), "give exactly one of the two"),
        (lambda: SessionWindow("0 seconds"), "gap='0 seconds' of a session is empty; give it a length"),
        (lambda: LocalDays("Europe/Atlantis"), "'Europe/Atlantis' is no time zone; write a name of the IANA database"),
        (lambda: Custom("array()", within="0 days"), "within='0 days' of a custom window is empty; give it a length"),
    ],
)
def test_a_window_that_could_hold_nothing_is_refused_with_what_to_write_instead(
    declare: Callable[[], Window], advice: str
) -> None:
    with pytest.raises(DeclarationError, match=advice):
        declare()
