"""The clock of a log replayed with another delay: what would have been late, and what waiting would have cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from streaming.base import MICROSECOND, interval, to_micros
from streaming.clocks import Clock, ClockState
from streaming.log import Batch

NEVER = -(2**63)
"""Stands for an instant before all others: no watermark yet, or no end of input yet."""

Instants = NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """The numbers of pairs per batch and window end, or of groups per first batch and window end.

    `batches` are numbers of the log, `ends` microseconds since the epoch. The end of a pair is the instant at which a
    watermark makes it late; of sessions, that is the row's own time.
    """

    batches: Instants
    ends: Instants
    numbers: Instants

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> Counts:
        """From (batch, window end, number) triples."""
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
        return cls(columns[:, 0], columns[:, 1], columns[:, 2])


@dataclass(frozen=True)
class Timeline:
    """A clock replayed over the batches of a log, oldest first, in microseconds; `NEVER` where there is none.

    `numbers` and `with_rows` speak of the batches. The other three have one entry more, the clock after the last batch:
    `watermark` is in force at the batch, `unclosed` is that watermark if there had never been an end of input, and
    `closed` is the latest end of input so far.
    """

    numbers: Instants
    with_rows: NDArray[np.bool_]
    watermark: Instants
    unclosed: Instants
    closed: Instants

    def at(self, batches: Instants) -> NDArray[np.intp]:
        """Where the batches of these numbers are in the timeline."""
        return np.searchsorted(self.numbers, batches)


@dataclass(frozen=True)
class Outcome:
    """The effect that a delay would have had on a view.

    `late` of the `pairs` of row and window come after their window was closed. `results`: windows (of a key) that the
    clock closes; they wait for `mean_wait` and at most `max_wait` in event time, from their end to the frontier (the
    greatest event time that counts) when they close. Windows that only an end of input closes are not among them.
    `mean_open` and `max_open`: windows (of a key) whose state is kept while a batch with rows is processed.
    """

    delay: timedelta
    pairs: int
    late: int
    results: int
    mean_wait: timedelta | None
    max_wait: timedelta | None
    mean_open: float
    max_open: int

    @property
    def share_on_time(self) -> float:
        """Share of the pairs that are on time, 0 to 1; 1 where there is no pair."""
        return 1 - self.late / self.pairs if self.pairs else 1.0


def replay(clock: Clock, delay: str, batches: Sequence[Batch]) -> Timeline:
    """The clock with `delay` in place of its own over all `batches` of a log, oldest first.

    Ends of input come at the same batches and instants as they did.
    """
    asked = replace(clock, delay=delay)
    ends = [batch.state.watermark if batch.end_of_input else None for batch in batches]
    closed = np.array([NEVER, *(NEVER if instant is None else to_micros(instant) for instant in ends)], dtype=np.int64)
    latest_end = np.maximum.accumulate(closed)[1:]
    unclosed = np.array(_watermarks(asked, batches), dtype=np.int64)
    latest_end = np.append(latest_end, latest_end[-1:] if batches else NEVER)
    return Timeline(
        numbers=np.array([batch.number for batch in batches], dtype=np.int64),
        with_rows=np.array([batch.cause != "heartbeat" for batch in batches], dtype=np.bool_),
        watermark=np.maximum(unclosed, latest_end),
        unclosed=unclosed,
        closed=latest_end,
    )


def outcome(clock: Clock, delay: str, batches: Sequence[Batch], pairs: Counts, groups: Counts) -> Outcome:
    """The outcome of `delay`; `pairs` by the batch that brought them, `groups` by their first batch."""
    timeline, frontier = replay(clock, delay, batches), replay(clock, "0 seconds", batches).unclosed
    late = pairs.numbers[pairs.ends <= timeline.watermark[timeline.at(pairs.batches)]].sum()
    begins = timeline.at(groups.batches)
    on_time = groups.ends > timeline.watermark[begins]
    begins, ends, numbers = begins[on_time], groups.ends[on_time], groups.numbers[on_time]
    # The watermark never moves back, so the first entry that has passed an end is where that window closes.
    closes = np.searchsorted(timeline.watermark, ends)
    reached = np.minimum(closes, len(timeline.watermark) - 1)
    by_clock = timeline.unclosed[reached] >= ends
    waits = (frontier[reached] - ends)[by_clock]
    results = int(numbers[by_clock].sum())
    still_open = _open(begins, closes, numbers, len(timeline.numbers))[timeline.with_rows]
    return Outcome(
        delay=interval(delay),
        pairs=int(pairs.numbers.sum()),
        late=int(late),
        results=results,
        mean_wait=float(np.average(waits, weights=numbers[by_clock])) * MICROSECOND if results else None,
        max_wait=int(waits.max()) * MICROSECOND if results else None,
        mean_open=float(still_open.mean()) if still_open.size else 0.0,
        max_open=int(still_open.max()) if still_open.size else 0,
    )


def _watermarks(clock: Clock, batches: Sequence[Batch]) -> list[int]:
    """The watermark at each batch and after the last one, as if there had been no end of input."""
    state, marks = ClockState(), list[int]()
    for batch in batches:
        after = clock.advance(state, batch.summary)
        # A heartbeat is stamped with what its own tick makes of the clock, any other batch by those before it.
        ticked = batch.cause == "heartbeat" and not batch.end_of_input
        marks.append(_watermark(after if ticked else state, clock))
        state = after
    return [*marks, _watermark(state, clock)]


def _watermark(state: ClockState, clock: Clock) -> int:
    watermark = clock.watermark(state)
    return NEVER if watermark is None else to_micros(watermark)


def _open(begins: NDArray[np.intp], closes: NDArray[np.intp], numbers: Instants, batches: int) -> Instants:
    """The number of groups open in each batch: from the one they begin with until the stamp has passed their end."""
    changes = np.zeros(batches + 1, dtype=np.int64)
    np.add.at(changes, begins, numbers)
    np.add.at(changes, np.minimum(closes, batches), -numbers)
    return np.cumsum(changes)[:batches]
