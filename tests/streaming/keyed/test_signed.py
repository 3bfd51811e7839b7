"""Keyed functions over rows that are taken back, by revisions, by hand and along a chain; others are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    CountTrigger,
    Delivery,
    Derived,
    Files,
    Json,
    JsonLines,
    Keyed,
    Lake,
    Pinned,
    Pipeline,
    Stream,
    Table,
    absence,
    count_window,
    deduplicated,
    flat_mapped,
    followed_by,
    iterated,
    latest,
    marker_window,
    micros,
    not_followed_by,
    reduced,
    rolling,
    top,
    triggered_window,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError, FunctionError
from streaming.operations import RowChoice, retract
from streaming.operations.erasure import Person, erase
from streaming.operations.rebuild import rebuild
from streaming.operations.restore import restore_to
from streaming.operations.savepoint import savepoint
from streaming.operators.runtime import runtime_of
from streaming.sinks import RESULT_ID
from tests.support.instants import NOW, T0, at
from tests.support.runs import run
from tidemark.testing import correct, play

VISITS = Stream(
    name="visits",
    source=Files("landing/visits"),
    format=Json("id string, version bigint, at timestamp, visitor string, page string, gone boolean"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
PLAIN = replace(VISITS, key=(), sequence=None, deletes=None)


def on_page(key: Any, row: Any) -> None:
    key.path = f"{key.path or ''}{row.page}"
    key.emit(path=key.path)
    key.timer("left", key.at + micros("20 seconds"))


def on_left(key: Any) -> None:
    key.emit(path=f"{key.path}.")


def on_change(key: Any, row: Any) -> None:
    key.pages = (key.pages or 0) + key.change
    key.emit(page=row.page, change=key.change, pages=key.pages)


def tell_change(key: Any, row: Any) -> None:
    key.emit(path=str(key.change))
    key.timer("left", key.at + 1)


def tell_change_of_timer(key: Any) -> None:
    key.emit(path=f"timer: {key.change}")


def adds(row: Any, total: Any) -> dict[str, Any]:
    return {"total": total}


def maps(row: Any, state: Any) -> tuple[Any, Any]:
    return (), state


def is_true(row: Any) -> bool:
    return True


def joins(pages: list[str]) -> dict[str, Any]:
    return {"path": " ".join(pages)}


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
PIPELINE = Pipeline(VISITS, (PATHS, COUNTS))


def visit(id: str, version: int, seconds: float, page: str = "", *, visitor: str = "ann") -> dict[str, Any]:
    gone = not page
    told = {"at": None if gone else at(seconds).isoformat(), "visitor": None if gone else visitor, "page": page or None}
    return {"id": id, "version": version, "gone": gone, **told}


def read(
    spark: SparkSession, lake: Lake, keyed: Keyed = PATHS, what: str = "current", *columns: str
) -> list[tuple[Any, ...]]:
    seconds = f"(unix_micros(_at) - {int(T0.timestamp() * 1_000_000)}) / 1e6"
    rows = runtime_of(keyed, lake).readable[what](spark).where("visitor = 'ann'")
    return sorted(map(tuple, rows.selectExpr(seconds, *(columns or ("path",))).collect()), key=repr)


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def corrected(spark: SparkSession, lake: Lake, keyed: Keyed = PATHS) -> list[tuple[Any, ...]]:
    correct(spark, lake, keyed, lambda: NOW)
    return read(spark, lake, keyed)


def test_a_session_falls_apart_when_the_row_that_held_it_together_is_taken_back(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """
    00:00 a · 00:25 b · 00:50 c   are one session of ann's, told by z at 05:00; c is another page before that in time
    b is deleted                  leaves two
    d at 00:55, late              joins the second
    a is deleted                  leaves one
    """
    delivery = Delivery("told", PATHS, JsonLines(str(tmp_path / "told")), what="current", select=("visitor", "path"))
    pipeline = Pipeline(VISITS, (PATHS, COUNTS), deliveries=(delivery,))
    run(spark, lake, pipeline, [visit("a", 1, 0, "a"), visit("b", 1, 25, "b"), visit("c", 1, 50, "x")])
    run(spark, lake, pipeline, [visit("c", 2, 50, "c"), visit("z", 1, 300, "z", visitor="zoe")])
    whole = [(0.0, "a"), (20.0, "a."), (25.0, "ab"), (45.0, "ab."), (50.0, "abc"), (70.0, "abc.")]
    assert read(spark, lake) == whole
    run(spark, lake, pipeline, [visit("b", 2, 0)])
    apart = [(0.0, "a"), (20.0, "a."), (50.0, "c"), (70.0, "c.")]
    assert read(spark, lake, PATHS, "late", "_change", "page") == [(25.0, -1, "b")]
    assert corrected(spark, lake) == apart
    assert broken(spark, lake) == []
    run(spark, lake, pipeline, [visit("d", 1, 55, "d")])
    assert corrected(spark, lake) == [*apart[:3], (55.0, "cd"), (75.0, "cd.")]
    run(spark, lake, pipeline, [visit("a", 2, 0)])
    assert corrected(spark, lake) == [(50.0, "c"), (55.0, "cd"), (75.0, "cd.")]
    assert read(spark, lake, PATHS, "first") == whole
    assert runtime_of(PATHS, lake).plan(spark) == []
    assert broken(spark, lake) == []
    # As of the batch that took the second row back.
    assert read(spark, lake.as_of({"visits": 2})) == apart
    run(spark, lake, pipeline)
    files = sorted(each for each in (tmp_path / "told").rglob("*") if each.is_file() and not each.name.startswith("."))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    there: dict[str, str | None] = {}
    for line in filter(lambda line: "_change" in line, lines):
        there[line[RESULT_ID]] = line["path"] if line["_change"] == "upsert" else None
    assert sorted(path for path in there.values() if path) == ["c", "cd", "cd."]
    assert "rows that stand" in runtime_of(PATHS, lake).explain(spark)["computed"]


def test_a_function_that_declares_retractions_is_told_of_every_row_in_the_order_of_the_log(
    spark: SparkSession, lake: Lake
) -> None:
    """
    batch 0   a v1 · b v1     come
    batch 1   b v2 · a v2     b has another page, and a is gone
    batch 2   a v3            comes again
    """
    run(spark, lake, PIPELINE, [visit("a", 1, 0, "a"), visit("b", 1, 25, "b")])
    run(spark, lake, PIPELINE, [visit("b", 2, 26, "c"), visit("a", 2, 0)])
    run(spark, lake, PIPELINE, [visit("a", 3, 5, "d")])
    assert read(spark, lake, COUNTS, "current", "page", "change", "pages") == [
        (0.0, "a", -1, 1),
        (0.0, "a", 1, 1),
        (25.0, "b", -1, 1),
        (25.0, "b", 1, 2),
        (26.0, "c", 1, 2),
        (5.0, "d", 1, 2),
    ]
    assert broken(spark, lake) == []
    words = runtime_of(COUNTS, lake).explain(spark)["computed"]
    assert "rows in the order of the log, those that are taken back among them" in words


@pytest.mark.long
def test_a_row_without_a_key_that_somebody_takes_back_is_undone(spark: SparkSession, lake: Lake) -> None:
    """
    00:00 a · 00:25 b · 00:50 c   one session, told by z at 05:00
    b is taken back by hand       which leaves two, and is told to whom declares retractions
    the retraction is undone      which leaves one again
    """
    paths, counts = replace(PATHS, of=PLAIN), replace(COUNTS, of=PLAIN)
    pipeline = Pipeline(PLAIN, (paths, counts))
    run(spark, lake, pipeline, [visit("a", 1, 0, "a"), visit("b", 1, 25, "b"), visit("c", 1, 50, "c")])
    run(spark, lake, pipeline, [visit("z", 1, 300, "z", visitor="zoe")])
    whole = read(spark, lake, paths)
    assert [path for _, path in whole] == ["a", "a.", "ab", "ab.", "abc", "abc."]
    done = retract(spark, lake, pipeline, PLAIN, RowChoice("page = 'b'"), "wrong", "ann", lambda: NOW)
    assert done is not None
    run(spark, lake, pipeline)
    assert [path for _, path in corrected(spark, lake, paths)] == ["a", "a.", "c", "c."]
    assert (25.0, "b", -1, 2) in read(spark, lake, counts, "current", "page", "change", "pages")
    assert broken(spark, lake, pipeline) == []
    retract(spark, lake, pipeline, PLAIN, RowChoice(undoes=done.id), "right", "ann", lambda: NOW)
    run(spark, lake, pipeline)
    assert corrected(spark, lake, paths) == whole
    assert (25.0, "b", 1, 3) in read(spark, lake, counts, "current", "page", "change", "pages")
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_a_function_follows_what_is_current_of_another_one(spark: SparkSession, lake: Lake) -> None:
    """A late revision changes what was told of a session, and with it what is told of that."""
    followed = Stream(
        name="followed",
        source=Table(PATHS, what="current"),
        format=Json("visitor string, path string"),
        derived={"page": "path", "at": "_origin.at"},
        event_time="at",
        clock=Derived(),
    )
    again = replace(PATHS, name="again", of=followed)
    following = Pipeline(followed, (again,))
    run(spark, lake, PIPELINE, [visit("a", 1, 0, "a"), visit("z", 1, 300, "z", visitor="zoe")])
    run(spark, lake, following)
    assert read(spark, lake, again) == [(0.0, "a"), (20.0, "a."), (20.0, "aa."), (40.0, "aa..")]
    run(spark, lake, PIPELINE, [visit("a", 2, 1, "b")])
    corrected(spark, lake)
    run(spark, lake, PIPELINE)
    run(spark, lake, following)
    assert corrected(spark, lake, again) == [(1.0, "b"), (21.0, "b."), (21.0, "bb."), (41.0, "bb..")]
    assert broken(spark, lake, following) == []


@pytest.mark.long
def test_what_is_built_anew_or_restored_is_of_the_rows_that_stand(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    run(spark, lake, PIPELINE, [visit("a", 1, 0, "a"), visit("b", 1, 25, "b"), visit("c", 1, 50, "c")])
    run(spark, lake, PIPELINE, [visit("z", 1, 300, "z", visitor="zoe"), visit("p", 1, 10, "p", visitor="bob")])
    run(spark, lake, PIPELINE, [visit("b", 2, 0)])
    apart = corrected(spark, lake)
    savepoint(lake, PIPELINE, "then", lambda: NOW)
    run(spark, lake, PIPELINE, [visit("c", 2, 0)])
    assert corrected(spark, lake) == apart[:2]
    for keyed in (PATHS, COUNTS):
        rebuild(spark, lake, PIPELINE, keyed, now=lambda: NOW)
    run(spark, lake, PIPELINE)
    assert corrected(spark, lake) == apart[:2]
    assert broken(spark, lake) == []
    elsewhere = Lake(str(tmp_path / "other"))
    restore_to(lake, PIPELINE, "then", elsewhere)
    assert read(spark, elsewhere) == apart
    assert broken(spark, elsewhere) == []


@pytest.mark.long
def test_a_person_is_erased_from_what_is_corrected_and_from_what_was_taken_back(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, PIPELINE, [visit("a", 1, 0, "a"), visit("b", 1, 25, "b")])
    run(spark, lake, PIPELINE, [visit("z", 1, 300, "z", visitor="zoe"), visit("p", 1, 10, "p", visitor="bob")])
    run(spark, lake, PIPELINE, [visit("b", 2, 0)])
    assert corrected(spark, lake) == [(0.0, "a"), (20.0, "a.")]
    erase(spark, lake, PIPELINE, Person("visitor", "ann"), now=lambda: NOW)
    assert corrected(spark, lake) == []
    assert read(spark, lake, COUNTS, "current", "page") == []
    assert broken(spark, lake) == []


def test_a_function_that_reads_the_change_of_a_row_declares_it() -> None:
    undeclared = replace(PATHS, of=PLAIN, on_row=tell_change, timers={"left": tell_change_of_timer})
    with pytest.raises(FunctionError, match=r"key.change is for functions that declare retractions=True"):
        play(undeclared, [visit("a", 1, 0, "a"), visit("a", 1, 90, "z")])
    declared = replace(undeclared, order="arrival", retractions=True)
    # Nothing takes a row of such a stream back, unless somebody does by hand.
    assert [row[2] for row in play(declared, [visit("a", 1, 0, "a")], end_of_input=True).outputs[""]] == [
        "1",
        "timer: None",
    ]
    with pytest.raises(DeclarationError, match=r"state field 'change'.*name that is taken"):
        replace(declared, state="change int")
    assert replace(undeclared, state="change int").state_schema.names == ["change"]
    with pytest.raises(DeclarationError, match=r"rows that stand.*order='arrival'"):
        replace(declared, order="event")
    with pytest.raises(DeclarationError, match="True or False"):
        replace(declared, retractions="yes")  # type: ignore[arg-type]


def test_a_function_played_without_spark_refuses_rows_that_are_taken_back() -> None:
    for keyed in (PATHS, COUNTS):
        with pytest.raises(DeclarationError, match=r"only Spark can tell.*testing.run"):
            play(keyed, [visit("a", 1, 0, "a")])


def pieces(of: Stream) -> dict[str, Keyed]:
    """One of each kind of keyed function there is."""
    by = ("visitor",)
    return {
        "arrival": replace(PATHS, of=of, order="arrival"),
        "arrival without idle": replace(PATHS, of=of, order="arrival", idle=None),
        "event without idle": replace(PATHS, of=of, idle=None),
        "count_window": count_window("w", of, size=2, by=by, value="page", function=joins, result="path string"),
        "triggered_window": triggered_window(
            "w", of, by=by, trigger=CountTrigger(3), value="page", function=joins, result="path string"
        ),
        "marker_window": marker_window(
            "w", of, by=by, starts=is_true, ends=is_true, value="page", function=joins, result="path string"
        ),
        "rolling": rolling("w", of, {"rows": "count(*)"}, by=by),
        "reduced": reduced("w", of, function=adds, result="total bigint", by=by),
        "flat_mapped": flat_mapped("w", of, function=maps, state="last string", result="page string", by=by),
        "top": top("w", of, n=2, item="page", value="version", by=by),
        "iterated": iterated("w", of, value="version", body=bool, goes_on=is_true, by=by),
        "latest": latest("w", of, by=by),
        "deduplicated": deduplicated("w", of, by=by, horizon="7 days"),
        "followed_by": followed_by("w", of, first=is_true, then=is_true, within="1 minute", by=by),
        "not_followed_by": not_followed_by("w", of, first=is_true, then=is_true, within="1 minute", by=by),
        "absence": absence("w", of, by=by, after="1 minute"),
    }


@pytest.mark.parametrize("kind", pieces(PLAIN))
def test_a_function_that_would_take_a_revision_for_an_event_is_refused_with_a_way_out(kind: str) -> None:
    keyed = pieces(VISITS)[kind]
    with pytest.raises(DeclarationError, match="declare") as refused:
        Pipeline(VISITS, (keyed,))
    assert "which is taken back late" in str(refused.value) or "one that stands" in str(refused.value)
    assert pieces(PLAIN)[kind].refuses(PLAIN), "rows may be taken back by hand"
    # The way out that it names.
    Pipeline(VISITS, (replace(keyed, order="event", idle="1 hour"),))


def test_rules_whose_rows_are_taken_back_are_refused() -> None:
    rules = replace(VISITS, name="rules", source=Files("landing/rules"))
    ruled = replace(PATHS, of=PLAIN, rules=Pinned(rules, by=("visitor",)))
    with pytest.raises(DeclarationError, match=r"a rule would stay in force whose row is taken back.*a history"):
        Pipeline(name="both", streams=(PLAIN, rules), operators=(ruled,))
    by_hand = replace(rules, key=(), sequence=None, deletes=None)
    pinned = replace(PATHS, of=PLAIN, rules=Pinned(by_hand, by=("visitor",)))
    assert pinned.refuses(by_hand) and not pinned.refuses(PLAIN)


def test_a_function_of_several_streams_follows_those_that_have_a_key() -> None:
    others = replace(PLAIN, name="others", source=Files("landing/others"))
    both = replace(PATHS, of=(VISITS, others))
    Pipeline(name="both", streams=(VISITS, others), operators=(both,))
    with pytest.raises(DeclarationError, match="declare idle"):
        Pipeline(name="both", streams=(VISITS, others), operators=(replace(both, idle=None),))


def test_first_results_are_delivered_and_followed_as_they_were_emitted() -> None:
    """What a function emits takes nothing back, though rows of its stream do; late rows are of its log."""
    out = JsonLines("out")
    deliveries = tuple(Delivery(f"out_{keyed.name}", keyed, out, what="rows") for keyed in (PATHS, COUNTS))
    Pipeline(VISITS, (PATHS, COUNTS), deliveries=deliveries)
    with pytest.raises(DeclarationError, match="would deliver rows of stream 'visits' that take back others"):
        Pipeline(VISITS, (PATHS,), deliveries=(Delivery("out", VISITS, out, what="rows"),))
    assert not Table(PATHS).takes_back
