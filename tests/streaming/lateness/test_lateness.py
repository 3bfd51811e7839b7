"""A profile taken from one lake foretells exactly what another lake with another delay really had."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    SessionWindow,
    Stream,
    StreamingError,
    Tumbling,
    Windowed,
    agg,
    drain,
    epoch_millis,
)
from streaming.lateness.profile import Profile, profile
from streaming.log.read import read_log
from streaming.views.results import late_pairs
from tests.support.feeds import land, readings
from tests.support.instants import NOW

_READINGS = Stream(
    name="readings",
    source=Files("landing/readings", partition=r"/(p[0-9])-[^/]*$"),
    format=Json("id string not null, timestamp bigint not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("2 seconds"),
)
# File by file: source partition, its rows. The comment is the least of the partitions' greatest times afterwards.
_MORNING = (
    ("p0", "a@1, b@4, a@12"),  # 12
    ("p0", "a@2, b@21, b@9.999"),  # 21: only p0 is known; a@2 and b@9.999 came 2 s after their window's end
    ("p1", "a@15, b@17"),  # 17: p1 is known, and never moves the watermark back
    ("p0", "a@30, b@19"),  # 17
)
# The end of input at 40 closes every window up to it, whatever the delay.
_EVENING = (
    ("p1", "a@33, c@39.999, b@41"),  # 30
    ("p1", "a@25, c@46"),  # 30
)


def pipeline_with(delay: str) -> Pipeline:
    stream = replace(_READINGS, clock=BoundedOutOfOrderness(delay))
    by_id = Windowed("by_id", stream, Tumbling("10 seconds"), {"readings": agg.count()}, by=("id",))
    in_all = Windowed("in_all", stream, Tumbling("4 seconds"), {"readings": agg.count()}, where="id <> 'c'")
    sessions = Windowed("sessions", stream, SessionWindow("3 seconds"), {"readings": agg.count()}, by=("id",))
    return Pipeline(stream, (by_id, in_all, sessions))


def had(spark: SparkSession, lake: Lake, delay: str) -> tuple[Pipeline, dict[str, int]]:
    """The pipeline after the whole feed, and the late pairs that each of its views really has."""
    pipeline, numbers = pipeline_with(delay), itertools.count()
    for files, end_of_input in ((_MORNING, True), (_EVENING, False)):
        for partition, rows in files:
            land(pipeline.stream.source.location(lake), readings(rows), name=f"{partition}-{next(numbers)}.json")
        drain(spark, lake, pipeline, end_of_input=end_of_input, now=lambda: NOW)
    log = read_log(spark, lake, pipeline.stream)
    return pipeline, {view.name: late_pairs(log, view).count() for view in pipeline.views}


@pytest.mark.long
def test_a_delay_has_the_late_pairs_that_were_foretold(spark: SparkSession, lake: Lake) -> None:
    pipeline, really = had(spark, lake, "2 seconds")
    profiles = {view.name: profile(spark, lake, view, delays=["12 seconds"]) for view in pipeline.views}
    assert late_with(profiles, "2 seconds") == really

    other = Lake(f"{lake.root}-other")
    _, foretold = had(spark, other, "12 seconds")
    assert late_with(profiles, "12 seconds") == foretold
    assert foretold != really and all(foretold.values())

    by_id = profiles["by_id"]
    # a@2 and b@9.999 came at 12, a@15, b@17 and b@19 at 21; a@33, c@39.999 and a@25 after the end of input at 40.
    needs = {timedelta(): 7, timedelta(milliseconds=1001): 3, timedelta(milliseconds=2001): 2}
    millis = [timedelta(milliseconds=value) for value in by_id.needed.millis.tolist()]
    assert (dict(zip(millis, by_id.needed.pairs.tolist(), strict=True)), by_id.needed.never) == (needs, 3)
    assert {spread.of: (spread.pairs, spread.p50, spread.greatest) for spread in by_id.by_key} == {
        ("a",): (7, timedelta(milliseconds=1001), None),
        ("b",): (6, timedelta(), timedelta(milliseconds=2001)),
        ("c",): (2, timedelta(), None),
    }
    assert {spread.of: spread.pairs for spread in by_id.by_partition} == {("p0",): 8, ("p1",): 7}
    assert by_id.recommended is None, "99 % are out of reach after an early end of input"
    assert profile(spark, lake, pipeline.views[0], complete=0.8).recommended == "5 seconds"

    with pytest.raises(StreamingError, match="'soon' is not an interval"):
        profile(spark, lake, pipeline.views[0], delays=["soon"])


def late_with(profiles: dict[str, Profile], delay: str) -> dict[str, int]:
    seconds = timedelta(seconds=int(delay.split()[0]))
    return {name: one.late for name, view_profile in profiles.items() for one in with_delay(view_profile, seconds)}


def with_delay(view_profile: Profile, delay: timedelta) -> Iterable:
    return [outcome for outcome in view_profile.outcomes if outcome.delay == delay]
