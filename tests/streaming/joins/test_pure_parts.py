"""What of a join needs no Spark, in a thousand cases: ranges of time, the joint clock, and which rows are due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import BoundedOutOfOrderness, Files, Joined, Json, Lake, Stream
from streaming.base.frozen_mapping import FrozenMapping
from streaming.base.intervals import FIRST_INSTANT, LAST_MILLISECOND, MICROSECOND
from streaming.clocks import joint_watermark
from streaming.declare.join_keys import JoinKind
from streaming.joins.frame import Side, due, partners_of, reach
from streaming.operators.progress import Progress
from streaming.operators.runtime import runtime_of
from streaming.tables.time_ranges import TimeRange, merged, moved, occupied, overlaps, shifted
from tests.support.examples import many
from tests.support.instants import at
from tests.support.seeds import draws

GRAINS = (0, 0, 1e-6, -1e-6, 0.5)
MICROS = st.integers(-30, 30)
RANGES = st.lists(st.tuples(MICROS, st.integers(0, 8)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1])), max_size=6)

left = Stream(
    name="left_rows",
    source=Files("landing/left_rows"),
    format=Json("n bigint, at timestamp not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds"),
)
right = replace(left, name="right_rows")


def instant(micros: int) -> datetime:
    return at(0) + micros * MICROSECOND


@cache
def within(lower: int, upper: int) -> Joined:
    """A join of both streams whose bounds are so many seconds."""
    low, high = (f"{'-' * (bound < 0)}{abs(bound)} seconds" for bound in (lower, upper))
    return Joined("j", left, right, ("n",), (low, high), "outer")


def as_ranges(numbers: Sequence[tuple[int, int]]) -> list[TimeRange]:
    return [(instant(start), instant(end)) for start, end in numbers]


@many
@given(RANGES, MICROS, MICROS, MICROS)
def test_merged_ranges_hold_the_same_instants_and_tell_what_overlaps_them(
    numbers: list[tuple[int, int]], lower: int, more: int, probe: int
) -> None:
    ranges = merged(as_ranges(numbers))
    members = {micros for start, end in numbers for micros in range(start, end + 1)}
    assert {micros for micros in range(-40, 50) if overlaps(ranges, instant(micros), instant(micros))} == members
    assert all(later[0] - earlier[1] > MICROSECOND for earlier, later in pairwise(ranges))
    end = probe + abs(more)
    assert overlaps(ranges, instant(probe), instant(end)) == any(probe <= micros <= end for micros in members)
    upper = lower + abs(more)
    wider = moved(ranges, lower * MICROSECOND, upper * MICROSECOND)
    partners = {micros + by for micros in members for by in range(lower, upper + 1)}
    assert {m for m in range(-120, 120) if overlaps(wider, instant(m), instant(m))} == partners


def test_new_rows_with_what_lies_in_the_ranges_about_them_give_each_pair_once() -> None:
    """Rows are an instant and the step that brings them; a step reads by whole seconds about its new rows."""
    for case in range(1_000):
        draw = draws("join", case)
        joined = within(lower := draw.randint(-9, 9), lower + draw.randint(1, 9))
        rows = [
            [(at(draw.randint(-20, 30) + draw.choice(GRAINS)), draw.randrange(4)) for _ in range(draw.randrange(7))]
            for _ in range(2)
        ]
        pairs: Counter[tuple[int, int]] = Counter()
        for step in range(4):
            for new, old, newest in ((0, 1, step), (1, 0, step - 1)):
                side: Side = "right" if new else "left"
                starts = (time.replace(microsecond=0) for time, came in rows[new] if came == step)
                ranges = merged((start, start + timedelta(seconds=1) - MICROSECOND) for start in starts)
                read = moved(ranges, *partners_of(joined, side))
                for one, (time, came) in enumerate(rows[new]):
                    for other, (partner, before) in enumerate(rows[old]):
                        if came == step and before <= newest and overlaps(read, partner, partner):
                            later = partner - time if side == "left" else time - partner
                            pairs[(other, one) if new else (one, other)] += joined.lower <= later <= joined.upper
        assert +pairs == Counter(
            (one, other)
            for one, (left_at, _) in enumerate(rows[0])
            for other, (right_at, _) in enumerate(rows[1])
            if joined.lower <= right_at - left_at <= joined.upper
        ), case


def test_instants_are_moved_no_further_than_python_knows_any() -> None:
    century = timedelta(days=40_000)
    assert shifted(FIRST_INSTANT + MICROSECOND, -century) == FIRST_INSTANT
    assert shifted(LAST_MILLISECOND - MICROSECOND, century) == LAST_MILLISECOND
    assert shifted(shifted(at(0), century), -century) == at(0)


@pytest.mark.parametrize("before_epoch", [False, True])
def test_occupied_ranges_hold_the_rows_of_the_asked_batches_and_leave_out_what_is_empty(
    tmp_path_factory: pytest.TempPathFactory, *, before_epoch: bool
) -> None:
    start = datetime(1969, 12, 31, 23, 59, 58, tzinfo=at(0).tzinfo) if before_epoch else at(0)
    seconds = (0.0, 0.5, 1.0, 1.999999, 100.0, 3.0)
    times = [start + timedelta(seconds=second) for second in seconds]
    folder = tmp_path_factory.mktemp("occupied")
    columns = {"at": pa.array(times, pa.timestamp("us", "UTC")), "_batch": [3, 3, 4, 4, 4, 5]}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    files = pa_fs.SubTreeFileSystem(str(folder), pa_fs.LocalFileSystem())

    def found(after: int, through: int) -> list[TimeRange]:
        return occupied(files, "rows.parquet", "at", timedelta(seconds=1), (after, through))

    def whole(first: int, last: int) -> TimeRange:
        return start + timedelta(seconds=first), start + timedelta(seconds=last) - MICROSECOND

    assert found(2, 4) == [whole(0, 2), whole(100, 101)]
    assert found(3, 5) == [whole(1, 2), whole(3, 4), whole(100, 101)]
    assert found(5, 9) == []


def test_the_joint_clock_is_the_slower_one_once_both_go() -> None:
    assert joint_watermark([at(5), None]) is None
    assert joint_watermark([]) is None
    assert joint_watermark([at(5), at(3)]) == at(3)


MARKS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=6)


@many
@given(
    rows=st.lists(st.tuples(st.integers(-20, 30), st.integers(0, 5)), max_size=12),
    advances=MARKS,
    bounds=st.tuples(st.integers(-5, 5), st.integers(1, 5)),
    first=st.booleans(),
)
def test_each_row_is_due_in_one_step_as_soon_as_both_clocks_have_passed_its_last_partner(
    rows: list[tuple[int, int]], advances: list[tuple[int, int]], bounds: tuple[int, int], first: bool
) -> None:
    joined = within(bounds[0], bounds[0] + bounds[1])
    side: Side = "left" if first else "right"
    stamps = [Progress(watermarks=marks(None, None))]
    clocks = [0, 0]
    for one, other in advances:
        clocks = [clocks[0] + one, clocks[1] + other]
        stamps.append(Progress(watermarks=marks(*clocks)))
    steps: dict[int, list[int]] = {row: [] for row in range(len(rows))}
    for step, (before, after) in enumerate(pairwise(stamps)):
        new = merged((at(second), at(second)) for second, came in rows if came == step)
        waited = due(joined, side, before, after, new)
        for row, (second, came) in enumerate(rows):
            ripe = came <= step and overlaps(waited.ripe, at(second), at(second))
            late = came == step and overlaps(waited.late, at(second), at(second))
            steps[row] += [step] * (ripe + late)
    joint = [joint_watermark(each.watermarks.values()) for each in stamps[1:]]
    for row, (second, came) in enumerate(rows):
        last = at(second) + reach(joined, side)
        passed = [step for step, mark in enumerate(joint) if step >= came and mark is not None and mark > last]
        assert steps[row] == passed[:1]


def marks(one: int | None, other: int | None) -> FrozenMapping[str, datetime | None]:
    return FrozenMapping(
        {"left_rows": None if one is None else at(one), "right_rows": None if other is None else at(other)}
    )


def test_a_row_that_still_waits_for_a_partner_finds_the_first_one_that_it_had(tmp_path: Path) -> None:
    """On the 21st at noon a left row of the 16th is told of without a partner, unless there is one from the 11th on."""
    since = {stream.name: date(2026, 1, 19) for stream in (left, right)}

    def needed(kind: JoinKind, lower: str, upper: str) -> date | None:
        joined = Joined("j", left, right, ("n",), (lower, upper), kind)
        return runtime_of(joined, Lake(str(tmp_path))).needs_since(None, left, since)

    assert needed("inner", "-5 days", "5 days") == date(2026, 1, 14)
    assert needed("left", "-5 days", "5 days") == date(2026, 1, 9)
    assert needed("outer", "0 seconds", "5 days") == needed("inner", "0 seconds", "5 days") == date(2026, 1, 14)
    assert (
        runtime_of(within(0, 1), Lake(str(tmp_path))).needs_since(None, left, {"left_rows": date(2026, 1, 1)}) is None
    )


@pytest.mark.parametrize(("kind", "seconds_before"), [("inner", 0), ("left", 7200), ("outer", 7200)])
def test_the_clock_of_a_join_waits_for_rows_that_may_yet_be_told_of_without_a_partner(
    kind: JoinKind, seconds_before: int
) -> None:
    joined = Joined("j", left, right, ("n",), ("-1 hour", "2 hours"), kind)
    assert joined.first_begin(at(10_000)) == at(10_000 - seconds_before)
    assert joined.first_begin(None) is None
