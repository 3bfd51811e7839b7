"""The fold of revisions onto the intervals of their keys, as a task runs it, without Spark."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.base import ADDED, BATCH, DAY, REASON, SIGN
from streaming.declare import VALID_FROM, VALID_TO
from streaming.keyed import DUE, HASH, StoredState
from streaming.keyed.state_table import Buckets
from streaming.revisions.fold import CONCERNS, DELETES, REPORT, RETRACTED_TIMES, SEQUENCE, RevisionReport
from streaming.revisions.history_fold import (
    AGES_FROM,
    FEW_FILES,
    GONE,
    SINCE,
    STANDS_FOR,
    Horizon,
    Known,
    WriteHistory,
    base_of,
    files_to_join,
    insert,
    intervals,
    remembered,
)
from tests.support.seeds import draws

FORGET = 20
UNSENT = "unsent"
INSTANT = pa.timestamp("us", "UTC")
VALUES = (("id", pa.int64()), ("owner", pa.string()), ("notes", pa.string()))
OWN = pa.schema(
    [
        *VALUES,
        *((VALID_FROM, INSTANT), (VALID_TO, INSTANT), (ADDED, pa.string()), (SIGN, pa.int32())),
        *((REASON, pa.string()), (BATCH, pa.int64()), (DAY, pa.date32())),
    ]
)
TOLD = [(SEQUENCE, pa.int64()), (SINCE, INSTANT), (ADDED, pa.string()), (GONE, pa.bool_())]
STORED = pa.schema(
    [
        *((HASH, pa.int64()), (DUE, INSTANT), *VALUES, (UNSENT, pa.list_(pa.string())), *TOLD),
        *((RETRACTED_TIMES, pa.int32()), (AGES_FROM, INSTANT), (STANDS_FOR, pa.string())),
    ]
)
OF_FORGETTING = (AGES_FROM, STANDS_FOR)
CAME = pa.schema(
    [
        *((HASH, pa.int64()), (BATCH, pa.int64()), (SEQUENCE, pa.int64()), (DELETES, pa.bool_())),
        *((RETRACTED_TIMES, pa.int32()), (ADDED, pa.string()), (CONCERNS, pa.bool_()), *VALUES),
        *((UNSENT, pa.list_(pa.string())), (SINCE, INSTANT)),
    ]
)


@dataclass
class Folded:
    """A history that steps after steps are folded onto, of which some files of a bucket become one at so many."""

    folder: Path
    track: tuple[str, ...] | None
    few_files: int
    horizon: Horizon | None
    is_newest_only: bool = False
    files: dict[int, tuple[str, ...]] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)

    def step(self, rows: list[dict[str, Any]]) -> None:
        buckets = Buckets(2)
        (self.folder / "own").mkdir(exist_ok=True, parents=True)
        (self.folder / "state").mkdir(exist_ok=True, parents=True)
        columns = STORED if self.horizon else pa.schema([each for each in STORED if each.name not in OF_FORGETTING])
        stored = StoredState(buckets, 1, str(self.folder / "state"), columns, self.files)
        made_of = {name: frozenset({name}) for name, _ in VALUES}
        values = tuple(name for name, _ in VALUES)
        task = WriteHistory(
            *(("id",), values, self.track, self.is_newest_only, False, UNSENT, made_of),
            *(str(self.folder / "own"), OWN, stored, self.few_files, self.horizon),
        )
        ordered = sorted(rows, key=lambda row: (row[HASH], row["id"], row[BATCH]))
        (report,) = task(iter(pa.Table.from_pylist(ordered, CAME).to_batches()))
        done = RevisionReport.from_json(report[REPORT][0].as_py())
        left = {
            number: tuple(file for file in files if file not in done.replaced) for number, files in self.files.items()
        }
        for file in done.standing:
            hashes = pq.read_table(self.folder / "state" / file.path, columns=[HASH])[HASH].to_numpy()
            (number,) = {*buckets.of(hashes).tolist()}
            left[number] = (*left.get(number, ()), file.path)
        self.files = left
        for file in done.changes:
            self.told += pq.read_table(self.folder / "own" / file.path).to_pylist()

    @property
    def stored(self) -> int:
        paths = [path for files in self.files.values() for path in files]
        return sum(pq.read_metadata(self.folder / "state" / path).num_rows for path in paths)


def drawn(chance: random.Random) -> list[list[dict[str, Any]]]:
    """Steps of batches of revisions: late ones, values that were not sent, deletes, rows taken back and put back."""
    now, batches, sent, retracted = 0, [], list[dict[str, Any]](), Counter[str]()
    for number in range(25):
        now += chance.choice((1, 3, 10))
        batch = []
        for place in range(chance.randint(1, 5)):
            if sent and chance.random() < 0.25:
                again = chance.choice(sent[: max(len(sent) * 2 // 3, 1)])
                retracted[again[ADDED]] += 1
                times = retracted[again[ADDED]]
                told = {RETRACTED_TIMES: times, DELETES: times % 2 == 1}
                batch.append({**again, **told, BATCH: number, ADDED: f"{number}.{place}"})
                continue
            id, gone = chance.randint(1, 3), chance.random() < 0.1
            unsent = chance.choice(([], [], ["notes"], ["notes"], ["owner", "notes"]))
            row = {
                HASH: id if id % 2 else -id,
                BATCH: number,
                SEQUENCE: 100 * number + place,
                DELETES: gone,
                RETRACTED_TIMES: 0,
                ADDED: f"{number}.{place}",
                CONCERNS: True,
                "id": id,
                "owner": None if gone or "owner" in unsent else chance.choice(("ann", "bea")),
                "notes": None if gone or "notes" in unsent else chance.choice(("long", "short")),
                UNSENT: None if gone else unsent,
                SINCE: max(now - chance.choice((0, 0, 1, 3, 15, 30, 40)), 0) // 5 * 5,
            }
            sent += [] if gone else [row]
            batch.append(row)
        batches.append(batch)
    return batches


@pytest.mark.parametrize("track", [None, ("owner",), ("owner", "notes")])
@pytest.mark.parametrize("seed", range(5))
def test_dropping_what_is_forgotten_changes_no_row_of_a_history_also_where_values_were_not_sent(
    tmp_path: Path, seed: int, track: tuple[str, ...] | None
) -> None:
    chance = draws(f"fold of a history {seed} {track}")
    batches = drawn(chance)
    clocks: dict[int, tuple[int | None, int | None]] = {}
    clock: int | None = None
    for number, batch in enumerate(batches):
        after = max([row[SINCE] for row in batch] + ([] if clock is None else [clock]))
        clocks[number], clock = (clock, after), after
    dropping, keeping = (
        Folded(tmp_path / name, track, few_files, Horizon(FORGET, clocks))
        for name, few_files in (("dropping", 1), ("keeping", 10**6))
    )
    while batches:
        taken, batches = batches[: (size := chance.randint(1, 3))], batches[size:]
        rows = [row for batch in taken for row in batch]
        numbers = [row[BATCH] for row in rows]
        horizon = Horizon(FORGET, {number: clocks[number] for number in numbers})
        for each in (dropping, keeping):
            each.horizon = horizon
            each.step(rows)
    assert Counter(map(repr, dropping.told)) == Counter(map(repr, keeping.told))
    assert dropping.stored < keeping.stored
    assert any(row[SIGN] == 0 for row in dropping.told)


@pytest.mark.parametrize("track", [None, ("owner",)])
@pytest.mark.parametrize("is_newest_only", [False, True])
def test_a_history_is_the_same_however_many_files_its_revisions_are_in(
    tmp_path: Path, is_newest_only: bool, track: tuple[str, ...] | None
) -> None:
    few, many = (Folded(tmp_path / str(few_files), track, few_files, None, is_newest_only) for few_files in (3, 10**6))
    most = 0
    for rows in drawn(draws(f"files of a history {is_newest_only} {track}")):
        for each in (few, many):
            each.step(rows)
        most = max(most, *map(len, few.files.values()))
    assert few.told == many.told and few.told
    assert few.stored == many.stored
    # A bucket of an odd number waits for one file more.
    assert most <= 4 < max(map(len, many.files.values()))


@pytest.mark.parametrize("track", [None, ("owner",)])
def test_the_newest_intervals_are_those_without_an_end_of_all(tmp_path: Path, track: tuple[str, ...] | None) -> None:
    newest, every = (Folded(tmp_path / str(only), track, 8, None, only) for only in (True, False))
    for rows in drawn(draws(f"newest intervals {track}")):
        for each in (newest, every):
            each.step(rows)
        assert standing(newest.told) == standing([row for row in every.told if row[VALID_TO] is None])


def standing(signed: list[dict[str, Any]]) -> Counter[str]:
    """The intervals that signed rows add and do not take back."""
    net = Counter[str]()
    for row in signed:
        net[repr([row[name] for name in OWN.names if name not in (SIGN, REASON, BATCH)])] += row[SIGN]
    assert {*net.values()} <= {0, 1}
    return +net


def revision(number: int, since: int, owner: str | None, notes: str | None, *unsent: str) -> dict[str, Any]:
    """A revision that came with the batch of its number; it is a delete where it has no owner."""
    told = {HASH: 1, BATCH: number, SEQUENCE: number, DELETES: owner is None, RETRACTED_TIMES: 0, ADDED: str(number)}
    values = {CONCERNS: True, "id": 1, "owner": owner, "notes": notes}
    return {**told, **values, UNSENT: None if owner is None else list(unsent), SINCE: since}


def test_a_revision_that_is_completed_twice_still_stands_for_what_was_told_of_it(tmp_path: Path) -> None:
    """
    0  |----|                     long notes
    1       |----|                another owner, whose notes were not sent: those of 0
    2            x                gone; once 2 is old, 0 is dropped and 1 completed
    3            x                gone once more at that instant; once 3 is old, 1 is completed again
    5            |----------      the owner of 1: it goes on, and what was told of it is taken back
    """
    folded, signs = Folded(tmp_path, ("owner",), 1, Horizon(FORGET, {})), Counter[str]()
    other = {**revision(4, 20, "ann", "long"), "id": 3}
    for came in (
        revision(0, 0, "ann", "long"),
        revision(1, 10, "bea", None, "notes"),
        revision(2, 20, None, None),
        revision(3, 20, None, None),
        other,
        revision(5, 20, "bea", "long"),
    ):
        # All that came before is old.
        clock = came[BATCH] * (2 * FORGET)
        folded.horizon = Horizon(FORGET, {came[BATCH]: (clock, clock)})
        folded.step([came])
    for row in folded.told:
        signs[row[ADDED]] += row[SIGN]
    assert {*signs.values()} == {0, 1}
    assert sorted((row["owner"], signs[row[ADDED]]) for row in folded.told if row["id"] == 1 and row[SIGN] == 1) == [
        ("ann", 0),
        ("ann", 1),
        ("bea", 0),
        ("bea", 0),
        ("bea", 1),
    ]


@pytest.mark.parametrize("is_same", [True, False])
def test_the_interval_that_ends_where_the_last_old_revision_is_may_go_on_and_is_remembered(is_same: bool) -> None:
    """
    1  |----|
    2       |----|
    3            x        gone, until another revision of that instant comes
    """
    known = [Known(0, 1, 1, False), Known(1, 2, 2, False), Known(2, 3, 3, True)]
    left = remembered(known, 100, lambda one, other: is_same)
    assert [each.revision.place for each in left] == [1, 2]
    assert [each.begins for each in left] == [1 if is_same else 2, None]


def test_a_delete_keeps_values_from_before_it_out_of_the_last_old_revision() -> None:
    """
    1  |----|
    2       x        gone, and at that instant there again
    3       |----    without one of its values, which is none
    """
    known = [Known(0, 1, 1, False), Known(1, 2, 2, True), Known(2, 2, 3, False, unsent=frozenset({"notes"}))]
    left = [each.revision for each in remembered(known, 100, lambda one, other: False)]
    assert [each.place for each in left] == [0, 1, 2]
    assert [each.held for each in intervals(left, lambda one, other: False)] == [(), (("notes", None),)]


def test_a_value_that_no_revision_had_is_none_wherever_those_before_it_are_dropped() -> None:
    base = Known(0, 1, 1, False, begins=1, empty=frozenset({"notes"}))
    after = Known(1, 2, 2, False, unsent=frozenset({"notes", "owner"}))
    assert intervals([base, after], lambda one, other: False)[1].held == (("notes", None), ("owner", 0))


def test_where_each_revision_begins_an_interval_only_the_last_old_one_is_remembered() -> None:
    known = [Known(0, 1, 1, False), Known(1, 2, 2, False), Known(2, 3, 3, True)]
    left = remembered(known, 100, lambda one, other: False, merges=False)
    assert [each.revision.place for each in left] == [2]


def test_what_takes_a_row_back_by_hand_is_as_old_as_that_so_that_what_was_forgotten_stays_so() -> None:
    known = [Known(0, 1, 1, False, ages_from=1), Known(1, 2, 2, False, ages_from=2)]
    assert insert(known, Known(2, 2, 2, True, retracted=1, ages_from=90)) == 1
    assert base_of(known, 50) == 1 and known[1].is_gone


@pytest.mark.parametrize("sizes", [[10] * 400, [10, 1] * 200, [1] * 399 + [5_000], [3_000, 1, 1, 40] * 100])
def test_files_stay_few_and_a_row_is_written_a_few_times_whatever_steps_bring(sizes: list[int]) -> None:
    files, most, written = [100_000], 0, 0
    for size in sizes:
        joined = files_to_join(files, size) if len(files) >= FEW_FILES else []
        files, merged = [each for place, each in enumerate(files) if place not in joined], [files[n] for n in joined]
        files.append(sum(merged) + size)
        written += files[-1]
        most = max(most, len(files))
    assert most <= FEW_FILES and sum(files) == 100_000 + sum(sizes)
    assert written <= 6 * sum(sizes)
