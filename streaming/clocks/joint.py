"""The clock of several streams together: a pure function of theirs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime


def joint_watermark(marks: Iterable[datetime | None]) -> datetime | None:
    """The least of the streams' watermarks; None until every stream has one.

    No later batch of any of the streams brings, on time, a row with an earlier event time.
    """
    given = list(marks)
    reached = [mark for mark in given if mark is not None]
    return min(reached) if reached and len(reached) == len(given) else None
