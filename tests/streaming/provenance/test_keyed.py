"""Why a keyed function emitted what it did: the rows of its key since nothing was kept of it, called again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Keyed,
    Lake,
    Pinned,
    Pipeline,
    Rule,
    Stream,
    Why,
    micros,
    why,
)
from streaming.base import ReadError
from streaming.changes import publish
from streaming.service.drain import drain
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.runs import run
from tidemark.testing import correct

VISITS = Stream(
    name="visits",
    source=Files("landing/visits"),
    format=Json("id string, version bigint, at timestamp, visitor string, page string"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    rules=(Rule("has_page", "page is not null"),),
    key=("id",),
    sequence="version",
)
LIMITS = Stream(
    name="limits",
    source=Files("landing/limits"),
    format=Json("page string, at timestamp, most bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
)
VIEWS = Stream(
    name="views",
    source=Files("landing/views"),
    format=Json("page string, at timestamp, seconds bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
)


def on_page(key: Any, row: Any) -> None:
    key.path = f"{key.path or ''}{row.page}"
    key.emit(path=key.path)
    key.timer("left", key.at + micros("20 seconds"))


def on_left(key: Any) -> None:
    key.emit(path=f"{key.path}.")


def on_change(key: Any, row: Any) -> None:
    key.pages = (key.pages or 0) + key.change
    key.emit(page=row.page, change=key.change, pages=key.pages)


def on_view(key: Any, row: Any) -> None:
    """Emit once the views of a page are longer than its limit, and begin anew."""
    limit = key.rules.get(key.key)
    key.total = (key.total or 0) + row.seconds
    if key.total > (limit.most if limit else 100):
        key.emit(total=key.total, is_late=key.late)
        key.clear()


def on_last(key: Any, row: Any) -> None:
    key.seconds = row.seconds
    key.timer("quiet", key.at + micros("20 seconds"))


def on_quiet(key: Any) -> None:
    key.emit(seconds=key.seconds, most=key.rules.get(key.key).most)


PATHS = Keyed(
    "paths",
    VISITS,
    ("visitor",),
    "path string",
    "path string",
    on_page,
    timers={"left": on_left},
    order="event",
    idle="30 seconds",
)
COUNTS = Keyed(
    "counts",
    VISITS,
    ("visitor",),
    "pages bigint",
    "page string, change int, pages bigint",
    on_change,
    retractions=True,
)
TOTALS = Keyed(
    "totals",
    VIEWS,
    ("page",),
    "total bigint",
    "total bigint, is_late boolean",
    on_view,
    rules=Pinned(LIMITS, ("page",)),
)
LASTS = Keyed(
    "lasts",
    VIEWS,
    ("page",),
    "seconds bigint",
    "seconds bigint, most bigint",
    on_last,
    timers={"quiet": on_quiet},
    rules=Pinned(LIMITS, ("page",)),
)
PIPELINE = Pipeline(VISITS, (PATHS, COUNTS))
WITH_LIMITS = Pipeline(name="pages", streams=(VIEWS, LIMITS), operators=(TOTALS, LASTS))


def visit(id_: str, seconds: float, page: str | None, version: int = 1, visitor: str = "ann") -> dict[str, Any]:
    return {"id": id_, "version": version, "at": at(seconds).isoformat(), "visitor": visitor, "page": page}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """```
    batch 0    ann: 1@0=a 2@5=b 3@6 without a page: rejected     bob: 4@5=x
    batch 1    ann: 5@100=c                                      the clock is at 90: a, ab, ab. and x, x.
    batch 2    ann: 6@3=h                                        late
    batch 3    ann: 2@5=B, version 2                             late: it takes b back
    corrected  ann: a@0, ah@3, ahB@5, ahB.@25
    batch 4    ann: 7@4=z, 8@86500=d                             late, and waits; a day later
               cat: a@86500 b@86525 ... l@86775                  the clock is at 86765
    ```
    """
    there = Lake(str(tmp_path_factory.mktemp("visits") / "lake"))
    run(
        spark,
        there,
        PIPELINE,
        [visit("1", 0, "a"), visit("2", 5, "b"), visit("3", 6, None), visit("4", 5, "x", visitor="bob")],
    )
    run(spark, there, PIPELINE, [visit("5", 100, "c")])
    run(spark, there, PIPELINE, [visit("6", 3, "h")])
    run(spark, there, PIPELINE, [visit("2", 5, "B", version=2)])
    assert correct(spark, there, PATHS, lambda: NOW)
    publish(spark, there, PATHS)
    of_cat = [visit(f"c{n}", 86_500 + 25 * n, "abcdefghijkl"[n], visitor="cat") for n in range(12)]
    run(spark, there, PIPELINE, [visit("7", 4, "z"), visit("8", 86_500, "d"), *of_cat])
    yield there


def asked(spark: SparkSession, lake: Lake, of: Keyed, seconds: float, who: str = "ann", **more: Any) -> Why:
    return why(PIPELINE, of, {"visitor": who, "_at": at(seconds)}, lake=lake, spark=spark, **more)


def pages(answer: Why) -> str:
    """The pages of the rows that count, in the order of their event time."""
    return "".join(row.values["page"] for row in sorted(answer.counting, key=lambda row: row.values["at"]))


def test_a_result_has_the_rows_of_its_session_so_far(spark: SparkSession, lake: Lake) -> None:
    first = asked(spark, lake, PATHS, 5, what="first")
    assert (first.agrees, first.published[0]["path"], pages(first)) == (True, "ab", "ab")
    assert {row.values["visitor"] for row in first.inputs} == {"ann"}
    (rejected,) = asked(spark, lake, PATHS, 25, what="first").rejected
    assert rejected.reasons == ("has_page: not (page is not null)",)


def test_what_a_timer_emits_is_of_the_rows_before_it(spark: SparkSession, lake: Lake) -> None:
    answer = asked(spark, lake, PATHS, 25, what="first")
    assert (answer.agrees, answer.published[0]["path"], pages(answer)) == (True, "ab.", "ab")
    assert answer.notes[0] == "timer 'left' has emitted it, which was set to this time"


def test_a_session_begins_after_the_idle_time(spark: SparkSession, lake: Lake) -> None:
    answer = asked(spark, lake, PATHS, 100)
    assert (answer.agrees, answer.published[0]["path"], pages(answer)) == (True, "c", "c")


def test_a_correction_counts_late_rows_and_tells_them_as_its_cause(spark: SparkSession, lake: Lake) -> None:
    answer = asked(spark, lake, PATHS, 5)
    assert (answer.agrees, answer.published[0]["path"], pages(answer)) == (True, "ahB", "ahB")
    assert sorted((row.values["page"], row.late) for row in answer.counting) == [("B", True), ("a", False), ("h", True)]
    gone = [(row.values["page"], row.change) for row in answer.inputs if row.reason == "taken back"]
    assert gone == [("b", 1), ("b", -1)]
    assert [row.values["page"] for row in answer.counting] == ["a", "h", "B"]
    (waiting,) = [row for row in answer.inputs if row.values["page"] == "z"]
    assert waiting.reason == "not followed yet"
    assert answer.notes == ("1 late row waits for `tidemark correct visits --day 2026-01-01`",)
    changed = answer.changes[-1]
    assert (changed.reason, changed.was[0]["path"], changed.now[0]["path"]) == ("correction", "ab", "ahB")
    late = {row.place for row in answer.inputs if row.late and row.batch in (2, 3)}
    assert {*changed.causes} == late and changed.through == {"visits": 3}


def test_a_late_row_that_waits_is_told(spark: SparkSession, lake: Lake) -> None:
    answer = asked(spark, lake, PATHS, 5, what="first")
    late = {row.values["page"]: row.reason for row in answer.inputs if row.late}
    assert late["h"] == "late: the clock was 2026-01-01 00:01:30 when it came"


def test_a_function_with_retractions_has_the_rows_that_were_taken_back_too(spark: SparkSession, lake: Lake) -> None:
    """In the order of the log: a, b, c, h, then -b and B, then z."""
    answer = asked(spark, lake, COUNTS, 5)
    told = [(row["page"], row["change"], row["pages"]) for row in answer.published]
    assert (answer.agrees, sorted(told)) == (True, [("B", 1, 4), ("b", -1, 3), ("b", 1, 2)])
    signed = [(row.batch, row.values["page"], row.change) for row in answer.counting]
    assert signed == [(0, "a", 1), (0, "b", 1), (1, "c", 1), (2, "h", 1), (3, "b", -1), (3, "B", 1)]


def test_as_of_an_older_batch_it_is_what_was_current_then(spark: SparkSession, lake: Lake) -> None:
    answer = asked(spark, lake, PATHS, 5, as_of=1)
    assert (answer.agrees, answer.published[0]["path"], pages(answer)) == (True, "ab", "ab")
    later = asked(spark, lake, PATHS, 5, as_of=2)
    assert (later.agrees, later.published[0]["path"], pages(later)) == (True, "ahb", "ahb")


def test_only_files_of_the_session_are_read(spark: SparkSession, lake: Lake) -> None:
    answer, of_all = asked(spark, lake, PATHS, 100), asked(spark, lake, COUNTS, 100)
    assert answer.agrees and answer.files.of == of_all.files.of
    # In the order of the log any older row may have come late.
    assert answer.files.read < of_all.files.read


def test_a_long_session_is_read_span_by_span_each_twice_as_long(spark: SparkSession, lake: Lake) -> None:
    """From 86750 back: 30 seconds, then 60, 120 and 240; all rows of it are in one file."""
    answer, of_one = asked(spark, lake, PATHS, 86_750, "cat"), asked(spark, lake, PATHS, 86_500)
    assert (answer.agrees, answer.published[0]["path"], pages(answer)) == (True, "abcdefghijk", "abcdefghijk")
    assert (of_one.agrees, pages(of_one)) == (True, "d")
    assert answer.files.read == 4 * of_one.files.read


def test_a_number_that_its_rows_do_not_give_is_told(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    shutil.copytree(lake.root, tmp_path / "lake")
    other = Lake(str(tmp_path / "lake"))
    results = DeltaTable(other.table(COUNTS))
    results.alter.set_table_properties({"delta.appendOnly": "false"})
    results.update(predicate="page = 'c'", updates={"pages": "30"})
    answer = asked(spark, other, COUNTS, 100)
    assert (answer.agrees, pages(answer)) == (False, "abc")
    assert answer.said.endswith("IT IS NOT THE SAME: pages is 30 and should be 3")


def test_a_key_without_its_time_names_its_results(lake: Lake) -> None:
    with pytest.raises(
        ReadError, match=r"visitor=bob is true of 2 results of keyed function 'paths': visitor=bob _at="
    ):
        why(PIPELINE, PATHS, {"visitor": "bob"}, lake=lake)


def test_pins_in_force_are_told_and_rows_from_before_a_key_was_cleared_have_no_part(
    spark: SparkSession, tmp_path: Path
) -> None:
    """```
    limits  batch 0    x: 10                       views  batch 0    x@0=8 x@1=4: 12, cleared     x@2=3
    limits  batch 1    x: 5                        views  batch 1    x@3=1
                                                   views  batch 2    x@4=2 x@40=1: 6, cleared
    limits  batch 2    x: 7                        views  batch 3    x@5=1, late: its timer, at 25, is past
    ```
    """
    lake = Lake(str(tmp_path / "lake"))

    def view(seconds: float, length: int) -> dict[str, Any]:
        return {"page": "x", "at": at(seconds).isoformat(), "seconds": length}

    def limit(seconds: float, most: int) -> dict[str, Any]:
        return {"page": "x", "at": at(seconds).isoformat(), "most": most}

    def ingest(limits: list[Any], views: list[Any]) -> None:
        for stream, rows in ((LIMITS, limits), (VIEWS, views)):
            land_all(lake, stream, *([rows] if rows else []))
        drain(spark, lake, WITH_LIMITS, now=lambda: NOW)

    def told(seconds: float, of: Keyed = TOTALS) -> Why:
        return why(WITH_LIMITS, of, {"page": "x", "_at": at(seconds)}, lake=lake, spark=spark)

    ingest([limit(0, 10)], [view(0, 8), view(1, 4), view(2, 3)])
    ingest([limit(60, 5)], [view(3, 1)])
    ingest([], [view(4, 2), view(40, 1)])
    ingest([limit(120, 7)], [view(5, 1)])
    first, second = told(1), told(4)
    assert (first.agrees, first.published[0]["total"], [row.values["seconds"] for row in first.counting]) == (
        True,
        12,
        [8, 4],
    )
    assert [(pin.of, pin.newest, pin.stream, pin.first, pin.last) for pin in first.pins] == [
        ("limits", 0, "views", 0, 0)
    ]
    assert (second.agrees, second.published[0]["total"]) == (True, 6)
    assert [row.values["seconds"] for row in second.counting] == [3, 1, 2]
    assert [(pin.newest, pin.first, pin.last) for pin in second.pins] == [(0, 0, 0), (1, 1, 2)]
    assert "2 earlier rows of the key have no part in it: nothing was kept of the key since" in second.notes
    of_timer = told(25, LASTS)
    assert (of_timer.agrees, of_timer.published[0]["most"]) == (True, 7)
    of_logs = sum(len(DeltaTable(lake.log(stream)).file_uris()) for stream in (VIEWS, LIMITS))
    assert (of_timer.files.read, of_timer.files.of) == (of_logs, of_logs)
    pins = [(pin.newest, pin.first, pin.last) for pin in of_timer.pins]
    assert pins == [(0, 0, 0), (1, 1, 2), (2, 3, 3), (2, None, None)]
