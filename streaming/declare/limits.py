"""The limits of what is still normal for a running stream, as a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming.base import DeclarationError, interval, settle
from streaming.declare.usual import Usual


@dataclass(frozen=True)
class Limits:
    """The limits of what is still normal for a stream; None switches an alert off.

    `watermark_stands_for`: how long the watermark may stand still while the stream runs. `rejected_share`: of the rows
    of the last minutes. `backlog_grows_for`: how long more may arrive than is taken. `view_behind_for`: how long a view
    or another operator may be more than one batch behind its logs. `target_away_for`: how long a
    delivery may wait for its target. `source_away_for`: how long a receiver may be without its source.
    `watermark_skew`: how far apart the watermarks of streams may be that are joined.
    `usual`, such as `{"orders": (Usual(weeks=4, minimum=3), Usual("avg(amount)"))}`, has rules by the names of streams
    and of views over windows: each hour is held against the same hour of the weeks before. `count(*)` of a stream are
    the rows that came in that hour, as far as the table `progress` has them, which is a month. `sum(column)`,
    `avg(column)`, `count_if(column is null) / count(*)`, and `count(*)` of a view, are of the valid rows of its log, or
    the first results of the view, of an hour that its watermark has passed.
    `failures_told_for`: how long an enrichment is told of after a row without an answer, and a receiver after its
    source had lost rows.

    Raises:
        DeclarationError: an interval cannot be read, or a share is not between 0 and 1.
    """

    watermark_stands_for: str | None = "30 minutes"
    rejected_share: float | None = 0.05
    backlog_grows_for: str | None = "10 minutes"
    view_behind_for: str | None = "10 minutes"
    target_away_for: str | None = "5 minutes"
    source_away_for: str | None = "5 minutes"
    watermark_skew: str | None = "1 hour"
    failures_told_for: str | None = "10 minutes"
    usual: Mapping[str, tuple[Usual, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settle(self, "the limits")
        away = (self.target_away_for, self.source_away_for, self.failures_told_for)
        behind = (self.backlog_grows_for, self.view_behind_for)
        for length in (self.watermark_stands_for, *behind, *away, self.watermark_skew):
            if length is not None:
                interval(length)
        if self.rejected_share is not None and not 0 <= self.rejected_share < 1:
            raise DeclarationError(
                f"rejected_share={self.rejected_share!r} is no share",
                "use one from 0 to below 1.",
                field="rejected_share",
                value=self.rejected_share,
            )
