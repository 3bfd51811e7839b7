"""Deletes that are forgotten after a while: what leaves the state, and what becomes of revisions that come later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    History,
    Json,
    Lake,
    Pipeline,
    Snapshots,
    Stream,
    Tumbling,
    Windowed,
    agg,
    why,
)
from streaming.audit.laws import audit
from streaming.base import ChangedDeclaration, DeclarationError
from streaming.log import read_batches
from streaming.operators.runtime import frame
from streaming.revisions.steps import of_revisions, rows_now
from streaming.tables import delta, storage
from tests.support.instants import NOW, at
from tests.support.runs import run
from tests.support.seeds import draws

DELAY, FORGET = 10, 60
ORDERS = Stream(
    name="orders",
    source=Files("landing/orders", files_per_batch=1),
    format=Json("id string, version bigint, at timestamp, op string"),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY} seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="op = 'd'",
    forget=f"{FORGET} seconds",
)
BY_MINUTE = Windowed("by_minute", ORDERS, Tumbling("1 minute"), {"orders": agg.count()})
PIPELINE = Pipeline(ORDERS, (BY_MINUTE,))

Revision = tuple[str, int, int | None, str]
"""Key, version, event time in seconds of the drawing, and what it is: u or d."""


def order(of: Revision) -> dict[str, Any]:
    id, version, seconds, op = of
    return {"id": id, "version": version, "at": None if seconds is None else at(seconds).isoformat(), "op": op}


def go(spark: SparkSession, lake: Lake, *batches: Sequence[Revision], pipeline: Pipeline = PIPELINE) -> None:
    run(spark, lake, pipeline, *([order(each) for each in batch] for batch in batches))


def stands(spark: SparkSession, lake: Lake) -> list[tuple[str, int]]:
    return [(row["id"], row["version"]) for row in rows_now(spark, lake, ORDERS).collect()]


def forgotten(spark: SparkSession, lake: Lake) -> list[tuple[int, str, int]]:
    rows = of_revisions(lake, ORDERS)["forgotten"](spark).select("_batch", "id", "version").collect()
    return sorted(tuple(row) for row in rows)


def remembered(spark: SparkSession, lake: Lake) -> list[str]:
    """The keys of which the state holds a delete."""
    state = delta.read(spark, lake.standing(ORDERS)).where("_added is null")
    return sorted(row["id"] for row in state.select("id").collect())


def broken(spark: SparkSession, lake: Lake) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds]


def test_a_delete_is_forgotten_and_what_may_be_older_than_it_is_told_and_changes_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    """
    batch 0   00:10  a v1                                  clock 00:00
    batch 1   00:20  a v3 deleted: its time is 00:20       clock 00:10
    batch 2   00:90  b v1                                  clock 01:20, a minute after the delete: still remembered
    batch 3   00:15  a v2                                  superseded
    batch 4   01:31  b v2                                  clock 01:21: the delete is forgotten
    batch 5   00:15  a v2, 00:20 c v1                      nobody knows them, and they are not after 00:20: forgotten
              00:21  d v1                                  late, and after 00:20: added
    batch 6   01:35  a v1                                  the key is used again
    """
    go(spark, lake, [("a", 1, 10, "u")], [("a", 3, 20, "d")], [("b", 1, 90, "u")], [("a", 2, 15, "u")])
    assert (stands(spark, lake), remembered(spark, lake)) == ([("b", 1)], ["a"])
    go(spark, lake, [("b", 2, 91, "u")])
    assert remembered(spark, lake) == []
    go(spark, lake, [("a", 2, 15, "u"), ("c", 1, 20, "u"), ("d", 1, 21, "u")])
    assert stands(spark, lake) == [("b", 2), ("d", 1)]
    assert forgotten(spark, lake) == [(5, "a", 2), (5, "c", 1)]
    (reasons,) = of_revisions(lake, ORDERS)["forgotten"](spark).select("_rejected").distinct().collect()
    assert "deletes up to 2026-01-01T00:00:20+00:00 are forgotten" in reasons[0][0]
    go(spark, lake, [("a", 1, 95, "u")])
    assert stands(spark, lake) == [("a", 1), ("b", 2), ("d", 1)]
    told = [batch.revised for batch in sorted(read_batches(lake, ORDERS), key=lambda each: each.number)]
    assert [(each["superseded"], each["forgotten"]) for each in told] == [(0, 0)] * 3 + [(1, 0), (0, 0), (0, 2), (0, 0)]
    assert broken(spark, lake) == []
    with_history = Pipeline(ORDERS, (History("intervals", ORDERS),))
    go(spark, lake, pipeline=with_history)
    answer = why(with_history, "intervals", {"id": "a"}, lake=lake, spark=spark)
    assert (answer.agrees, [(row.batch, row.values["version"]) for row in answer.counting]) == (
        True,
        [(0, 1), (1, 3), (3, 2), (6, 1)],
    )
    (ignored,) = [row for row in answer.inputs if not row.counts]
    assert (ignored.batch, ignored.reason) == (5, "forgotten: the stream knew nothing of its key any more")


@dataclass
class Oracle:
    """The same in plain Python, a batch after the other."""

    known: dict[str, tuple[int, bool, int]] = field(default_factory=dict)
    told: list[tuple[int, str, int]] = field(default_factory=list)
    greatest: int | None = None
    until: int | None = None

    def batch(self, number: int, revisions: Sequence[Revision]) -> None:
        stamp = None if self.greatest is None else self.greatest - DELAY
        came = int((NOW - at(0)).total_seconds())
        for id, version, seconds, op in revisions:
            time = came if seconds is None else seconds
            if id not in self.known and self.until is not None and time <= self.until:
                self.told.append((number, id, version))
            elif id not in self.known or self.known[id][0] < version:
                self.known[id] = (version, op == "d", time if stamp is None else max(time, stamp))
        seen = [seconds for *_, seconds, _ in revisions if seconds is not None]
        self.greatest = max([*seen, *([] if self.greatest is None else [self.greatest])], default=None)
        if self.greatest is not None:
            gone = {
                id: time
                for id, (_, is_gone, time) in self.known.items()
                if is_gone and time + FORGET < self.greatest - DELAY
            }
            self.until = max([*gone.values(), *([] if self.until is None else [self.until])], default=None)
            for id in gone:
                del self.known[id]


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))])
def test_what_stands_and_what_is_forgotten_is_what_plain_python_says_of_drawn_revisions_also_when_made_anew(
    spark: SparkSession, lake: Lake, seed: int
) -> None:
    chance = draws(f"forgotten deletes {seed}")
    now, batches = 0, []
    for _ in range(12):
        now += chance.choice((0, 10, 30, 70))
        batches.append(
            [
                (
                    chance.choice("abcdefghijklmn"),
                    chance.randint(1, 9),
                    max(now - chance.choice((0, 0, 5, 150, 200, 300)), 0),
                    chance.choice("ud"),
                )
                for _ in range(chance.randint(1, 5))
            ]
        )
    oracle = Oracle()
    for number, batch in enumerate(batches):
        oracle.batch(number, batch)
    cut = chance.randint(1, 11)
    go(spark, lake, *batches[:cut])
    go(spark, lake, *batches[cut:])
    standing = sorted((id, version) for id, (version, is_gone, _) in oracle.known.items() if not is_gone)
    for lost in ((), (lake.standing(ORDERS),), (lake.log(ORDERS), lake.batches(ORDERS), lake.standing(ORDERS))):
        for table in lost:
            storage.remove_folder(table)
        go(spark, lake, pipeline=Pipeline(ORDERS, (replace(BY_MINUTE, name=f"view_{len(lost)}"),))) if lost else None
        assert stands(spark, lake) == standing
        assert forgotten(spark, lake) == sorted(oracle.told)
        assert remembered(spark, lake) == sorted(id for id, (_, is_gone, _) in oracle.known.items() if is_gone)
    if seed == 0:
        pipeline = Pipeline(ORDERS, (replace(BY_MINUTE, name="view_3"),))
        assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


@pytest.mark.long
def test_a_history_has_what_the_stream_has_not_forgotten(spark: SparkSession, lake: Lake) -> None:
    """
    batch 0   00:10  a v1                    |----|
    batch 1   00:20  a v3 deleted                 x
    batch 2   01:40  b v1                                   |----->    clock 01:30: the delete is forgotten
    batch 3   00:15  a v2, 00:20 c v1        forgotten, and in no interval
              01:35  a v1                                 |------->    the key is used again
    """
    history, newest = History("h", ORDERS), History("n", ORDERS, kind=1)
    pipeline = Pipeline(ORDERS, (history, newest))
    go(spark, lake, [("a", 1, 10, "u")], [("a", 3, 20, "d")], [("b", 1, 100, "u")], pipeline=pipeline)
    go(spark, lake, [("a", 2, 15, "u"), ("c", 1, 20, "u"), ("a", 1, 95, "u")], pipeline=pipeline)
    begins = int(at(0).timestamp())
    told = frame(spark, lake, history).selectExpr(
        "id", f"unix_seconds(valid_from) - {begins}", f"unix_seconds(valid_to) - {begins}"
    )
    assert sorted((tuple(row) for row in told.collect()), key=str) == [
        *(("a", 10, 20), ("a", 95, None), ("b", 100, None)),
    ]
    assert sorted(row["id"] for row in frame(spark, lake, newest).collect()) == ["a", "b"]
    assert stands(spark, lake) == [("a", 1), ("b", 1)]
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


@pytest.mark.long
def test_another_length_is_refused_on_what_is_there(spark: SparkSession, lake: Lake) -> None:
    go(spark, lake, [("a", 1, 10, "u")])
    longer = replace(ORDERS, forget="1 hour")
    with pytest.raises(ChangedDeclaration, match="another key, sequence, deletes or forget"):
        go(spark, lake, [("a", 2, 20, "u")], pipeline=Pipeline(longer, (replace(BY_MINUTE, of=longer),)))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"forget": "0 seconds"}, "is how long a delete is remembered, and none would be"),
        ({"deletes": None}, "the stream declares no deletes"),
        ({"deletes": None, "sequence": None, "snapshots": Snapshots()}, "has extracts, which say anew what is gone"),
        ({"key": (), "deletes": None, "sequence": None}, "is about revisions, and it has no key"),
    ],
)
def test_a_stream_that_would_forget_nothing_or_all_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says):
        replace(ORDERS, **changed)
