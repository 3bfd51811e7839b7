"""A pipeline that runs on and on in one driver: every query at once, until it is told to stop or to drain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Event
from typing import Literal

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import QueryFailed, StreamingError, interval
from streaming.clocks import latest
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.log import Batch
from streaming.service.measures import Measure
from streaming.service.query_errors import explain, refuse_native_drops
from streaming.service.reporter import Reporter
from streaming.service.run import Run
from streaming.service.status import ProcessStatus
from streaming.service.watch import Watch

_LOOK_EVERY = 0.5
_PUBLISHED_WITHIN = timedelta(minutes=1)
_INSPECTED_EVERY = timedelta(seconds=10)

Ending = Literal["stop", "drain"]


class Continuous:
    """The queries of a pipeline, running; the caller holds its lease.

    `on_measures` takes the batches that ended since it was called last; `on_status` takes the state of the process,
    about twice a second.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipeline: Pipeline,
        now: Callable[[], datetime],
        on_measures: Callable[[list[Measure]], None],
        on_status: Callable[[ProcessStatus], None],
    ) -> None:
        self.watch = Watch(now)
        self._pipeline = pipeline
        self._now = now
        self._run = Run(spark, lake, pipeline, now, self._on_batch, self.watch.around)
        self._trigger = {"processingTime": pipeline.trigger}
        self._ingest: dict[str, StreamingQuery] = {}
        self._operators: dict[str, StreamingQuery] = {}
        self._follow_up = ThreadPoolExecutor(1, thread_name_prefix="follow-up")
        self._following: Future[None] | None = None
        self._followed: dict[str, int] = {}
        self._beat_at = self._inspected_at = datetime.min.replace(tzinfo=now().tzinfo)
        self._reporter = Reporter(self._run, self.watch, self._queries, now, on_measures, on_status)

    def run(self, ending: Callable[[], Ending | None], wake: Event) -> None:
        """Run until `ending` says how to end; it is asked after each `wake`, and every half second.

        A stop ends at the next boundary of a batch. A drain takes no further input, and publishes all that is in the
        log before it ends; a stop that is asked for meanwhile ends it sooner. Where the log's query fails, what is in
        the log is published before the error is raised.

        Raises:
            StreamingError: a query failed.
        """
        self._reporter.begin()
        try:
            self._run.bootstrap()
            self._ingest = self._run.start_ingest(**self._trigger)
            self.watch.phase = "running"
            while (end := ending()) is None:
                self._step()
                wake.wait(_LOOK_EVERY)
                wake.clear()
            self.watch.phase = "draining" if end == "drain" else "stopping"
            if end == "drain" and not self._drain(until=lambda: ending() == "stop"):
                self.watch.phase = "stopping"
        except StreamingError:
            self._publish_the_rest(ending)
            raise
        finally:
            self._stop([*self._ingest, *self._operators])
            self._follow_up.shutdown(cancel_futures=True)
            self._reporter.end()

    def _on_batch(self, query: str, rows: int, batch: Batch | None) -> None:
        self.watch.on_batch(query, rows, batch)
        if batch is not None:
            self._run.close_windows()

    def _step(self) -> None:
        self.watch.passed = self._now()
        self._raise_failures()
        self._start_operators()
        self._heartbeat()
        self._follow()

    def _start_operators(self) -> None:
        """Start the operators that have not been yet: each cannot be before there are its logs."""
        if len(self._operators) < len(self._run.operators):
            self._operators |= self._run.start_operators(self._operators.keys(), **self._trigger)

    def _raise_failures(self) -> None:
        for name, query in self._queries().items():
            if (error := query.exception()) is not None:
                raise explain(error, query) from error
            if not query.isActive:
                raise QueryFailed(f"query {name!r} of {self._pipeline.name!r} ended without being asked to.")
        if self._now() - self._inspected_at >= _INSPECTED_EVERY:
            self._inspected_at = self._now()
            self._inspect()
        if self._following is not None and self._following.done():
            self._following.result()

    def _inspect(self) -> None:
        """What costs a call to the storage, or a hundred progress reports to read."""
        for query in self._operators.values():
            refuse_native_drops(query)
        for stream in self._pipeline.streams:
            stream.source.check_there(self._run.spark, self._run.lake)

    def _heartbeat(self) -> None:
        """While the source is silent: the last batch has moved the clock, and a silent clock may go on by itself."""
        if self.watch.running().keys() & self._ingest.keys() or self._busy_lately():
            return
        # After a long stop the time since the last row is no silence of a source that nobody has looked into yet.
        if any(query.lastProgress is None for query in self._ingest.values()):
            return
        declared = [stream.clock.heartbeat_after for stream in self._pipeline.streams if stream.clock.heartbeat_after]
        spacing = min(declared, key=interval, default=self._pipeline.trigger)
        if self._now() - self._beat_at >= interval(spacing) and self._run.advance_idle_clocks():
            self._beat_at = self._now()

    def _busy_lately(self) -> bool:
        last = latest(*(self.watch.last_ended.get(name) for name in self._ingest))
        return last is not None and self._now() - last < 2 * interval(self._pipeline.trigger)

    def _follow(self) -> None:
        """Updates and open windows follow the log in a thread of their own, so that no batch waits for them."""
        newest = {name: head.number for name, head in self._run.heads.items()}
        if not newest or newest == self._followed or (self._following and not self._following.done()):
            return
        self._followed = newest
        self._following = self._follow_up.submit(self._run.keep_up)

    def _drain(self, until: Callable[[], bool]) -> bool:
        """Publish all that was taken in; False where `until` became true before the end."""
        run = self._run
        self._stop([*self._ingest])
        # A drain may be asked for before the loop has come round to start them.
        self._start_operators()
        return self._carry_out([self._publish, run.advance_idle_clocks, self._publish, run.catch_up], until)

    def _carry_out(self, steps: Sequence[Callable[[], object]], until: Callable[[], bool]) -> bool:
        """Run `steps` one after another beside this thread; False where `until` became true before the end.

        A step that was begun is not waited for then: its queries are stopped by whoever gives up.
        """
        for step in steps:
            done = self._follow_up.submit(step)
            while not done.done():
                if until():
                    return False
                wait([done], _LOOK_EVERY)
                self.watch.passed = max([self.watch.passed, *self.watch.last_ended.values()])
            done.result()
            self.watch.passed = self._now()
        return True

    def _publish(self) -> None:
        """Bring every operator up to the newest batch of the log."""
        for query in self._operators.values():
            try:
                query.processAllAvailable()
            except StreamingQueryException as error:
                raise explain(error, query) from error

    def _publish_the_rest(self, ending: Callable[[], Ending | None]) -> None:
        """What was appended before a log's query failed is published all the same, if the operators can."""
        if self.watch.failed is None or self.watch.failed.query not in self._ingest:
            return
        deadline = self._now() + _PUBLISHED_WITHIN
        steps = [self._run.advance_idle_clocks, self._publish]
        # The failure of the log is the one to tell; operators publish the rest after the next start.
        with suppress(Exception):
            self._carry_out(steps, until=lambda: ending() == "stop" or self._now() > deadline)

    def _stop(self, names: list[str]) -> None:
        """End queries between two batches."""
        self.watch.stopping.update(names)
        for name, query in self._queries().items():
            if name in names:
                pause = Event()
                while name in self.watch.running():
                    pause.wait(0.05)
                query.stop()

    def _queries(self) -> dict[str, StreamingQuery]:
        return {**self._ingest, **self._operators}
