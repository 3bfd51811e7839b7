"""Whole extracts of a table: what is new, changed or gone becomes revisions, and what was cut off changes nothing."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    Rule,
    Snapshots,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError
from streaming.log import read_batches, read_log
from streaming.revisions.steps import rows_now
from tests.support.instants import NOW, at
from tests.support.runs import read_current, run
from tests.support.seeds import draws
from tidemark.testing import correct

CUSTOMERS = Stream(
    name="customers",
    source=Files("landing/customers", files_per_batch=1),
    format=Json("id bigint, segment string, since timestamp, tags array<string>"),
    event_time="since",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    rules=(Rule("segment", "segment <> ''"),),
    key=("id",),
    snapshots=Snapshots(at_most_gone=0.4),
)
BY_MINUTE = Windowed("by_minute", CUSTOMERS, Tumbling("1 minute"), {"customers": agg.count()}, by=("segment",))
PIPELINE = Pipeline(CUSTOMERS, (BY_MINUTE,))


def customer(number: int, segment: str, seconds: float = 5, tags: Sequence[str] = ("a",)) -> dict[str, Any]:
    return {"id": number, "segment": segment, "since": at(seconds).isoformat(), "tags": [*tags]}


def stands(spark: SparkSession, lake: Lake) -> list[tuple[int, str]]:
    return [(row["id"], row["segment"]) for row in rows_now(spark, lake, CUSTOMERS).collect()]


def changes(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    rows = read_log(spark, lake, CUSTOMERS).where("_day is not null")
    return sorted(tuple(row) for row in rows.selectExpr("_batch", "_origin.change", "id", "segment").collect())


def broken(spark: SparkSession, lake: Lake) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds]


@pytest.mark.long
def test_only_what_is_new_changed_or_gone_is_told(spark: SparkSession, lake: Lake) -> None:
    """
    1st extract  1 gold · 2 silver · 3 gold
    2nd extract  1 gold · 2 gold            · 4 silver
    3rd extract  1 gold · 2 gold · 3 gold   · 4 silver
    """
    first = [customer(1, "gold"), customer(2, "silver"), customer(3, "gold")]
    run(spark, lake, PIPELINE, first, [customer(1, "gold"), customer(2, "gold"), customer(4, "silver")])
    assert changes(spark, lake) == [
        *((0, 1, 1, "gold"), (0, 1, 2, "silver"), (0, 1, 3, "gold")),
        *((1, -1, 2, "silver"), (1, -1, 3, "gold"), (1, 1, 2, "gold"), (1, 1, 4, "silver")),
    ]
    again = [customer(1, "gold"), customer(2, "gold"), customer(3, "gold"), customer(4, "silver")]
    run(spark, lake, PIPELINE, again)
    assert changes(spark, lake)[7:] == [(2, 1, 3, "gold")]
    assert stands(spark, lake) == [(1, "gold"), (2, "gold"), (3, "gold"), (4, "silver")]
    assert broken(spark, lake) == []


def test_an_extract_that_was_cut_off_is_refused_and_no_key_is_taken_for_gone(spark: SparkSession, lake: Lake) -> None:
    whole = [customer(number, "gold") for number in range(10)]
    run(spark, lake, PIPELINE, whole, whole[:5])
    assert len(stands(spark, lake)) == 10
    assert [batch.revised.get("refused") for batch in read_batches(lake, CUSTOMERS)] == [5, 0]
    # A row that is rejected has no key that anybody knows.
    run(spark, lake, PIPELINE, [*whole[:8], customer(8, "")])
    assert len(stands(spark, lake)) == 10
    run(spark, lake, PIPELINE, [*whole[:7], customer(7, "silver")])
    assert stands(spark, lake) == [*((number, "gold") for number in range(7)), (7, "silver")]
    assert broken(spark, lake) == []


@pytest.mark.parametrize("lost", ["the last batch", pytest.param("all of it", marks=pytest.mark.long)])
@pytest.mark.parametrize(("share", "later"), [(0.4, 1.0), pytest.param(1.0, 0.4, marks=pytest.mark.long)])
def test_what_the_changes_have_of_an_extract_stands_whatever_share_may_be_gone_by_now(
    spark: SparkSession, lake: Lake, tmp_path: Path, lost: str, share: float, later: float
) -> None:
    """A process dies between the changes and what stands; or what stands is lost. Then the share is another one."""
    before, after = (_of_share(each) for each in (share, later))
    whole = [customer(number, "gold") for number in range(10)]
    run(spark, lake, before, whole)
    shutil.copytree(lake.standing(CUSTOMERS), tmp_path / "standing")
    run(spark, lake, before, whole[:5])
    stood = stands(spark, lake)
    assert len(stood) == (10 if share < 1 else 5)
    shutil.rmtree(lake.standing(CUSTOMERS))
    if lost == "the last batch":
        shutil.copytree(tmp_path / "standing", lake.standing(CUSTOMERS))
    run(spark, lake, after)
    assert stands(spark, lake) == stood
    assert [finding for finding in audit(spark, lake, after) if not finding.holds] == []
    run(spark, lake, after, whole[:4])
    assert len(stands(spark, lake)) == 4
    assert [finding for finding in audit(spark, lake, after) if not finding.holds] == []


def _of_share(at_most_gone: float) -> Pipeline:
    stream = replace(CUSTOMERS, snapshots=Snapshots(at_most_gone=at_most_gone))
    return Pipeline(stream, (replace(BY_MINUTE, of=stream),))


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_what_stands_is_the_newest_whole_extract_whatever_it_has(spark: SparkSession, lake: Lake, seed: int) -> None:
    chance = draws(f"extracts {seed}")
    extracts = [_extract(chance) for _ in range(4)]
    free = replace(CUSTOMERS, snapshots=Snapshots(at_most_gone=1.0))
    view = replace(BY_MINUTE, of=free)
    pipeline = Pipeline(free, (view,))
    run(spark, lake, pipeline, *extracts, [*extracts[-1], customer(99, "end", 500)])
    correct(spark, lake, view, lambda: NOW)
    last = {row["id"]: row for row in reversed([*extracts[-1], customer(99, "end", 500)])}
    assert stands(spark, lake) == [(number, last[number]["segment"]) for number in sorted(last)]
    counted: dict[tuple[str, int], int] = {}
    for row in last.values():
        if row["id"] != 99:
            key = row["segment"], (int(row["since"][14:16]))
            counted[key] = counted.get(key, 0) + 1
    rows = read_current(spark, lake, view).selectExpr("segment", "minute(window_start)", "customers").collect()
    assert sorted(tuple(row) for row in rows) == sorted((*key, number) for key, number in counted.items())
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def _extract(chance: random.Random) -> list[dict[str, Any]]:
    numbers = chance.sample(range(12), chance.randint(1, 10))
    return [
        customer(
            number, chance.choice(("gold", "silver")), chance.choice((5, 65)), chance.choice((("a",), (), ("b", "a")))
        )
        for number in numbers
    ]


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"sequence": "id"}, "leave both out"),
        ({"source": Files("landing/customers")}, "files_per_batch=1"),
        ({"key": ()}, "has no key"),
    ],
)
def test_a_stream_whose_batches_are_no_extracts_is_refused(changed: dict[str, Any], refusal: str) -> None:
    with pytest.raises(DeclarationError, match=refusal):
        replace(CUSTOMERS, **changed)
