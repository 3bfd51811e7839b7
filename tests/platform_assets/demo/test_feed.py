from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_assets.demo.feeds import LandingWriter, airlines, feed_flights
from platform_assets.demo.feeds.flights import FUTURE_YEAR, IMPOSSIBLE_DELAY_MINUTES, Damage, damage_of, damaged_line
from streaming.base.errors import FeedError

JAN_1, JAN_2, JAN_3 = date(2013, 1, 1), date(2013, 1, 2), date(2013, 1, 3)
FIELDS = {
    "flight", "carrier", "origin", "dest", "tailnum", "sched_dep",
    "dep_delay", "arr_delay", "air_time", "distance", "cancelled",
}  # fmt: skip


def landed(folder: Path) -> dict[str, list[str]]:
    """The lines of every visible file, in the order in which Spark would read the files."""
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns // 1_000_000)
    return {path.name: path.read_text().removesuffix("\n").split("\n") for path in files}


def all_lines(folder: Path) -> list[str]:
    return [line for lines in landed(folder).values() for line in lines]


def events(lines: Sequence[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def scheduled(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(event["sched_dep"])


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first two days, undamaged."""
    folder = tmp_path_factory.mktemp("clean")
    feed_flights(folder, JAN_1, 2, dirty=0)
    return folder


def test_the_first_flight_is_told_as_the_data_has_it(clean: Path) -> None:
    first = events(landed(clean)["2013-01-01T10.json"])
    assert {
        "flight": 1545, "carrier": "UA", "origin": "EWR", "dest": "IAH", "tailnum": "N14228",
        "sched_dep": "2013-01-01T10:15:00Z", "dep_delay": 2.0, "arr_delay": 11.0, "air_time": 227.0,
        "distance": 1400.0, "cancelled": False,
    } in first  # fmt: skip


def test_every_line_has_every_field_and_is_strict_json(clean: Path) -> None:
    # NaN is not JSON, though Python writes and reads it.
    assert not any("NaN" in line for line in all_lines(clean))
    assert all(event.keys() == FIELDS for event in events(all_lines(clean)))


def test_days_are_chosen_by_the_scheduled_departure_in_utc(clean: Path) -> None:
    assert {scheduled(event).date() for event in events(all_lines(clean))} == {JAN_1, JAN_2}


def test_a_cancelled_flight_has_no_delay_and_is_told_when_it_should_have_left(clean: Path) -> None:
    cancelled = [
        (name, event) for name, lines in landed(clean).items() for event in events(lines) if event["cancelled"]
    ]
    assert len(cancelled) > 0
    for name, event in cancelled:
        assert event["dep_delay"] is None
        assert name == f"{scheduled(event):%Y-%m-%dT%H}.json"


def test_lines_are_in_the_order_in_which_the_flights_left_one_file_an_hour(clean: Path) -> None:
    sent = [
        (name, scheduled(event) + timedelta(minutes=event["dep_delay"] or 0))
        for name, lines in landed(clean).items()
        for event in events(lines)
    ]
    assert [time for _, time in sent] == sorted(time for _, time in sent)
    assert all(name == f"{time:%Y-%m-%dT%H}.json" for name, time in sent)


def test_nothing_hidden_is_left_behind_and_reading_order_is_sending_order(clean: Path) -> None:
    names = list(landed(clean))
    assert names == sorted(names)
    assert not any(name.startswith((".", "_")) for name in names)


def test_the_same_feed_again_changes_nothing_and_says_so(tmp_path: Path) -> None:
    first = feed_flights(tmp_path, JAN_1, 1)
    before = landed(tmp_path)
    again = feed_flights(tmp_path, JAN_1, 1)
    assert landed(tmp_path) == before
    assert (first.files_written, first.files_left_alone) == (len(before), 0)
    assert (again.files_written, again.files_left_alone, again.lines_written) == (0, len(before), 0)
    assert (again.flights, again.damaged) == (first.flights, first.damaged)


def test_overlapping_feeds_deliver_every_line_once(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    feed_flights(whole, JAN_1, 3, dirty=0.05)
    for first_day, days in ((JAN_1, 1), (JAN_1, 2), (JAN_3, 1)):
        feed_flights(parts, first_day, days, dirty=0.05)
    assert Counter(all_lines(parts)) == Counter(all_lines(whole))


def test_an_earlier_day_fed_later_is_read_later(tmp_path: Path) -> None:
    # Spark ignores a file whose time is a week older than the newest it has seen.
    feed_flights(tmp_path, JAN_3, 1)
    before = list(landed(tmp_path))
    feed_flights(tmp_path, JAN_1, 1)
    assert list(landed(tmp_path))[: len(before)] == before


def test_damage_is_counted_by_kind_and_is_the_only_difference(clean: Path, tmp_path: Path) -> None:
    report = feed_flights(tmp_path, JAN_1, 2, dirty=0.1)
    kept = Counter(all_lines(tmp_path)) & Counter(all_lines(clean))
    damaged = list((Counter(all_lines(tmp_path)) - kept).elements())
    assert set(report.damaged) == set(Damage)
    assert sum(report.damaged.values()) == len(damaged)
    assert len(damaged) / report.flights == pytest.approx(0.1, abs=0.03)
    assert report.flights == kept.total() + len(damaged) == len(all_lines(clean))


def test_the_report_says_what_was_damaged_on_purpose(tmp_path: Path) -> None:
    report = feed_flights(tmp_path, JAN_1, 1, dirty=1)
    assert report.flights == sum(report.damaged.values())
    assert f"damaged on purpose: {report.flights} lines, 100.00%" in str(report)
    for kind in Damage:
        assert f"{report.damaged[kind]} {kind}" in str(report)


@pytest.mark.parametrize("kind", list(Damage))
def test_each_damage_breaks_what_its_name_says(kind: Damage) -> None:
    event = {"flight": 1, "sched_dep": "2013-01-01T10:15:00Z", "dep_delay": None, "cancelled": True}
    line = damaged_line(event, kind)
    if kind is Damage.CUT_SHORT:
        assert json.dumps(event).startswith(line)
        with pytest.raises(json.JSONDecodeError):
            json.loads(line)
        return
    changed = {name: value for name, value in json.loads(line).items() if value != event[name]}
    broken = {
        Damage.WRONG_TYPE: {"dep_delay": "unknown"},
        Damage.IMPOSSIBLE_DELAY: {"dep_delay": IMPOSSIBLE_DELAY_MINUTES},
        Damage.TIME_IN_THE_FUTURE: {"sched_dep": f"{FUTURE_YEAR}-01-01T10:15:00Z"},
    }
    assert changed == broken[kind]


@given(key=st.text(), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_greater_share_damages_the_same_events_alike_and_more(key: str, shares: tuple[float, float]) -> None:
    smaller, greater = sorted(shares)
    assert damage_of(key, smaller) in (None, damage_of(key, greater))
    assert damage_of(key, 0) is None
    assert damage_of(key, 1) is not None


def test_progress_counts_the_files(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    feed_flights(tmp_path, JAN_1, 1, progress=lambda done, total: calls.append((done, total)))
    files = len(landed(tmp_path))
    assert calls == [(done, files) for done in range(1, files + 1)]


def test_all_of_the_year_can_be_asked_for_and_its_ends_are_named(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match=r"2014-05-01.*between 2013-01-01 and 2014-01-01"):
        feed_flights(tmp_path, date(2014, 5, 1), 7)
    assert feed_flights(tmp_path, date(2014, 1, 1), 7, dirty=0).flights > 0


@pytest.mark.parametrize(
    ("days", "dirty", "quoted"),
    [(0, 0.005, "days is 0"), (1, 1.5, "dirty is 1.5"), (1, -0.1, "dirty is -0.1")],
)
def test_an_impossible_request_is_quoted_and_writes_nothing(
    tmp_path: Path, days: int, dirty: float, quoted: str
) -> None:
    with pytest.raises(FeedError, match=quoted):
        feed_flights(tmp_path / "landing", JAN_1, days, dirty)
    assert not (tmp_path / "landing").exists()


def test_a_landing_folder_that_cannot_be_used_is_quoted(tmp_path: Path) -> None:
    file = tmp_path / "landing"
    file.write_text("in the way")
    with pytest.raises(FeedError, match=f"'{file}'.*TIDEMARK_HOME"):
        feed_flights(file, JAN_1, 1)


def test_a_leftover_of_a_killed_feed_is_finished_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".10.json.partial").write_text('{"a": 1}\n{"b"')
    written = LandingWriter(tmp_path).deliver("10.json", ['{"a": 1}', '{"b": 2}'])
    assert written == 2
    assert landed(tmp_path) == {"10.json": ['{"a": 1}', '{"b": 2}']}


# JSON may have a line separator of Unicode within a text.
@given(st.lists(st.lists(st.sampled_from(("a", "b", "c\u2028d")), max_size=4), max_size=4))
def test_deliveries_under_one_name_add_up_to_the_most_that_each_line_was_sent(
    tmp_path_factory: pytest.TempPathFactory, deliveries: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("landing")
    for lines in deliveries:
        LandingWriter(folder).deliver("x.json", lines)
    most: Counter[str] = Counter()
    for lines in deliveries:
        most |= Counter(lines)
    assert Counter(all_lines(folder)) == most


def test_airlines_are_carriers_and_names_in_order() -> None:
    assert airlines()[:2] == [("9E", "Endeavor Air Inc."), ("AA", "American Airlines Inc.")]
    assert len(airlines()) == 16


def test_times_are_in_utc(clean: Path) -> None:
    assert all(scheduled(event).tzinfo == UTC for event in events(all_lines(clean)))
