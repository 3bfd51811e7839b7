"""How far apart the clocks of streams are whose rows are brought together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from streaming.declare import Pipeline


@dataclass(frozen=True)
class Skew:
    """By how much the watermark of the stream `behind` is less than that of `ahead`; `operator` reads both."""

    operator: str
    behind: str
    ahead: str
    by: timedelta


def widest_skew(pipeline: Pipeline, watermarks: Mapping[str, datetime]) -> Skew | None:
    """The greatest of all; None where no operator depends on several clocks, or none of these has a watermark yet."""
    skews = []
    for operator in pipeline.operators:
        marks = {stream.name: watermarks[stream.name] for stream in operator.reads if stream.name in watermarks}
        if operator.joins_clocks and len(marks) == len(operator.reads) > 1:
            behind, ahead = min(marks, key=marks.__getitem__), max(marks, key=marks.__getitem__)
            skews.append(Skew(operator.name, behind, ahead, marks[ahead] - marks[behind]))
    return max(skews, key=lambda skew: skew.by, default=None)
