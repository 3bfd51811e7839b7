"""The queries of one pipeline in one Spark driver, and what keeps its clocks and tables together between batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.clocks import latest
from streaming.declare import Pipeline, Stream
from streaming.lake import Lake
from streaming.log import QUERY, Batch, OperatorCounts, declared_schema
from streaming.operators import OperatorRuntime, RunBatch, RunContext, runtime_of
from streaming.service.log_writer import LogWriter
from streaming.service.query_errors import await_queries
from streaming.tables import delta


def ingest_query(pipeline: Pipeline, stream: Stream) -> str:
    """What the query from a stream's source to its log is called in progress and status."""
    return QUERY if len(pipeline.streams) == 1 else f"{stream.name}.{QUERY}"


def ingested_stream(pipeline: Pipeline, query: str) -> Stream | None:
    """The stream whose log the query of this name writes; None for an operator's query."""
    return next((stream for stream in pipeline.streams if ingest_query(pipeline, stream) == query), None)


class Run:
    """Starts the queries of a pipeline and appends its heartbeats; the caller holds the pipeline's lease.

    `now` gives the processing time. `on_batch` is told of each batch once it is committed: the name of its query, its
    rows, and for a log the batch itself. `around` may wrap the function that runs the batches of a query.
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
        self.operators = tuple(runtime_of(operator, lake) for operator in pipeline.operators)
        self._on_batch = on_batch
        self._around = around
        self.writers = tuple(
            LogWriter(spark, lake, stream, self._counts(stream), now, partial(self._on_log_batch, stream))
            for stream in pipeline.streams
        )
        self._contexts = {
            runtime.operator.name: RunContext(spark, now, partial(self._on_rows, runtime.operator.name), around)
            for runtime in self.operators
        }

    @property
    def heads(self) -> dict[str, Batch]:
        """The newest batch of each stream that has one, by the stream's name."""
        return {writer.stream.name: writer.head for writer in self.writers if writer.head is not None}

    @property
    def watermark(self) -> datetime | None:
        """The least watermark of the streams; None until all have one."""
        marks = [None if writer.head is None else writer.head.state.watermark for writer in self.writers]
        reached = [mark for mark in marks if mark is not None]
        return min(reached) if len(reached) == len(marks) else None

    def start_ingest(self, **trigger: Any) -> dict[str, StreamingQuery]:
        """Source to log, for every stream; by the query's name.

        Raises:
            CheckpointError: a checkpoint does not belong to its log.
            SourceError: a source is missing.
        """
        names = {writer.stream.name: ingest_query(self.pipeline, writer.stream) for writer in self.writers}
        return {
            names[writer.stream.name]: writer.start(partial(self._around, names[writer.stream.name]), **trigger)
            for writer in self.writers
        }

    def bootstrap(self) -> None:
        """Operators that are new, or were deleted: what the logs hold, before anything is added to them.

        Raises:
            CheckpointError: a checkpoint does not belong to its table.
            QueryFailed: a query ended with an error.
        """
        new = [runtime for runtime in self.operators if not runtime.has_started() and self._has_rows(runtime)]
        for runtime in new:
            runtime.check()
            for stream in runtime.operator.reads:
                # A new operator may well read a column that is new.
                delta.widen(self.lake.log(stream), declared_schema(self.spark, stream))
            rows = runtime.bootstrap(self._context(runtime), self._head(runtime))
            self._on_rows(runtime.operator.name, rows)
        if new:
            await_queries(list(self._start(new, availableNow=True).values()))

    def start_operators(self, started: Collection[str] = (), **trigger: Any) -> dict[str, StreamingQuery]:
        """Logs to results, for every operator whose logs exist, but for those `started` before; by the operator's name.

        Raises:
            CheckpointError: a checkpoint does not belong to its table.
        """
        waiting = (runtime for runtime in self.operators if runtime.operator.name not in started)
        ready = [runtime for runtime in waiting if self._has_logs(runtime)]
        for runtime in ready:
            runtime.check()
        return self._start(ready, **trigger)

    def advance_idle_clocks(self) -> bool:
        """A heartbeat for each log whose clock the newest batch, or a silence since, has moved; tells if one did."""
        beats = [writer.advance_idle_clock() for writer in self.writers]
        return any(beats)

    def close_windows(self) -> None:
        """The same where it makes results due, which need not wait for the stamp of the next batch."""
        for writer in self.writers:
            writer.advance_idle_clock(partial(self._closes, writer.stream))

    def end_of_input(self) -> None:
        """A heartbeat past everything that is pending, for each log."""
        for writer in self.writers:
            writer.end_input(partial(self._latest_due, writer.stream))

    def after_batch(self, batch: Batch) -> None:
        """What operators show between closings, as it is after `batch`."""
        for runtime in self.operators:
            runtime.after_batch(self._context(runtime), batch)

    def keep_up(self) -> None:
        """What operators keep up with the logs besides their queries."""
        for runtime in filter(self._has_logs, self.operators):
            runtime.keep_up(self._context(runtime), self._head(runtime))

    def catch_up(self) -> None:
        """The same, up to the newest batch."""
        for runtime in filter(self._has_logs, self.operators):
            runtime.catch_up(self._context(runtime), self._head(runtime))

    def _counts(self, stream: Stream) -> dict[str, OperatorCounts]:
        counts = {
            runtime.operator.name: runtime.counts(stream)
            for runtime in self.operators
            if stream in runtime.operator.reads
        }
        return {name: each for name, each in counts.items() if each is not None}

    def _context(self, runtime: OperatorRuntime) -> RunContext:
        return self._contexts[runtime.operator.name]

    def _head(self, runtime: OperatorRuntime) -> Batch:
        return self.heads[runtime.operator.reads[0].name]

    def _has_logs(self, runtime: OperatorRuntime) -> bool:
        return all(stream.name in self.heads for stream in runtime.operator.reads)

    def _has_rows(self, runtime: OperatorRuntime) -> bool:
        # A log without rows is as good as none.
        logs = (self.lake.log(stream) for stream in runtime.operator.reads)
        return self._has_logs(runtime) and not any(map(delta.is_empty, logs))

    def _start(self, runtimes: Sequence[OperatorRuntime], **trigger: Any) -> dict[str, StreamingQuery]:
        # All are planned before the first one starts, so that one that cannot be planned leaves none running.
        planned = {runtime.operator.name: runtime.plan_query(self._context(runtime), **trigger) for runtime in runtimes}
        return {name: start() for name, start in planned.items()}

    def _closes(self, stream: Stream, before: datetime | None, after: datetime | None) -> bool:
        if before is None or after is None:
            return before != after
        readers = (runtime for runtime in self.operators if stream in runtime.operator.reads)
        return any(runtime.closes_between(before, after) for runtime in readers)

    def _latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        readers = (runtime for runtime in self.operators if stream in runtime.operator.reads)
        return latest(*(runtime.latest_due(stream, rows, watermark) for runtime in readers))

    def _on_log_batch(self, stream: Stream, batch: Batch) -> None:
        self._on_batch(ingest_query(self.pipeline, stream), batch.summary.rows, batch)

    def _on_rows(self, operator: str, rows: int) -> None:
        self._on_batch(operator, rows, None)
