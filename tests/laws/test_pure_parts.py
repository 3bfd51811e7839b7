"""What decides without Spark, in a thousand cases each: clock, intervals, and the oracle itself."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import BoundedOutOfOrderness
from streaming.base.errors import DeclarationError
from streaming.base.intervals import from_micros, interval, to_micros
from streaming.clocks.clock import BatchSummary, ClockState
from streaming.declare.late_policy import check_policy
from tests.laws.cases import CASES, FEEDS, feed, replayed, shows
from tests.laws.clocks import Bounded, whole_millisecond_before
from tests.laws.oracle import EPOCH, SECOND, Event, Verdict, day_of, micros
from tests.laws.readings import NOW, VIEWS
from tests.laws.strategies import generated, lines
from tests.laws.timeline import Row, Timeline, View
from tests.laws.windows import Assign, gaps, local_days, sliding, tumbling
from tests.support.examples import many

INSTANTS = st.integers(0, 4_000_000_000 * SECOND)
GREATEST = st.dictionaries(st.just(""), INSTANTS, max_size=1)
UNITS = {"millisecond": 1_000, "second": SECOND, "minute": 60 * SECOND, "hour": 3_600 * SECOND, "day": 86_400 * SECOND}
INTERVALS = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from(sorted(UNITS)), st.booleans()), min_size=1, max_size=3
)


def summary(greatest: dict[str, int], rows: int = 1) -> BatchSummary:
    return BatchSummary({partition: from_micros(at) for partition, at in greatest.items()}, rows, NOW)


@many
@given(st.lists(GREATEST, max_size=6), st.integers(0, 100 * SECOND // 1_000))
def test_the_watermark_is_the_greatest_event_time_so_far_less_the_delay(batches: list[dict[str, int]], ms: int) -> None:
    clock, state, times = BoundedOutOfOrderness(f"{ms} milliseconds"), ClockState(), list[int]()
    for greatest in batches:
        before = clock.watermark(state)
        state = clock.advance(state, summary(greatest))
        times += greatest.values()
        mark = clock.watermark(state)
        behind = whole_millisecond_before(max(times)) - ms * 1_000 if times else None
        assert (None if mark is None else micros(mark)) == behind
        assert before is None or (mark is not None and mark >= before)


@many
@given(GREATEST, INSTANTS, st.lists(GREATEST, max_size=3))
def test_an_end_of_input_moves_the_watermark_forward_for_good(
    first: dict[str, int], end: int, later: list[dict[str, int]]
) -> None:
    clock = BoundedOutOfOrderness("5 seconds")
    state = clock.advance(ClockState(), summary(first)).closed_at(from_micros(end))
    reached = [-whole_millisecond_before(-end), *(whole_millisecond_before(at) - 5 * SECOND for at in first.values())]
    for greatest in later:
        state = clock.advance(state, summary(greatest))
        reached += [whole_millisecond_before(at) - 5 * SECOND for at in greatest.values()]
    assert state.watermark == from_micros(max(reached))


@many
@given(GREATEST, st.one_of(st.none(), INSTANTS), st.integers(0, 10**9))
def test_clock_and_summary_come_back_from_the_commit_as_they_went_in(
    greatest: dict[str, int], watermark: int | None, rows: int
) -> None:
    state = ClockState(summary(greatest).greatest, None if watermark is None else from_micros(watermark))
    assert ClockState.from_json(json.loads(json.dumps(state.to_json()))) == state
    stored = summary(greatest, rows)
    assert BatchSummary.from_json(json.loads(json.dumps(stored.to_json()))) == stored


@many
@given(INTERVALS)
def test_an_interval_is_the_sum_of_its_parts(parts: list[tuple[int, str, bool]]) -> None:
    text = " ".join(f"{number} {unit}{'s' if plural else ''}" for number, unit, plural in parts)
    assert interval(text) == timedelta(microseconds=sum(number * UNITS[unit] for number, unit, _ in parts))


@many
@given(st.integers(-62_135_596_800 * SECOND, 253_402_300_799 * SECOND))
def test_microseconds_and_instants_are_the_same_thing(at: int) -> None:
    assert from_micros(at) == EPOCH + timedelta(microseconds=at)
    assert to_micros(from_micros(at)) == at


@many
@given(
    st.sampled_from(("1 minute 1 parsec", "minute", "1", "1.5 hours", "-1 day", "one day", "1 day,", "")),
    INTERVALS,
    st.booleans(),
)
def test_an_interval_with_anything_else_in_it_is_refused(
    other: str, parts: list[tuple[int, str, bool]], first: bool
) -> None:
    good = " ".join(f"{number} {unit}" for number, unit, _ in parts)
    # The bar keeps a lone number and a lone unit from becoming a good part.
    text = f"{other} | {good}" if first else f"{good} | {other}"
    with pytest.raises(DeclarationError, match="write a whole number and a unit"):
        interval(text)


@many
@given(st.lists(st.lists(INSTANTS, max_size=4), max_size=8), st.integers(0, 100 * SECOND // 1_000))
def test_the_oracles_clock_and_the_engines_agree_batch_by_batch(batches: list[list[int]], ms: int) -> None:
    engine, state = BoundedOutOfOrderness(f"{ms} milliseconds"), ClockState()
    oracle = Bounded(ms * 1_000)
    for times in batches:
        state = engine.advance(state, summary({"": max(times)} if times else {}))
        oracle.advance(times)
        assert state.watermark == (None if oracle.watermark is None else from_micros(oracle.watermark))


POLICIES = st.tuples(
    st.sampled_from(("correct", "update", "drop")),
    st.sampled_from((None, "5 seconds", "0 seconds", "soon")),
    st.sampled_from((None, "each batch", "1 minute", "often")),
)


@many
@given(POLICIES)
def test_a_late_policy_is_refused_exactly_where_it_cannot_be_followed(
    policy: tuple[str, str | None, str | None],
) -> None:
    late, lateness, early = policy
    possible = (
        (late in ("correct", "drop") and lateness is None)
        or (late == "update" and lateness in ("5 seconds", "0 seconds"))
    ) and early != "often"
    if possible:
        check_policy("by_key", late, lateness, early)
        return
    with pytest.raises(DeclarationError) as refused:
        check_policy("by_key", late, lateness, early)
    # The refusal quotes the value that is not allowed.
    assert any(repr(value) in str(refused.value) for value in (late, lateness, early))


ASSIGNERS: tuple[tuple[Assign, int], ...] = (
    (tumbling(7 * SECOND, 3 * SECOND), 7 * SECOND),
    (sliding(10 * SECOND, 4 * SECOND), 10 * SECOND),
    (sliding(3 * SECOND, 7 * SECOND, 2 * SECOND), 3 * SECOND),
)


@many
@given(st.integers(-(10**15), 10**15), st.sampled_from(ASSIGNERS))
def test_the_oracles_windows_hold_their_event_and_are_all_there_are(at: int, declared: tuple[Assign, int]) -> None:
    assign, size = declared
    windows = assign(Event("a", at, 1))
    assert all(start <= at < end and end - start == size for start, end in windows)
    # Each window holds its first and last instant, and neither the one before nor the one after.
    for start, end in windows:
        assert (start, end) in assign(Event("b", start, 1)) and (start, end) in assign(Event("b", end - 1, 1))
        assert (start, end) not in assign(Event("b", end, 1)) and (start, end) not in assign(Event("b", start - 1, 1))


@many
@given(st.integers(micros(NOW) - 10**15, micros(NOW) + 10**15))
def test_the_oracles_local_days_follow_one_another_without_a_gap(at: int) -> None:
    assign = local_days("America/New_York")
    ((start, end),) = assign(Event("a", at, 1))
    assert start <= at < end and (end - start) in {hours * 3_600 * SECOND for hours in (23, 24, 25)}
    assert assign(Event("a", end, 1))[0][0] == end


ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.one_of(st.none(), st.integers(0, 40))), max_size=12
)


@many
@given(ROWS, st.integers(1, 6))
def test_the_oracles_sessions_are_what_comes_of_joining_rows_until_none_can_be_joined(
    written: list[tuple[str, int, int | None]], gap: int
) -> None:
    view = View("sessions", gaps(lambda event: gap), lambda events: [(len(events),)], 1, merging=True)
    rows = [Row(b"", "", line, 0, stamp, Verdict(Event(key, at, 1))) for line, (key, at, stamp) in enumerate(written)]
    sets = [{row.line} for row in rows]
    joined = True
    while joined:
        joined = False
        for one in sets:
            for other in sets:
                if one is not other and any(
                    rows[i].event.key == rows[j].event.key and abs(rows[i].event.at - rows[j].event.at) <= gap
                    for i in one
                    for j in other
                ):
                    one |= other
                    sets.remove(other)
                    joined = True
                    break
            if joined:
                break
    sessions = {
        identity: {pair.row.line for pair in pairs} for identity, pairs in view.groups(view.pairs(rows)).items()
    }
    times = [[rows[line].event.at for line in lines] for lines in sets]
    assert sorted(map(sorted, sessions.values())) == sorted(map(sorted, sets))
    assert sorted(identity[1:] for identity in sessions) == sorted((min(each), max(each) + gap) for each in times)
    late = {pair.row.line for pair in view.pairs(rows) if pair.is_late}
    assert late == {line for line, (_, at, stamp) in enumerate(written) if stamp is not None and at < stamp}


@pytest.fixture(scope="module")
def expected() -> list[Timeline]:
    """What must come of each feed of the laws."""
    return [replayed(feed(number)) for number in range(FEEDS)]


def test_the_feeds_of_the_laws_have_enough_cases_of_every_view(expected: list[Timeline]) -> None:
    """Guards against laws that hold because nothing happened: a case is a key of a feed with results that count."""
    for view in VIEWS:
        cases = {
            (number, identity[0] if view.by_key else None)
            for number, line in enumerate(expected)
            for identity, _ in line.truth(view)
        }
        assert len(cases) >= (CASES if view.by_key else FEEDS), view.name


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_the_feeds_of_the_laws_have_late_pairs_that_change_something(view: View, expected: list[Timeline]) -> None:
    assert all(shows(line, view) for line in expected)
    if view.distinct is not None:
        assert any(view.copies(pairs) for line in expected for pairs in view.groups(view.pairs(line.rows)).values())


def test_the_feeds_of_the_laws_have_dirt_and_rows_in_no_window(expected: list[Timeline]) -> None:
    assert all(sum(bool(row.verdict.reasons) for row in line.rows) >= 10 for line in expected)
    without = {view.name for view in VIEWS if any(line.unassigned(view) for line in expected)}
    assert without == {"gapped", "own_gaps", "custom"}


def test_the_day_of_an_instant_is_its_utc_date() -> None:
    assert [str(day_of(at)) for at in (-1, 0)] == ["1969-12-31", "1970-01-01"]
    assert all(b"\n" not in line for line in generated(lines(), 300, "lines"))
