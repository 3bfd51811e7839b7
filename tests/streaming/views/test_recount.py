"""Results counted once more by DataFusion: right ones hold, each wrong one is found. Without Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming import agg
from streaming.clocks import BoundedOutOfOrderness
from streaming.declare import Stream, Windowed
from streaming.formats import Json
from streaming.operators import Finding
from streaming.sources import Files
from streaming.views.recount import Recount, Scope, Unsupported
from streaming.windows import LocalDays, SessionWindow, Sliding, Tumbling, Window
from tests.support.seeds import draws

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
END = Scope(NOON + timedelta(days=9))
INSTANT = pa.timestamp("us", "UTC")
INF, NAN = math.inf, math.nan
STREAM = Stream(
    name="counted",
    source=Files("landing/counted"),
    format=Json(
        "shop string, item int, flag boolean, price decimal(38, 2), qty bigint, delay double, at timestamp, "
        "delivery struct<delay: double>"
    ),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)
COLUMNS = {
    "shop": pa.string(),
    "item": pa.int32(),
    "flag": pa.bool_(),
    "price": pa.decimal128(38, 2),
    "qty": pa.int64(),
    "delay": pa.float64(),
    "at": INSTANT,
    "_watermark": INSTANT,
    "_day": pa.date32(),
}
AGGREGATES = {
    "rows": agg.count(),
    "flagged": agg.count("flag"),
    "share": agg.share("delay < 15"),
    "price": agg.sum("price"),
    "qty": agg.sum("qty"),
    "delay": agg.sum("delay"),
    "mean_qty": agg.mean("qty"),
    "mean_delay": agg.mean("delay"),
    "least": agg.minimum("delay"),
    "greatest": agg.maximum("delay"),
    "newest": agg.maximum("at"),
    "items": agg.count_distinct("item"),
}
VALUES = {
    **dict.fromkeys(("rows", "flagged", "items"), pa.int64()),
    **dict.fromkeys(("share", "delay", "mean_qty", "mean_delay", "least", "greatest"), pa.float64()),
    "price": pa.decimal128(38, 2),
    "qty": pa.int64(),
    "newest": INSTANT,
}
BOUNDS = {"window_start": INSTANT, "window_end": INSTANT}

Row = dict[str, Any]


def row(seconds: int = 0, stamp: int | None = None, **values: Any) -> Row:
    """A valid row of the log, that many seconds after noon; `stamp` is the watermark when it was read."""
    at = NOON + timedelta(seconds=seconds)
    watermark = None if stamp is None else NOON + timedelta(seconds=stamp)
    return {**dict.fromkeys(COLUMNS), "at": at, "_watermark": watermark, "_day": at.date(), **values}


def stored(path: Path, columns: dict[str, pa.DataType], rows: Iterable[Row]) -> DeltaTable:
    table = pa.Table.from_pylist(list(rows), pa.schema(columns.items()))
    write_deltalake(path, table, partition_by=["_day"] if "_day" in columns else None)
    return DeltaTable(path)


def counted(path: Path, rows: Iterable[Row], results: Iterable[Row], scope: Scope = END, **view: Any) -> Finding:
    """What is found of first results; values are only those that the view has."""
    declared: dict[str, Any] = {"by": ("shop",), "window": Tumbling("1 minute"), "aggregates": AGGREGATES, **view}
    of = Windowed(name="results", of=STREAM, **declared)
    log = stored(path / "log", COLUMNS, rows)
    names = {**{key: COLUMNS[key] for key in of.by}, **BOUNDS, **{name: VALUES[name] for name in of.aggregates}}
    return Recount(of, log).first(stored(path / "first", names, results), scope)


def number(values: Sequence[Any], of: Callable[[list[Fraction]], Fraction]) -> float | None:
    """A sum or mean, computed without rounding, as the nearest double."""
    there = [Fraction(value) for value in values if value is not None]
    return float(of(there)) if there else None


def result(rows: Sequence[Row]) -> Row:
    """The aggregates of some rows, in plain Python."""

    def of(name: str) -> list[Any]:
        return [each[name] for each in rows if each[name] is not None]

    delays = of("delay")
    return {
        "rows": len(rows),
        "flagged": sum(of("flag")),
        "share": number([delay < 15 for delay in delays], lambda each: sum(each, Fraction()) / len(each)),
        "price": sum(of("price")) if of("price") else None,
        "qty": sum(of("qty")) if of("qty") else None,
        "delay": number(delays, lambda each: sum(each, Fraction())),
        "mean_qty": number(of("qty"), lambda each: sum(each, Fraction()) / len(each)),
        "mean_delay": number(delays, lambda each: sum(each, Fraction()) / len(each)),
        "least": min(delays, default=None),
        "greatest": max(delays, default=None),
        "newest": max(each["at"] for each in rows),
        "items": len(set(of("item"))),
    }


def drawn_rows(name: str) -> list[Row]:
    drawn = draws("recount", name)
    rows = []
    for _ in range(150):
        seconds = drawn.randrange(0, 1_200)
        values = {
            "shop": drawn.choice(("a", "b", None)),
            "item": drawn.choice((1, 2, 3, None)),
            "flag": drawn.choice((True, False, None)),
            "price": drawn.choice((None, Decimal(drawn.randrange(-(10**20), 10**20)).scaleb(-2))),
            "qty": drawn.choice((None, drawn.randrange(-(2**31), 2**31))),
            "delay": drawn.choice((None, drawn.uniform(-30, 60), drawn.uniform(-1e9, 1e9))),
        }
        rows.append(row(seconds, drawn.choice((None, seconds - 100, seconds + 100)), **values))
    return rows


def of_spans(rows: list[Row], size: int, period: int, offset: int) -> list[Row]:
    """Results of windows of fixed length, all in seconds: of the rows that came before the end of their window."""
    groups: dict[tuple[Any, datetime], list[Row]] = {}
    for each in rows:
        since = int((each["at"] - NOON).total_seconds()) - offset
        for start in range(since // period * period, since - size, -period):
            begin = NOON + timedelta(seconds=start + offset)
            if each["_watermark"] is None or begin + timedelta(seconds=size) > each["_watermark"]:
                groups.setdefault((each["shop"], begin), []).append(each)
    return [
        {"shop": shop, "window_start": begin, "window_end": begin + timedelta(seconds=size), **result(of)}
        for (shop, begin), of in groups.items()
    ]


def of_sessions(rows: list[Row], gap: timedelta) -> list[Row]:
    """Results of sessions, of the rows that were in time when they came."""
    sessions: list[list[Row]] = []
    open_: dict[Any, list[Row]] = {}
    for each in sorted(rows, key=lambda each: each["at"]):
        if each["_watermark"] is not None and each["at"] < each["_watermark"]:
            continue
        session = open_.get(each["shop"])
        if session is None or each["at"] - session[-1]["at"] > gap:
            session = open_[each["shop"]] = []
            sessions.append(session)
        session.append(each)
    return [
        {
            "shop": session[0]["shop"],
            "window_start": session[0]["at"],
            "window_end": session[-1]["at"] + gap,
            **result(session),
        }
        for session in sessions
    ]


@pytest.mark.parametrize(
    ("window", "results"),
    [
        (Tumbling("1 minute", "7 seconds"), lambda rows: of_spans(rows, 60, 60, 7)),
        (Sliding("1 minute", "20 seconds"), lambda rows: of_spans(rows, 60, 20, 0)),
        (Sliding("50 seconds", "20 seconds"), lambda rows: of_spans(rows, 50, 20, 0)),
        (Sliding("20 seconds", "1 minute"), lambda rows: of_spans(rows, 20, 60, 0)),
        (SessionWindow("15 seconds"), lambda rows: of_sessions(rows, timedelta(seconds=15))),
    ],
    ids=["tumbling", "sliding", "sliding that does not divide", "sliding with gaps", "sessions"],
)
def test_right_results_hold_and_each_wrong_value_is_found(
    tmp_path: Path, window: Window, results: Callable[[list[Row]], list[Row]]
) -> None:
    rows = drawn_rows(repr(window))
    right = results(rows)
    finding = counted(tmp_path / "right", rows, right, window=window)
    assert (finding.checked, finding.broken) == (len(right), 0)
    assert finding.compared == "windows: stream = DataFusion, on-time rows" and finding.independent

    wrong = [dict(each) for each in right]
    for place, name in enumerate((*AGGREGATES, "window_start", "window_end", "shop")):
        wrong[place][name] = other(name, wrong[place][name])
    finding = counted(tmp_path / "wrong", rows, [*wrong[:-2], wrong[-3]], window=window)
    # Of one whose key or bounds are others neither side has the other's; two are lacking, one is there twice.
    assert finding.broken == len(AGGREGATES) + 2 * 3 + 2 + 1


def other(name: str, value: Any) -> Any:
    """A value that is not the same, of a double one just beyond what the order of the summands can make."""
    match value:
        case None:
            return "x" if name == "shop" else 0
        case datetime():
            return value + timedelta(microseconds=1)
        case float():
            return value + 1e-3
        case str():
            return f"{value} "
    return value + 1


@pytest.mark.parametrize(
    ("delays", "least", "greatest"),
    [
        ([INF, INF], INF, INF),
        ([-INF, None], -INF, -INF),
        ([NAN, INF], INF, NAN),
        ([-INF, NAN], -INF, NAN),
        ([NAN, None], NAN, NAN),
        ([-0.0, 0.0], 0.0, 0.0),
        ([1.5, NAN, -INF, INF], -INF, NAN),
        ([None], None, None),
    ],
)
def test_extremes_of_doubles_that_are_not_finite_are_those_of_spark(
    tmp_path: Path, delays: list[float | None], least: float | None, greatest: float | None
) -> None:
    aggregates = {name: AGGREGATES[name] for name in ("least", "greatest")}
    bounds = {"shop": "a", "window_start": NOON, "window_end": NOON + timedelta(minutes=1)}
    rows = [row(shop="a", delay=delay) for delay in delays]
    for place, (low, high, broken) in enumerate(((least, greatest, 0), (2.0, greatest, 1), (least, 2.0, 1))):
        results = [{**bounds, "least": low, "greatest": high}]
        finding = counted(tmp_path / str(place), rows, results, aggregates=aggregates)
        assert (finding.checked, finding.broken) == (1, broken)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("delay < 0", 2),
        ("delay = 'NaN'", None),
        ("delay > 1e300", 3),
        ("not delay >= 0.0", 2),
        ("delay between -1 and 1 or delay is null", 3),
        ("shop = 'it\\'s' and item <> 2", 1),
        ("shop in ('a', 'b') and not (flag and item > 1)", 2),
        ("flag or item = 4", 3),
        ("price is null and qty is not null", 0),
        ("shop = 1", None),
        ("item = '1'", None),
        ("flag = 1", None),
        ("delivery.delay < 15", None),
        ("delivery.delay is null", None),
        ("delay + 1 > 2", None),
        ("upper(shop) = 'A'", None),
    ],
)
def test_a_condition_chooses_the_rows_that_spark_chooses_or_is_not_counted(
    tmp_path: Path, where: str, rows: int | None
) -> None:
    log = [
        row(shop="it's", item=1, flag=True, delay=-0.0),
        row(shop="a", item=2, flag=False, delay=-1.0),
        row(shop="a", item=None, flag=None, delay=NAN),
        row(shop="b", item=2, flag=True, delay=INF),
        row(shop="b", item=4, flag=None, delay=-NAN),
        row(shop=None, item=None, flag=None, delay=None),
        row(shop="a", item=1, flag=False, delay=-INF),
    ]
    results = [{"rows": rows, "window_start": NOON, "window_end": NOON + timedelta(minutes=1)}] if rows else []
    declared: dict[str, Any] = {"by": (), "aggregates": {"rows": agg.count()}, "where": where}
    if rows is None:
        with pytest.raises(Unsupported, match="the condition"):
            counted(tmp_path, log, results, **declared)
    else:
        finding = counted(tmp_path, log, results, **declared)
        assert (finding.checked, finding.broken) == (1 if rows else 0, 0)


def test_a_decimal_is_counted_by_the_digits_that_it_has_in_the_log(tmp_path: Path) -> None:
    stream = Stream(
        name="derived",
        source=Files("landing/derived"),
        format=Json("a decimal, b decimal(9), at timestamp"),
        event_time="at",
        clock=BoundedOutOfOrderness("5 seconds"),
        derived={"c": "a * 0.125"},
    )
    types = {"a": pa.decimal128(10, 0), "b": pa.decimal128(9, 0), "c": pa.decimal128(15, 3)}
    view = Windowed("results", stream, Tumbling("1 minute"), {name: agg.sum(name) for name in types})
    values: dict[str, Any] = dict(zip(types, map(Decimal, ("3", "4", "0.375")), strict=True))
    log = stored(tmp_path / "log", {**COLUMNS, **types}, [row(**values), row(**values)])
    bounds = {"window_start": NOON, "window_end": NOON + timedelta(minutes=1)}
    for place, (extra, broken) in enumerate(((Decimal(0), 0), (Decimal("0.001"), 1))):
        results = [{**bounds, **{name: 2 * value for name, value in values.items()}, "c": Decimal("0.750") + extra}]
        finding = Recount(view, log).first(stored(tmp_path / str(place), {**types, **BOUNDS}, results), END)
        assert (finding.checked, finding.broken) == (1, broken)


def test_what_is_not_counted_is_told_and_the_rest_is_compared(tmp_path: Path) -> None:
    aggregates = {"rows": agg.count(), "delay": agg.sum("delivery.delay"), "least": agg.median("delay")}
    results = [{"shop": "a", "rows": 2, "window_start": NOON, "window_end": NOON + timedelta(minutes=1)}]
    finding = counted(tmp_path, [row(shop="a", delay=1.0)], results, aggregates=aggregates)
    assert finding.compared == "windows: stream = DataFusion, on-time rows; without delay, least"
    assert (finding.checked, finding.broken) == (1, 1)
    with pytest.raises(Unsupported, match="windows of LocalDays"):
        counted(tmp_path / "days", [], [], window=LocalDays("Europe/Berlin"))


def test_only_results_within_the_scope_and_times_that_have_windows_are_compared(tmp_path: Path) -> None:
    day = timedelta(days=1)
    rows = [row(shop="a"), row(86_400, shop="a"), row(2 * 86_400, shop="a"), row(3 * 86_400, shop="a")]
    far = datetime(9999, 1, 1, tzinfo=UTC)
    rows += [row(shop="a", at=datetime(50, 1, 1, tzinfo=UTC)), row(shop="a", at=far)]
    scope = Scope(NOON + 2.5 * day, since=date(2026, 3, 2), without={date(2026, 3, 3)}, told="; some")
    results = [{"shop": "a", "rows": 1, "window_start": NOON + day, "window_end": NOON + day + timedelta(minutes=1)}]
    only: dict[str, Any] = {"aggregates": {"rows": agg.count()}}
    finding = counted(tmp_path / "some", rows, results, scope, **only)
    assert (finding.checked, finding.broken) == (1, 0) and finding.compared.endswith("rows; some")
    finding = counted(tmp_path / "all", rows, results, Scope(far + day), **only)
    assert (finding.checked, finding.broken) == (4, 3)
    finding = counted(tmp_path / "none", rows, [], Scope(None), **only)
    assert (finding.checked, finding.broken) == (0, 0)
    for closed in (None, NOON + day):
        finding = counted(tmp_path / f"early {closed}", [rows[1]], results, Scope(closed), **only)
        assert (finding.checked, finding.broken) == (1, 1), "published before its window was closed"


def test_long_logs_are_counted_in_pieces_between_which_no_window_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.views.recount._ROWS_AT_ONCE", 30)
    drawn = draws("recount", "pieces")
    rows = [row(drawn.randrange(-400_000, 400_000), shop="a", item=drawn.randrange(3)) for _ in range(150)]
    windows = {Sliding("3 days", "5 hours"): (3 * 86_400, 5 * 3_600), Tumbling("7 hours"): (7 * 3_600, 7 * 3_600)}
    aggregates = {name: AGGREGATES[name] for name in ("rows", "items")}
    for place, (window, (size, period)) in enumerate(windows.items()):
        # Windows begin at multiples of their period since 1970.
        offset = -int(NOON.timestamp()) % period
        right = of_spans(rows, size, period, offset)
        finding = counted(tmp_path / str(place), rows, right, window=window, aggregates=aggregates)
        assert (finding.checked, finding.broken) == (len(right), 0)
        right[0]["items"] += 1
        finding = counted(tmp_path / f"{place} wrong", rows, right[:-1], window=window, aggregates=aggregates)
        assert (finding.checked, finding.broken) == (len(right), 2)


def test_a_name_is_a_column_whatever_stands_in_it(tmp_path: Path) -> None:
    name = 'the "rows" {0}; drop'
    view = Windowed("results", STREAM, Tumbling("1 minute"), {name: agg.count()})
    log = stored(tmp_path / "log", COLUMNS, [row(), row()])
    results = [{name: 2, "window_start": NOON, "window_end": NOON + timedelta(minutes=1)}]
    first = stored(tmp_path / "first", {name: pa.int64(), **BOUNDS}, results)
    finding = Recount(view, log).first(first, END)
    assert (finding.checked, finding.broken) == (1, 0)


def test_of_a_window_the_newest_of_update_and_correction_is_current(tmp_path: Path) -> None:
    view = Windowed(
        "results",
        STREAM,
        Tumbling("1 minute"),
        {"rows": agg.count()},
        ("shop",),
        late="update",
        allowed_lateness="1 hour",
    )
    log = stored(tmp_path / "log", COLUMNS, [row(shop=shop) for shop in "aabbbccccd"])
    bounds = {"window_start": NOON, "window_end": NOON + timedelta(minutes=1)}

    def table(name: str, columns: dict[str, pa.DataType], *rows: tuple[Any, ...]) -> DeltaTable:
        names = {"shop": pa.string(), "rows": pa.int64(), **columns}
        of = [{**bounds, **dict(zip(names, each, strict=True))} for each in rows]
        return stored(tmp_path / name, {**names, **BOUNDS}, of)

    first = table("first", {}, ("a", 2), ("b", 1), ("c", 1), ("e", 1))
    through, hidden = pa.int64(), pa.bool_()
    updates = table(
        "updates",
        {"_batch": through, "_retracted": hidden},
        ("b", 2, 3, None),
        ("c", 3, 5, False),
        ("d", 1, 5, False),
        ("e", None, 5, True),
    )
    corrections = table("corrections", {"_through_batch": through}, ("b", 3, 4), ("c", 4, 5), ("d", 9, 4))
    finding = Recount(view, log).current(first, updates, corrections, END)
    assert finding is not None and finding.compared == "windows: current = DataFusion, all rows"
    assert (finding.checked, finding.broken) == (4, 0)
    finding = Recount(view, log).current(first, updates, None, END)
    # Of `b` and `c` the corrections are lacking.
    assert finding is not None and (finding.checked, finding.broken) == (4, 2)
    merging = Windowed("results", STREAM, SessionWindow("1 minute"), {"rows": agg.count()}, ("shop",))
    assert Recount(merging, log).current(first, updates, corrections, END) is None
