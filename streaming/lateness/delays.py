"""Delays that rows would have needed, and delays as people write them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from streaming.base import MILLISECOND, interval
from streaming.lateness.replay import NEVER, Counts, Instants, Timeline

_STEPS = {
    "second": (1, 2, 5, 10, 15, 20, 30, 45),
    "minute": (1, 2, 3, 5, 10, 15, 20, 30, 45),
    "hour": (1, 2, 3, 4, 6, 8, 12, 18),
    "day": (1, 2, 3, 5, 7, 10, 14, 21, 30, 60, 90),
}


@dataclass(frozen=True)
class NeededDelays:
    """For the pairs of a view the smallest delay, in whole milliseconds, with which each would have been on time.

    `pairs` of them need exactly `millis` (ascending, each once). `never`: pairs that no delay would have brought in
    time, because they came after an end of input that had closed their window.
    """

    millis: Instants
    pairs: Instants
    never: int

    @property
    def total(self) -> int:
        """All pairs."""
        return int(self.pairs.sum()) + self.never

    def share_on_time(self, delay: timedelta) -> float:
        """The share of the pairs, 0 to 1, that are on time with `delay`; 1 where there is no pair."""
        return int(self.pairs[self.millis <= delay // MILLISECOND].sum()) / self.total if self.total else 1.0

    def quantile(self, share: float) -> timedelta | None:
        """The smallest delay with which at least `share` of the pairs are on time; None where no delay reaches it."""
        reached = np.cumsum(self.pairs) >= share * self.total
        if not reached.any():
            return None if self.total else timedelta()
        return int(self.millis[reached.argmax()]) * MILLISECOND


def needed_delays(undelayed: Timeline, pairs: Counts) -> NeededDelays:
    """What each pair needs; `undelayed` is the clock replayed with a delay of 0."""
    place = undelayed.at(pairs.batches)
    frontier, closed = undelayed.unclosed[place], undelayed.closed[place]
    never = (closed != NEVER) & (pairs.ends <= closed)
    behind = ~never & (frontier != NEVER) & (pairs.ends <= frontier)
    millis = np.zeros_like(pairs.ends)
    millis[behind] = (frontier[behind] - pairs.ends[behind]) // 1000 + 1
    distinct, of_each = np.unique(millis[~never], return_inverse=True)
    counts = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(counts, of_each, pairs.numbers[~never])
    return NeededDelays(distinct, counts, int(pairs.numbers[never].sum()))


def friendly(delay: timedelta) -> str:
    """The next delay, as long or longer, that people would write, as an interval: `15 minutes` for 11 minutes."""
    if not delay:
        return "0 seconds"
    for unit, numbers in _STEPS.items():
        for number in numbers:
            text = f"{number} {unit}{'s' if number > 1 else ''}"
            if interval(text) >= delay:
                return text
    return f"{-(-delay // timedelta(days=1))} days"
