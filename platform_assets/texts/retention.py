"""The retention of logs in words: what it keeps and drops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from streaming.base import counted
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations import RetainedDays, retained_days

if TYPE_CHECKING:
    from streaming.operations import Dropped


def told_drop(entry: Dropped) -> str:
    """One line on what was dropped of a log, and why nothing more was."""
    done = "nothing to drop"
    if entry.days or entry.rows:
        done = (
            f"{counted(entry.rows, 'row')} of {counted(entry.days, 'day')} before {entry.before} dropped from the log"
        )
    return f"{entry.stream}: {done}; what follows stays: {entry.keeps}"


def told_kept(lake: Lake, pipeline: Pipeline) -> Iterator[str]:
    """A line for each log that drops days, or has dropped some."""
    yield from map(_told, retained_days(lake, pipeline))


def told_horizons(lake: Lake, pipeline: Pipeline, others: Iterable[Pipeline]) -> Iterator[str]:
    """A line for each log that drops days: from which day on it is kept, and what needs it; `others` may follow it."""
    others = [*others]
    for kept in retained_days(lake, pipeline):
        from streaming.operations import planned_drop

        planned = planned_drop(None, lake, pipeline, kept.stream, others)
        there = "the whole log is there" if kept.dropped_before is None else "the log is kept from then on"
        why = f": {planned.keeps}"
        if planned.days:
            why = (
                f"; `tidemark maintain {pipeline.name}` drops up to {counted(len(planned.days), 'day')} before "
                f"{planned.before}"
            )
        yield f"{_told(kept)}; {there}{why}"


def _told(kept: RetainedDays) -> str:
    declared = "everything" if kept.stream.retention is None else kept.stream.retention
    since = "" if kept.kept_from is None else f"; rows of days before {kept.kept_from} are rejected"
    gone = f"; {counted(kept.rows, 'row')} of days before {kept.dropped_before} are dropped, results stay"
    return f"retention of {kept.stream.name}: {declared}{since}{'' if kept.dropped_before is None else gone}"
