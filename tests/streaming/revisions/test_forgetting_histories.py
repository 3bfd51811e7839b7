"""Histories of streams that forget: which revisions are dropped, and what becomes of those that come later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, History, Json, Lake, Pipeline, Stream, why
from streaming.audit.laws import audit
from streaming.declare import STATE
from streaming.keyed import state_table
from streaming.operations.retract import RowChoice, retract
from streaming.operators.runtime import frame, runtime_of
from streaming.revisions import history as histories
from streaming.tables import delta, storage
from tests.support.instants import NOW, at
from tests.support.runs import run
from tests.support.seeds import draws

DELAY, FORGET = 10, 60
CUSTOMERS = Stream(
    name="customers",
    source=Files("landing/customers", files_per_batch=1),
    format=Json("id string, version bigint, at timestamp, segment string, city string, gone boolean"),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY} seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="gone",
    forget=f"{FORGET} seconds",
)
ALL = History("every", CUSTOMERS)
SEGMENTS = History("segments", CUSTOMERS, track=("segment",))
NEWEST = History("newest", CUSTOMERS, kind=1)
PIPELINE = Pipeline(CUSTOMERS, (ALL, SEGMENTS, NEWEST))

Revision = tuple[str, int, int, str | None, str | None]
"""Key, version, time in seconds of the drawing, segment and city; None for both of a delete."""
Interval = tuple[str, int, int | None, str | None, str | None]


@pytest.fixture
def dropped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each step put the files of its buckets together, so that whatever may be dropped is."""
    monkeypatch.setattr(histories, "FEW_FILES", 1)
    monkeypatch.setattr(state_table, "_FEWEST", 2)


def customer(of: Revision) -> dict[str, Any]:
    id, version, seconds, segment, city = of
    gone = segment is None and city is None
    return {
        "id": id,
        "version": version,
        "at": at(seconds).isoformat(),
        "segment": segment,
        "city": city,
        "gone": gone,
    }


def go(spark: SparkSession, lake: Lake, *batches: Sequence[Revision], pipeline: Pipeline = PIPELINE) -> None:
    run(spark, lake, pipeline, *([customer(each) for each in batch] for batch in batches))


def intervals(spark: SparkSession, lake: Lake, history: History = ALL) -> list[Interval]:
    begins = int(at(0).timestamp())
    ends = f"unix_seconds(valid_to) - {begins}" if history.kind == 2 else "cast(null as bigint)"
    rows = frame(spark, lake, history)
    told = rows.selectExpr("id", f"unix_seconds(valid_from) - {begins}", ends, "segment", "city").collect()
    return sorted((tuple(row) for row in told), key=str)


def forgotten(spark: SparkSession, lake: Lake, history: History = ALL) -> list[tuple[int, str, int]]:
    rows = frame(spark, lake, history, "forgotten").select("_batch", "id", "version").collect()
    return sorted(tuple(row) for row in rows)


def stored(spark: SparkSession, lake: Lake, history: History = ALL) -> list[tuple[str, int]]:
    """The key and the version of each revision in the state."""
    state = delta.read(spark, lake.table(history, STATE))
    return sorted((row["id"], row["version"] or 0) for row in state.select("id", "version").collect())


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def test_a_history_remembers_the_last_of_the_old_revisions_and_forgets_what_comes_before_it(
    spark: SparkSession, lake: Lake, dropped_at_once: None
) -> None:
    """
    batch 0   00:10  a v1 new      |----|
    batch 1   00:20  a v2 gold          |---------------->            clock 00:10
    batch 2   01:40  b v1 new                            |--->        clock 01:30: a's two revisions are old
    batch 3   00:15  a v3 silver   before the last of them: forgotten
              00:40  a v4 silver        |----|-------------->         after it: placed
              00:05  c v1 new      |------------------------>         nothing of c is known: placed
    """
    go(spark, lake, [("a", 1, 10, "new", "Bonn")], [("a", 2, 20, "gold", "Bonn")], [("b", 1, 100, "new", "Kiel")])
    before = intervals(spark, lake)
    assert before == [
        ("a", 10, 20, "new", "Bonn"),
        ("a", 20, None, "gold", "Bonn"),
        ("b", 100, None, "new", "Kiel"),
    ]
    late = [("a", 3, 15, "silver", "Bonn"), ("a", 4, 40, "silver", "Bonn"), ("c", 1, 5, "new", "Ulm")]
    go(spark, lake, late)
    assert intervals(spark, lake) == [
        ("a", 10, 20, "new", "Bonn"),
        ("a", 20, 40, "gold", "Bonn"),
        ("a", 40, None, "silver", "Bonn"),
        ("b", 100, None, "new", "Kiel"),
        ("c", 5, None, "new", "Ulm"),
    ]
    assert forgotten(spark, lake) == [(3, "a", 3)]
    answer = why(PIPELINE, ALL, {"id": "a"}, lake=lake, spark=spark)
    assert (answer.agrees, [row.values["version"] for row in answer.counting]) == (True, [1, 2, 4])
    assert [row.reason for row in answer.inputs if not row.counts] == [
        "forgotten: it came before all that was remembered of its key"
    ]
    told = frame(spark, lake, ALL, "forgotten").select("_reason").first()
    assert told is not None and "a newer revision was known before 2026-01-01T00:00:30+00:00" in told[0]
    assert runtime_of(ALL, lake).position() == "batch 3 of 3; 1 revision forgotten"
    assert [row["_change"] for row in frame(spark, lake, ALL, "signed").select("_change").distinct().collect()] != [0]
    assert stored(spark, lake) == [("a", 2), ("a", 4), ("b", 1), ("c", 1)]
    assert broken(spark, lake) == []


def test_what_is_taken_back_by_hand_is_an_interval_of_which_only_the_last_revision_is_remembered(
    spark: SparkSession, lake: Lake, dropped_at_once: None
) -> None:
    """
    batch 0   00:10  a v1 new, Bonn   |--------------->
    batch 1   00:15  a v2 new, Ulm    |--------------->     the same segment: one interval
    batch 2   00:20  a v3 new, Kiel   |--------------->
    batch 3   01:40  b v1                                   clock 01:30: v1 and v2 are old, and v3
    batch 4          v3 is taken back |---------|           until 00:20, in Ulm
    batch 5          and put back     |--------------->
    """
    pipeline = Pipeline(CUSTOMERS, (SEGMENTS,))
    rows = [("a", version, 5 + 5 * version, "new", city) for version, city in enumerate(("Bonn", "Ulm", "Kiel"), 1)]
    go(spark, lake, *([row] for row in rows), pipeline=pipeline)
    go(spark, lake, [("b", 1, 100, "new", "Bonn")], [("a", 0, 12, "gold", "Bonn")], pipeline=pipeline)
    last = ("b", 100, None, "new", "Bonn")
    assert intervals(spark, lake, SEGMENTS) == [("a", 10, None, "new", "Kiel"), last]
    assert stored(spark, lake, SEGMENTS) == [("a", 2), ("a", 3), ("b", 1)]
    choice = RowChoice(where="id = 'a' and version = 3")
    taken = retract(spark, lake, pipeline, CUSTOMERS, choice, "a typo", "ada", lambda: NOW)
    go(spark, lake, pipeline=pipeline)
    assert taken is not None and intervals(spark, lake, SEGMENTS) == [("a", 10, 20, "new", "Ulm"), last]
    assert broken(spark, lake, pipeline) == []
    retract(spark, lake, pipeline, CUSTOMERS, RowChoice(undoes=taken.id), "it was none", "ada", lambda: NOW)
    go(spark, lake, [("b", 2, 170, "new", "Bonn")], pipeline=pipeline)
    assert intervals(spark, lake, SEGMENTS)[0] == ("a", 10, None, "new", "Kiel")
    assert forgotten(spark, lake, SEGMENTS) == [(4, "a", 0)]
    assert broken(spark, lake, pipeline) == []


class Oracle:
    """What a history makes of revisions, batch by batch, in plain Python over lists."""

    def __init__(self, track: bool) -> None:
        self.track = track
        self.known: dict[str, dict[tuple[int, int], tuple[Revision, int]]] = {}
        """Of each key the revisions by time and version, with the instant from which each grows old."""
        self.stream: dict[str, tuple[int, bool, int]] = {}
        self.told: list[tuple[int, str, int]] = []
        self.greatest: int | None = None
        self.until: int | None = None

    def batch(self, number: int, revisions: Sequence[Revision]) -> None:
        clock = None if self.greatest is None else self.greatest - DELAY
        times = [seconds for _, _, seconds, *_ in revisions]
        self.greatest = max([*times, *([] if self.greatest is None else [self.greatest])])
        after = self.greatest - DELAY
        bases = {id: self.base(of_key, clock) for id, of_key in self.known.items()}
        for revision in revisions:
            id, version, seconds, *_ = revision
            if self.is_forgotten_by_the_stream(revision, clock):
                self.told.append((number, id, version))
                continue
            place, base = (seconds, version), bases.get(id)
            if base is not None and place < base:
                self.told.append((number, id, version))
                continue
            self.known.setdefault(id, {}).setdefault(place, (revision, max(seconds, after)))
        gone = {id: time for id, (_, is_gone, time) in self.stream.items() if is_gone and time + FORGET < after}
        self.until = max([*gone.values(), *([] if self.until is None else [self.until])], default=None)
        for id in gone:
            del self.stream[id]

    def is_forgotten_by_the_stream(self, revision: Revision, stamp: int | None) -> bool:
        id, version, seconds, *values = revision
        if id not in self.stream and self.until is not None and seconds <= self.until:
            return True
        if id not in self.stream or self.stream[id][0] < version:
            is_gone = values == [None, None]
            self.stream[id] = (version, is_gone, seconds if stamp is None else max(seconds, stamp))
        return False

    def base(self, of_key: Mapping[tuple[int, int], tuple[Revision, int]], clock: int | None) -> tuple[int, int] | None:
        """The place of the last of the oldest revisions that are all old."""
        last = None
        for place in sorted(of_key):
            if clock is None or of_key[place][1] + FORGET >= clock:
                break
            last = place
        return last

    def intervals(self) -> list[Interval]:
        found: list[Interval] = []
        for of_key in self.known.values():
            at_instant = {seconds: of_key[seconds, version][0] for seconds, version in sorted(of_key)}
            instants: list[int | None] = [*sorted(at_instant), None]
            of_one: list[Interval] = []
            for begins, ends in pairwise(instants):
                assert begins is not None
                id, _, _, segment, city = at_instant[begins]
                if segment is None and city is None:
                    continue
                one = (id, begins, ends, segment, city)
                if self.track and of_one and of_one[-1][2] == begins and of_one[-1][3] == segment:
                    one = (id, of_one.pop()[1], ends, segment, city)
                of_one.append(one)
            found += of_one
        return sorted(found, key=str)

    def remembered(self) -> int:
        """The most revisions that a history may have to remember: those that are not old, and of old ones two a key."""
        assert self.greatest is not None
        clock, most = self.greatest - DELAY, 0
        for of_key in self.known.values():
            base = self.base(of_key, clock)
            most += len(of_key) if base is None else 2 + sum(place > base for place in of_key)
        return most


def drawn(seed: int) -> Iterator[list[Revision]]:
    """Batches of revisions of a few keys, some of them older than what may be forgotten."""
    chance = draws(f"forgetting histories {seed}")
    now = 0
    for number in range(12):
        now += chance.choice((0, 10, 30, 70))
        batch = []
        for _ in range(chance.randint(2, 7)):
            seconds = max(now - chance.choice((0, 0, 0, 5, 20, 80, 100, 150)), 0)
            version = 1000 * number + chance.randint(0, 999) if chance.random() < 0.7 else chance.randint(0, 9)
            values = (chance.choice(("new", "gold")), chance.choice(("Bonn", "Ulm")))
            batch.append(
                (chance.choice("abcd"), version, seconds, *((None, None) if chance.random() < 0.15 else values))
            )
        yield batch


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))])
def test_a_history_of_drawn_revisions_is_what_plain_python_says_and_what_it_stores_is_bounded(
    spark: SparkSession, lake: Lake, seed: int, dropped_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [*drawn(seed)]
    oracles = {ALL: Oracle(track=False), SEGMENTS: Oracle(track=True), NEWEST: Oracle(track=False)}
    for number, batch in enumerate(batches):
        for oracle in oracles.values():
            oracle.batch(number, batch)
    chance = draws(f"cuts of forgetting histories {seed}")
    cuts = sorted({0, *chance.sample(range(1, 12), 4), 12})
    for begins, ends in pairwise(cuts):
        # Whether what is forgotten is dropped at once or stays for a while, the intervals are the same.
        monkeypatch.setattr(histories, "FEW_FILES", chance.choice((1, 8)))
        go(spark, lake, *batches[begins:ends])
    monkeypatch.setattr(histories, "FEW_FILES", 1)
    go(spark, lake, [(id, 10**6, 1000, "new", "Bonn") for id in "abcd"])
    for history, oracle in oracles.items():
        oracle.batch(12, [(id, 10**6, 1000, "new", "Bonn") for id in "abcd"])
        expected = oracle.intervals()
        if history.kind == 1:
            expected = [each for each in expected if each[2] is None]
        assert intervals(spark, lake, history) == expected, history.name
        assert forgotten(spark, lake, history) == sorted(oracle.told), history.name
        assert len(stored(spark, lake, history)) <= oracle.remembered(), history.name
    assert broken(spark, lake) == []
    storage.remove_folder(lake.table(ALL, STATE))
    go(spark, lake)
    assert intervals(spark, lake) == oracles[ALL].intervals()
