"""What window joins and co-groups must give, computed in plain Python from rows, batches and clocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Span = tuple[int, int]
"""A window from its start to its end, in seconds after T0."""

Results = list[tuple[str, int, int, tuple[object, ...]]]
"""Key, start, end, values."""

Lists = Callable[[list[str], list[str]], Iterable[tuple[object, ...]]]


class Row(NamedTuple):
    """A row of one side."""

    key: str
    at: int
    value: str


@dataclass(frozen=True)
class Side:
    """The batches of one log, under a clock that stays `delay` seconds behind."""

    batches: Sequence[Sequence[Row]]
    delay: int

    @property
    def clock(self) -> int:
        """Where the clock is after all batches."""
        return max(row.at for batch in self.batches for row in batch) - self.delay

    def stamped(self) -> Iterator[tuple[Row, int | None]]:
        """Each row with its stamp."""
        greatest: int | None = None
        for batch in self.batches:
            for row in batch:
                yield row, None if greatest is None else greatest - self.delay
            greatest = max([row.at for row in batch] + ([] if greatest is None else [greatest]))


def sliding(size: int, slide: int) -> Callable[[int], list[Span]]:
    """All windows of a time."""
    return lambda time: [
        (start, start + size) for start in range((time // slide) * slide, time - size, -slide) if start + size > time
    ]


def fixed(left: Side, right: Side, windows: Callable[[int], list[Span]], lists: Lists, *, late: bool) -> Results:
    """Results of windows with fixed bounds that both clocks have passed; `late`: with late rows."""
    groups: dict[tuple[str, Span], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for place, side in enumerate((left, right)):
        for row, stamp in side.stamped():
            for window in windows(row.at):
                if late or stamp is None or window[1] > stamp:
                    groups[row.key, window][place].append(row)
    joint = min(left.clock, right.clock)
    return _results(((key, window, rows) for (key, window), rows in groups.items() if window[1] <= joint), lists)


def sessions(left: Side, right: Side, gap: int, lists: Lists, *, late: bool) -> Results:
    """The same of sessions: rows of either side that follow each other within the gap, or exactly by it."""
    keys: dict[str, list[tuple[int, int, Row]]] = defaultdict(list)
    for place, side in enumerate((left, right)):
        for row, stamp in side.stamped():
            if late or stamp is None or row.at >= stamp:
                keys[row.key].append((row.at, place, row))
    groups: list[tuple[str, Span, tuple[list[Row], list[Row]]]] = []
    for key, rows in keys.items():
        end: int | None = None
        for time, place, row in sorted(rows):
            if end is None or time > end:
                groups.append((key, (time, time + gap), ([], [])))
            end = time + gap
            started = groups[-1][1][0]
            groups[-1][2][place].append(row)
            groups[-1] = (key, (started, end), groups[-1][2])
    joint = min(left.clock, right.clock)
    return _results((each for each in groups if each[1][1] < joint), lists)


def _results(groups: Iterable[tuple[str, Span, tuple[list[Row], list[Row]]]], lists: Lists) -> Results:
    results: Results = []
    for key, (start, end), (left, right) in groups:
        values = [[row.value for row in sorted(side, key=lambda row: (row.at, row.value))] for side in (left, right)]
        results += [(key, start, end, each) for each in lists(*values)]
    return sorted(results, key=repr)


def outer(left: list[str], right: list[str]) -> Iterator[tuple[object, ...]]:
    """Every pair, and what has no partner."""
    for one in left or [None]:  # type: ignore[list-item]
        for other in right or [None]:  # type: ignore[list-item]
            yield one, other


def inner(left: list[str], right: list[str]) -> Iterator[tuple[object, ...]]:
    """Every pair."""
    return outer(left, right) if left and right else iter(())


def left_outer(left: list[str], right: list[str]) -> Iterator[tuple[object, ...]]:
    """Every pair, and what the left has alone."""
    return outer(left, right) if left else iter(())


def unequal(left: list[str], right: list[str]) -> Iterator[tuple[object, ...]]:
    """Both lists, where one is longer."""
    if len(left) != len(right):
        yield left, right
