"""The fold over a partition, on Arrow batches as Spark hands them over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from streaming.base.intervals import to_micros
from streaming.keyed.key import NEVER
from streaming.keyed.partition import KeyKept, Untouched, fold_partition
from tests.streaming.keyed.functions import sorted_out
from tests.support.instants import at

_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("_key0", pa.string()),
        ("_state0", pa.list_(pa.float64())),
        ("_timers", pa.map_(pa.string(), _TIME)),
        ("_due", _TIME),
        ("_time", _TIME),
        ("_stamp", _TIME),
        ("_batch", pa.int64()),
        ("_stream", pa.int32()),
        ("timestamp", pa.int64()),
        ("temperature", pa.float64()),
        ("event_time", _TIME),
    ]
)


def micros(seconds: float) -> int:
    return to_micros(at(seconds))


def kept(key: str | None, due: float) -> dict[str, Any]:
    """A key with one value in its state, and a timer."""
    return {"_key0": key, "_state0": [7.0], "_timers": [("settled", micros(due))], "_due": micros(due)}


def row(key: str | None, when: float, value: float, stamp: float | None = None) -> dict[str, Any]:
    time = micros(when)
    stamped = None if stamp is None else micros(stamp)
    whole = {"_key0": key, "_time": time, "_stamp": stamped, "_batch": 3, "_stream": 0, "temperature": value}
    return {**whole, "event_time": time}


SORTED = [
    *(kept(None, 4), row(None, 1, 1)),
    kept("a", 99),
    *(kept("b", 99), row("b", 1, 2), row("b", 2, -1)),
    kept("c", 5),
    row("d", 1, 3, stamp=2),
    kept("e", 98),
    kept("f", 97),
]


def folded(rows: list[dict[str, Any]], size: int, clock: int) -> tuple[list[Any], dict[Any, Any]]:
    """What is emitted, in order, and what is kept by key, where batches have so many rows."""

    def batches() -> Iterator[pa.RecordBatch]:
        for place in range(0, len(rows), size):
            yield pa.RecordBatch.from_pylist(rows[place : place + size], schema=SCHEMA)

    emitted: list[Any] = []
    left: dict[Any, Any] = {}
    for entry in fold_partition(sorted_out, clock, batches()):
        if isinstance(entry, list):
            emitted += [tuple(output) for output in entry]
        elif isinstance(entry, KeyKept):
            left[entry.key] = (list(entry.kept.state[0]), dict(entry.kept.timers))
        elif isinstance(entry, Untouched):
            for state in entry.state.to_pylist():
                timers = {name: to_micros(due) for name, due in state["_timers"]}
                left[(state["_key0"],)] = (state["_state0"], timers)
    return emitted, left


def test_however_rows_are_batched_the_outputs_and_what_is_kept_are_the_same() -> None:
    whole = folded(SORTED, len(SORTED), micros(5))
    assert [(to, key, when) for to, key, when, _ in whole[0]] == [
        ("", (None,), micros(1)),
        ("", ("b",), micros(1)),
        ("negative", ("b",), micros(2)),
        ("", ("c",), micros(5)),
        ("", ("d",), micros(1)),
    ]
    assert whole[0][-1][3] == (3.0, True)
    assert set(whole[1]) == {(None,), ("a",), ("b",), ("d",), ("e",), ("f",)}
    assert whole[1][("b",)] == ([7.0, 2.0, -1.0], {"settled": micros(109)})
    assert [folded(SORTED, size, micros(5)) for size in range(1, len(SORTED))] == [whole] * (len(SORTED) - 1)


def test_state_to_which_nothing_happens_is_passed_on_without_a_look_at_it() -> None:
    entries = list(fold_partition(sorted_out, micros(5), [pa.RecordBatch.from_pylist(SORTED, schema=SCHEMA)]))
    untouched = [state for entry in entries if isinstance(entry, Untouched) for state in entry.state.to_pylist()]
    # The last row of a batch may be followed by one of its key in the next.
    assert [state["_key0"] for state in untouched] == ["a", "e"]


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


@pytest.mark.parametrize("clock", [NEVER, micros(200)])
def test_an_empty_partition_has_nothing_to_say(clock: int) -> None:
    assert list(fold_partition(sorted_out, clock, [])) == []
