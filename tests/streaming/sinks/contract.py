"""What every sink must do: run it over a sink of your own by giving a `Target`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from streaming.sinks.sink import NumberedBatch, Sink


@dataclass(frozen=True)
class Target:
    """A target under test: `connect` opens a sink on it, as a new process would; `numbers` reads what arrived there.

    `refused` is a number that the target does not take, where there is one.
    """

    connect: Callable[[], Sink]
    numbers: Callable[[], list[int]]
    refused: int | None = None


def batch(number: int, *values: int, generation: int = 0) -> NumberedBatch:
    return NumberedBatch("numbers", generation, number, pa.table({"number": list(values)}))


def a_batch_arrives_once_however_often_it_is_delivered(target: Target) -> None:
    target.connect().deliver(batch(0, 1, 2))
    # The process died before it could note the progress; another one delivers the same batch.
    again = target.connect()
    again.deliver(batch(0, 1, 2))
    again.deliver(batch(1, 3))
    expected = [1, 2, 3] if again.guarantee == "exactly once" else [1, 1, 2, 2, 3]
    assert sorted(target.numbers()) == expected


def progress_is_what_the_target_has(target: Target) -> None:
    sink = target.connect()
    assert sink.delivered_through("numbers", 0) == -1
    sink.deliver(batch(0, 1))
    sink.deliver(batch(1, 2))
    assert target.connect().delivered_through("numbers", 0) in (-1, 1)
    # Another generation of the table has delivered nothing yet.
    assert target.connect().delivered_through("numbers", 1) == -1


def a_refused_row_is_named_and_the_others_arrive(target: Target) -> None:
    if target.refused is None:
        return
    refused = target.connect().deliver(batch(0, 1, target.refused, 2))
    assert [(row.position, bool(row.error)) for row in refused] == [(1, True)]
    assert sorted(target.numbers()) == [1, 2]


def an_empty_batch_is_progress(target: Target) -> None:
    sink = target.connect()
    assert list(sink.deliver(batch(0))) == []
    assert sink.delivered_through("numbers", 0) in (-1, 0)
    assert target.numbers() == []


LAWS = (
    a_batch_arrives_once_however_often_it_is_delivered,
    progress_is_what_the_target_has,
    a_refused_row_is_named_and_the_others_arrive,
    an_empty_batch_is_progress,
)
