"""Rows that stand, by all that a log has brought or by what came in time, and the sessions that rows make.

It is part of oracles: plain Python over what was sent and taken back, which shares nothing with the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tests.support.orders import DELAY, Batches, Revision

T = TypeVar("T")
InTime = Callable[[float, Revision], bool]
"""Says of a watermark, and of a row that is added or taken back while it is in force, if that is in time."""
Turned = Mapping[int, tuple[int, list[Revision]]]
"""The rows that a batch of a log takes back by hand (-1), or puts back (1)."""


@dataclass
class Side:
    """Rows that a log adds and takes back, each with the watermark in force, and where its clock is."""

    changes: list[tuple[float | None, int, Revision]] = field(default_factory=list)
    clock: float | None = None

    @property
    def rows(self) -> set[Revision]:
        return {row for _, _, row in self.changes}

    def standing(self, in_time: InTime | None = None) -> list[Revision]:
        """The rows that stand, by all changes or by those that were in time."""
        signs = Counter[Revision]()
        for stamp, sign, row in self.changes:
            if in_time is None or stamp is None or in_time(stamp, row):
                signs[row] += sign
        assert set(signs.values()) <= {0, 1}
        return [row for row, sign in signs.items() if sign]


def side_of(batches: Batches, *, keyed: bool = True, turned: Turned | None = None) -> Side:
    """What the batches of a log have made of it; with a key, the greatest version stands, of equal ones the first."""
    side, newest = Side(), dict[str, Revision]()
    turns = turned or {}
    for number in range(max((*batches, *turns), default=-1) + 1):
        stamp = side.clock
        sign, of = turns.get(number, (1, []))
        side.changes += [(stamp, sign, row) for row in of]
        rows = batches.get(number, [])
        if keyed:
            before = dict(newest)
            for row in rows:
                if row.id not in newest or row.version > newest[row.id].version:
                    newest[row.id] = row
            for key, row in newest.items():
                was = before.get(key)
                if was != row:
                    side.changes += [(stamp, -1, was)] if was is not None and not was.gone else []
                    side.changes += [] if row.gone else [(stamp, 1, row)]
        else:
            side.changes += [(stamp, 1, row) for row in rows]
        times = [row.seconds for row in rows if row.seconds is not None]
        if times:
            side.clock = max([max(times) - DELAY, *([] if side.clock is None else [side.clock])])
    return side


def before_end(end: float) -> InTime:
    """Rows of a window with that end are in time as long as the clock has not come to it."""
    return lambda stamp, row: stamp < end


def by_own_time(stamp: float, row: Revision) -> bool:
    """A row of a session is in time unless the clock is past the row's own time."""
    return row.time >= stamp


def sessions(rows: Iterable[tuple[float, T]], gap: float) -> Iterator[tuple[float, float, list[T]]]:
    """The start and end of each session of what is there at these times, and what it is of."""
    runs: list[list[tuple[float, T]]] = []
    for time, value in sorted(rows, key=lambda each: each[0]):
        if runs and time <= runs[-1][-1][0] + gap:
            runs[-1].append((time, value))
        else:
            runs.append([(time, value)])
    for run in runs:
        yield run[0][0], run[-1][0] + gap, [value for _, value in run]
