"""The queries of one pipeline in one Spark driver, and what keeps its clock and tables together between batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streaming import log
from streaming.base import WINDOW, from_micros
from streaming.clocks import BatchSummary, ClockState
from streaming.declare import Pipeline, Windowed
from streaming.lake import Lake
from streaming.log import QUERY, Batch, Ingest, append_heartbeat, declared_schema, next_state
from streaming.service.query_errors import await_queries
from streaming.spark import check_checkpoint
from streaming.tables import delta
from streaming.views import EarlyResults, FirstResults, bootstrap_view, first_results, has_started, update

RunBatch = Callable[[DataFrame, int], None]
"""A `foreachBatch` function: the rows of a batch and its number."""


class Run:
    """Starts the queries of a pipeline and appends its heartbeats; the caller holds the pipeline's lease.

    `now` gives the processing time. `on_batch` is told of each batch once it is committed: the name of its query, its
    rows, and for the log the batch itself. `around` may wrap the function that runs the batches of a query.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipeline: Pipeline,
        now: Callable[[], datetime],
        on_batch: Callable[[str, int, Batch | None], None],
        around: Callable[[str, RunBatch], RunBatch] = lambda query, run_batch: run_batch,
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.pipeline = pipeline
        self.head = log.head(lake, pipeline.stream)
        self._now = now
        self._on_batch = on_batch
        self._around = around
        self._early = {view.name: EarlyResults(spark, lake, view, now) for view in pipeline.views}
        # A heartbeat and a batch may come from two threads, and each must follow the newest batch.
        self._appending = threading.Lock()

    def start_ingest(self, **trigger: Any) -> StreamingQuery:
        """Source to log.

        Raises:
            CheckpointError: the checkpoint does not belong to the log.
            SourceError: the source is missing.
        """
        stream = self.pipeline.stream
        checkpoint = self.lake.checkpoint(stream, QUERY)
        check_checkpoint(
            self.lake.log(stream),
            checkpoint,
            "Restore the checkpoint from a backup; or, to begin a new log, move both the old log and what is left of "
            "the checkpoint away.",
        )
        ingest = Ingest(self.spark, self.lake, self.pipeline, self._now)

        def run_batch(parsed: DataFrame, query_batch: int) -> None:
            with self._appending:
                batch = ingest(parsed, query_batch, self.head)
                if batch is None:
                    return
                self.head = batch
            self._on_batch(QUERY, batch.summary.rows, batch)

        return (
            stream.format.parse(stream.source.read(self.spark, stream.source.location(self.lake)))
            .writeStream.queryName(f"{stream.name}.{QUERY}")
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .foreachBatch(self._around(QUERY, run_batch))
            .start()
        )

    def bootstrap(self) -> None:
        """Views that are new, or were deleted: what the log holds, before anything is added to it.

        Raises:
            CheckpointError: a checkpoint does not belong to its table.
            QueryFailed: a query ended with an error.
        """
        stream = self.pipeline.stream
        new = [view for view in self.pipeline.views if not has_started(self.lake, view)]
        # A log without rows is as good as none.
        if self.head is None or not new or delta.is_empty(self.lake.log(stream)):
            return
        self._check(new)
        # A new view may well read a column that is new.
        delta.widen(self.lake.log(stream), declared_schema(self.spark, stream))
        for view in new:
            self._on_result(view.name, bootstrap_view(self.spark, self.lake, view, self.head, self._now))
        await_queries(self._start(new, availableNow=True))

    def start_views(self, **trigger: Any) -> list[StreamingQuery]:
        """Log to first results, for every view; the log must exist.

        Raises:
            CheckpointError: a checkpoint does not belong to its table.
        """
        self._check(self.pipeline.views)
        return self._start(self.pipeline.views, **trigger)

    def _check(self, views: Sequence[Windowed]) -> None:
        for view in views:
            check_checkpoint(
                self.lake.first(view),
                self.lake.checkpoint(view.of, view.name),
                f"Views are functions of the log: delete the table and the checkpoint of {view.name!r} (where its "
                "declaration has changed also its updates, corrections and open windows) and run again.",
            )

    def _start(self, views: Sequence[Windowed], **trigger: Any) -> list[StreamingQuery]:
        # All are planned before the first one starts, so that one that cannot be planned leaves none running.
        planned = [(view, first_results(self.spark, self.lake, view)) for view in views]
        return [
            groups.writeStream.queryName(f"{view.of.name}.{view.name}")
            .option("checkpointLocation", self.lake.checkpoint(view.of, view.name))
            .trigger(**trigger)
            .foreachBatch(
                self._around(
                    view.name,
                    FirstResults(self.spark, self.lake, view, self._now, partial(self._on_result, view.name)),
                )
            )
            .start()
            for view, groups in planned
        ]

    def settle(self) -> bool:
        """A heartbeat, where the newest batch or a silence since moved the clock: views see nothing but stamps.

        Returns whether there was one; while a batch is being appended there is none.
        """
        return self._settle(lambda before, after: before != after)

    def close_windows(self) -> None:
        """The same where it closed windows: their results need not wait for the stamp of the next batch."""
        self._settle(self._closing)

    def _closing(self, before: datetime | None, after: datetime | None) -> bool:
        if before is None or after is None:
            return before != after
        return any(view.window.known_to_end(before, after) for view in self.pipeline.views)

    def _settle(self, worth_it: Callable[[datetime | None, datetime | None], bool]) -> bool:
        if not self._appending.acquire(blocking=False):
            return False
        try:
            if self.head is None:
                return False
            stream, now = self.pipeline.stream, self._now()
            state = stream.clock.advance(next_state(self.head, stream), BatchSummary({}, 0, now))
            if not worth_it(self.head.state.watermark, state.watermark):
                return False
            self._beat(self.head, state, now)
            return True
        finally:
            self._appending.release()

    def end_of_input(self) -> None:
        """A heartbeat at the latest end of any window still open."""
        if self.head is None or self.head.state.watermark is None:
            return
        state, watermark = self.head.state, self.head.state.watermark
        rows = log.valid(log.read_log(self.spark, self.lake, self.pipeline.stream))
        ends = [
            view.pairs(view.reaching(rows, watermark)).agg(F.unix_micros(F.max(f"{WINDOW}.end"))).first()
            for view in self.pipeline.views
        ]
        latest = max((row[0] for row in ends if row is not None and row[0] is not None), default=None)
        if latest is not None:
            closed = state.closed_at(from_micros(latest))
            if closed != state:
                self._beat(self.head, closed, self._now(), end_of_input=True)

    def early_results(self, batch: Batch) -> None:
        """Keep the open windows of those views for which it is time, as they are after `batch`."""
        for early in self._early.values():
            early(batch)

    def updates(self) -> None:
        """Correct the windows of late pairs within their allowed lateness, for the views that declare it."""
        for view in self.pipeline.updated:
            update(self.spark, self.lake, view, self._now)

    def refresh(self) -> None:
        """Updates by late pairs, and every table of open windows, as they are after the newest batch."""
        assert self.head is not None
        self.updates()
        for early in self._early.values():
            early.write(self.head)

    def _on_result(self, view: str, rows: int) -> None:
        self._on_batch(view, rows, None)

    def _beat(self, head: Batch, state: ClockState, now: datetime, *, end_of_input: bool = False) -> None:
        stream = self.pipeline.stream
        self.head = append_heartbeat(
            self.spark, self.lake, stream, state, head.number + 1, now, end_of_input=end_of_input
        )
