"""Tells of a running pipeline from a thread of its own, so that it is heard of whatever the others wait for."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import psutil
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import interval
from streaming.log import QUERY
from streaming.service.measures import Measure, together
from streaming.service.run import Run
from streaming.service.status import Phase, ProcessStatus, QueryStatus
from streaming.service.watch import Watch
from streaming.sources import by_unit

_TOLD_EVERY = 0.5
_RATES_OVER = timedelta(minutes=2)
_COUNTED_EVERY = timedelta(seconds=10)
_SLOW_AFTER = 10
_log = logging.getLogger("tidemark")


class Reporter:
    """Puts together what the batches of a run brought; `queries` are those that run, by name.

    `on_measures` takes the batches that ended since it was called last, `on_status` the state of the process, about
    twice a second. The owner sets `phase`, and `passed_at` whenever its own loop comes round.
    """

    def __init__(
        self,
        run: Run,
        watch: Watch,
        queries: Callable[[], Mapping[str, StreamingQuery]],
        now: Callable[[], datetime],
        on_measures: Callable[[list[Measure]], None],
        on_status: Callable[[ProcessStatus], None],
    ) -> None:
        self.phase: Phase = "bootstrapping"
        self.passed_at = now()
        self._run = run
        self._watch = watch
        self._queries = queries
        self._now = now
        self._on_measures = on_measures
        self._on_status = on_status
        self._backlogs = [
            stream.source.backlog(run.lake, run.lake.checkpoint(stream, QUERY)) for stream in run.pipeline.streams
        ]
        self._counted_at: datetime | None = None
        self._counts: dict[str, Any] = {}
        self._recent: deque[Measure] = deque()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="reporter", daemon=True)
        self.status = ProcessStatus(pid=os.getpid(), started=now(), at=now(), passed=now())
        """What was told last."""

    def begin(self) -> None:
        """Go on telling until `end`."""
        self._thread.start()

    def end(self) -> None:
        """Tell once more, of everything that has ended by now, and no more."""
        self._over.set()
        self._thread.join()
        self._try_to_tell()

    def _go_on(self) -> None:
        while not self._over.wait(_TOLD_EVERY):
            self._try_to_tell()

    def _try_to_tell(self) -> None:
        try:
            self._tell()
        except Exception as error:
            # Whoever falls silent is killed: a disk that is full for a moment must not silence this thread for ever.
            _log.warning("%s: its state could not be told (%s)", self._run.pipeline.name, error)

    def _tell(self) -> None:
        now = self._now()
        measures = [self._with_state(measure) for measure in self._watch.measured()]
        if measures:
            self._on_measures(measures)
        self._recent.extend(measure for measure in measures if measure.is_of_log)
        while self._recent and now - self._recent[0].ended > _RATES_OVER:
            self._recent.popleft()
        self.status = self._told(now, measures)
        self._on_status(self.status)

    def _told(self, now: datetime, measures: list[Measure]) -> ProcessStatus:
        before, heads = self.status, self._run.heads
        known = min(_RATES_OVER, now - before.started).total_seconds()
        lately = together(self._recent, known)
        watermark = self._run.watermark
        last = list(self._recent)[-_SLOW_AFTER:]
        slow = interval(self._run.pipeline.trigger).total_seconds()
        return before.model_copy(
            update={
                "at": now,
                "passed": self.passed_at,
                "phase": self.phase,
                "queries": self._query_statuses(measures),
                "newest_batch": max((head.number for head in heads.values()), default=None),
                "watermark": watermark,
                "watermark_moved": now if watermark != before.watermark else before.watermark_moved,
                "rejected": before.rejected + sum(measure.rejected or 0 for measure in measures),
                "late": before.late + sum(measure.late or 0 for measure in measures),
                "input_rate": lately.input_rate,
                "processing_rate": lately.processing_rate,
                "latency": lately.latency,
                "rejected_share": lately.rejected / lately.rows if lately.rows else 0.0,
                **self._counted(now),
                "slow": len(last) == _SLOW_AFTER and all(measure.seconds > slow for measure in last),
            }
        )

    def _query_statuses(self, measures: list[Measure]) -> dict[str, QueryStatus]:
        statuses = dict(self.status.queries)
        for measure in measures:
            before = statuses.get(measure.query, QueryStatus())
            statuses[measure.query] = before.model_copy(
                update={
                    "last_batch": measure.batch,
                    "last_ended": measure.ended,
                    "last_seconds": measure.seconds,
                    "batches": before.batches + 1,
                    "rows": before.rows + measure.rows,
                    "state_rows": measure.state_rows,
                    "state_bytes": measure.state_bytes,
                }
            )
        running = self._watch.running()
        for name in self._queries():
            batch, since = running.get(name, (None, None))
            statuses[name] = statuses.get(name, QueryStatus()).model_copy(
                update={"running_batch": batch, "running_since": since}
            )
        return statuses

    def _with_state(self, measure: Measure) -> Measure:
        query = None if measure.is_of_log else self._queries().get(measure.query)
        progress = None if query is None else query.lastProgress
        if progress is None:
            return measure
        operators = progress.stateOperators
        return measure.with_state(
            sum(operator.numRowsTotal for operator in operators),
            sum(operator.memoryUsedBytes for operator in operators),
        )

    def _counted(self, now: datetime) -> dict[str, Any]:
        """What takes a while to count, and is counted now and then."""
        if self._counted_at is None or now - self._counted_at >= _COUNTED_EVERY:
            backlog, before = by_unit(count() for count in self._backlogs), self.status
            items = sum(part.items for part in backlog)
            previous = items if before.items_waiting is None else before.items_waiting
            grows = before.backlog_grows_since or (now if items > previous else None)
            self._counted_at = now
            self._counts = {
                "backlog": backlog,
                "backlog_grows_since": None if items < previous else grows,
                "memory_bytes": _memory(),
            }
        return self._counts


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
