"""Golden tests of applications of lateness: a watermark without delay, and a feed in disorder."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from docs.examples import late_counts
from docs.examples.without_delay import hasty, hasty_counts, patient, patient_counts
from streaming import log
from streaming.lake.lake import Lake
from streaming.lateness.profile import profile
from streaming.service.drain import drain
from streaming.views.corrections import correct
from streaming.views.results import late_pairs, read_first
from tests.support.disorder import shifted
from tests.support.feeds import land_all, readings
from tests.support.instants import NOW, T0, at, ms
from tests.support.runs import read_current, run, tuples

FIRST = ("id", "window_end", "readings")


@pytest.mark.long
def test_l8_without_delay_slight_disorder_is_late_and_the_profile_suggests_the_delay_that_cures_it(
    spark: SparkSession, lake: Lake
) -> None:
    # Watermark 5 after the second batch: the window [0, 5) is closed when a@4.5 comes.
    run(spark, lake, hasty, *map(readings, ("a@4", "a@5", "a@4.5")))
    late = late_pairs(log.read_log(spark, lake, hasty.stream), hasty_counts)
    assert tuples(late, "id", "event_time", "window_end", "_watermark") == [("a", at(4.5), at(5), at(5))]
    assert tuples(read_first(spark, lake, hasty_counts), *FIRST) == [("a", at(5), 1)]

    lateness = profile(spark, lake, hasty_counts, complete=1.0)
    assert (lateness.recommended, lateness.needed.total) == ("1 second", 3)
    assert [(outcome.delay.total_seconds(), outcome.late) for outcome in lateness.outcomes] == [(0, 1), (1, 0)]

    # Watermark 4 after the second batch, 5 after the last: now the window waits for a@4.5.
    run(spark, lake, patient, *map(readings, ("a@4", "a@5", "a@4.5", "a@6")))
    assert late_pairs(log.read_log(spark, lake, patient.stream), patient_counts).count() == 0
    assert tuples(read_first(spark, lake, patient_counts), *FIRST) == [("a", at(5), 2)]


@pytest.mark.long
def test_l10_a_feed_shifted_by_up_to_seven_seconds_is_split_and_corrected_as_an_oracle_says(
    spark: SparkSession, lake: Lake
) -> None:
    sent = [second * 1000 + part for second in range(40) for part in range(0, 1000, 20)]
    rows = list(zip(sent, "abc" * len(sent), shifted(sent, seed=10), strict=False))
    # Most of a window's rows in one batch, then two short batches about its end, where rows can be late.
    cuts = [end + cut for end in range(0, 40_000, 10_000) for cut in (8_400, 9_200, 10_000)]
    batches = [
        [(id_, time) for when, id_, time in rows if start <= when < end]
        for start, end in zip([0, *cuts], cuts, strict=False)
    ]

    watermark, late = -1, list[tuple[str, int]]()
    on_time, everything = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    greatest = 0
    for batch in batches:
        for id_, time in batch:
            end = time // 10_000 * 10_000 + 10_000
            everything[id_, end] += 1
            if end <= watermark:
                late.append((id_, time))
            else:
                on_time[id_, end] += 1
        greatest = max([greatest, *(time for _, time in batch)])
        watermark = max(watermark, greatest - 5_000)
    assert len(late) >= 3

    land_all(
        lake,
        late_counts.readings,
        *([{"id": id_, "timestamp": ms(T0) + time} for id_, time in batch] for batch in batches),
    )
    drain(spark, lake, late_counts.pipeline, end_of_input=True, now=lambda: NOW)
    view = late_counts.count_by_sensor
    pairs = late_pairs(log.read_log(spark, lake, late_counts.readings), view)
    assert tuples(pairs, "id", "event_time") == sorted((id_, at(time / 1000)) for id_, time in late)
    assert tuples(read_first(spark, lake, view), *FIRST) == counted(on_time)

    correct(spark, lake, view, [T0.date()], lambda: NOW)
    assert tuples(read_current(spark, lake, view), *FIRST) == counted(everything)


def counted(windows: Counter[tuple[str, int]]) -> list[tuple[object, ...]]:
    return sorted((id_, at(end / 1000), number) for (id_, end), number in windows.items())
