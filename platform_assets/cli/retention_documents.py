"""The retention of logs in `tidemark status --json`; see `documents` on what the fields promise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from pydantic import BaseModel

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations import planned_drop, retained_days


class RetentionDocument(BaseModel):
    """The log of a stream that drops days, or has dropped some; null is everything, or nothing yet.

    `kept_from`: the first day of its rows once older ones were dropped, `dropped_rows` of them. Rows of days
    before `rejected_before` are not taken any more. Maintenance may drop up to `droppable_days`; what follows stays,
    and `keeps` says why.
    """

    pipeline: str
    stream: str
    retention: str | None
    rejected_before: date | None
    kept_from: date | None
    dropped_rows: int
    droppable_days: int
    keeps: str

    @classmethod
    def all_of(cls, lake: Lake, pipeline: Pipeline, others: Iterable[Pipeline]) -> Iterator[RetentionDocument]:
        """One for each such log of a pipeline; `others` may follow it."""
        others = [*others]
        for kept in retained_days(lake, pipeline):
            planned = planned_drop(None, lake, pipeline, kept.stream, others)
            yield cls(
                pipeline=pipeline.name,
                stream=kept.stream.name,
                retention=kept.stream.retention,
                rejected_before=kept.kept_from,
                kept_from=kept.dropped_before,
                dropped_rows=kept.rows,
                droppable_days=len(planned.days),
                keeps=planned.keeps,
            )
