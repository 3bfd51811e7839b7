"""One pipeline in one Spark driver: the queries that write its logs, and the steps of its operators over them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import BATCH, ORIGIN, DeclarationError, FunctionError, StreamingError, names_in
from streaming.changes import Publishing, Together
from streaming.clocks import joint_watermark, latest
from streaming.declare import Operator, Pipeline, Stream
from streaming.lake import Lake
from streaming.log import Batch, log_schema, note_declaration, read_log, valid, widen_log
from streaming.operators import OperatorRuntime, Step, Written, analyse, counts_of, runtime_of
from streaming.service.delivering import Delivering
from streaming.service.log_writer import LogWriter
from streaming.service.logs import in_batch
from streaming.service.observer import Observer
from streaming.service.paused_operators import PausedOperators
from streaming.service.query_errors import explain, ingest_query, pausing, stop_was_asked
from streaming.service.receiver_status import make_landing
from streaming.service.watch import Paused
from streaming.spark import guarded, mark_tasks, refusal
from streaming.tables import delta, set_properties

_log = logging.getLogger("tidemark")

_CHANGE_DATA_FEED = {"delta.enableChangeDataFeed": "true"}


class Run:
    """Starts the queries of a pipeline, steps its operators, appends its heartbeats; the caller holds its lease.

    `observer` has the clock that it goes by, and follows each batch and step.

    Raises:
        DeclarationError: the pipeline has no operator.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipeline: Pipeline,
        observer: Observer,
    ) -> None:
        pipeline.check_computes()
        self.spark = spark
        self.lake = lake
        self.pipeline = pipeline
        self.operators = tuple(runtime_of(operator, lake) for operator in pipeline.operators)
        self._observer = _Marked(spark, observer)
        self._pauses = PausedOperators(spark, lake, pipeline, observer.now)
        self.followed = _Positions()
        self._failing_rows: dict[tuple[str, int, str], str | None] = {}
        self.publishing = tuple(Publishing(lake, each) for each in pipeline.operators if each.published)
        self.together = Together(lake, pipeline)
        self._fed: set[str] = set()
        self.unpublished: dict[str, StreamingError] = {}
        """Why what is current of an operator could not be published, by its name; each look tries again."""
        self.published: dict[str, int] = {}
        """The number of times that what is current of an operator has changed in this run, or was found to be the same
        after later batches, by its name."""
        self._told: dict[str, int] = {}
        self.deliveries = Delivering(spark, lake, pipeline, observer)
        self.writers = tuple(
            LogWriter(
                spark,
                lake,
                each,
                ingest_query(pipeline, each),
                counts_of(self.operators, each),
                self._observer,
                self._pinned,
            )
            for each in pipeline.streams
        )

    @property
    def paused(self) -> dict[str, StreamingError]:
        """Why an operator does not step, by its name: its tables are of another declaration, or a step of it fails.

        The others go on.
        """
        return self._pauses.reasons

    @property
    def heads(self) -> dict[str, Batch]:
        """The newest batch of each stream that has one, by the stream's name."""
        return {writer.stream.name: writer.head for writer in self.writers if writer.head is not None}

    @property
    def watermarks(self) -> dict[str, datetime]:
        """The watermark of each stream that has one, by the stream's name."""
        return {name: mark for name, head in self.heads.items() if (mark := head.after.watermark) is not None}

    @property
    def watermark(self) -> datetime | None:
        """The least watermark of the streams but for control streams, which may be silent; None until all have one."""
        return _least_watermark(self.pipeline, self.heads)

    def close(self) -> None:
        """Let go of what operators have opened: nothing steps any more."""
        for runtime in self.operators:
            runtime.close()

    def start_ingest(self, streams: Sequence[Stream] | None = None, /, **trigger: Any) -> dict[str, StreamingQuery]:
        """Source to log, for every stream or the `streams` named; by the query's name.

        Raises:
            CheckpointError: a checkpoint does not belong to its log.
            SourceError: a source is missing.
        """
        for receiver in self.pipeline.receivers:
            # Before the first row there is nothing whose folder could be gone.
            if receiver.into.name not in self.heads:
                make_landing(self.lake, receiver)
        return {
            writer.name: writer.start(**trigger)
            for writer in self.writers
            if streams is None or writer.stream in streams
        }

    def start_next(self, ended: Iterable[str], /, **trigger: Any) -> dict[str, StreamingQuery]:
        """The queries that follow those of source to log that have `ended` by themselves, where one does; by name.

        Raises:
            SourceError: one that has ended found nothing.
        """
        writers = {writer.name: writer for writer in self.writers}
        queries = {name: writers[name].start_next(**trigger) for name in ended}
        return {name: query for name, query in queries.items() if query is not None}

    def check_sources(self) -> None:
        """Refuse to go on where a source is gone.

        Raises:
            SourceError: naming what is missing.
        """
        for writer in self.writers:
            writer.check_source()

    def explain(self, error: StreamingQueryException, query: StreamingQuery) -> StreamingError:
        """The error to show instead of Spark's; what a source knows of it comes first."""
        for writer in self.writers:
            if query.name == writer.query_name and not stop_was_asked(error):
                explanation = writer.explain(str(error))
                if explanation is not None:
                    return explanation
        return explain(error, query)

    def check_operators(self) -> None:
        """Pause the operators that are not the ones that made their tables; before the first step of a run.

        What `rebuild` has made ready takes the place of their tables before.

        Raises:
            DeclarationError: Spark cannot compute what is declared, whatever the rows.
        """
        _check_types(self.spark, self.operators)
        self._keep("computes", partial(analyse, self.spark, self.lake, self.pipeline))
        for runtime in self.operators:
            if not self.take_over(runtime):
                self._pauses.check(runtime)
        for stream in filter(lambda stream: delta.exists(self.lake.log(stream)), self.pipeline.logs):
            widen_log(self.spark, self.lake, stream)
        # A declaration that a log refuses judges none of its batches.
        for stream in self.pipeline.streams:
            self._keep("declares", partial(note_declaration, self.lake, self.pipeline, stream))
        self._feed_changes()

    def _keep(self, what: str, write: Callable[[], None]) -> None:
        """Write down what the pipeline computes or declares; nothing stops where that fails, as it only explains."""
        try:
            write()
        except (StreamingError, OSError) as failed:
            _log.warning("what %r %s could not be written down: %s", self.pipeline.name, what, failed)

    def take_over(self, runtime: OperatorRuntime) -> bool:
        """Let what `rebuild` has made ready take the place of an operator's tables, if there is such; tells if it did.

        The operator must not be stepping. It pauses where this process has another declaration than what was built.
        """
        if taken := self._pauses.take_over(runtime):
            self.followed.forget(runtime.operator.name)
            self._fed.clear()
        return taken

    def step(self, runtime: OperatorRuntime, until: Callable[[], bool] = lambda: False) -> None:
        """Step an operator up to the newest batches of its logs, once each has one; `until` ends it between two steps.

        It pauses where a step fails for it alone.

        Raises:
            FencedError: another process has taken over.
        """
        if not self.goes_on(runtime):
            return
        name = runtime.operator.name
        with self._pauses.alone(runtime, "steps"):
            self.followed.begin(runtime, self.heads)
            for step in runtime.steps(self.spark, self._observer.now):
                if until():
                    return
                find = partial(self._failing_row, runtime, step)
                with self._observer.during(name, step.first), pausing(runtime.operator, _batches(step), find):
                    self._observer.committed(name, step.run(), None)
                self.followed.step(name, step)

    def step_all(self) -> None:
        """Step every operator up to the newest batches, those first in which others look rows up.

        Those that read what is current of others wait until it is published.
        """
        looked_up = {each for of in self.pipeline.operators for each in (*of.dimensions, *of.looks_up)}
        for runtime in sorted(self.operators, key=lambda each: each.operator not in looked_up):
            if not runtime.operator.reads_current:
                self.step(runtime)

    def advance_idle_clocks(self, queries: Collection[str] | None = None) -> list[str]:
        """A heartbeat for each log whose clock a silence has moved on since the newest batch; returns their queries.

        None asks all logs, else only those of the `queries` named.
        """
        asked = [writer for writer in self.writers if queries is None or writer.name in queries]
        return [writer.name for writer in asked if writer.advance_idle_clock()]

    def end_of_input(self) -> None:
        """A heartbeat past everything that is pending, for each log."""
        for writer in self.writers:
            writer.end_input(partial(self._latest_due, writer.stream))

    def after_batch(self, batch: Batch) -> None:
        """Bring what operators show between closings to the state after `batch`."""
        for runtime in filter(self.goes_on, self.operators):
            # It would end the log's batch; `catch_up` fails with it under the operator's name.
            with suppress(PySparkException, Py4JJavaError, FunctionError):
                runtime.after_batch(self.spark, batch, self._observer.now)

    def goes_on(self, runtime: OperatorRuntime) -> bool:
        """True where an operator is not paused, or is to be tried again, and each log that it follows has a batch."""
        operator, heads = runtime.operator, self.heads
        return self._pauses.may_step(operator.name) and all(stream.name in heads for stream in operator.follows)

    def keep_up(self, runtime: OperatorRuntime) -> None:
        """Keep up with the logs what an operator has besides its steps."""
        if self.goes_on(runtime):
            self._besides(runtime, runtime.keep_up)

    def catch_up(self) -> None:
        """Bring what all operators have besides their steps up to the newest batch."""
        for runtime in filter(self.goes_on, self.operators):
            self._besides(runtime, runtime.catch_up)

    def publish(self, publishing: Publishing) -> bool:
        """Publish what is current of an operator that is not paused; tells if any of it has changed.

        Nothing stops where that fails, as the next look finds whatever this one has not told.
        """
        name = publishing.operator.name
        if name in self.paused:
            return False
        try:
            with pausing(publishing.operator):
                has_changed = publishing.publish(self.spark)
        except Paused as failed:
            if str(self.unpublished.get(name)) != str(failed.reason):
                _log.warning("what is current of %r could not be published: %s", name, failed.reason)
            self.unpublished[name] = failed.reason
            return False
        self.unpublished.pop(name, None)
        # Who reads it beside its streams may take these further now.
        step = publishing.step() if publishing.operator.current_with else None
        if has_changed or (step is not None and self._told.get(name) != step):
            self.published[name] = self.published.get(name, 0) + 1
        if step is not None:
            self._told[name] = step
        return has_changed

    def publish_all(self) -> None:
        """Publish what is current of all operators, and step those that read it, of each before those that read it."""
        runtimes = {runtime.operator.name: runtime for runtime in self.operators}
        for publishing in sorted(self.publishing, key=lambda each: _depth(each.operator)):
            if publishing.operator.reads_current:
                self.step(runtimes[publishing.operator.name])
            self.publish(publishing)
        self.note_together()

    def note_together(self) -> None:
        """Write down which versions of the tables belong together, and let new tables have what is declared of all."""
        self.together.note({name: str(why) for name, why in self.paused.items()})
        self._feed_changes()

    def _feed_changes(self) -> None:
        """Turn on the change data feed of tables that have come since; where that fails, the next look tries again."""
        try:
            self._fed.update(_feed_changes(self.lake, self.pipeline, self._fed))
        except (StreamingError, DeltaError, OSError) as failed:
            _log.warning("the change data feed of %r could not be turned on: %s", self.pipeline.name, failed)

    def _failing_row(self, runtime: OperatorRuntime, step: Step, expression: str) -> str | None:
        """Where the first failing row of a step is; looked for once, as that reads the logs."""
        key = (runtime.operator.name, step.first, expression)
        if key not in self._failing_rows:
            streams = runtime.operator.follows
            self._failing_rows[key] = _failing_row(self.spark, self.lake, streams, step, expression)
        return self._failing_rows[key]

    def _besides(
        self, runtime: OperatorRuntime, follow: Callable[[SparkSession, Batch, Callable[[], datetime]], None]
    ) -> None:
        name = runtime.operator.name
        with self._pauses.alone(runtime, "besides"):
            if (since := runtime.keeps_up_from()) is not None:
                head = self.heads[runtime.operator.reads[0].name]
                where = f"It was to bring its other tables from batch {since} on to batch {head.number} of its log."
                with self._observer.during(name, since), pausing(runtime.operator, where):
                    follow(self.spark, head, self._observer.now)

    def _pinned(self, stream: Stream) -> dict[str, int]:
        return _newest_pinned(self.pipeline, stream, self.heads)

    def _latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        due: list[datetime | None] = []
        for runtime in (each for each in self.operators if stream in each.operator.reads):
            # What fails here fails in a step, too, which pauses the operator.
            with suppress(Paused), pausing(runtime.operator):
                due.append(runtime.latest_due(stream, rows, watermark))
        return latest(*due)


def _depth(operator: Operator) -> int:
    """The number of operators, each of which reads what is current of the next, down to one that reads logs alone."""
    return max((1 + _depth(below) for below in operator.reads_current), default=0)


def _batches(step: Step) -> str:
    """The batches that a step follows, for a person to read."""
    parts = [
        f"batches {batches[0].number} to {batches[-1].number} of the log of {stream}"
        if len(batches) > 1
        else f"batch {batches[0].number} of the log of {stream}"
        for stream, batches in step.batches.items()
        if batches
    ]
    return f"It was to follow {' and '.join(parts) or 'what is current of other operators'}."


def _failing_row(spark: SparkSession, lake: Lake, streams: Iterable[Stream], step: Step, expression: str) -> str | None:
    """Where the first row is for which `expression` cannot be computed, and its values; None where none is found.

    It is looked for in the batches of the step, and then in those before them, which may wait for a window to close.
    """
    for stream in streams:
        batches = step.batches.get(stream.name, ())
        if batches:
            try:
                row = _first(valid(read_log(spark, lake, stream)), expression, batches)
            except (PySparkException, Py4JJavaError, StreamingError):
                # It reads more than the rows of one log have, such as those of a pair.
                continue
            if row is not None:
                return _told(stream, row, expression)
    return None


def _first(rows: DataFrame, expression: str, batches: Sequence[Batch]) -> Row | None:
    fails = guarded(F.expr(f"({expression}\n)"), BATCH).isNull()
    of_step = F.col(BATCH).between(batches[0].number, batches[-1].number)
    before = F.col(BATCH) < batches[0].number
    for where in (of_step, before):
        row = rows.where(where & fails).orderBy(BATCH, ORIGIN).first()
        if row is not None:
            return row
    return None


def _told(stream: Stream, row: Row, expression: str) -> str:
    values = ", ".join(f"{name}={row[name]!r}" for name in stream.columns if name in names_in(expression))
    place = ", ".join(f"{name}={value}" for name, value in row[ORIGIN].asDict(recursive=True).items())
    return f"The first such row has {values}, and came with batch {row[BATCH]} of {stream.name} ({place})."


@dataclass(frozen=True)
class _Lag:
    """Where an operator is in its logs.

    `batches`: those of its logs that it has not followed yet. `watermark`: the least of the logs' as far as it has
    followed them; null where one has none yet, or the operator was behind and has not stepped yet.
    """

    batches: int
    watermark: datetime | None


@dataclass(frozen=True)
class _Place:
    """The newest batch of a log that an operator has followed, -1 for none, and the watermark after it, if known."""

    batch: int = -1
    watermark: datetime | None = None


class _Marked(Observer):
    """Marks what is logged and what Spark does as of its batch, and hands all on to the `observer` of a run."""

    def __init__(self, spark: SparkSession, observer: Observer) -> None:
        super().__init__(observer.now)
        self._spark = spark
        self._observer = observer

    @contextmanager
    def during(self, query: str, number: int) -> Iterator[None]:
        with in_batch(query, number), self._observer.during(query, number):
            mark_tasks(self._spark, query, number)
            yield

    def committed(self, query: str, written: Written, batch: Batch | None) -> None:
        place = "" if batch is None else f" as batch {batch.number} of the log, {batch.rejected:,} of them rejected"
        _log.debug("%s rows committed%s", f"{written.rows:,}", place)
        self._observer.committed(query, written, batch)


class _Positions:
    """Where each operator of a run is in each of its logs; may be asked from any thread."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, _Place]] = {}

    def begin(self, runtime: OperatorRuntime, heads: Mapping[str, Batch]) -> None:
        """Look once where an operator is, before its first step; `heads` are the newest batches of the logs."""
        name = runtime.operator.name
        if name not in self._places:
            through = runtime.through()
            self._places[name] = {
                stream: _Place(batch, heads[stream].after.watermark if heads[stream].number <= batch else None)
                for stream, batch in through.items()
                if stream in heads
            }

    def step(self, name: str, step: Step) -> None:
        """The operator of this name has made a step."""
        newest = {stream: batches[-1] for stream, batches in step.batches.items() if batches}
        places = {stream: _Place(batch.number, batch.after.watermark) for stream, batch in newest.items()}
        self._places[name] = self._places[name] | places

    def forget(self, name: str) -> None:
        """Look anew before the next step: the tables of this operator are others now."""
        self._places.pop(name, None)

    def lag(self, operator: Operator, heads: Mapping[str, Batch]) -> _Lag | None:
        """The lag of an operator behind the newest batches of the logs; None before it was looked at."""
        places = self._places.get(operator.name)
        if places is None:
            return None
        followed = {stream.name: places.get(stream.name, _Place()) for stream in operator.follows}
        behind = (heads[name].number - place.batch for name, place in followed.items() if name in heads)
        marks = [place.watermark for place in followed.values()]
        watermarks = [mark for mark in marks if mark is not None]
        return _Lag(
            sum(max(0, batches) for batches in behind), min(watermarks) if len(watermarks) == len(marks) else None
        )


def _check_types(spark: SparkSession, runtimes: Sequence[OperatorRuntime]) -> None:
    """Have Spark analyse everything that operators compute, and the streams that they read; it runs nothing.

    Raises:
        DeclarationError: naming the stream or operator, the expression and what Spark has against it.
    """
    for runtime in runtimes:
        operator = runtime.operator
        columns = {stream.name: log_schema(spark, stream).json() for stream in operator.reads}
        try:
            runtime.analyse(spark, columns)
        except AnalysisException as error:
            raise DeclarationError(
                f"{operator.kind_name} {operator.name!r} has an expression that Spark cannot compute: "
                f"{refusal(error)}. Correct it, for example with a cast; nothing was read yet."
            ) from error


def _feed_changes(lake: Lake, pipeline: Pipeline, done: Collection[str] = ()) -> list[str]:
    """Let readers of Delta's change data feed read the tables of a pipeline that declares it; returns which they can.

    They can from the next commit of a table on. Its writer version becomes 4; its reader version stays. A table with
    reader features is left out, as delta-rs would add some that its readers may not know, and `done` are not looked at.
    A commit that replaces a day is read as all old rows of the day deleted and all new ones inserted, as the protocol
    has it for commits without files of their own for changes (Delta protocol, Add CDC File).
    """
    if not pipeline.change_data_feed:
        return []
    uris = [lake.log(stream) for stream in pipeline.logs]
    uris += [
        lake.table(operator, spec.suffix)
        for operator in pipeline.operators
        for spec in (*operator.tables, *operator.published)
        if not spec.is_state
    ]
    fed = []
    for uri in uris:
        table = None if uri in done else delta.open_table(uri)
        if table is not None and set_properties(table, _CHANGE_DATA_FEED):
            fed.append(uri)
    return fed


def ingest_order(pipeline: Pipeline) -> tuple[tuple[Stream, ...], ...]:
    """The streams in the order in which a drain takes them in, those together that go at once.

    Control streams come first, so that rules are there before the rows that they are for.
    """
    controls = pipeline.control_streams
    return tuple(filter(None, (controls, _others(pipeline))))


def _newest_pinned(pipeline: Pipeline, stream: Stream, heads: Mapping[str, Batch]) -> dict[str, int]:
    """The newest batch of each control stream that the stream pins, -1 where it has none; `heads` are by stream."""
    controls = [control.name for control in pipeline.pinned_by(stream)]
    return {name: heads[name].number if name in heads else -1 for name in controls}


def _least_watermark(pipeline: Pipeline, heads: Mapping[str, Batch]) -> datetime | None:
    """The least watermark of the streams but for control streams, which may be silent; None until all have one."""
    others = _others(pipeline)
    return joint_watermark(heads[each.name].after.watermark if each.name in heads else None for each in others)


def _others(pipeline: Pipeline) -> tuple[Stream, ...]:
    return tuple(stream for stream in pipeline.streams if stream not in pipeline.control_streams)
