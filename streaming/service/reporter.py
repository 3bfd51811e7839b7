"""Writes down what a running pipeline does, for people, metrics and alerts; the supervisor goes by the pulse."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import psutil

from streaming.base import interval
from streaming.log import QUERY
from streaming.service.freshness import ValueCounts
from streaming.service.progress import Measure
from streaming.service.query_errors import ingest_query
from streaming.service.repeated import Repeated
from streaming.service.run import Run
from streaming.service.status import ControlFolder, ProcessStatus, QueryStatus, first_status
from streaming.service.usual import UnusualHours
from streaming.service.watch import Watch
from streaming.sources import by_unit

_REPORTS_EVERY, _COUNTS_EVERY, _JUDGES_EVERY, _ENDS_WITHIN = 0.5, 10.0, 10.0, 5.0
_RATES_OVER = timedelta(minutes=2)
_SLOW_AFTER = 10


@dataclass(frozen=True)
class _Throughput:
    """Measures of the log's query put together over a while; rates are rows a second.

    `input_rate` is over the while, `processing_rate` over the time in which batches ran. Latency percentiles are
    those of the batches, weighted by their rows. `warned` and `reasons` are rows that break a rule, by rule.
    """

    rows: int = 0
    rejected: int = 0
    late: int = 0
    batches: int = 0
    input_rate: float = 0.0
    processing_rate: float = 0.0
    batch_seconds: float | None = None
    latency: tuple[float, float, float] | None = None
    warned: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)


def sums(*counts: Mapping[str, int]) -> dict[str, int]:
    """The sum of each name over several counts; names whose sum is 0 are kept."""
    names = dict.fromkeys(name for each in counts for name in each)
    return {name: sum(each.get(name, 0) for each in counts) for name in names}


def together(measures: Sequence[Measure], seconds: float) -> _Throughput:
    """`measures` of one query over `seconds`."""
    busy = sum(measure.seconds for measure in measures)
    rows = sum(measure.rows for measure in measures)
    weighed = [(measure.latency, measure.rows) for measure in measures if measure.latency and measure.rows]
    return _Throughput(
        rows=rows,
        rejected=sum(measure.rejected or 0 for measure in measures),
        late=sum(measure.late or 0 for measure in measures),
        batches=len(measures),
        input_rate=rows / seconds if seconds else 0.0,
        processing_rate=rows / busy if busy else 0.0,
        batch_seconds=busy / len(measures) if measures else None,
        latency=_percentiles(weighed),
        warned=sums(*(measure.warned for measure in measures)),
        reasons=sums(*(measure.reasons for measure in measures)),
    )


def _percentiles(
    weighed: Sequence[tuple[tuple[float, float, float], int]],
) -> tuple[float, float, float] | None:
    """Each percentile over all rows, as if the rows of a batch all had that percentile of their batch."""
    if not weighed:
        return None
    total = sum(rows for _, rows in weighed)
    percentiles = []
    for place, share in enumerate((0.5, 0.95, 0.99)):
        rows_below = 0
        for seconds, rows in sorted((entry[place], rows) for entry, rows in weighed):
            rows_below += rows
            if rows_below >= share * total:
                percentiles.append(seconds)
                break
    p50, p95, p99 = percentiles
    return p50, p95, p99


class Reporter:
    """Puts together what the batches and steps of a run brought.

    `on_measures` takes the batches that ended since it was called last, `on_status` the state of the process, about
    twice a second. Both are called in a thread of the reporter; what waits in the source, which slow storage takes its
    time to tell, is counted in another, and the hours that are over, of which weeks are read at first, are judged in a
    third.
    """

    def __init__(
        self,
        run: Run,
        watch: Watch,
        now: Callable[[], datetime],
        on_measures: Callable[[list[Measure]], None],
        on_status: Callable[[ProcessStatus], None],
    ) -> None:
        pipeline, lake = run.pipeline, run.lake
        self._run = run
        self._watch = watch
        self._names = [ingest_query(pipeline, stream) for stream in pipeline.streams]
        self._names += [operator.name for operator in pipeline.operators]
        self._names += [delivery.name for delivery in pipeline.deliveries]
        self._now = now
        self._on_measures = on_measures
        self._on_status = on_status
        self._backlogs = {
            stream.name: stream.source.backlog(lake, lake.checkpoint(stream, QUERY)) for stream in pipeline.streams
        }
        self._values = ValueCounts(lake, pipeline)
        self._hours = UnusualHours(lake, pipeline)
        self._counts: dict[str, Any] = {}
        self._shrinks: CatchUp | None = None
        self._recent: deque[Measure] = deque()
        self._status = first_status(ControlFolder(lake, pipeline), now())
        self._reporting = Repeated(f"{pipeline.name}: report of its state", _REPORTS_EVERY, self._report)
        self._counting = Repeated(f"{pipeline.name}: count of what waits", _COUNTS_EVERY, self._count)
        self._judging = Repeated(f"{pipeline.name}: unusual hours", _JUDGES_EVERY, self._judge)

    def begin(self) -> None:
        """Go on reporting until `end`."""
        self._reporting.begin()
        self._counting.begin()
        self._judging.begin()

    def end(self) -> None:
        """Report once more, of everything that has ended by now, and no more."""
        self._reporting.end(_ENDS_WITHIN)
        self._counting.leave()
        self._judging.leave()

    def _report(self) -> None:
        now = self._now()
        measures = self._watch.measured()
        if measures:
            self._on_measures(measures)
        self._recent.extend(measure for measure in measures if measure.is_of_log)
        while self._recent and now - self._recent[0].ended > _RATES_OVER:
            self._recent.popleft()
        self._status = self._status_after(measures, now)
        self._on_status(self._status)

    def _status_after(self, measures: list[Measure], now: datetime) -> ProcessStatus:
        before, heads = self._status, self._run.heads
        recent = together(self._recent, min(_RATES_OVER, now - before.started).total_seconds())
        watermark, watermarks = self._run.watermark, self._run.watermarks
        last = list(self._recent)[-_SLOW_AFTER:]
        slow = interval(self._run.pipeline.trigger).total_seconds()
        return before.model_copy(
            update={
                "at": now,
                "passed": self._watch.passed,
                "phase": self._watch.phase,
                "queries": self._query_statuses(measures),
                "newest_batch": max((head.number for head in heads.values()), default=None),
                "watermark": watermark,
                "watermarks": watermarks,
                "watermark_moved": now if watermark != before.watermark else before.watermark_moved,
                "rejected": before.rejected + sum(measure.rejected or 0 for measure in measures),
                "late": before.late + sum(measure.late or 0 for measure in measures),
                "input_rate": recent.input_rate,
                "processing_rate": recent.processing_rate,
                "latency": recent.latency,
                "rejected_share": recent.rejected / recent.rows if recent.rows else 0.0,
                **self._counts,
                "unusual": self._hours.unusual,
                "slow": len(last) == _SLOW_AFTER and all(measure.seconds > slow for measure in last),
            }
        )

    def _query_statuses(self, measures: list[Measure]) -> dict[str, QueryStatus]:
        statuses = dict(self._status.queries)
        for measure in measures:
            before = statuses.get(measure.query, QueryStatus())
            statuses[measure.query] = before.model_copy(
                update={
                    "last_batch": measure.batch,
                    "last_ended": measure.ended,
                    "last_seconds": measure.seconds,
                    "batches": before.batches + 1,
                    "rows": before.rows + measure.rows,
                    "rejected": before.rejected + (measure.rejected or 0),
                    "state_rows": measure.state_rows,
                    "state_bytes": measure.state_bytes,
                    "failures": before.failures + measure.failures,
                    "failed_at": measure.ended if measure.failures else before.failed_at,
                    "warned": sums(before.warned, measure.warned),
                    "reasons": sums(before.reasons, measure.reasons),
                }
            )
        running = self._watch.running()
        deliveries = self._run.deliveries
        paused = {name: str(refused) for name, refused in {**self._run.paused, **deliveries.paused}.items()}
        waiting = dict(deliveries.waiting)
        heads = self._run.heads
        lags = {each.name: self._run.followed.lag(each, heads) for each in self._run.pipeline.operators}
        for name in {*statuses, *self._names}:
            batch, since = running.get(name, (None, None))
            before, lag = statuses.get(name, QueryStatus()), lags.get(name)
            statuses[name] = before.model_copy(
                update={
                    "behind": None if lag is None else lag.batches,
                    "behind_since": None if lag is None or lag.batches <= 1 else before.behind_since or self._now(),
                    "watermark": None if lag is None else lag.watermark,
                    "running_batch": batch,
                    "running_since": since,
                    "paused": paused.get(name),
                    "waiting": waiting[name].why if name in waiting else None,
                    "waiting_since": waiting[name].since if name in waiting else None,
                }
            )
        return statuses

    def _count(self) -> None:
        """Count what takes a while to count."""
        heads = self._run.heads
        counted = (count(heads[name].source if name in heads else {}) for name, count in self._backlogs.items())
        backlog, now, before = by_unit(counted), self._now(), self._counts
        items = sum(part.items for part in backlog)
        items_before = sum(part.items for part in before.get("backlog", backlog))
        grows_since = before.get("backlog_grows_since") or (now if items > items_before else None)
        shrinks = CatchUp(now, items, now, items) if self._shrinks is None else self._shrinks.counted(now, items)
        self._shrinks = shrinks
        self._counts = {
            "backlog": backlog,
            "backlog_grows_since": None if items < items_before else grows_since,
            "catch_up_seconds": shrinks.seconds,
            "memory_bytes": _memory(),
            "values": self._values.at(now),
        }

    def _judge(self) -> None:
        """Judge the hours that are over."""
        of_operators = {name: query.watermark for name, query in self._status.queries.items()}
        self._hours.look(self._now(), {**of_operators, **self._run.watermarks})


def _memory() -> int:
    """Resident bytes of this process and its children: Python, the JVM, Python workers."""
    total = 0
    process = psutil.Process()
    for member in (process, *process.children(recursive=True)):
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


@dataclass(frozen=True)
class CatchUp:
    """A backlog that shrinks: `most` items waited at `since`, when it last grew, and `items` wait `at` now."""

    since: datetime
    most: int
    at: datetime
    items: int

    def counted(self, at: datetime, items: int) -> CatchUp:
        """After it was counted again; a backlog that grows has begun to shrink at the earliest then."""
        return CatchUp(at, items, at, items) if items > self.items else replace(self, at=at, items=items)

    @property
    def seconds(self) -> float | None:
        """Until nothing waits, if it goes on to shrink as it has since; None where no end is in sight."""
        if self.items == 0:
            return 0.0
        taken = self.most - self.items
        return self.items * (self.at - self.since).total_seconds() / taken if taken else None
