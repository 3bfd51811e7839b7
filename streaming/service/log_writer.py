"""The one writer of a log: batches of its source, and the heartbeats between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming import log
from streaming.base import MILLISECOND, SourceError, StreamingError
from streaming.clocks import BatchSummary, ClockState
from streaming.declare import Stream
from streaming.lake import Lake, Settings
from streaming.log import QUERY, Batch, Ingest, OperatorCounts, append_heartbeat, with_changes
from streaming.operators import Written
from streaming.revisions import Revising
from streaming.service.observer import Observer
from streaming.sources import Reading
from streaming.spark import check_checkpoint


class LogWriter:
    """Appends to the log of one stream; the caller holds the lease of its pipeline.

    `name` is that of its query in progress and status. `counts` is what each commit counts, by operator. `observer` has
    the clock that it goes by, and follows each batch. `pinned` tells the newest batch of each control stream that a
    stream pins.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        stream: Stream,
        name: str,
        counts: Mapping[str, OperatorCounts],
        observer: Observer,
        pinned: Callable[[Stream], Mapping[str, int]],
    ) -> None:
        self.stream = stream
        self.name = name
        self.head = log.head(lake, stream)
        """The newest batch that operators may follow; None while the log is empty."""
        self._came = log.head(lake, stream.revisions)
        """The newest batch of what came, which is the same but for a stream with a key."""
        self._revising = Revising(spark, lake, stream, counts) if stream.revised else None
        self._spark = spark
        self._lake = lake
        # What is late for whom is told by the rows that operators read.
        self._counts = {} if stream.revised else counts
        self._observer = observer
        self._pinned = partial(pinned, stream)
        # A heartbeat and a batch may come from two threads, and each must follow the newest batch.
        self._appending = threading.Lock()
        self._failure: StreamingError | None = None

    @property
    def query_name(self) -> str:
        """The name in Spark of the query from source to log."""
        return f"{self.stream.name}.{QUERY}"

    @property
    def reading(self) -> Reading:
        """The reading that is handed to the source, as of now."""
        memory = {} if self._came is None else self._came.source
        return Reading(self._lake, self._lake.checkpoint(self.stream, QUERY), memory)

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the query from source to log.

        One that reads what another source follows ends when it has read what there is, whatever the `trigger`.

        Raises:
            CheckpointError: the checkpoint does not belong to the log.
            SourceError: the source is missing.
        """
        stream, reading = self.stream.revisions, self.reading
        # A process may have died between the two logs.
        self._follow(self._came)
        checkpoint = stream.source.checkpoint(reading.checkpoint, reading.memory)
        if stream.source.after_end(reading.memory) is not None:
            trigger = {"availableNow": True}
        check_checkpoint(
            self._lake.log(stream),
            checkpoint,
            "Restore the checkpoint from a backup; `tidemark doctor` tells whether it can be made again from the log. "
            "Or, to begin a new log, move both the old log and what is left of the checkpoint away.",
            may_begin_anew=stream.source.may_begin_anew(reading.memory),
        )
        ingest = Ingest(
            self._spark,
            self._lake,
            stream,
            self._counts,
            self._observer.now,
            self._pinned,
            Settings().ingest,
        )

        def run_batch(raw: DataFrame, query_batch: int) -> None:
            with self._observer.during(self.name, query_batch):
                with self._appending:
                    try:
                        batch = ingest(raw, query_batch, self._came)
                        if batch is None:
                            return
                        self._follow(batch)
                    except StreamingError as error:
                        self._failure = error
                        raise
                self._observer.committed(
                    self.name,
                    Written(batch.summary.rows),
                    batch if self.head is None else with_changes(batch, self.head),
                )

        return (
            stream.source.read(self._spark, reading)
            .writeStream.queryName(self.query_name)
            .option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .foreachBatch(run_batch)
            .start()
        )

    def start_next(self, **trigger: Any) -> StreamingQuery | None:
        """Start the query that follows the one that has ended by itself; None where none does.

        One commit of the log says that it follows, so a process that dies here goes on with the one or the other.

        Raises:
            SourceError: the query that has ended found nothing.
        """
        memory = self.stream.source.after_end(self.reading.memory)
        if memory is None:
            return None
        with self._appending:
            if self._came is None:
                raise SourceError(
                    f"stream {self.stream.name!r} found nothing in what it is to read first of "
                    f"{self.stream.source.location(self._lake)}, and does not go on without. Bring it there and run "
                    "again; or declare what follows as the only source."
                )
            now = self._observer.now()
            ended = self.stream.clock.advance(self._came.after, BatchSummary({}, 0, now, partitions_end=True))
            self._append_heartbeat(self._came, ended, now, next_memory=memory)
        return self.start(**trigger)

    def check_source(self) -> None:
        """Refuse a source that is gone.

        Raises:
            SourceError: naming what is missing.
        """
        self.stream.source.check_there(self._spark, self.reading)

    def explain(self, text: str) -> StreamingError | None:
        """Why the query ended with Spark's `text`, where the writer or the source of the log knows."""
        return self._failure or self.stream.source.explain(self._spark, self.reading, text)

    def advance_idle_clock(self) -> bool:
        """Append a heartbeat where a silence has moved the clock on since the newest batch; returns whether it did.

        Also where a control stream is pinned that the newest batch says nothing of, as nothing follows without. While a
        batch is being appended there is none.
        """
        if not self._appending.acquire(blocking=False):
            return False
        try:
            if self._came is None:
                return False
            now = self._observer.now()
            told = self.stream.source.told_watermark(self._lake, self._came.source)
            state = self.stream.clock.advance(self._came.after, BatchSummary({}, 0, now, told=told))
            if state.watermark == self._came.after.watermark and self._pinned().keys() <= self._came.pins.keys():
                return False
            self._append_heartbeat(self._came, state, now, told_watermark=told)
            return True
        finally:
            self._appending.release()

    def end_input(self, latest_due: Callable[[DataFrame, datetime], datetime | None]) -> None:
        """Append a heartbeat past everything that is pending over the valid rows, as `latest_due` tells.

        It is stamped one millisecond after the latest instant that is due, because a session is still open at its end.
        """
        if self._came is None:
            return
        state = self._came.after
        if state.watermark is None:
            return
        rows = log.valid(log.read_log(self._spark, self._lake, self.stream))
        latest = latest_due(rows, state.watermark)
        if latest is not None:
            closed = state.closed_at(latest + MILLISECOND)
            if closed != state:
                self._append_heartbeat(self._came, closed, self._observer.now(), end_of_input=True)

    def _append_heartbeat(self, head: Batch, state: ClockState, now: datetime, **more: Any) -> None:
        stream = self.stream.revisions
        self._follow(append_heartbeat(self._spark, self._lake, stream, state, head, now, pinned=self._pinned(), **more))

    def _follow(self, came: Batch | None) -> None:
        """Take note of the newest batch that came; of a stream with a key bring its changes up to it."""
        self._came = came
        self.head = came
        if self._revising is not None and came is not None:
            self.head = self._revising.follow(self._observer.now())
