"""Pairs and windows of two streams that cannot be computed go to a side output, and all others are as without them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    CoGrouped,
    Files,
    Joined,
    Json,
    Lake,
    Pipeline,
    SessionWindow,
    Stream,
    Tumbling,
    WindowJoined,
    drain,
)
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, StreamingError
from streaming.declare.operator import Operator
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from tests.support.feeds import land_all
from tests.support.instants import NOW, T0, at
from tidemark.testing import correct, read


class Row(NamedTuple):
    """A row of either side; `n` is different for all but those of a pair that cannot be computed."""

    key: str
    second: int
    code: str
    n: int


one = Stream(
    name="one",
    source=Files("landing/one", files_per_batch=1),
    format=Json("key string, at timestamp, code string, n bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds", max_ahead="365 days"),
)
two = replace(one, name="two", source=Files("landing/two", files_per_batch=1))

ones = (
    [Row("a", 0, "1", 1), Row("b", 1, "1", 2)],
    [Row("c", 30, "x", 5), Row("d", 32, "1", 7), Row("g", 50, "1", 9), Row("h", 70, "1", 10)],
    [Row("e", 100, "1", 20), Row("b", 3, "1", 22)],
    [Row("f", 200, "1", 30)],
)
twos = (
    [Row("a", 1, "1", 3), Row("b", 2, "x", 4)],
    [Row("c", 31, "1", 6), Row("d", 33, "1", 7), Row("h", 71, "1", 11)],
    # The first two are late: the second is a partner of a row that was told of alone.
    [Row("a", 3, "y", 8), Row("g", 52, "1", 9), Row("e", 101, "1", 21)],
    [Row("f", 201, "1", 0)],
)
LEFT, RIGHT = ([row for batch in batches for row in batch] for batches in (ones, twos))
CLOCK = 200

joined = Joined(
    "joined",
    one,
    two,
    ("key",),
    ("-20 seconds", "10 seconds"),
    "outer",
    {"l": "left_n", "r": "right_n", "digit": "cast(left_code as int)", "share": "60 div (left_n - right_n)"},
    where="cast(right_code as int) > 0",
    on_error="side",
)
met = WindowJoined(
    "met",
    one,
    two,
    ("key",),
    Tumbling("10 seconds"),
    {"l": "left_n", "r": "right_n", "share": "60 div (left_n - right_n)"},
    "outer",
    on_error="side",
)


def total(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    if any(row.n in (2, 9) for row in (*left, *right) if row in right or row.n == 2):
        raise ValueError("two, or nine on the right")
    yield {"total": sum(row.n for row in (*left, *right))}


totals = CoGrouped("totals", one, two, ("key",), Tumbling("10 seconds"), "total bigint", total, on_error="side")
stays = WindowJoined(
    "stays", one, two, ("key",), SessionWindow(seconds_of="60 div n"), {"l": "left_n", "r": "right_n"}, on_error="side"
)


def both(*operators: Operator) -> Pipeline:
    return Pipeline(name="both", streams=(one, two), operators=operators)


def land(lake: Lake, *numbers: int) -> None:
    """Land the batches with these numbers."""
    for number in numbers:
        for stream, batches in ((one, ones), (two, twos)):
            land_all(lake, stream, [{**row._asdict(), "at": at(row.second).isoformat()} for row in batches[number]])


def follow(spark: SparkSession, lake: Lake, pipeline: Pipeline, *numbers: int) -> None:
    """Take in the batches with these numbers, each in a run of its own."""
    for number in numbers:
        land(lake, number)
        drain(spark, lake, pipeline, now=lambda: NOW)


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[Any]:
    return [finding for finding in audit(spark, lake, pipeline) if finding.broken]


def failed(spark: SparkSession, lake: Lake, of: Operator) -> Counter[tuple[int | None, int | None]]:
    """The numbers of both rows of what is told of as failed."""
    told = [json.loads(row) for (row,) in read(spark, lake, of, "failed", "row")]
    sides = ([(each.get(side) or {}).get("n") for side in ("left", "right")] for each in told)
    return Counter((left, right) for left, right in sides)


Numbers = tuple[int | None, int | None]


def of_joined() -> tuple[set[Numbers], set[Numbers], set[Numbers]]:
    """Pairs, what fails, and rows alone: by plain Python."""
    pairs, fails = set[Numbers](), set[Numbers]()
    for left in LEFT:
        for right in RIGHT:
            if left.key == right.key and -20 <= right.second - left.second <= 10:
                fine = right.code.isdecimal() and left.code.isdecimal() and left.n != right.n
                (pairs if fine else fails).add((left.n, right.n))
    lonely: set[Numbers] = {
        (row.n, None) for row in LEFT if row.second + 10 < CLOCK and row.n not in {left for left, _ in pairs}
    }
    lonely |= {(None, row.n) for row in RIGHT if row.second + 20 < CLOCK and row.n not in {right for _, right in pairs}}
    undigested: set[Numbers] = {(row.n, None) for row in LEFT if not row.code.isdecimal()}
    return pairs, fails | (undigested & lonely), lonely - undigested


@pytest.mark.long
def test_pairs_and_rows_alone_that_a_join_cannot_compute_are_told_of_with_both_origins_and_are_in_no_result(
    spark: SparkSession, lake: Lake
) -> None:
    pairs, fails, lonely = of_joined()
    assert {(2, 4), (5, 6), (7, 7), (1, 8), (9, 9), (5, None)} <= fails and (9, None) in lonely
    pipeline = both(joined)
    follow(spark, lake, pipeline, 0)
    land(lake, 1, 2)
    follow(spark, lake, pipeline, 3)
    assert set(read(spark, lake, joined, "pairs", "l", "r")) == pairs
    assert Counter(read(spark, lake, joined, "current", "l", "r")) == Counter({*pairs, *lonely})
    assert failed(spark, lake, joined) == Counter(fails)
    assert broken(spark, lake, pipeline) == []
    rows = runtime_of(joined, lake).readable["failed"](spark).collect()
    told = {
        (row["error"], row["_left_batch"], row["_right_batch"], *map(file, (row["_origin"].left, row["_origin"].right)))
        for row in rows
    }
    assert ("where cannot be computed: cast(right_code as int) > 0", 0, 2, "0000.json", "0002.json") in told
    assert ("column 'digit' cannot be computed: cast(left_code as int)", 1, None, "0001.json", None) in told
    assert ("column 'share' cannot be computed: 60 div (left_n - right_n)", 1, 2, "0001.json", "0002.json") in told
    assert [spec.name for spec in joined.columns_of("failed")] == rows[0].__fields__
    assert runtime_of(joined, lake).explain(spark)["errors"] == "go to the side output 'failed'"
    as_of = lake.as_of({"one": 0, "two": 0})
    assert failed(spark, as_of, joined) == Counter([(2, 4)])


def file(origin: Any) -> str | None:
    return None if origin is None else origin["path"].rpartition("/")[2]


@pytest.mark.long
def test_pairs_and_windows_of_two_streams_that_fail_have_no_results_first_or_corrected(
    spark: SparkSession, lake: Lake
) -> None:
    pipeline = both(met, totals, stays)
    follow(spark, lake, pipeline, 0, 1)
    # Told of alone, before its partner came late.
    assert (9, None) in read(spark, lake, met, "first", "l", "r")
    follow(spark, lake, pipeline, 2, 3)
    assert broken(spark, lake, pipeline) == []
    for of in (met, totals, stays):
        correct(spark, lake, of, lambda: NOW)
    assert broken(spark, lake, pipeline) == []

    windows: dict[tuple[str, int], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((LEFT, RIGHT)):
        for row in rows:
            if row.second // 10 * 10 + 10 <= CLOCK:
                windows[row.key, row.second // 10 * 10][side].append(row)
    expected = Counter[Numbers]()
    fails = Counter[Numbers]()
    sums = {}
    for (key, start), (lefts, rights) in windows.items():
        numbers = [(left.n, right.n) for left in lefts for right in rights]
        fails.update(each for each in numbers if each[0] == each[1])
        alone = [] if numbers else [*((row.n, None) for row in lefts), *((None, row.n) for row in rights)]
        expected.update([*(each for each in numbers if each[0] != each[1]), *alone])
        if not any(row.n == 2 for row in lefts) and not any(row.n in (2, 9) for row in rights):
            sums[key, start] = sum(row.n for row in (*lefts, *rights))
    assert (9, 9) in fails and (9, None) not in expected
    assert Counter(read(spark, lake, met, "current", "l", "r")) == expected
    assert failed(spark, lake, met) == fails
    current = read(spark, lake, totals, "current", "key", "window_start", "total")
    assert {(key, int((start - T0).total_seconds())): number for key, start, number in current} == sums
    told = runtime_of(totals, lake).readable["failed"](spark).collect()
    assert {(json.loads(row["row"])["key"], int(row["window_start"].timestamp() - T0.timestamp())) for row in told} == {
        *windows.keys() - sums.keys()
    }
    assert all(row["error"].startswith("ValueError: two, or nine on the right (") for row in told)
    (stay,) = runtime_of(stays, lake).readable["failed"](spark).collect()
    assert stay["error"] == "window cannot be computed: 60 div n" and json.loads(stay["row"])["right"]["n"] == 0
    assert [spec.name for spec in stays.columns_of("failed")] == stay.__fields__
    assert (stay["_left_batch"], stay["_right_batch"], stay["_origin"]["left"]) == (None, 3, None)
    assert {(1, 3), (20, 21)} <= set(read(spark, lake, stays, "current", "l", "r"))


@pytest.mark.long
@pytest.mark.parametrize("of", [joined, met, totals], ids=lambda of: of.name)
def test_one_that_has_paused_goes_on_with_what_fails_aside_and_cannot_go_back_unless_it_is_rebuilt(
    spark: SparkSession, lake: Lake, of: Joined | WindowJoined | CoGrouped
) -> None:
    pausing, diverting = both(replace(of, on_error="pause")), both(of)
    assert replace(of, on_error="pause").fingerprint == {
        name: value for name, value in of.fingerprint.items() if name != "on error"
    }
    land(lake, 0, 1)
    with pytest.raises(StreamingError, match=r"two, or nine|cannot be computed"):
        drain(spark, lake, pausing, now=lambda: NOW)
    follow(spark, lake, diverting, 2, 3)
    if of.corrected:
        correct(spark, lake, of, lambda: NOW)
    assert broken(spark, lake, diverting) == []
    before = read(spark, lake, of, "current", *of.columns)
    with pytest.raises(ChangedDeclaration, match="on error was side and is nothing"):
        drain(spark, lake, pausing, now=lambda: NOW)
    rebuild(spark, lake, diverting, of, now=lambda: NOW)
    drain(spark, lake, diverting, now=lambda: NOW)
    assert read(spark, lake, of, "current", *of.columns) == before and broken(spark, lake, diverting) == []
