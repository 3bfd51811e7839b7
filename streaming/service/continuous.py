"""A pipeline that runs on and on in one driver: logs grow and operators follow, until it shall stop or drain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from threading import Event
from time import monotonic
from typing import Literal

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import QueryFailed, StreamingError, interval
from streaming.changes import Publishing
from streaming.declare import ExternalTable, Operator, Pipeline
from streaming.lake import Lake
from streaming.log import Batch
from streaming.operators import OperatorRuntime, Written, ready_generation
from streaming.service.observer import Observer
from streaming.service.progress import Measure
from streaming.service.query_errors import ingest_query, ingested_stream
from streaming.service.reporter import Reporter
from streaming.service.run import Run
from streaming.service.status import ProcessStatus
from streaming.service.watch import Watch
from streaming.tables import delta

_LOOK_EVERY = 0.5
_PUBLISHED_WITHIN = timedelta(minutes=1)
_INSPECTED_EVERY = timedelta(seconds=10)

_LOOKED_AT_EVERY = 5.0
"""Seconds between two looks at what is current of an operator that takes no step; another process corrects it."""
_NOTED_EVERY = 5.0
"""Seconds between two looks at which versions of the tables belong together, where anything was written."""
_PAUSE_AFTER_LOOK = 3
"""The pause after a look, in times that the look took: looks take a quarter of the time, more where they are long."""

Ending = Literal["stop", "drain"]
GIVES_WAY = 3.0
"""The most seconds that a log waits for steps after a batch, and a step for a batch of its log.

Nobody waits for a step or a batch that has taken as long already.

On a machine that ingest alone can keep busy, a step takes several times as long beside the next batch as before it,
which has more rows in exchange, and a row of a larger batch is cheaper. Rows of a batch that ends just after a step
has begun would wait for this one and the next.
"""
_LOOK_FOR_STEPS_EVERY = 0.02
WORKS_OFF_AFTER = timedelta(seconds=10)
"""A log works off a backlog if half of the rows of its newest batch had waited longer than this for it.

Then nobody waits for anybody: its rows are late in any case, and all cores together are sooner done with them.
"""


class Continuous(Observer):
    """A pipeline, running; the caller holds its lease.

    Each operator steps in a thread of its own, and each delivery has one, so that none waits for another. A log
    and the steps over it give way to each other, for a moment: see `GIVES_WAY`.

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
        super().__init__(now)
        self.watch = Watch(now)
        self._pipeline = pipeline
        self._run = Run(spark, lake, pipeline, self)
        self._trigger = {"processingTime": pipeline.trigger}
        self._ingest: dict[str, StreamingQuery] = {}
        beside = [*self._run.deliveries.runtimes, *self._run.publishing]
        threads = len(self._run.operators) + len(beside) + 2
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="steps")
        self._beside: list[Future[None]] = []
        self._news = {publishing.operator.name: Event() for publishing in self._run.publishing}
        # A view that reads such an operator beside its streams learns of its steps by what is published.
        self._told_each_step = {each.operator.name for each in self._run.publishing if each.operator.current_with}
        self._updated = {view.name for view in pipeline.updated} & self._news.keys()
        self._deliveries_end, self._run_ends, self._has_written = Event(), Event(), Event()
        self._wake = Event()
        self._steps = _Stepping(self._run, self.watch, self._threads, now, self._has_kept_up)
        self._giving_way: set[str] = set()
        self._beat_at: dict[str, datetime] = {}
        self._inspected_at = datetime.min.replace(tzinfo=now().tzinfo)
        self._reporter = Reporter(self._run, self.watch, now, on_measures, on_status)

    def run(self, ending: Callable[[], Ending | None], wake: Event) -> None:
        """Run until `ending` says how to end; it is asked after each batch and each `wake`, and every half second.

        A stop ends at the next boundary of a batch. A drain takes no further input, and publishes all that is in the
        log before it ends; a stop that is asked for meanwhile ends it sooner. Where the log's query fails, what is in
        the log is published before the error is raised.

        Raises:
            StreamingError: a query failed.
        """
        self._wake = wake
        self._reporter.begin()
        try:
            self._run.check_operators()
            self._ingest = self._run.start_ingest(**self._trigger)
            self._beside = [
                self._threads.submit(self._run.deliveries.run, runtime, self._deliveries_end)
                for runtime in self._run.deliveries.runtimes
            ]
            self._beside += [self._threads.submit(self._publish, each) for each in self._run.publishing]
            self._beside.append(self._threads.submit(self._note_together))
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
            self._stop_ingest()
            self._run_ends.set()
            self._end_deliveries()
            self.watch.stopping.update(runtime.operator.name for runtime in self._run.operators)
            self._threads.shutdown(cancel_futures=True)
            self._run.close()
            self._reporter.end()

    @contextmanager
    def during(self, query: str, number: int) -> Iterator[None]:
        with self.watch.during(query, number):
            yield
        # Steps that have waited for it may begin.
        self._wake.set()
        # The end of the batch, not the begin of the next, whose rows would be chosen before it waits.
        if query in self._ingest:
            self._giving_way.add(query)
            self._steps.give_way(query, until=lambda: query in self.watch.stopping or self._run_ends.is_set())
            self._giving_way.discard(query)

    def committed(self, query: str, written: Written, batch: Batch | None) -> None:
        self.watch.committed(query, written, batch)
        self._run.deliveries.tell()
        self._has_written.set()
        if query in self._news and (written.rows or query in self._told_each_step):
            self._news[query].set()

    def _has_kept_up(self, operator: Operator) -> None:
        if operator.name in self._updated:
            self._news[operator.name].set()
        self._wake.set()

    def _step(self) -> None:
        self.watch.passed = self.now()
        self._raise_failures()
        self._heartbeat()
        self._steps.follow()

    def _raise_failures(self) -> None:
        for name, query in list(self._ingest.items()):
            if query.isActive:
                continue
            if (error := query.exception()) is not None:
                raise self._run.explain(error, query) from error
            following = self._run.start_next([name], **self._trigger)
            self._ingest.update(following)
            if not following:
                raise QueryFailed(f"query {name!r} of {self._pipeline.name!r} ended without being asked to.")
        self._steps.raise_failures()
        for one in self._beside:
            if one.done():
                one.result()
        if self.now() - self._inspected_at >= _INSPECTED_EVERY:
            self._inspected_at = self.now()
            self._run.check_sources()
            self._steps.take_over()

    def _heartbeat(self) -> None:
        """Move the clocks of the logs on whose own source is silent, each as often as it needs it."""
        # A heartbeat is a job of Spark: this thread would wait with it for the jobs of a batch that runs.
        if self.watch.running().keys() & self._ingest.keys():
            return
        silent = set(filter(self._is_silent, self._ingest))
        now = self.now()
        self._beat_at |= dict.fromkeys(self._run.advance_idle_clocks(silent), now)

    def _is_silent(self, query: str) -> bool:
        """True if a log, by its query, has neither taken a batch of late nor a heartbeat."""
        stream = ingested_stream(self._pipeline, query)
        # After a long stop the time since the last row is no silence of a source that nobody has looked into yet.
        if stream is None or query in self._giving_way or self._ingest[query].lastProgress is None:
            return False
        trigger = self._pipeline.trigger
        ended, beat = self.watch.last_ended.get(query), self._beat_at.get(query)
        is_busy = ended is not None and self.now() - ended < 2 * interval(trigger)
        spacing = interval(stream.clock.heartbeat_after or trigger)
        return not is_busy and (beat is None or self.now() - beat >= spacing)

    def _drain(self, until: Callable[[], bool]) -> bool:
        """Publish all that was taken in; False where `until` became true before the end."""
        self._stop_ingest()
        steps: list[Callable[[], object]] = [self._steps.wait, self._run.advance_idle_clocks, self._run.step_all]
        steps += [self._run.catch_up, self._end_deliveries, self._run.publish_all]
        rest = partial(self._run.deliveries.deliver_all, stop=self._run_ends)
        return self._carry_out([*steps, rest], until)

    def _publish(self, publishing: Publishing) -> None:
        """Publish what is current of an operator, on and on, until deliveries end."""
        news = self._news[publishing.operator.name]
        while not self._deliveries_end.is_set():
            news.clear()
            began = monotonic()
            if self._run.publish(publishing):
                self._run.together.see(publishing.operator)
                self._has_written.set()
            self._deliveries_end.wait(min(_PAUSE_AFTER_LOOK * (monotonic() - began), _LOOKED_AT_EVERY))
            news.wait(_LOOKED_AT_EVERY)

    def _note_together(self) -> None:
        """Write down which versions belong together, where anything was written, on and on, until deliveries end."""
        while not self._deliveries_end.is_set():
            self._has_written.wait(_NOTED_EVERY)
            if self._has_written.is_set():
                self._has_written.clear()
                self._run.note_together()
            self._deliveries_end.wait(_NOTED_EVERY)

    def _end_deliveries(self) -> None:
        """Let each end the batch that it sends, and begin no other."""
        self._deliveries_end.set()
        self._run.deliveries.tell()
        for news in self._news.values():
            news.set()
        for one in self._beside:
            # A failure was told, or is told by whoever ends the run.
            with suppress(Exception):
                one.result()

    def _carry_out(self, steps: Sequence[Callable[[], object]], until: Callable[[], bool]) -> bool:
        """Run `steps` one after another beside this thread; False where `until` became true before the end.

        One that was begun is not waited for then; it ends with the step of an operator that runs.
        """
        for step in steps:
            done = self._threads.submit(step)
            while not done.done():
                if until():
                    return False
                wait([done], _LOOK_EVERY)
                self.watch.passed = max([self.watch.passed, *self.watch.last_ended.values()])
            done.result()
            self.watch.passed = self.now()
        return True

    def _publish_the_rest(self, ending: Callable[[], Ending | None]) -> None:
        """Publish all the same what was appended before a log's query failed, if the operators can."""
        if self.watch.failed is None or self.watch.failed.query not in self._ingest:
            return
        deadline = self.now() + _PUBLISHED_WITHIN
        steps: list[Callable[[], object]] = [self._steps.wait, self._run.advance_idle_clocks, self._run.step_all]
        # The failure of the log is the one to tell; operators publish the rest after the next start.
        with suppress(Exception):
            self._carry_out(steps, until=lambda: ending() == "stop" or self.now() > deadline)

    def _stop_ingest(self) -> None:
        """End the queries between two batches."""
        self.watch.stopping.update(self._ingest)
        for name, query in self._ingest.items():
            pause = Event()
            while name in self.watch.running():
                pause.wait(0.05)
            query.stop()


class _Stepping:
    """Lets each operator that is behind its logs step, none of which waits for another.

    `on_step` is called when an operator has stepped, and has kept up what it has besides.
    """

    def __init__(
        self,
        run: Run,
        watch: Watch,
        threads: Executor,
        now: Callable[[], datetime],
        on_step: Callable[[Operator], None],
    ) -> None:
        self._run = run
        self._watch = watch
        self._threads = threads
        self._now = now
        self._on_step = on_step
        self._running: dict[str, Future[None]] = {}
        self._heads_at_step: dict[str, dict[str, int]] = {}
        self._stepped_at: dict[str, datetime] = {}
        self._began: dict[str, float] = {}
        self._versions: dict[ExternalTable, tuple[float, int]] = {}

    def follow(self) -> None:
        """Let each operator that is behind its logs, and is not stepping, step."""
        for runtime in self._run.operators:
            if self._is_stepping(runtime) or self._waits_for_a_batch(runtime):
                continue
            if self._is_behind(runtime) and self._is_due(runtime):
                name = runtime.operator.name
                self._heads_at_step[name], self._stepped_at[name] = self._heads_of(runtime), self._now()
                self._began[name] = monotonic()
                self._running[name] = self._threads.submit(self._step, runtime)

    def take_over(self) -> None:
        """Let what `rebuild` has made ready take the place of an operator's tables; asks the storage if there is such.

        An operator that steps is asked the next time.
        """
        for runtime in self._run.operators:
            if not self._is_stepping(runtime) and ready_generation(self._run.lake, runtime.operator) is not None:
                self._running[runtime.operator.name] = self._threads.submit(self._take_over, runtime)

    def raise_failures(self) -> None:
        """Raise what a step has failed with."""
        for stepping in self._running.values():
            if stepping.done():
                stepping.result()

    def wait(self) -> None:
        """Wait for the steps that run, and raise what one of them fails with."""
        for stepping in self._running.values():
            stepping.result()

    def give_way(self, query: str, until: Callable[[], bool]) -> None:
        """Return once the operators have followed the newest batches, or `until` is true; see `GIVES_WAY`.

        At once where the query works off a backlog.
        """
        until_then, pause = monotonic() + GIVES_WAY, Event()
        while not self._works_off_a_backlog(query) and not until() and monotonic() < until_then:
            if not any(map(self._has_right_of_way, self._run.operators)):
                return
            pause.wait(_LOOK_FOR_STEPS_EVERY)

    def _waits_for_a_batch(self, runtime: OperatorRuntime) -> bool:
        """True while a batch of a log that the operator reads has begun lately; see `GIVES_WAY`."""
        logs = {ingest_query(self._run.pipeline, stream) for stream in runtime.operator.reads}
        began = {query: since for query, (_, since) in self._watch.running().items() if query in logs}
        lately = (query for query, since in began.items() if (self._now() - since).total_seconds() < GIVES_WAY)
        return any(not self._works_off_a_backlog(query) for query in lately)

    def _works_off_a_backlog(self, query: str) -> bool:
        """True of the query of a log whose newest rows had waited for long when their batch began."""
        stream = ingested_stream(self._run.pipeline, query)
        head = None if stream is None else self._run.heads.get(stream.name)
        if head is None or not head.source_times:
            return False
        return head.summary.processed_at - head.source_times[0] > WORKS_OFF_AFTER

    def _has_right_of_way(self, runtime: OperatorRuntime) -> bool:
        if self._is_stepping(runtime):
            return monotonic() - self._began.get(runtime.operator.name, -GIVES_WAY) < GIVES_WAY
        return self._is_behind(runtime) and self._is_due(runtime)

    def _step(self, runtime: OperatorRuntime) -> None:
        name = runtime.operator.name
        self._run.step(runtime, until=lambda: name in self._watch.stopping)
        if name not in self._watch.stopping:
            self._run.keep_up(runtime)
            self._on_step(runtime.operator)
        if name in self._run.paused:
            # It is tried again later, whether its logs have grown by then or not.
            self._heads_at_step.pop(name, None)

    def _take_over(self, runtime: OperatorRuntime) -> None:
        if self._run.take_over(runtime):
            # It may have been paused, or be behind its logs.
            self._heads_at_step.pop(runtime.operator.name, None)

    def _is_stepping(self, runtime: OperatorRuntime) -> bool:
        stepping = self._running.get(runtime.operator.name)
        return stepping is not None and not stepping.done()

    def _is_behind(self, runtime: OperatorRuntime) -> bool:
        heads = self._heads_of(runtime)
        return bool(heads) and heads != self._heads_at_step.get(runtime.operator.name)

    def _is_due(self, runtime: OperatorRuntime) -> bool:
        every, last = runtime.operator.every, self._stepped_at.get(runtime.operator.name)
        if not self._run.goes_on(runtime):
            return False
        return every is None or last is None or self._now() - last >= interval(every)

    def _heads_of(self, runtime: OperatorRuntime) -> dict[str, int]:
        operator, heads, published = runtime.operator, self._run.heads, self._run.published
        of_streams = {stream.name: heads[stream.name].number for stream in operator.reads if stream.name in heads}
        of_operators = {each.name: published.get(each.name, 0) for each in operator.reads_current}
        return {**of_streams, **of_operators, **{each.name: self._version_of(each) for each in operator.external}}

    def _version_of(self, table: ExternalTable) -> int:
        """The version of a table that others write, -1 for none; looked for now and then."""
        looked_at, version = self._versions.get(table, (-_LOOKED_AT_EVERY, -1))
        if monotonic() - looked_at >= _LOOKED_AT_EVERY:
            # The step that reads it tells what is wrong with it.
            with suppress(StreamingError, DeltaError, OSError):
                newest = delta.version_of(self._run.lake.path(table.place))
                version = -1 if newest is None else newest
            self._versions[table] = monotonic(), version
        return version
