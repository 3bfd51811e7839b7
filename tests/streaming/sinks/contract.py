"""What every target must do: run it over a target of your own by giving an `Arrivals`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pytest

from streaming.base.errors import FencedError, SinkError
from streaming.lake.lake import Lake
from streaming.sinks.sink import REVISION, TIME, Delivered, NumberedBatch, RefusedRow, Sink, Target
from tests.support.instants import T0


@dataclass(frozen=True)
class Arrivals:
    """A target under test, and how to read the numbers that arrived there.

    `refused` is a number that the target does not take, where there is one.
    """

    target: Target
    lake: Lake
    numbers: Callable[[], list[int]]
    refused: int | None = None

    def connect(self) -> Sink:
        """A connection, as a new process would make it."""
        return self.target.connect(self.lake, Delivered("numbers/all", key=self.target.key))


def batch(number: int, *values: int, generation: int = 0) -> NumberedBatch:
    rows = {
        "number": pa.array(values, pa.int64()),
        REVISION: pa.array(values, pa.int64()),
        TIME: pa.array([T0 + timedelta(hours=value) for value in values], pa.timestamp("us", "UTC")),
    }
    return NumberedBatch("numbers/all", generation, number, pa.table(rows))


def deliver(sink: Sink, delivered: NumberedBatch) -> list[RefusedRow]:
    """Deliver a batch; returns what was put aside, which has to be told exactly once."""
    put_aside: list[Sequence[RefusedRow]] = []
    sink.deliver(delivered, put_aside.append)
    sink.close()
    assert len(put_aside) <= 1
    return [row for rows in put_aside for row in rows]


def a_batch_arrives_once_however_often_it_is_delivered(arrivals: Arrivals) -> None:
    deliver(arrivals.connect(), batch(0, 1, 2))
    # The process died before it could note the progress; another one delivers the same batch.
    deliver(arrivals.connect(), batch(0, 1, 2))
    deliver(arrivals.connect(), batch(1, 3))
    expected = [1, 2, 3] if arrivals.target.guarantee == "exactly once" else [1, 1, 2, 2, 3]
    assert sorted(arrivals.numbers()) == expected


def progress_is_what_the_target_has(arrivals: Arrivals) -> None:
    keeps = arrivals.connect().delivered_through(0) is not None
    if not keeps:
        return
    assert arrivals.connect().delivered_through(0) == -1
    deliver(arrivals.connect(), batch(0, 1))
    deliver(arrivals.connect(), batch(1, 2))
    assert arrivals.connect().delivered_through(0) == 1
    assert arrivals.connect().delivered_through(1) == -1


def what_comes_from_the_past_is_fenced_where_the_target_keeps_progress(arrivals: Arrivals) -> None:
    if arrivals.connect().delivered_through(0) is None:
        return
    deliver(arrivals.connect(), batch(0, 1))
    with pytest.raises(FencedError, match="is not the one that follows"):
        deliver(arrivals.connect(), batch(2, 3))
    deliver(arrivals.connect(), batch(0, 4, generation=1))
    with pytest.raises(FencedError, match="another process delivers there"):
        deliver(arrivals.connect(), batch(1, 2))
    assert sorted(arrivals.numbers()) == [1, 4]


def a_refused_row_is_put_aside_before_progress_and_the_others_arrive(arrivals: Arrivals) -> None:
    if arrivals.refused is None:
        return
    refused = deliver(arrivals.connect(), batch(0, 1, arrivals.refused, 2))
    assert [(row.position, bool(row.error)) for row in refused] == [(1, True)]
    assert sorted(arrivals.numbers()) == [1, 2]


def what_cannot_be_put_aside_is_not_delivered(arrivals: Arrivals) -> None:
    """Where the target keeps progress; elsewhere the progress in the lake comes after both."""

    def fails(rows: Sequence[RefusedRow]) -> None:
        raise RuntimeError("the lake is full")

    sink = arrivals.connect()
    if sink.delivered_through(0) is None:
        return
    with pytest.raises(RuntimeError):
        sink.deliver(batch(0, 1, 2), fails)
    assert arrivals.connect().delivered_through(0) == -1
    assert arrivals.connect().count() in (0, None)


def an_empty_batch_is_progress(arrivals: Arrivals) -> None:
    assert deliver(arrivals.connect(), batch(0)) == []
    assert arrivals.connect().delivered_through(0) in (None, 0)
    assert arrivals.numbers() == []


def an_audit_can_count_what_arrived(arrivals: Arrivals) -> None:
    deliver(arrivals.connect(), batch(0, 1, 2))
    deliver(arrivals.connect(), batch(1, 3))
    assert arrivals.connect().count() in (None, 3)


LAWS = (
    a_batch_arrives_once_however_often_it_is_delivered,
    progress_is_what_the_target_has,
    what_comes_from_the_past_is_fenced_where_the_target_keeps_progress,
    a_refused_row_is_put_aside_before_progress_and_the_others_arrive,
    what_cannot_be_put_aside_is_not_delivered,
    an_empty_batch_is_progress,
    an_audit_can_count_what_arrived,
)


def of_two_processes_at_one_batch_one_delivers_it(arrivals: Arrivals) -> None:
    """Each has looked before the other delivers; the one that comes later finds the batch, or is shut out."""
    deliver(arrivals.connect(), batch(0, 1))
    both = threading.Barrier(2, timeout=30)

    def delivers(sink: Sink) -> None:
        assert sink.delivered_through(0) == 0
        both.wait()
        with suppress(FencedError, SinkError):
            sink.deliver(batch(1, 2, 3), lambda refused: None)
        sink.close()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(delivers, arrivals.connect()) for _ in range(2)]:
            done.result()
    assert sorted(arrivals.numbers()) == [1, 2, 3]
    assert arrivals.connect().delivered_through(0) == 1


TRANSACTIONAL_LAWS = (of_two_processes_at_one_batch_one_delivers_it,)
"""The laws of targets that commit the progress with the rows."""
