"""Laws of histories: whatever the order, cuts and kills, the intervals are those between all revisions of a key.

The oracle is plain Python over the revisions as they were sent, and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming import History, Lake, Pipeline
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.changes import Publishing
from streaming.declare import CURRENT
from streaming.operators.runtime import frame
from streaming.tables import delta
from tests.support.customers import CUSTOMERS
from tests.support.instants import T0, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run
from tests.support.seeds import draws

ALL = History("every", CUSTOMERS)
SEGMENTS = History("segments", CUSTOMERS, track=("segment",))
NEWEST = History("newest", CUSTOMERS, kind=1)
NEWEST_SEGMENT = History("newest_segment", CUSTOMERS, kind=1, track=("segment",))
PIPELINE = Pipeline(CUSTOMERS, (ALL, SEGMENTS, NEWEST, NEWEST_SEGMENT))


@dataclass(frozen=True)
class Revision:
    id: str
    version: int
    seconds: int
    segment: str | None
    city: str | None
    gone: bool = False

    def payload(self) -> dict[str, Any]:
        return {**vars(self), "at": at(self.seconds).isoformat()}


Interval = tuple[str, int, int | None, str | None, str | None]


def drawn(chance: random.Random) -> list[list[Revision]]:
    """Batches of revisions of a few keys: out of order, of equal times and sequences, deletes, rows sent twice."""
    sent: list[Revision] = []
    batches = []
    for _ in range(chance.choice((4, 5))):
        batch = []
        for _ in range(chance.randint(1, 8)):
            if sent and chance.random() < 0.1:
                batch.append(chance.choice(sent))
                continue
            key, version, seconds = chance.choice("ab"), chance.randint(1, 6), 10 * chance.randint(0, 7)
            if chance.random() < 0.2:
                batch.append(Revision(key, version, seconds, None, None, True))
            else:
                segment = chance.choice((None, "new", "gold"))
                batch.append(Revision(key, version, seconds, segment, chance.choice(("Bonn", "Köln"))))
        sent += batch
        batches.append(batch)
    return batches


def intervals(revisions: list[Revision], *, tracks_all: bool) -> list[Interval]:
    """The intervals of each key: instant after instant, the revision that counts from then on."""
    by_key: dict[str, list[Revision]] = defaultdict(list)
    for each in revisions:
        by_key[each.id].append(each)
    found: list[Interval] = []
    for key, of_key in by_key.items():
        instants = sorted({each.seconds for each in of_key})
        # Of each instant the greatest version counts, of equal ones the first that came.
        counts = [
            max((each for each in of_key if each.seconds == one), key=lambda each: each.version) for one in instants
        ]
        of_one: list[Interval] = []
        for revision, ends in zip(counts, [*instants[1:], None], strict=True):
            if revision.gone:
                continue
            one = (key, revision.seconds, ends, revision.segment, revision.city)
            if not tracks_all and of_one and of_one[-1][2] == one[1] and of_one[-1][3] == one[3]:
                one = (key, of_one.pop()[1], *one[2:])
            of_one.append(one)
        found += of_one
    return sorted(found, key=str)


def published(rows: DataFrame, *, bounded: bool = True) -> list[Interval]:
    origin = int(T0.timestamp())
    ends = f"unix_seconds(valid_to) - {origin}" if bounded else "cast(null as bigint)"
    chosen = rows.selectExpr("id", f"unix_seconds(valid_from) - {origin}", ends, "segment", "city").collect()
    return sorted(map(tuple, chosen), key=str)


@pytest.mark.parametrize("seed", [pytest.param(each, marks=[pytest.mark.long] * (each > 0)) for each in range(12)])
def test_a_history_is_what_all_revisions_say_whatever_came_when_and_was_killed(
    spark: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"histories {seed}")
    # Each history is a step of each batch: the case of every day draws two of them.
    histories = PIPELINE.operators if seed else tuple(chance.sample(PIPELINE.operators, 2))
    pipeline = replace(PIPELINE, operators=histories)
    batches = drawn(chance)
    for batch in batches:
        rows = [each.payload() for each in batch]
        # What was landed before a kill is still there, and comes with the next batch, or at the end.
        with monkeypatch.context() as patched, suppress(Killed, StreamingError):
            if chance.random() < 0.5:
                killed_at(chance.randint(1, 14), patched)
            run(spark, lake, pipeline, rows)
    run(spark, lake, pipeline)
    sent = [each for batch in batches for each in batch]
    for history in histories:
        assert isinstance(history, History)
        expected = intervals(sent, tracks_all=history.track is None)
        if history.kind == 1:
            expected = [each for each in expected if each[2] is None]
        bounded = history.kind == 2
        assert published(frame(spark, lake, history), bounded=bounded) == expected, history.name
        Publishing(lake, history).publish(spark)
        current = delta.read(spark, lake.table(history, CURRENT))
        assert published(current, bounded=bounded) == expected, history.name
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def test_the_oracle_knows_intervals_that_do_not_overlap() -> None:
    chance = draws("oracle of histories")
    for _ in range(200):
        of_key = [each for batch in drawn(chance) for each in batch if each.id == "a"]
        for one, other in pairwise(sorted(intervals(of_key, tracks_all=True), key=lambda each: each[1])):
            assert one[2] is not None and one[2] <= other[1]
