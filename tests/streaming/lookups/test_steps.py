"""Steps of enrichments on Spark: killed between any commits, cut within a batch, waiting, audited, delivered."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Delivery, Enriched, Files, Json, JsonLines, LookupRequest, Pipeline, Stream
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, FencedError
from streaming.lake.lake import Lake
from streaming.lookups import steps as steps_of_enrichments
from streaming.operations.maintenance import maintain
from streaming.operations.undeclared import undeclared_tables
from streaming.operators.runtime import Written, runtime_of
from tests.support.delivering import Courier
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run, tuples
from tests.support.tally import Tally

events = Stream(
    name="events",
    source=Files("landing/events", files_per_batch=1),
    format=Json("id string not null, at timestamp not null, n bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)
CALLS: Counter[str] = Counter()
KEYS: set[tuple[str, str]] = set()


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    CALLS.clear()
    KEYS.clear()


async def ask(row: Any, request: LookupRequest) -> dict[str, Any] | None:
    """`none` is not found, `bad` never answered well, all others are."""
    CALLS[row.id] += 1
    KEYS.add((row.id, request.key))
    if row.id == "bad":
        raise ValueError("bad")
    return None if row.id == "none" else {"name": row.id.upper()}


asked = Enriched("asked", events, ask, {"name": "string"}, retries=1, timeout="30 seconds")
BATCHES = (
    [{"id": id_, "at": at(n).isoformat(), "n": n} for n, id_ in enumerate(("a", "bad", "none", "b"))],
    ["broken"],
    [{"id": id_, "at": at(n).isoformat(), "n": n} for n, id_ in enumerate(("c", "a", "c"), start=90_000)],
)


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with three batches in the log, for which nobody has asked."""
    lake = Lake(str(tmp_path_factory.mktemp("logged") / "lake"))
    run(spark, lake, Pipeline(events, (Tally("tally", (events,)),)), *BATCHES)
    return lake


@pytest.fixture
def copied(logged: Lake, tmp_path: Path) -> Lake:
    """A copy of it, which a test may change."""
    shutil.copytree(logged.root, tmp_path / "copy", ignore=shutil.ignore_patterns("landing"))
    return Lake(str(tmp_path / "copy"))


def follow(spark: SparkSession, lake: Lake, of: Enriched = asked) -> Iterator[Written]:
    with closing(runtime_of(of, lake)) as runtime:
        for step in runtime.steps(spark, lambda: NOW):
            yield step.run()


def rows(spark: SparkSession, lake: Lake, *columns: str, of: Enriched = asked, side: str = "current") -> list[Any]:
    """In the order of the log."""
    return [tuple(row) for row in runtime_of(of, lake).readable[side](spark).select(*columns).collect()]


@pytest.mark.long
def test_steps_that_are_killed_between_any_commits_write_each_row_once_and_ask_once_more_at_most(
    spark: SparkSession, logged: Lake, tmp_path: Path
) -> None:
    golden = [("a", "A", 0), ("none", None, 0), ("b", "B", 0), ("c", "C", 2), ("a", "A", 2), ("c", "C", 2)]
    # Two steps commit results and pending rows, then failures as well, as the second attempt is in vain.
    for kill in range(1, 6):
        lake = Lake(str(tmp_path / str(kill)))
        shutil.copytree(logged.path("events", "log"), lake.path("events", "log"))
        CALLS.clear()
        KEYS.clear()
        with pytest.MonkeyPatch.context() as dying:
            killed_at(kill, dying)
            with pytest.raises(Killed):
                list(follow(spark, lake))
        list(follow(spark, lake))
        assert rows(spark, lake, "id", "name", "_batch") == golden, kill
        assert rows(spark, lake, "id", "attempts", side="failed") == [("bad", 2)], kill
        assert rows(spark, lake, "id", side="pending") == [], kill
        expected = Counter({"a": 2, "bad": 2, "none": 1, "b": 1, "c": 2})
        assert all(CALLS[id_] <= 2 * count for id_, count in expected.items()), (kill, CALLS)
        assert CALLS["bad"] <= 3, kill
        # Whoever is asked knows a row by its key.
        assert len(KEYS) == 7, kill


def test_rows_of_a_key_share_a_call_and_answers_are_kept(spark: SparkSession, copied: Lake) -> None:
    by_id = replace(asked, key=("id",), cache="1 hour", on_failure="default", default={"name": "?"}, retries=0)
    list(follow(spark, copied, by_id))
    assert Counter({"a": 1, "bad": 1, "none": 1, "b": 1, "c": 1}) == CALLS
    answers = rows(spark, copied, "id", "name", "_cached", "_error", of=by_id)
    assert answers[:4] == [
        ("a", "A", False, None),
        ("bad", "?", False, "ValueError: bad"),
        ("none", "?", False, None),
        ("b", "B", False, None),
    ]
    run(spark, copied, Pipeline(events, (by_id,)), [{"id": "b", "at": at(5).isoformat()}])
    # Another process has another memory.
    assert CALLS["b"] == 2
    with closing(runtime_of(by_id, copied)) as runtime:
        for id_ in ("d", "d"):
            run(spark, copied, Pipeline(events, (Tally("tally", (events,)),)), [{"id": id_, "at": at(6).isoformat()}])
            for step in runtime.steps(spark, lambda: NOW):
                step.run()
    assert CALLS["d"] == 1
    assert rows(spark, copied, "id", "name", "_cached", of=by_id)[-2:] == [("d", "D", False), ("d", "D", True)]


def test_a_row_of_which_the_selection_cannot_be_computed_fails_without_a_call_and_stops_no_other(
    spark: SparkSession, copied: Lake
) -> None:
    """`b` cannot be computed; it waits behind `bad` when the process ends, and the next one knows why it fails."""
    part = replace(asked, select={"id": "id", "part": "6 div (n - 3)"})
    steps = follow(spark, copied, part)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    why = "column 'part' cannot be computed: 6 div (n - 3), of n=3"
    assert rows(spark, copied, "id", "part", "_attempts", "_error", of=part, side="pending")[:3] == [
        *(("bad", -3, 1, "ValueError: bad"), ("none", -6, 1, None), ("b", None, 0, why))
    ]
    list(follow(spark, copied, part))
    assert CALLS["b"] == 0
    assert rows(spark, copied, "id", "kind", "error", "attempts", of=part, side="failed") == [
        *(("bad", "error", "ValueError: bad", 2), ("b", "error", why, 0))
    ]
    assert rows(spark, copied, "id", "name", of=part)[:3] == [("a", "A"), ("none", None), ("c", "C")]
    assert all(finding.holds for finding in audit(spark, copied, Pipeline(events, (part,))))

    # Rows of which the key cannot be computed have no key in common.
    by_id = {"id": "if(n in (1, 3), raise_error('no id'), id)"}
    keyed = replace(asked, name="keyed", select=by_id, key=("id",), cache="1 hour", on_failure="null", retries=0)
    CALLS.clear()
    list(follow(spark, copied, keyed))
    assert Counter({"a": 1, "none": 1, "c": 1}) == CALLS
    refused = f"column 'id' cannot be computed: {by_id['id']}, of "
    assert rows(spark, copied, "id", "name", "_error", of=keyed)[:4] == [
        ("a", "A", None),
        (None, None, refused + "id='bad', n=1"),
        ("none", None, None),
        (None, None, refused + "id='b', n=3"),
    ]


@pytest.mark.long
def test_a_batch_with_more_rows_than_may_wait_is_taken_in_pieces(
    spark: SparkSession, copied: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_of_enrichments, "_WAITING_AT_MOST", 3)
    pieces = follow(spark, copied, replace(asked, retries=0))
    assert next(pieces).rows + DeltaTable(copied.table(asked, "failed")).count() == 3
    table = DeltaTable(copied.table(asked))
    assert [table.transaction_version(name) for name in ("through", "row")] == [-1, 3]
    pieces.close()  # type: ignore[attr-defined]
    list(follow(spark, copied, replace(asked, retries=0)))
    assert [row[0] for row in rows(spark, copied, "id")] == ["a", "none", "b", "c", "a", "c"]
    assert all(finding.holds for finding in audit(spark, copied, Pipeline(events, (asked,))))


@pytest.mark.long
def test_the_audit_sees_a_row_that_is_missing_and_another_process_is_refused(spark: SparkSession, copied: Lake) -> None:
    away = runtime_of(asked, copied)
    steps = away.steps(spark, lambda: NOW)
    step = next(steps)
    list(follow(spark, copied))
    with pytest.raises(FencedError, match="enrichment 'asked' was at step -1 and is at step"):
        step.run()
    away.close()
    DeltaTable(copied.table(asked)).alter.set_table_properties({"delta.appendOnly": "false"})
    DeltaTable(copied.table(asked)).delete("id = 'none'")
    (broken,) = (each for each in audit(spark, copied, Pipeline(events, (asked,))) if each.broken)
    assert (broken.law, broken.subject, broken.broken) == ("conservation", "asked", 1)


@pytest.mark.long
def test_how_it_asks_may_change_and_what_it_answers_with_may_not(spark: SparkSession, copied: Lake) -> None:
    list(follow(spark, copied))
    other = replace(asked, version=2, timeout="1 minute", key=("id",), order="as they come", on_failure="null")
    runtime_of(other, copied).check()
    refused = r"enrichment 'asked' is not the one .* result 'name' was string and is binary.*under a new name"
    with pytest.raises(ChangedDeclaration, match=refused):
        runtime_of(replace(asked, result={"name": "binary"}), copied).check()
    run(spark, copied, Pipeline(events, (other,)), [{"id": "bad", "at": at(5).isoformat()}])
    assert rows(spark, copied, "id", "_version", "_error")[-1] == ("bad", 2, "ValueError: bad")
    explanation = runtime_of(other, copied).explain(spark)
    assert explanation["position"] == "batch 3 of 3; never built anew"
    assert explanation["errors"] == (
        "after 2 attempts of at most 1 minute each they come with nulls. 1 row in asked_failed"
    )
    pipeline = Pipeline(events, (other,))
    assert {"asked", "asked_failed"} <= {entry.table for entry in maintain(copied, pipeline)}
    assert list(undeclared_tables(copied, Pipeline(events, (other, Tally("tally", (events,)))))) == []


@pytest.mark.long
def test_rows_and_failures_are_delivered_step_by_step(spark: SparkSession, copied: Lake) -> None:
    list(follow(spark, copied))
    own = Delivery("own", asked, JsonLines("own", by="none"), select=("id", "name"))
    failed = Delivery("out", asked, JsonLines("out", by="none"), output="failed")
    assert [Courier(spark, copied, each).deliver(all_of_it=True) for each in (own, failed)] == [1, 1]
    (path,) = (path for path in Path(copied.root, "out").rglob("*.json") if path.parent.name != "_delivered")
    assert '"id":"bad"' in path.read_text() and '"kind":"error"' in path.read_text()
    assert tuples(runtime_of(asked, copied).readable["failed"](spark), "error") == [("ValueError: bad",)]
