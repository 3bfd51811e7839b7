"""The fold over a partition, on Arrow batches as Spark hands them over, and on state as it is stored in buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming.base.intervals import to_micros
from streaming.keyed import tasks
from streaming.keyed.fold import FOREVER, NEVER
from streaming.keyed.state_table import Buckets, StoredState
from streaming.keyed.tasks import BucketBegun, BucketFile, KeyStates, Untouched, fold_partition
from tests.streaming.keyed.functions import sorted_out
from tests.support.instants import at

_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("_hash", pa.int64()),
        ("_key0", pa.string()),
        ("_time", _TIME),
        ("_stamp", _TIME),
        ("_batch", pa.int64()),
        ("_stream", pa.int32()),
        ("timestamp", pa.int64()),
        ("temperature", pa.float64()),
        ("event_time", _TIME),
    ]
)
STATE = pa.schema(
    [
        ("_hash", pa.int64()),
        ("_due", _TIME),
        ("id", pa.string()),
        ("seen", pa.list_(pa.float64())),
        ("_timers", pa.map_(pa.string(), _TIME)),
    ]
)
FOUR = Buckets(4)


def first_hash(buckets: Buckets, bucket: int) -> int:
    """The least hash that is in a bucket."""
    return (bucket - buckets.count // 2) << buckets.shift


# In three of four buckets, and two of them with one hash, as two keys may have.
HASHES = {None: 5, "a": 5, "b": first_hash(FOUR, 0), "c": first_hash(FOUR, 1) - 1, "d": 7, "e": 7, "f": 1 << 62}


def micros(seconds: float) -> int:
    return to_micros(at(seconds))


def kept(key: str | None, due: float) -> tuple[Any, ...]:
    """A row of state: a key with one value, and a timer."""
    return (HASHES[key], micros(due), key, [7.0], [("settled", micros(due))])


def mark(bucket: int) -> dict[str, Any]:
    """The row that stands for a bucket."""
    return {"_hash": first_hash(FOUR, bucket)}


def row(key: str | None, when: float, value: float, stamp: float | None = None) -> dict[str, Any]:
    time = micros(when)
    stamped = None if stamp is None else micros(stamp)
    whole = {
        "_hash": HASHES.get(key, 0),
        "_key0": key,
        "_time": time,
        "_stamp": stamped,
        "_batch": 3,
        "_stream": 0,
        "temperature": value,
    }
    return {**whole, "event_time": time}


STORED = [kept(None, 4), kept("a", 99), kept("b", 99), kept("c", 5), kept("e", 98), kept("f", 97)]
ROWS = [mark(0), row("b", 1, 2), row("b", 2, -1), mark(1), mark(2), row(None, 1, 1), row("d", 1, 3, stamp=2), mark(3)]


def stored(folder: Path, rows: Iterable[tuple[Any, ...]], visited: Iterable[int] = ()) -> StoredState:
    """State in files, one for each bucket."""
    files: dict[int, tuple[str, ...]] = {}
    by_bucket: dict[int, list[tuple[Any, ...]]] = {}
    for entry in rows:
        by_bucket.setdefault(FOUR.of(entry[0]), []).append(entry)
    for bucket, of_bucket in by_bucket.items():
        file = BucketFile(bucket, str(folder), STATE)
        for entry in of_bucket:
            file.add(entry)
        files[bucket] = (file.close()["path"],)
    return StoredState(FOUR, 1, str(folder), STATE, files, frozenset(visited))


def folded(rows: list[dict[str, Any]], size: int, clock: int, state: StoredState) -> tuple[list[Any], dict[Any, Any]]:
    """What is emitted, in order, and what is kept by bucket and key, where batches have so many rows."""

    def batches() -> Iterator[pa.RecordBatch]:
        for place in range(0, len(rows), size):
            yield pa.RecordBatch.from_pylist(rows[place : place + size], schema=SCHEMA)

    emitted: list[Any] = []
    left: dict[Any, Any] = {}
    number = None
    for entry in fold_partition(sorted_out, clock, batches(), None, state):
        if isinstance(entry, list):
            emitted += [tuple(output) for output in entry]
        elif isinstance(entry, BucketBegun):
            number = entry.bucket
            assert number not in left, "each once"
            left[number] = {}
        elif isinstance(entry, KeyStates):
            for of_key, (key,), (temperatures,), timers in zip(*vars(entry).values(), strict=True):
                assert HASHES[key] == of_key
                left[number][key] = (list(temperatures), dict(timers))
        elif isinstance(entry, Untouched):
            for of_key in entry.state.to_pylist():
                timers = {name: to_micros(due) for name, due in of_key["_timers"]}
                left[number][of_key["id"]] = (of_key["seen"], timers)
    return emitted, left


def test_however_rows_are_batched_the_outputs_and_what_is_kept_are_the_same(tmp_path: Path) -> None:
    state = stored(tmp_path, STORED, visited=(0, 2, 3))
    whole = folded(ROWS, len(ROWS), micros(5), state)
    assert [(to, key, when) for to, key, when, _ in whole[0]] == [
        ("", ("b",), micros(1)),
        ("negative", ("b",), micros(2)),
        ("", ("c",), micros(5)),
        ("", (None,), micros(1)),
        ("", ("d",), micros(1)),
    ]
    assert whole[0][-1][3] == (3.0, True)
    assert {bucket: set(keys) for bucket, keys in whole[1].items()} == {0: {"b"}, 2: {None, "a", "d", "e"}, 3: {"f"}}
    assert whole[1][0]["b"] == ([7.0, 2.0, -1.0], {"settled": micros(109)})
    assert whole[1][2]["e"] == ([7.0], {"settled": micros(98)})
    assert [folded(ROWS, size, micros(5), state) for size in range(1, len(ROWS))] == [whole] * (len(ROWS) - 1)


def test_a_bucket_without_rows_and_without_a_timer_that_is_due_is_not_read(tmp_path: Path) -> None:
    of_no_file = dict.fromkeys((0, 1, 3), ("none",))
    state = stored(tmp_path, [kept("a", 99)])
    state = StoredState(FOUR, 1, state.uri, STATE, {**of_no_file, **state.files})
    assert set(folded([mark(0), mark(1), mark(2), row("d", 1, 3)], 3, NEVER, state)[1]) == {2}


def test_state_is_the_same_however_many_buckets_its_files_were_cut_into(tmp_path: Path) -> None:
    """A file with keys of several buckets is read for each of them."""
    file = BucketFile(0, str(tmp_path), STATE)
    for entry in STORED:
        file.add(entry)
    path = file.close()["path"]
    all_of_them = dict.fromkeys(range(4), (path,))
    cut = folded(ROWS, 3, micros(5), stored(tmp_path, STORED, visited=range(4)))
    assert (
        folded(ROWS, 3, micros(5), StoredState(FOUR, 1, str(tmp_path), STATE, all_of_them, frozenset(range(4)))) == cut
    )


def test_a_bucket_tells_its_first_timer_and_one_of_which_nothing_is_kept_has_no_file(tmp_path: Path) -> None:
    file = BucketFile(2, str(tmp_path), STATE)
    file.add(kept("a", 99))
    file.add(kept("e", 98))
    assert {name: entry for name, entry in file.close().items() if name in ("bucket", "rows", "due")} == {
        "bucket": 2,
        "rows": 2,
        "due": micros(98),
    }
    assert BucketFile(1, str(tmp_path), STATE).close() == {"suffix": "state", "bucket": 1, "due": FOREVER}


@pytest.mark.parametrize(
    ("keys", "size", "before", "count"),
    [
        (0, 0, None, 4),
        (131_072, 0, None, 4),
        (131_073, 0, 4, 8),
        (1_000_000, 15 * 2**20, None, 32),
        (1_000, 100 * 2**20, None, 32),
        (300_000, 0, 64, 64),
        (100_000, 0, 64, 4),
        (10**9, 0, None, 512),
    ],
)
def test_there_are_as_many_buckets_as_state_needs_and_their_number_seldom_changes(
    keys: int, size: int, before: int | None, count: int
) -> None:
    assert Buckets.of_size(keys, size, before) == Buckets(count)


@pytest.mark.parametrize("count", [2, 4, 512])
def test_buckets_are_ranges_of_the_hash_from_its_least_to_its_greatest(count: int) -> None:
    buckets = Buckets(count)
    assert (buckets.of(-(1 << 63)), buckets.of((1 << 63) - 1)) == (0, count - 1)
    for bucket in range(1, count):
        first = first_hash(buckets, bucket)
        assert (buckets.of(first - 1), buckets.of(first)) == (bucket - 1, bucket)


def test_a_key_with_very_many_rows_is_never_gathered() -> None:
    """The rows of one key are asked for as outputs are taken: a batch ahead at most."""
    asked = 0

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal asked
        while True:
            asked += 1
            hot = [row("hot", 1, 13.0) for _ in range(1_000)]
            yield pa.RecordBatch.from_pylist(hot, schema=SCHEMA)

    outputs = fold_partition(sorted_out, NEVER, endless())
    for taken in range(1, 4):
        first = next(outputs)
        assert isinstance(first, list) and len(first) == 10_000
        assert asked == 10 * taken


def test_what_the_timers_of_many_keys_emit_is_never_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_AT_ONCE", 2)
    entries = [(key, micros(5), str(key), [7.0], [("settled", micros(5))]) for key in range(7)]
    marks = pa.RecordBatch.from_pylist([mark(bucket) for bucket in range(4)], schema=SCHEMA)
    fold = fold_partition(sorted_out, micros(5), [marks], None, stored(tmp_path, entries, visited=range(4)))
    assert [len(taken) for taken in fold if isinstance(taken, list)] == [2, 2, 2, 1]


@pytest.mark.parametrize("clock", [NEVER, micros(200)])
def test_an_empty_partition_has_nothing_to_say(clock: int) -> None:
    assert list(fold_partition(sorted_out, clock, [])) == []
