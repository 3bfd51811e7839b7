"""A drain run: everything that is there goes through a pipeline, in one process, and the process ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streaming import delta, log
from streaming.bootstrap import begun, bootstrap
from streaming.clock import BatchSummary, ClockState
from streaming.early import EarlyResults
from streaming.errors import QueryFailed, StreamingError
from streaming.ingest import QUERY, Ingest, check_checkpoint, declared_schema, heartbeat, next_state
from streaming.intervals import from_micros
from streaming.lake import Lake
from streaming.lease import lease
from streaming.log import Batch
from streaming.pipeline import Pipeline
from streaming.progress import Progress, QueryProgress, Silent
from streaming.sources import vanished
from streaming.updates import update
from streaming.views import FirstResults, first_results, native_drops
from streaming.windowed import WINDOW, Windowed


@dataclass(frozen=True)
class Drained:
    """What a drain did: per query its totals, in the order in which they ran; the log's head afterwards."""

    queries: dict[str, QueryProgress]
    head: Batch | None


def utc_now() -> datetime:
    """The processing time of a run; every transform takes it as an argument."""
    return datetime.now(UTC)


def drain(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *,
    end_of_input: bool = False,
    progress: Progress | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Drained:
    """Ingest what the source holds, tell the views how far the clock is, and bring the views up to date.

    With `end_of_input` the windows still open are closed; rows that come later are late for them.

    Raises:
        LeaseError: the pipeline runs already, or the lake cannot be written.
        SourceError: the source is missing, or a file vanished while it was read.
        CheckpointError: a checkpoint does not belong to its table.
        QueryFailed: a query ended with an error; running again goes on where it stopped.
    """
    run = _Run(spark, lake, pipeline, progress or Silent(), now)
    with lease(lake, pipeline.stream):
        run.bootstrap()
        run.ingest()
        run.settle()
        if end_of_input:
            run.end_of_input()
        if run.head is not None:
            run.views()
    return Drained(dict(run.totals), run.head)


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipeline: Pipeline,
        progress: Progress,
        now: Callable[[], datetime],
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.pipeline = pipeline
        self.now = now
        self.totals: dict[str, QueryProgress] = {}
        self.head: Batch | None = None
        self._progress = progress
        self._early = [EarlyResults(spark, lake, view, now) for view in pipeline.views]

    def bootstrap(self) -> None:
        """Views that are new, or were deleted: what the log holds, before anything is added to it."""
        stream, head = self.pipeline.stream, log.head(self.lake, self.pipeline.stream)
        new = [view for view in self.pipeline.views if not begun(self.spark, self.lake, view)]
        # A log without rows is as good as none.
        if head is None or not new or delta.is_empty(self.lake.log(stream)):
            return
        self._check(new)
        # A new view may well read a column that is new.
        delta.widen(self.lake.log(stream), declared_schema(self.spark, stream))
        for view in new:
            self._update(view.name, bootstrap(self.spark, self.lake, view, head, self.now))
        self._stream(new)

    def ingest(self) -> None:
        """Source to log, to completion."""
        stream = self.pipeline.stream
        checkpoint = self.lake.checkpoint(stream, QUERY)
        check_checkpoint(
            self.spark,
            self.lake.log(stream),
            checkpoint,
            "Restore the checkpoint from a backup; or, to begin a new log, move both the old log and what is left of "
            "the checkpoint away.",
        )
        ingest = Ingest(self.spark, self.lake, self.pipeline, self.now, self._logged)
        query = (
            stream.source.read(self.spark, self.lake.landing(stream))
            .writeStream.queryName(f"{stream.name}.{QUERY}")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .foreachBatch(ingest)
            .start()
        )
        _await([query])
        self.head = log.head(self.lake, stream)

    def settle(self) -> None:
        """A heartbeat, where the newest batch or a silence since moved the clock: views see nothing but stamps."""
        if self.head is None:
            return
        stream, now = self.pipeline.stream, self.now()
        state = stream.clock.advance(next_state(self.head, stream), BatchSummary({}, 0, now))
        if state.watermark != self.head.state.watermark:
            self._beat(self.head, state, now)

    def end_of_input(self) -> None:
        """A heartbeat at the latest end of any window still open."""
        if self.head is None or self.head.state.watermark is None:
            return
        state, watermark = self.head.state, self.head.state.watermark
        rows = log.valid(log.read_log(self.spark, self.lake, self.pipeline.stream))
        longest = [view.window.longest for view in self.pipeline.views]
        if None not in longest:
            rows = rows.where(F.col("_day") >= F.lit((watermark - max(filter(None, longest))).date()))
        ends = [view.pairs(rows).agg(F.unix_micros(F.max(f"{WINDOW}.end"))).first() for view in self.pipeline.views]
        latest = max((row[0] for row in ends if row is not None and row[0] is not None), default=None)
        if latest is not None:
            closed = state.closed_at(from_micros(latest))
            if closed != state:
                self._beat(self.head, closed, self.now(), end_of_input=True)

    def views(self) -> None:
        """First results of every view."""
        self._check(self.pipeline.views)
        self._stream(self.pipeline.views)
        assert self.head is not None
        for view, early in zip(self.pipeline.views, self._early, strict=True):
            update(self.spark, self.lake, view, self.now)
            early.write(self.head)

    def _check(self, views: Sequence[Windowed]) -> None:
        for view in views:
            check_checkpoint(
                self.spark,
                self.lake.first(view),
                self.lake.checkpoint(view.of, view.name),
                f"Views are functions of the log: delete the table and the checkpoint of {view.name!r} (where its "
                "declaration has changed also its updates, corrections and open windows) and run again.",
            )

    def _stream(self, views: Sequence[Windowed]) -> None:
        # All are planned before the first one starts, so that one that cannot be planned leaves none running.
        planned = [(view, first_results(self.spark, self.lake, view)) for view in views]
        queries = [
            groups.writeStream.queryName(f"{view.of.name}.{view.name}")
            .option("checkpointLocation", self.lake.checkpoint(view.of, view.name))
            .trigger(availableNow=True)
            .foreachBatch(FirstResults(self.spark, self.lake, view, self.now, partial(self._update, view.name)))
            .start()
            for view, groups in planned
        ]
        _await(queries)
        for query in queries:
            _refuse_native_drops(query)

    def _beat(self, head: Batch, state: ClockState, now: datetime, *, end_of_input: bool = False) -> None:
        stream = self.pipeline.stream
        self.head = heartbeat(self.spark, self.lake, stream, state, head.number + 1, now, end_of_input=end_of_input)

    def _logged(self, batch: Batch) -> None:
        for early in self._early:
            early(batch)
        self._update(QUERY, batch.summary.rows, batch.rejected, sum((batch.late or {}).values()), batch.state.watermark)

    def _update(self, query: str, rows: int, *numbers: Any) -> None:
        name = f"{self.pipeline.name}.{query}"
        self.totals[query] = self.totals.get(query, QueryProgress(name)).after(rows, *numbers)
        self._progress.update(self.totals[query])


def _await(queries: Sequence[StreamingQuery]) -> None:
    try:
        for query in queries:
            query.awaitTermination()
    except StreamingQueryException as error:
        raise _explain(error, query) from error
    finally:
        for query in queries:
            if query.isActive:
                query.stop()


def _explain(error: StreamingQueryException, query: StreamingQuery) -> StreamingError:
    text = str(error)
    if re.search(r"DELTA_MISSING_FILES_UNEXPECTED_VERSION|DELTA_VERSION_NOT_FOUND", text):
        return QueryFailed(
            f"entries of the event log that {query.name!r} has not read yet were cleaned away; `maintain` leaves them "
            "alone for every view of its pipeline. Views are functions of the log: delete the view's table and "
            "checkpoint and run again."
        )
    missing = re.search(r"FILE_NOT_EXIST\][^\n]*? file (.+?)\. File does|vanished [^\n]*?: (.+?)\. Put it back", text)
    if missing:
        return vanished(missing[1] or missing[2])
    return QueryFailed(f"{_cause(text)} Nothing is lost: correct the cause and run again, it goes on where it stopped.")


def _cause(text: str) -> str:
    """What was raised in a batch, without Python's and Java's traces around it."""
    told = [line for line in text.split("=== Streaming Query ===")[0].splitlines() if line.strip()]
    frames = [number for number, line in enumerate(told) if line.startswith('  File "')]
    if not frames:
        return told[0].strip()
    query = told[0].partition(" terminated with exception")[0]
    raised = takewhile(lambda line: not re.match(r"\s+at |\s*SQLSTATE|JVM stacktrace", line), told[frames[-1] + 1 :])
    return f"{query} failed: {' '.join(line for line in raised if not line.startswith('  '))}."


def _refuse_native_drops(query: StreamingQuery) -> None:
    dropped = native_drops(query)
    if dropped:
        raise QueryFailed(
            f"Spark itself dropped {dropped} groups in query {query.name!r}, which the stamped clock must prevent; the "
            "first results are incomplete. Delete the view's table and checkpoint, run again, and report this."
        )
