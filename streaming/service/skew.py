"""How far apart the clocks of streams are whose rows are brought together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from streaming.declare import Operator, Pipeline


@dataclass(frozen=True)
class Skew:
    """By how much the watermark of the stream `behind` is less than that of `ahead`; `operator` reads both."""

    operator: str
    behind: str
    ahead: str
    by: timedelta


def widest_skew(pipeline: Pipeline, watermarks: Mapping[str, datetime]) -> Skew | None:
    """The greatest of all; None where no operator depends on several clocks, or none of these has a watermark yet."""
    skews = (skew_of(operator, watermarks) for operator in pipeline.operators)
    return max((skew for skew in skews if skew is not None), key=lambda skew: skew.by, default=None)


def skew_of(operator: Operator, watermarks: Mapping[str, datetime]) -> Skew | None:
    """That of one operator; None where it does not depend on several clocks, or one of these has no watermark yet."""
    marks = {stream.name: watermarks[stream.name] for stream in operator.follows if stream.name in watermarks}
    if not operator.joins_clocks or len(marks) < len(operator.follows) or len(marks) < 2:
        return None
    behind, ahead = min(marks, key=marks.__getitem__), max(marks, key=marks.__getitem__)
    return Skew(operator.name, behind, ahead, marks[ahead] - marks[behind])
