"""Unusual hours: weeks of an hour's rows, of which the last are judged by those before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from math import inf, nan, pi, sqrt
from pathlib import Path
from shutil import copytree, rmtree
from threading import Event

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from benchmarks.unusual import END, drawn, recall_by_fault, scenarios, score
from streaming import Lake, Pipeline, Selected, SessionWindow, Sliding, Tumbling, Windowed, agg
from streaming.base import DeclarationError
from streaming.base.errors import WrongType
from streaming.declare import HourlySum, Usual
from streaming.declare.limits import Limits
from streaming.declare.usual import check_usual
from streaming.service.alerts import evaluate
from streaming.service.observer import Observer
from streaming.service.overview import Overview
from streaming.service.progress import Measure
from streaming.service.progress_table import ProgressTable
from streaming.service.reporter import Reporter
from streaming.service.run import Run
from streaming.service.status import ProcessStatus, UnusualHour
from streaming.service.usual import HOUR, WEEK, UnusualHours, _parts, _Stored, judge_hours
from streaming.service.watch import Watch
from streaming.tables import delta
from streaming.windows import LocalDays, Window
from tests.support.labelled_hours import MEAN, NULLS, by_hour, orders, shop, write
from tests.support.pipelines.beats import pipeline

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def weeks_of(values: list[float], hour: int = 9) -> dict[datetime, float]:
    """One hour of the week, on as many Mondays; the last of them is that of MONDAY."""
    first = MONDAY + hour * HOUR - (len(values) - 1) * WEEK
    return {first + number * WEEK: value for number, value in enumerate(values)}


def told(hours: dict[datetime, float], rule: Usual = Usual(), hour: int = 10) -> list[datetime]:  # noqa: B008
    return [each.at for each in judge_hours(hours, rule, MONDAY + hour * HOUR).unusual]


def test_an_hour_is_compared_with_the_same_hour_of_the_weeks_before() -> None:
    usual = [100.0, 104, 96, 102, 98]
    assert told(weeks_of([*usual, 101])) == []
    assert told(weeks_of([*usual, 300])) == [MONDAY + 9 * HOUR]
    assert told(weeks_of([*usual, 5])) == [MONDAY + 9 * HOUR]


def test_an_hour_is_judged_once_it_is_over_and_only_with_enough_weeks() -> None:
    hours = weeks_of([100.0, 104, 96, 102, 300])
    assert told(hours, hour=9) == []
    assert told(hours, hour=10) == [MONDAY + 9 * HOUR]
    short = weeks_of([100.0, 104, 96, 300])
    assert judge_hours(short, Usual(), MONDAY + 10 * HOUR).judged == 0
    assert told(short, Usual(minimum=3)) == [MONDAY + 9 * HOUR]


def test_an_hour_without_rows_is_one_with_none_where_rows_are_counted_and_no_hour_where_they_are_not() -> None:
    hours = weeks_of([100.0, 104, 96, 102, 98, 0])
    del hours[MONDAY + 9 * HOUR]
    assert told(hours) == []
    counted = judge_hours(hours, Usual(), MONDAY + 10 * HOUR, empty=0.0, counts=True)
    assert [each.at for each in counted.unusual] == [MONDAY + 9 * HOUR]


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_an_hour_without_a_finite_value_is_unusual_and_nothing_is_learnt_of_it(value: float) -> None:
    usual = [100.0, 104, 96, 102, 98]
    as_of = MONDAY + 10 * HOUR
    (hour,) = judge_hours(weeks_of([*usual, value]), Usual(), as_of).unusual
    assert (hour.at, hour.value) == (MONDAY + 9 * HOUR, None)
    assert str(hour).startswith("2026-03-02 09:00: no finite number, usually 100 (")
    status = ProcessStatus(pid=1, started=MONDAY, at=as_of, passed=as_of, unusual=(hour,))
    assert ProcessStatus.model_validate_json(status.model_dump_json()) == status
    assert judge_hours(weeks_of([104.0, 96, 102, value]), Usual(), as_of).judged == 0, "too few weeks to judge by"
    with_a_gap = judge_hours(weeks_of([100.0, 104, value, 96, 102, 98, 300]), Usual(), as_of)
    assert with_a_gap == judge_hours(weeks_of([100.0, 104, 96, 102, 98, 300]), Usual(), as_of)
    assert judge_hours(weeks_of([value, *usual[:3], 300]), Usual(), as_of).judged == 0


def test_of_a_holiday_nothing_is_told_and_nothing_learnt() -> None:
    hours = weeks_of([100.0, 104, 3, 102, 98, 2])
    assert told(hours, Usual(holidays=(MONDAY.date(),))) == []
    before = MONDAY - 3 * WEEK
    assert judge_hours(hours, Usual(minimum=5), MONDAY + 10 * HOUR).judged == 1
    assert judge_hours(hours, Usual(minimum=5, holidays=(before.date(),)), MONDAY + 10 * HOUR).judged == 0


def test_a_difference_below_the_least_is_none_and_few_rows_vary_as_counts_do() -> None:
    flat = weeks_of([0.01] * 5 + [0.019])
    assert told(flat, Usual(least=0.02)) == []
    assert told(flat) == [MONDAY + 9 * HOUR]
    few = weeks_of([4.0] * 5 + [9])
    assert judge_hours(few, Usual(), MONDAY + 10 * HOUR, empty=0.0, counts=True).unusual == ()


def test_the_bounds_are_those_that_numpy_computes_of_the_same_weeks() -> None:
    """Of all hours of a drawn week, each day as of its end, also what is added after that instant."""
    series, rule, weeks = drawn(7), Usual(weeks=7), range(1, 8)
    for day in range(7):
        as_of = END - timedelta(days=6 - day)
        begin = as_of - timedelta(days=1)
        # Of each hour of a week, beginning with those that are judged, the values of the seven weeks before.
        every = np.array(
            [[series.rows[begin + (h - 168 * (h >= 24)) * HOUR - w * WEEK] for w in weeks] for h in range(168)]
        )
        back = every[:24]
        center, centers = np.median(back, axis=1), np.median(every, axis=1, keepdims=True)
        common = np.median(np.abs(every - centers) / centers)
        mad = np.median(np.abs(back - center[:, None]), axis=1)
        spread = sqrt((7 + pi / 2) / 6) * 1.4826 * np.maximum(mad, common * center)
        reach = 3.5 * np.maximum(spread, np.sqrt(center))
        values = np.array([series.rows[begin + h * HOUR] for h in range(24)])
        expected = {begin + int(h) * HOUR for h in np.flatnonzero(np.abs(values - center) > reach)}
        found = judge_hours(series.rows, rule, as_of + 59 * timedelta(minutes=1), empty=0.0, counts=True)
        assert {each.at for each in found.unusual} == expected and found.judged == 24


def test_what_comes_later_changes_no_judgement_of_an_earlier_instant() -> None:
    series, as_of = drawn(3), END - timedelta(days=3)
    before = {at: value for at, value in series.rows.items() if at < as_of}
    assert judge_hours(before, Usual(), as_of) == judge_hours(series.rows, Usual(), as_of)


def test_faults_are_told_and_little_else() -> None:
    """The floors of the page, on seeds that it has not drawn."""
    scores = dict(scenarios(range(1000, 1003)))
    plain = scores["2,000 rows an hour"]
    assert plain.precision >= 0.8 and plain.recall >= 0.95
    assert scores["100 rows an hour"].recall >= 0.85
    assert scores["a holiday among the weeks before"].precision >= 0.8
    declared, not_declared = (scores[f"a holiday in the week that is judged, {how}declared"] for how in ("", "not "))
    assert declared.precision >= 0.75 > not_declared.precision


@pytest.mark.long
def test_no_kind_of_fault_is_overlooked() -> None:
    assert min(recall_by_fault(range(2000, 2030), Usual()).values()) >= 0.9
    assert score(drawn(0), Usual()).recall >= 0.9


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"minimum": 9}, "minimum=9 of weeks=8"),
        ({"minimum": 1}, "minimum=1"),
        ({"factor": 0}, "factor=0"),
        ({"least": -1}, "least=-1"),
        ({"last": "1 minute"}, "shorter than the hour"),
    ],
)
def test_a_rule_that_can_tell_nothing_is_refused(rule: dict[str, object], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        Usual(**rule)  # type: ignore[arg-type]


def seen(hours: UnusualHours, now: datetime, watermarks: Mapping[str, datetime | None]) -> tuple[UnusualHour, ...]:
    """The hours that are unusual after one look."""
    hours.look(now, watermarks)
    return hours.unusual


def state_of(of: Pipeline, unusual: tuple[UnusualHour, ...], at: datetime) -> tuple[bool, str]:
    """The alert, as it is raised of what the process tells."""
    process = ProcessStatus(pid=1, started=at, at=at, passed=at, unusual=unusual)
    overview = Overview(of, "running", at, "", None, 0, (), process)
    (alert,) = (each for each in evaluate(overview, of.limits, at) if each.name == "stream_is_usual")
    return alert.passed, alert.text


def test_a_running_stream_is_told_once_its_last_hour_is_over_by_its_own_progress(tmp_path: Path) -> None:
    """Four weeks of batches, two in each hour from 8 to 10 on Mondays; on the last of them few rows come at 9."""
    lake, limits = Lake(str(tmp_path)), Limits(usual={"beats": (Usual(weeks=4, minimum=3),)})
    asked = replace(pipeline, limits=limits)
    measures = []
    for week, hour, half in product(range(5), (8, 9, 10), (5, 35)):
        ended = MONDAY - week * WEEK + hour * HOUR + timedelta(minutes=half)
        rows = 3 if (week, hour) == (0, 9) else 100 + week
        measures.append(Measure("log", week, ended, ended, rows, number=week, rejected=0))
        # What views write is counted elsewhere.
        measures.append(Measure("by_id", week, ended, ended, 5_000 * week))
    with ProgressTable(lake, pipeline) as table:
        table.add(measures)

    def told(at: datetime, of: Pipeline = asked) -> tuple[bool, str]:
        return state_of(of, seen(UnusualHours(lake, of), at, {}), at)

    nine, ten = MONDAY + 9 * HOUR, MONDAY + 10 * HOUR
    assert told(nine + timedelta(minutes=5)) == (True, "nothing unusual was seen")
    passed, text = told(ten + timedelta(minutes=5))
    assert not passed and text.startswith("count(*) of 'beats' at 2026-03-02 09:00: 6, usually 205 (")
    assert told(ten + HOUR + timedelta(minutes=5)) == (True, "nothing unusual was seen")
    assert told(ten + timedelta(minutes=5), pipeline) == (True, "nothing unusual was seen")


def alerts_of(lake: Lake, ends: Iterable[datetime], of: Pipeline = shop) -> dict[str, set[datetime]]:
    """The hours told of the stream and of the view, while a stream runs through the hours with these ends."""
    hours = UnusualHours(lake, of)
    told: dict[str, set[datetime]] = {"orders": set(), "by_hour": set()}
    for end in ends:
        for each in seen(hours, end + timedelta(minutes=2), {"orders": end, "by_hour": end}):
            told[each.of].add(each.at)
    return told


def test_alerts_tell_nulls_and_means_of_the_labelled_days_and_little_else(tmp_path: Path) -> None:
    """Of the labelled set the two days with nulls and with other means: every such hour is told, and one besides."""
    lake, series = Lake(str(tmp_path)), drawn(4)
    write(lake, series, END)
    faults = {at for at, fault in series.faults.items() if fault in ("nulls", "mean")}
    days = sorted({at.replace(hour=0) for at in faults})
    asked = replace(shop, limits=Limits(usual={"orders": (MEAN, NULLS)}))
    told = alerts_of(lake, [day + number * HOUR for day in days for number in range(1, 25)], asked)["orders"]
    assert len(days) == 2 and faults <= told and len(told - faults) <= 1


@pytest.mark.long
def test_alerts_tell_the_faults_of_the_labelled_weeks_and_little_else(tmp_path: Path) -> None:
    """The floors of the page, hour by hour: its rows, a mean and a share of nulls are asked of a running stream."""
    right, wrong, missed = 0, 0, 0
    for seed in (1000, 1001, 1002):
        lake, series = Lake(str(tmp_path / str(seed))), drawn(seed)
        write(lake, series, END)
        told = alerts_of(lake, [END - 7 * 24 * HOUR + number * HOUR for number in range(1, 169)])
        faults, volume = {*series.faults}, {at for at, fault in series.faults.items() if fault in ("drop", "spike")}
        right, wrong = right + len(told["orders"] & faults), wrong + len(told["orders"] - faults)
        missed += len(faults - told["orders"])
        assert len(told["by_hour"] & volume) >= 0.9 * len(volume)
    assert right / (right + wrong) >= 0.8 and right / (right + missed) >= 0.95


def test_the_hours_of_a_log_are_those_that_its_rows_were_written_of(tmp_path: Path) -> None:
    """Each hour with a fault is judged as plain Python judges the numbers of all hours; rejected rows are in none."""
    lake, series = Lake(str(tmp_path)), drawn(5, level=40.0)
    write(lake, series, END)
    rows = {at: count for at, count in series.rows.items() if count}
    nulls = {at: round(series.null_share[at] * count) / count for at, count in rows.items()}
    for over in [at + HOUR for at in series.faults]:
        told = seen(UnusualHours(lake, shop), over, {"orders": over})
        for rule, hours in ((MEAN, series.mean), (NULLS, nulls)):
            expected = judge_hours(hours, replace(rule, last="1 hour"), over).unusual
            asked = [each for each in told if each.aggregate == rule.value]
            assert [each.at for each in asked] == [each.at for each in expected]
            assert [each.value for each in asked] == pytest.approx([each.value for each in expected])


def test_hours_that_were_read_once_are_not_read_again(tmp_path: Path) -> None:
    """09:00 is judged at 10:00. Then the files of all days before go, and 10:00 is judged by them at 11:00."""
    lake, series, ten = Lake(str(tmp_path)), drawn(5, level=40.0), END - 14 * HOUR
    series.mean[ten] = 500.0
    write(lake, series, END)
    hours = UnusualHours(lake, shop)
    assert "avg(amount)" not in {each.aggregate for each in seen(hours, ten, {"orders": ten})}
    for folder in Path(lake.log(orders)).glob("_day=*"):
        if folder.name != f"_day={ten:%Y-%m-%d}":
            rmtree(folder)
    (told,) = (each for each in seen(hours, ten + HOUR, {"orders": ten + HOUR}) if each.aggregate == "avg(amount)")
    assert told.at == ten and told.value == pytest.approx(500.0)
    with pytest.raises(FileNotFoundError):
        seen(UnusualHours(lake, shop), ten + HOUR, {"orders": ten + HOUR})


def test_an_hour_of_a_view_is_judged_when_its_windows_are_closed_and_nothing_before(tmp_path: Path) -> None:
    lake, series = Lake(str(tmp_path)), drawn(5, level=40.0)
    ten = END - 14 * HOUR
    series.rows[ten] = 4_000.0
    write(lake, series, END)
    hours = UnusualHours(lake, shop)
    assert [each.of for each in seen(hours, ten, {"by_hour": ten + 59 * HOUR / 60})] == []
    (told,) = (each for each in seen(hours, ten, {"by_hour": ten + HOUR}) if each.of == "by_hour")
    assert (told.at, told.aggregate, told.value) == (ten, "sum(orders)", 4_000.0)
    assert str(told).startswith(f"sum(orders) of 'by_hour' at {ten:%Y-%m-%d %H:%M}: 4,000, usually ")


def test_a_mean_that_is_no_number_is_told_of_a_running_stream(tmp_path: Path) -> None:
    lake, series, ten = Lake(str(tmp_path)), drawn(5, level=40.0), END - 14 * HOUR
    series.mean[ten] = nan
    write(lake, series, END)
    told = seen(UnusualHours(lake, shop), ten + HOUR, {"orders": ten + HOUR})
    assert [(each.at, each.value) for each in told if each.aggregate == "avg(amount)"] == [(ten, None)]


@pytest.mark.parametrize(
    ("window", "watermark", "over"),
    [
        (Tumbling("1 hour"), "02T10:20", "02T10"),
        (Tumbling("1 hour"), "02T10:00", "02T10"),
        (Tumbling("10 minutes"), "02T10:05", "02T10"),
        (Tumbling("1 hour", offset="30 minutes"), "02T10:20", "02T09"),
        (Sliding("2 hours", "1 hour"), "02T10:20", "02T09"),
        # A local day has no more than 48 hours, and nobody says where it begins.
        (LocalDays("UTC"), "04T10:20", "02T10"),
    ],
)
def test_an_hour_of_a_view_is_over_once_no_window_that_is_open_begins_in_it(
    window: Window, watermark: str, over: str
) -> None:
    view = replace(by_hour, window=window)
    at, hour = (datetime.fromisoformat(f"2026-03-{each}+00:00") for each in (watermark, over))
    assert _Stored(Lake("nowhere"), view, (MEAN,)).over(at, {"by_hour": at}) == hour


def test_hours_that_end_at_once_are_each_judged_but_for_holidays_and_those_before_the_last(tmp_path: Path) -> None:
    """Rows have a mean of 500 at 10:00. At 10:00 the watermark is looked at, then it jumps to 14:00."""
    lake, series, ten = Lake(str(tmp_path)), drawn(5, level=40.0), END - 14 * HOUR
    series.mean[ten] = 500.0
    write(lake, series, END)

    def told(rule: Usual) -> list[datetime]:
        hours = UnusualHours(lake, replace(shop, limits=Limits(usual={"orders": (rule,)})))
        assert ten not in {each.at for each in seen(hours, ten, {"orders": ten})}
        return [each.at for each in seen(hours, ten + 4 * HOUR, {"orders": ten + 4 * HOUR}) if each.at == ten]

    assert told(MEAN) == [ten]
    assert told(replace(MEAN, last="4 hours")) == [ten]
    assert told(replace(MEAN, last="3 hours")) == []
    assert told(replace(MEAN, holidays=(ten.date(),))) == []


def test_files_that_were_read_before_one_that_failed_are_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's files come one by one; one of them is away at the first look, and back at the second."""
    monkeypatch.setattr("streaming.service.usual._BYTES_AT_ONCE", 1)
    lake, series, ten = Lake(str(tmp_path)), drawn(5, level=40.0), END - 14 * HOUR
    write(lake, series, END)
    rule = Usual("sum(amount)")
    stored = _Stored(lake, orders, (rule,))
    asked = rule.hourly_sum
    assert asked is not None
    away = Path(lake.log(orders)) / f"_day={ten - WEEK:%Y-%m-%d}"
    away.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            stored.read(ten - 8 * WEEK, ten)
    assert stored.values(asked) == {}
    (tmp_path / "away").rename(away)
    stored.read(ten - 8 * WEEK, ten)
    whole = _Stored(lake, orders, (rule,))
    whole.read(ten - 8 * WEEK, ten)
    assert stored.values(asked) == whole.values(asked)
    rows = {at: series.rows[at] * series.mean[at] for at in stored.values(asked)}
    assert len(rows) > 1_000 and stored.values(asked) == pytest.approx(rows)


def test_a_table_that_was_built_anew_is_read_anew_though_its_watermark_did_not_go_back(tmp_path: Path) -> None:
    """At 10:00 the view has a level of 40, and at 11:00 of 80, of all weeks."""
    lake, ten = Lake(str(tmp_path)), END - 14 * HOUR
    for name, level in (("old", 40.0), ("new", 80.0)):
        write(Lake(str(tmp_path / name)), drawn(5, level=level), END)
    rule = Usual("sum(orders)")
    asked = rule.hourly_sum
    assert asked is not None
    stored, place = _Stored(lake, by_hour, (rule,)), Path(lake.table(by_hour))
    copytree(Lake(str(tmp_path / "old")).table(by_hour), place)
    stored.read(ten - 8 * WEEK, ten)
    rmtree(place)
    copytree(Lake(str(tmp_path / "new")).table(by_hour), place)
    stored.read(ten - 8 * WEEK + HOUR, ten + HOUR)
    new = drawn(5, level=80.0).rows
    assert stored.values(asked) == {at: new[at] for at in stored.values(asked)}
    # A switch puts the next generation into the same table.
    schema = delta.open_table(str(place)).schema()  # type: ignore[union-attr]
    nothing = pa.schema(schema.to_arrow()).empty_table()
    commit = CommitProperties(app_transactions=[Transaction("generation", 1)])
    write_deltalake(str(place), nothing, mode="overwrite", commit_properties=commit)
    stored.read(ten - 8 * WEEK + 2 * HOUR, ten + 2 * HOUR)
    assert stored.values(asked) == {}


def test_a_column_that_the_table_does_not_have_yet_is_null(tmp_path: Path) -> None:
    lake, ten = Lake(str(tmp_path)), END - 14 * HOUR
    write(lake, drawn(5, level=40.0), END)
    shares = Usual("count_if(newly is null) / count(*)")
    stored = _Stored(lake, orders, (shares, Usual("avg(newly)")))
    stored.read(ten - WEEK, ten)
    share, mean = (HourlySum(kind, "newly") for kind in ("null_share", "mean"))
    assert {*stored.values(share).values()} == {1.0} and stored.values(mean) == {}


def test_a_table_that_cannot_be_read_keeps_nothing_else_from_being_told(tmp_path: Path) -> None:
    """The files of the table of progress are away: the hours of the log are judged, and memory is told."""
    lake, series, ten = Lake(str(tmp_path)), drawn(5, level=40.0), END - 14 * HOUR
    series.mean[ten] = 500.0
    write(lake, series, END)
    for folder in Path(lake.progress(shop)).glob("_day=*"):
        rmtree(folder)
    hours = UnusualHours(lake, shop)
    with pytest.raises(FileNotFoundError):
        hours.look(ten + 2 * HOUR, {"orders": ten + HOUR})
    assert [(each.at, each.of) for each in hours.unusual if each.aggregate == "avg(amount)"] == [(ten, "orders")]

    told: list[ProcessStatus] = []
    counted = Event()

    def note(status: ProcessStatus) -> None:
        told.append(status)
        if status.memory_bytes is not None:
            counted.set()

    of = replace(shop, operators=(Selected("large", orders),), limits=Limits(usual={"orders": (Usual(),)}))
    run = Run(None, lake, of, Observer(lambda: END))  # type: ignore[arg-type]
    reporter = Reporter(run, Watch(lambda: END), lambda: END, lambda measures: None, note)
    reporter.begin()
    assert counted.wait(20)
    reporter.end()
    assert told[-1].catch_up_seconds == 0.0


def test_files_are_read_so_few_at_once_that_they_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.service.usual._BYTES_AT_ONCE", 10)
    sizes = [4, 6, 1, 20, 3, 3, 3, 3]
    parts = [part.column("size_bytes").to_pylist() for part in _parts(pa.table({"size_bytes": sizes}))]
    assert parts == [[4, 6], [1], [20], [3, 3, 3], [3]]
    assert [*_parts(pa.table({"size_bytes": pa.array([], pa.int64())}))] == []


def test_a_rule_in_short_is_of_the_gate_alone() -> None:
    with pytest.raises(WrongType, match=re.escape("such as Usual('avg(amount)')")):
        Limits(usual={"orders": ("avg(amount)",)})  # type: ignore[dict-item]


def test_a_stretch_of_time_is_no_number_though_its_type_begins_as_one() -> None:
    types = {"wait": "interval day to second", "share": "decimal(9,2)", "n": "int", "of_any_type": None}
    with pytest.raises(DeclarationError, match="'wait' is no number") as refused:
        check_usual("shop", {"orders": (Usual("avg(wait)"),)}, {"orders": types})
    assert refused.value.choices == ("share", "n", "of_any_type")


def test_limits_are_of_streams_and_of_views_whose_windows_have_a_length_alone() -> None:
    large = Selected("large", orders, where="amount > 100")
    sessions = Windowed("sessions", orders, SessionWindow("5 minutes"), {"n": agg.count()}, by=("email",))
    for name in ("large", "sessions"):
        with pytest.raises(DeclarationError, match=f"'{name}', which is no stream of it and no view whose windows"):
            replace(shop, operators=(by_hour, large, sessions), limits=Limits(usual={name: (Usual(),)}))


@pytest.mark.parametrize(
    ("usual", "says", "choices"),
    [
        ({"payments": (MEAN,)}, "'payments', which is no stream of it", ("orders", "by_hour")),
        ({"orders": (Usual("max(amount)"),)}, "max(amount)' of 'orders' cannot be told while a stream runs", ()),
        ({"orders": (Usual("avg(email)"),)}, "'email' is no number", ("amount",)),
        ({"by_hour": (Usual("sum(amount)"),)}, "'amount' is no column of it", ("orders", "takings")),
        ({"orders": (Usual("count_if(mail is null)/count(*)"),)}, "'mail' is no column", ("at", "amount", "email")),
    ],
)
def test_limits_of_what_nobody_can_tell_are_refused(
    usual: dict[str, tuple[Usual, ...]], says: str, choices: tuple[str, ...]
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(says)) as refused:
        replace(shop, limits=Limits(usual=usual))
    assert {*choices} <= {*(refused.value.choices or ())} and (refused.value.field, bool(choices)) == (
        "usual",
        bool(refused.value.choices),
    )
