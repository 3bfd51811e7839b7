"""A drain run: everything that is there goes through a pipeline, in one process, and the process ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyspark.sql import SparkSession

from streaming.base import DeliveryPaused, QueryFailed, StreamingError, utc_now
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.log import Batch, add_unknown
from streaming.operators import Written
from streaming.service.lease import take_lease
from streaming.service.lineage import JobCounts, lineage_of
from streaming.service.lineage_jobs import jobs_of
from streaming.service.observer import Observer
from streaming.service.progress import Progress, QueryProgress, Silent
from streaming.service.query_errors import await_queries, ingested_stream
from streaming.service.run import Run, ingest_order
from streaming.service.watch import StopRequested, Watch


@dataclass(frozen=True)
class Drained:
    """The outcome of a drain: per query its totals, in the order of their run; per stream the log's head afterwards.

    `unknown`: per stream the rows per field that payloads had and nobody declared. `waiting`: per delivery that has
    more to deliver, why its target did not take it. `held`: per delivery that waits for a decision after a restore,
    which one. `paused`: per operator or delivery that did not go on while all others did, why.
    """

    queries: dict[str, QueryProgress]
    heads: dict[str, Batch]
    unknown: dict[str, dict[str, int]]
    waiting: dict[str, str]
    held: dict[str, str] = field(default_factory=dict)
    paused: dict[str, StreamingError] = field(default_factory=dict)

    def raise_paused(self) -> None:
        """Do nothing if all went on.

        Raises:
            StreamingError: why the one operator or delivery is paused. The reasons of several are told in one error,
                of the class that all of them have, or else a QueryFailed.
        """
        if len(self.paused) > 1:
            classes = {type(why) for why in self.paused.values()}
            of_all = classes.pop() if len(classes) == 1 else QueryFailed
            reasons = "\n".join(f"{name}: {why}" for name, why in self.paused.items())
            raise of_all(f"{len(self.paused)} operators or deliveries are paused, all others are done.\n{reasons}")
        for why in self.paused.values():
            raise why

    @property
    def head(self) -> Batch | None:
        """The head of the first stream's log, which is the only one of most pipelines; None while it is empty."""
        return next(iter(self.heads.values()), None)


def drain(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *,
    end_of_input: bool = False,
    progress: Progress | None = None,
    watch: Watch | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Drained:
    """Ingest what the source holds, step the operators up to it, and deliver what follows.

    An operator that is not the one that made its tables, or of which a step fails, pauses, and is told of once all
    others are done. With `end_of_input` the windows still open are closed; rows that come later are late for them.
    `watch` may end the drain between two batches, which is a `QueryFailed`. A target that stays away is told of, and
    fails nothing.

    Raises:
        LeaseError: the pipeline runs already, or the lake cannot be written.
        SourceError: the source is missing, or lost something while it was read.
        CheckpointError: a checkpoint does not belong to its table.
        OperatorError, ChangedDeclaration: tables of a view are not of its declaration.
        QueryFailed, FunctionError: a query or a step ended with an error; running again goes on where it stopped.
    """
    drained = drain_unpaused(spark, lake, pipeline, end_of_input=end_of_input, progress=progress, watch=watch, now=now)
    drained.raise_paused()
    return drained


def drain_unpaused(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *,
    end_of_input: bool = False,
    progress: Progress | None = None,
    watch: Watch | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Drained:
    """A drain that tells in `Drained.paused` of operators and deliveries that did not go on, and raises all else.

    Raises:
        LeaseError, SourceError, CheckpointError, QueryFailed: as `drain`.
    """
    totals: dict[str, QueryProgress] = {}
    unknown: dict[str, dict[str, int]] = {}
    listener = progress or Silent()

    class Counting(Observer):
        """Watches, and counts what each query has written."""

        def during(self, query: str, number: int) -> AbstractContextManager[None]:
            return watched.during(query, number)

        def committed(self, query: str, written: Written, batch: Batch | None) -> None:
            stream = ingested_stream(pipeline, query)
            if batch is not None and stream is not None:
                run.after_batch(batch)
                unknown[stream.name] = add_unknown([unknown.get(stream.name, {}), batch.unknown or {}])
            late = 0 if batch is None else sum((batch.late or {}).values())
            of_log = () if batch is None else (batch.rejected, late, batch.after.watermark, sum(batch.warned.values()))
            name = f"{pipeline.name}.{query}"
            totals[query] = totals.get(query, QueryProgress(name)).after(written.rows, *of_log)
            listener.update(totals[query])
            told[query] = JobCounts(totals[query].rows, totals[query].rejected or 0)

    watched = watch or Watch(now)
    with (
        take_lease(lake, pipeline),
        lineage_of(pipeline, lambda: jobs_of(lake, pipeline), now) as told,
        closing(Run(spark, lake, pipeline, Counting(now))) as run,
    ):
        run.check_operators()
        for streams in ingest_order(pipeline):
            queries = run.start_ingest(streams, availableNow=True)
            while queries:
                await_queries(list(queries.values()), run.explain)
                queries = run.start_next(queries, availableNow=True)
        run.advance_idle_clocks()
        if end_of_input:
            run.end_of_input()
        try:
            run.step_all()
            run.catch_up()
            run.publish_all()
        except StopRequested as stopped:
            raise QueryFailed(f"view {str(stopped)!r} was stopped before its next step, as was asked.") from stopped
        try:
            run.deliveries.deliver_all()
        except StopRequested as stopped:
            raise QueryFailed(
                f"delivery {str(stopped)!r} was stopped before its next batch, as was asked."
            ) from stopped
        paused: dict[str, StreamingError] = {**run.deliveries.paused}
        held = {name: str(refused) for name, refused in paused.items() if isinstance(refused, DeliveryPaused)}
        for name, why in {**run.paused, **paused}.items():
            told[name] = replace(told.get(name, JobCounts()), error=str(why))
    waiting = {name: outage.why for name, outage in run.deliveries.waiting.items()}
    paused = {**run.unpublished, **run.paused, **{name: why for name, why in paused.items() if name not in held}}
    return Drained(totals, run.heads, unknown, waiting, held, paused)
