"""What of window joins and co-groups needs no Spark, in a thousand cases: calls, positions, days to be corrected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from streaming import Tumbling, WindowJoined
from streaming.clocks import BatchSummary, ClockState
from streaming.joins.windows import CallPerWindow
from streaming.log.batches import Batch
from streaming.operators.progress import Corrected, Progress
from tests.streaming.joins.test_pure_parts import left, right
from tests.support.instants import NOW, at
from tests.support.seeds import draws

CASES = 1_000

SIDE_ROWS = pa.list_(pa.struct([("v", pa.int64())]))
GROUPED = pa.schema(
    {
        "k": pa.string(),
        "window_start": pa.timestamp("us", "UTC"),
        "window_end": pa.timestamp("us", "UTC"),
        "_left": SIDE_ROWS,
        "_right": SIDE_ROWS,
    }
)

Group = tuple[str | None, int, list[int], list[int]]


def tell_more(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    """As many results as the left list is longer than the right one."""
    for number in range(len(left) - len(right)):
        given = f"{key.k} {(end - start) // 10**6} {[row.v for row in left]} {[row.v for row in right]}"
        yield {"n": number, "of": given}


def batch_of(groups: list[Group]) -> pa.RecordBatch:
    lefts, rights = [left for *_, left, _ in groups], [right for *_, right in groups]
    columns = [
        [key for key, *_ in groups],
        [at(start) for _, start, *_ in groups],
        [at(2 * start + 1) for _, start, *_ in groups],
        *([[{"v": value} for value in values] for values in side] for side in (lefts, rights)),
    ]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, GROUPED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=GROUPED)


def test_a_function_is_called_once_for_each_group_and_its_results_stay_with_their_window() -> None:
    results = pa.schema({"n": pa.int64(), "of": pa.string()})
    call = CallPerWindow("told", tell_more, ("k",), ("k", "window_start"), results)
    for case in range(CASES):
        draw = draws("window join", case)

        def rows(draw: Random = draw) -> list[int]:
            return [draw.randrange(10) for _ in range(draw.randrange(4))]

        batches: list[list[Group]] = [
            [(draw.choice(("a", "b", None)), draw.randrange(6), rows(), rows()) for _ in range(draw.randrange(5))]
            for _ in range(draw.randrange(3))
        ]
        output_rows = [tuple(row.values()) for batch in call(map(batch_of, batches)) for row in batch.to_pylist()]
        assert output_rows == [
            (key, at(start), number, f"{key} {start + 1} {lefts} {rights}")
            for groups in batches
            for key, start, lefts, rights in groups
            for number in range(len(lefts) - len(rights))
        ], case


joined = WindowJoined("joined", left, right, ("n",), Tumbling("5 seconds"))


def log_of(draw: Random) -> list[Batch]:
    """A few batches whose watermarks never go back; the first ones may have none."""
    state, batches = ClockState(), []
    for number in range(draw.randrange(7)):
        if draw.random() < 0.7:
            state = state.closed_at(at(draw.randrange(31)))
        batches.append(Batch(number, "log", number, state, BatchSummary({}, 1, NOW), left.clock))
    return batches


def test_however_two_logs_are_cut_a_join_comes_to_the_same_place_and_closes_each_window_in_one_step() -> None:
    for case in range(CASES):
        draw = draws("window join", case)
        logs = {"left_rows": log_of(draw), "right_rows": log_of(draw)}
        whole = Progress.of(joined, None).after(logs)
        behind, stood = dict(logs), [Progress.of(joined, None)]
        while any(behind.values()):
            sizes = {name: draw.randrange(4) for name in behind}
            stood.append(stood[-1].after({name: each[: sizes[name]] for name, each in behind.items()}))
            behind = {name: each[sizes[name] :] for name, each in behind.items()}
        assert replace(stood[-1], batch=0) == replace(whole, batch=0), case
        ends = [[batch.after.watermark for batch in log if batch.after.watermark] for log in logs.values()]
        assert whole.watermark == (min(map(max, ends)) if all(ends) else None), case
        closed = [None if each.watermark is None else joined.window.closed_by(each.watermark) for each in stood]
        for end in (at(seconds) for seconds in range(5, 31, 5)):
            steps = [
                step
                for step, (since, by) in enumerate(pairwise(closed))
                if by is not None and end <= by and (since is None or end > since)
            ]
            assert len(steps) == (closed[-1] is not None and end <= closed[-1]), case


def test_a_day_waits_for_a_correction_while_a_late_row_of_either_side_is_newer_than_its_last_one() -> None:
    for case in range(CASES):
        draw = draws("window join", case)
        itself = draw.random() < 0.3
        streams = {"left": "left_rows", "right": "left_rows" if itself else "right_rows"}
        heads = dict.fromkeys(streams.values(), -1)
        newest: dict[str, int] = {}
        corrected, uncounted = Corrected(dict(heads), None), set[str]()
        for _ in range(draw.randrange(9)):
            what, side = draw.choice(("late", "on time", "correct")), draw.choice(("left", "right"))
            if what == "correct":
                corrected, uncounted = Corrected(dict(heads), None), set()
            else:
                heads[streams[side]] += 1
            if what == "late":
                newest[streams[side]] = heads[streams[side]]
                uncounted.add(streams[side])
            behind = corrected.lacks(newest)
            assert (behind in uncounted) if uncounted else behind is None, case
