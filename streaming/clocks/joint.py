"""The clock of two streams together: pure functions of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

NEVER_EARLIER = timedelta()
"""How a row's time differs from that of a pair at least, where the pair's time is the later one of both rows."""


def joint_watermark(marks: Iterable[datetime | None], shifts: Sequence[timedelta] = ()) -> datetime | None:
    """The least of the streams' watermarks, each moved by its shift; None until every stream has one.

    No later batch of any of the streams brings, on time, a row of a pair with an earlier time. A shift is the least of
    (time of a pair - time of its row), and never above zero; without `shifts` all are zero.
    """
    given = list(marks)
    reached = [mark for mark in given if mark is not None]
    if not reached or len(reached) < len(given):
        return None
    moves = shifts or [NEVER_EARLIER] * len(reached)
    return min(mark + move for mark, move in zip(reached, moves, strict=True))
