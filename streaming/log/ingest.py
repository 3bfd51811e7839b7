"""Source to event log: judge, stamp and append one batch in one commit.

Tasks in Python workers read, judge and write what they are certain of; what they leave in doubt is judged by Spark's
expressions, within the same commit. Where a part of a stream cannot be computed by tasks (see `places`), Spark ingests
all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property

from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from streaming.base import (
    INGESTED_AT,
    CheckpointError,
    DeclarationError,
    FencedError,
    LogError,
    constant,
    earlier,
    interval,
    literal,
    optional_instant,
)
from streaming.clocks import BatchSummary, ClockState
from streaming.declare import Stream
from streaming.formats import TYPED, UNKNOWN, added_types
from streaming.lake import IngestMode, Lake
from streaming.log.batches import (
    NOTHING_PINNED,
    SHARES_BEFORE,
    Batch,
    OperatorCounts,
    add_unknown,
    count_partitions,
    count_unknown,
    late_numbers,
    newest_batch,
    next_pins,
    operator_columns,
    optional_instants,
    summary_columns,
)
from streaming.log.judgement import Stamps
from streaming.log.places import Places, computed, derived_types, is_plain, places_of
from streaming.log.read import origin_type, with_origin
from streaming.log.tasks import TaskReport, WriteCertain, percentiles, write_certain
from streaming.log.validate import RowValidator, broken, check_expressions
from streaming.sources import Memory, Reading, Taken
from streaming.spark import Analysis, query_id, refusal
from streaming.tables import delta, nullable, read_paths, storage

QUERY = "log"
_PARTITION = ""
_POSITION = "position"
"""A field of `_origin` that numbers the rows of a batch as whoever reads it comes upon them."""


def stamp(rows: DataFrame, declared: Sequence[str], number: int, watermark: datetime | None, *others: str) -> DataFrame:
    """`rows` with batch number and stamp, in the log's column order, then `others`; `declared` are the stream's."""
    batch = constant(number).alias("_batch")
    stamped = constant(watermark).alias("_watermark")
    return rows.select(*declared, "_rejected", "_raw", "_origin", batch, INGESTED_AT, stamped, "_day", *others)


class Ingest:
    """Appends the batches of a stream's source to its log; `now` gives the processing time.

    `counts`: what each commit counts for the operators that read the log, by their names. `pinned`: tells the newest
    batch of each control stream that the stream pins. `mode`: whether tasks or Spark ingest, or both, for comparison.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        stream: Stream,
        counts: Mapping[str, OperatorCounts],
        now: Callable[[], datetime],
        pinned: Callable[[], Mapping[str, int]] = lambda: NOTHING_PINNED,
        mode: IngestMode = "fast",
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._stream = stream
        self._counts = counts
        self._now = now
        self._pinned = pinned
        self._mode = mode
        self._by_spark = _BySpark(spark, lake, stream, counts)
        places = None if mode == "careful" else places_of_ingest(spark, stream, counts)
        has_tasks = places is not None and places.judgement is not None
        self._by_tasks = _ByTasks(self._by_spark, places, counts) if places is not None and has_tasks else None
        self._repeats = True

    def __call__(self, raw: DataFrame, query_batch: int, head: Batch | None) -> Batch | None:
        """Append the payloads of a batch of the query as the batch after `head`; None where the log holds them.

        `raw` is what the frame of the source's `read` brought.
        """
        stream = self._stream
        memory = {} if head is None else head.source
        reading = Reading(self._lake, self._lake.checkpoint(stream, QUERY), memory, self._origins)
        query = query_id(stream.source.checkpoint(reading.checkpoint, reading.memory))
        if query is None:
            raise CheckpointError(f"the checkpoint of {stream.name!r} vanished while its query runs; stop and restart.")
        txn = delta.Txn(query, query_batch)
        # After a restart Spark may replay batches committed before the crash; they come first, so after the first new
        # one the table need not be asked again.
        self._repeats = self._repeats and delta.has_written(self._lake.log(stream), txn)
        if self._repeats:
            stream.source.check_repeated(reading, query_batch)
            return None
        taken = stream.source.take(self._spark, reading, query_batch, raw)
        processed_at = self._now()
        stamps = _stamps(stream, head, processed_at)
        written = self._written(taken, stamps)
        next_batch = _NextBatch(self._lake, stream, head, stamps, self._counts, self._pinned())
        memory = taken.remember(lambda: written.staged.read(self._spark), written.report.rows)
        batch = next_batch.commit(written, memory, txn)
        written.forget_payloads()
        return batch

    def _written(self, taken: Taken, stamps: Stamps) -> _Written:
        by_tasks = None if self._by_tasks is None else self._by_tasks.write(taken, stamps)
        if by_tasks is not None and self._mode == "fast":
            return by_tasks
        by_spark = self._by_spark.write(taken.rows(), stamps)
        if self._by_tasks is not None:
            self._by_tasks.tell(by_spark)
        if by_tasks is not None:
            _check_same(self._spark, self._stream, by_spark, by_tasks)
            by_tasks.discard()
        return by_spark

    def _origins(self) -> DataFrame | None:
        log = self._lake.log(self._stream)
        return delta.read(self._spark, log).select("_origin") if delta.exists(log) else None


def _stamps(stream: Stream, head: Batch | None, processed_at: datetime) -> Stamps:
    """The stamps of the batch after `head`, by which its rows are judged."""
    return Stamps(
        0 if head is None else head.number + 1,
        processed_at,
        stream.clock.watermark(next_state(head)),
        next_kept_from(head, stream),
    )


@dataclass(frozen=True)
class _Written:
    """The rows of a batch beside the log, what there is to say of them, and payloads that tasks have put aside."""

    staged: delta.Staged
    report: TaskReport
    source_times: Sequence[float] | None
    payloads: tuple[str, ...] = ()

    def forget_payloads(self) -> None:
        """Remove what was put aside and is in the log by now."""
        self._remove(self.payloads)

    def discard(self) -> None:
        """Remove all files, as other ones are committed."""
        self._remove((*self.staged.paths, *self.payloads))

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            storage.remove(f"{self.staged.uri}/{path}")


@dataclass(frozen=True)
class _NextBatch:
    """The batch after `head` of the log, which is stamped with the clock as it is by then."""

    lake: Lake
    stream: Stream
    head: Batch | None
    stamps: Stamps
    counts: Mapping[str, OperatorCounts]
    pinned: Mapping[str, int]

    def commit(self, written: _Written, memory: Memory | None, txn: delta.Txn | None) -> Batch:
        """Append the rows in one commit, after which the source remembers `memory`; None for what it did before.

        `txn` names the Spark batch that the rows come from, if any.
        """
        head, report, stream = self.head, written.report, self.stream
        greatest = {partition: optional_instant(micros) for partition, micros in report.greatest.items()}
        before = {} if head is None else head.source
        batch = Batch(
            number=self.stamps.number,
            query=None if txn is None else txn.app_id,
            query_batch=None if txn is None else txn.version,
            state=next_state(head),
            summary=BatchSummary(greatest, sum(report.rows.values()), self.stamps.ingested_at),
            clock=stream.clock,
            rejected=report.rejected,
            late={name: report.late.get(name, 0) for name in self.counts},
            unassigned={name: report.unassigned.get(name, 0) for name in self.counts},
            counted_by={name: each.by for name, each in self.counts.items()},
            source_times=None if txn is None else optional_instants(written.source_times),
            unknown=add_unknown([report.unknown]),
            source=before if memory is None else memory,
            pins=next_pins({} if head is None else head.pins, self.pinned),
            kept_from=self.stamps.kept_from,
        )
        return commit_batch(written.staged, self.lake, stream, batch, txn)


class _BySpark:
    """The ingest of a stream by expressions of Spark."""

    def __init__(self, spark: SparkSession, lake: Lake, stream: Stream, counts: Mapping[str, OperatorCounts]) -> None:
        self.spark = spark
        self.lake = lake
        self.stream = stream
        self._counts = counts

    def write(self, raw: DataFrame, stamps: Stamps) -> _Written:
        """Judge payloads with their origins, and write their rows."""
        rows = with_origin(self.stream.format.parse(raw))
        return self.write_validated(self.validate(rows, stamps.ingested_at, stamps.kept_from), stamps)

    def write_validated(self, validated: DataFrame, stamps: Stamps) -> _Written:
        """Write judged rows."""
        stream, observed = self.stream, Observation()
        rows = stamp(validated, stream.columns, stamps.number, stamps.watermark, UNKNOWN)
        staged = stage_batch(rows.observe(observed, *self._summary).drop(UNKNOWN), self.lake, stream)
        counted = observed.get
        rows_of, rejected = counted["rows"], counted["rejected"]
        partitions = {_PARTITION: rows_of}
        greatest = {} if rows_of == rejected else {_PARTITION: counted["greatest"]}
        if stream.source.partitioned:
            # Of a batch without rows there are no files.
            partitions, greatest = count_partitions(staged.read(self.spark), stream) if rows_of else ({}, {})
        report = TaskReport(
            rows=partitions,
            rejected=rejected,
            greatest=greatest,
            unknown=count_unknown(counted["unknown"]),
            late={name: counted[f"late_{name}"] for name in self._counts},
            unassigned={name: counted[f"unassigned_{name}"] for name in self._counts},
        )
        return _Written(staged, report, counted["source_times"])

    @cached_property
    def validate(self) -> RowValidator:
        """The judge of parsed rows."""
        return _StreamAnalysis.once(self.spark, self.stream).validate

    @cached_property
    def _summary(self) -> list[Column]:
        return summary_columns(self.stream, self._counts)


class _ByTasks:
    """The ingest of a stream by tasks, as far as its `places` let them; the rest is for `by_spark`."""

    def __init__(self, by_spark: _BySpark, places: Places, counts: Mapping[str, OperatorCounts]) -> None:
        self._by_spark = by_spark
        self._places = places
        self._schema = log_schema(by_spark.spark, by_spark.stream)
        self._counts = {name: each for name, each in counts.items() if name in places.counts}
        self._table: DeltaTable | None = None
        self._waits = False

    def write(self, taken: Taken, stamps: Stamps) -> _Written | None:
        """Write the rows of a batch; None where Spark refuses one by a rule that tasks cannot judge.

        Then tasks would have worked in vain, so that they wait until a batch has no row that is rejected.
        """
        if self._waits:
            return None
        spark, stream, judgement = self._by_spark.spark, self._by_spark.stream, self._places.judgement
        decoder = stream.format.decoder
        assert judgement is not None and decoder is not None
        table = self._opened()
        uri = self._by_spark.lake.log(stream)
        statistics, diverse = _statistics(stream, self._schema)
        report = write_certain(spark, taken, WriteCertain(uri, decoder, judgement, stamps, statistics, diverse))
        staged = delta.staged_files(uri, table, self._schema, report.files)
        payloads = tuple(file.path for file in report.doubtful)
        written = _Written(staged, report, percentiles(report.source_times, SHARES_BEFORE), payloads)
        if staged.rows and (self._places.rules or self._counts):
            judged = self._judged_by_spark(staged, stamps)
            if judged is None:
                written.discard()
                self._waits = True
                return None
            written = replace(written, report=report + judged)
        if payloads:
            doubtful = self._by_spark.write(_payloads(spark, uri, payloads, stream), stamps)
            written = replace(
                written, staged=staged.with_rows_of(doubtful.staged), report=written.report + doubtful.report
            )
        return written

    def tell(self, written: _Written) -> None:
        """Take note of a batch that Spark has ingested."""
        self._waits = self._waits and written.report.rejected > 0

    def _judged_by_spark(self, staged: delta.Staged, stamps: Stamps) -> TaskReport | None:
        """The counts of Spark over the valid rows that tasks have written; None where a rule does not hold for one."""
        rows = staged.read(self._by_spark.spark).where(F.col("_day").isNotNull())
        refused = [F.count(F.when(broken(rule), 1)).alias(f"rule_{rule.name}") for rule in self._places.rules]
        counted = rows.agg(*refused, *operator_columns(self._counts)).first()
        assert counted is not None
        if any(counted[f"rule_{rule.name}"] for rule in self._places.rules):
            return None
        return TaskReport(
            late={name: counted[f"late_{name}"] for name in self._counts},
            unassigned={name: counted[f"unassigned_{name}"] for name in self._counts},
        )

    def _opened(self) -> DeltaTable:
        if self._table is None:
            self._table = _created_log(self._by_spark.lake, self._by_spark.stream, self._schema)
        else:
            self._table.update_incremental()
        return self._table


def _payloads(spark: SparkSession, uri: str, paths: Sequence[str], stream: Stream) -> DataFrame:
    """The payloads that tasks have put aside."""
    schema = StructType(_struct(f"_raw binary, _origin {stream.source.origin}, {TYPED} boolean"))
    return read_paths(spark, uri, schema, (), paths)


def _check_same(spark: SparkSession, stream: Stream, by_spark: _Written, by_tasks: _Written) -> None:
    """Refuse what tasks have made of a batch where Spark makes something else of it.

    Raises:
        LogError: naming the first row, or the count.
    """
    for name in ("rows", "rejected", "greatest", "unknown", "late", "unassigned"):
        one, other = getattr(by_spark.report, name), getattr(by_tasks.report, name)
        if one != other:
            raise _differs(stream, name, one, other)
    if by_spark.source_times != by_tasks.source_times:
        raise _differs(stream, "source_times", by_spark.source_times, by_tasks.source_times)
    ones, others = (_texts(each.staged.read(spark)) for each in (by_spark, by_tasks))
    for first, second, who in ((ones, others, "Spark"), (others, ones, "tasks")):
        more = first.exceptAll(second).first()
        if more is not None:
            raise _differs(stream, "a row", f"{more[0]} (of {who} alone)", "none")


def _texts(rows: DataFrame) -> DataFrame:
    """Each row as one text, but for its place in the batch."""
    origin = rows.schema["_origin"].dataType
    assert isinstance(origin, StructType)
    if _POSITION in origin.names:
        rows = rows.withColumn("_origin", F.col("_origin").dropFields(_POSITION))
    return rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("row"))


def _differs(stream: Stream, what: str, by_spark: object, by_tasks: object) -> LogError:
    return LogError(
        f"{what} of a batch of {stream.name!r} is another one through Spark and by tasks, which is a defect of "
        f"Tidemark: {by_spark} and {by_tasks}. Nothing was appended; set TIDEMARK_INGEST=careful, and report this.",
        stream=stream.name,
    )


def append_validated(
    validated: DataFrame,
    lake: Lake,
    stream: Stream,
    head: Batch | None,
    processed_at: datetime,
    counts: Mapping[str, OperatorCounts],
    pinned: Mapping[str, int] = NOTHING_PINNED,
) -> Batch:
    """Stamp `validated` rows with the clock as it is after `head` and append them as the next batch, in one commit.

    The rows are judged by `next_kept_from`; they come from no query. `pinned` is the newest batch of each control
    stream that the stream pins.
    """
    stamps = _stamps(stream, head, processed_at)
    written = _BySpark(validated.sparkSession, lake, stream, counts).write_validated(validated, stamps)
    return _NextBatch(lake, stream, head, stamps, counts, pinned).commit(written, None, None)


def next_state(head: Batch | None) -> ClockState:
    """The clock after everything that is in the log; it stamps the batch that comes next."""
    return ClockState() if head is None else head.after


def kept_from(head: Batch | None, stream: Stream, stamp: datetime | None) -> date | None:
    """The first day of which the batch after `head`, which bears the `stamp`, may have valid rows; None for any day.

    It never goes back, whatever is declared: what is dropped by then would come in again as if it were all there is.
    """
    before = None if head is None else head.kept_from
    oldest = None if stream.retention is None else earlier(stamp, interval(stream.retention))
    return max(filter(None, (before, None if oldest is None else oldest.date())), default=None)


def next_kept_from(head: Batch | None, stream: Stream) -> date | None:
    """The first day of which the batch that comes after `head` may have valid rows; None for any day."""
    return kept_from(head, stream, stream.clock.watermark(next_state(head)))


def widen_log(spark: SparkSession, lake: Lake, stream: Stream) -> None:
    """Add the declared columns, and fields of structs, that an existing log lacks; its rows read null there.

    A view may read them already.

    Raises:
        LogError: a column has another type than in the log.
    """
    delta.widen(lake.log(stream), log_schema(spark, stream))


def log_schema(spark: SparkSession, stream: Stream) -> StructType:
    """The columns that the next batch of the log will have, whether there is a log by now or not.

    Raises:
        DeclarationError: Spark cannot read the columns, or compute a derived one, a rule or the clock's condition.
    """
    return _StreamAnalysis.once(spark, stream).log_schema


def places_of_ingest(spark: SparkSession, stream: Stream, counts: Mapping[str, OperatorCounts]) -> Places:
    """Where each part of a stream's ingest is computed, with what its commits count for operators.

    Raises:
        DeclarationError: as `log_schema` says.
    """
    analysis = _StreamAnalysis.once(spark, stream)
    return places_of(analysis.expressions, stream, analysis.log_schema, counts)


class _StreamAnalysis(Analysis[Stream]):
    """A stream as Spark sees it."""

    @cached_property
    def validate(self) -> RowValidator:
        """The judge of its parsed rows."""
        return RowValidator(self.of)

    @cached_property
    def parsed(self) -> DataFrame:
        """No row as its format parses them, with the time at which it comes."""
        stream = self.of
        payload = f"_raw binary, _origin {origin_type(stream.source)}"
        try:
            added = added_types(stream.format.columns).fields
            if stream.format.decoder is not None:
                fields = [*_struct(payload), *added]
            else:
                fields = stream.format.parse(self.spark.createDataFrame([], payload)).schema.fields
            return self.spark.createDataFrame([], StructType([*fields, StructField(INGESTED_AT, TimestampType())]))
        except AnalysisException as error:
            raise DeclarationError(
                f"stream {stream.name!r} has columns that Spark cannot read: {refusal(error)}. Correct them in its "
                "format."
            ) from error

    @cached_property
    def expressions(self) -> DataFrame:
        """All that is computed of a row."""
        stream, parsed = self.of, self.parsed
        try:
            expressions = computed(parsed, stream)
            if not is_plain(expressions.schema, stream):
                check_expressions(stream, parsed)
                # The judge asks for more than that each expression can be computed.
                _ = self.validate(parsed).schema
        except AnalysisException as error:
            check_expressions(stream, parsed)
            raise DeclarationError(
                f"stream {stream.name!r} cannot be computed: {refusal(error)}. Correct its columns, rules or clock."
            ) from error
        return expressions

    @cached_property
    def log_schema(self) -> StructType:
        """The columns of its log."""
        stream, there = self.of, self.parsed.schema
        derived = derived_types(self.expressions.schema, stream)
        own = [StructField(name, derived[name] if name in derived else there[name].dataType) for name in stream.columns]
        added = _struct(
            f"_rejected array<string>, _raw binary, _origin {origin_type(stream.source)}, _batch bigint, "
            f"{INGESTED_AT} timestamp, _watermark timestamp, _day date"
        )
        return nullable(StructType([*own, *added]))


def _struct(ddl: str) -> list[StructField]:
    """The fields that `ddl` declares."""
    struct = StructType.fromDDL(ddl)
    assert isinstance(struct, StructType)
    return struct.fields


def append_heartbeat(
    spark: SparkSession,
    lake: Lake,
    stream: Stream,
    state: ClockState,
    head: Batch,
    now: datetime,
    *,
    end_of_input: bool = False,
    next_memory: Memory | None = None,
    pinned: Mapping[str, int] = NOTHING_PINNED,
) -> Batch:
    """Append a row that has only a stamp, as the batch after `head`: it tells the views how far the clock is.

    `next_memory` is what the source remembers from here on, where this is the end of a part of it (see
    `Source.after_end`); `pinned` is the newest batch of each control stream that the stream pins.
    """
    origin = f"cast(null as {origin_type(stream.source)})"
    types = delta.schema_of(lake.log(stream))
    # The table lacks those declared since its last row came.
    declared = [name for name in stream.columns if name in types.names]
    row = spark.range(1).select(
        *(F.lit(None).cast(types[name].dataType).alias(name) for name in declared),
        F.lit(None).cast("array<string>").alias("_rejected"),
        F.lit(None).cast("binary").alias("_raw"),
        F.expr(origin).alias("_origin"),
        literal(now).alias(INGESTED_AT),
        F.lit(None).cast("date").alias("_day"),
    )
    number, nothing = head.number + 1, BatchSummary({}, 0, now, partitions_end=next_memory is not None)
    batch = Batch(
        number,
        None,
        None,
        state,
        nothing,
        stream.clock,
        end_of_input=end_of_input,
        source=head.source if next_memory is None else next_memory,
        pins=next_pins(head.pins, pinned),
        kept_from=kept_from(head, stream, stream.clock.watermark(state)),
    )
    stamped = stamp(row, declared, number, stream.clock.watermark(state))
    return commit_batch(stage_batch(stamped, lake, stream), lake, stream, batch)


def stage_batch(frame: DataFrame, lake: Lake, stream: Stream) -> delta.Staged:
    """Write the rows of one batch beside the log, which is created where it is not there yet."""
    _created_log(lake, stream, frame.schema)
    statistics, diverse = _statistics(stream, frame.schema)
    return delta.stage(frame, lake.log(stream), statistics=statistics, diverse=diverse)


def _created_log(lake: Lake, stream: Stream, schema: StructType) -> DeltaTable:
    description = stream.description or f"Event log of {stream.name}"
    return delta.create(lake.log(stream), schema, append_only=True, description=description)


def _statistics(stream: Stream, schema: StructType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the log whose bounds are kept, and those whose values hardly repeat."""
    return (stream.event_time, "_batch"), (stream.event_time, *_numbers_of_origin(schema))


def commit_batch(staged: delta.Staged, lake: Lake, stream: Stream, batch: Batch, txn: delta.Txn | None = None) -> Batch:
    """Take the staged rows into the log in one commit, which describes them as the `batch`; returns that.

    Raises:
        FencedError: the batch before it is not the newest of the log any more, or not yet.
    """

    def fence(table: DeltaTable) -> None:
        """The stamp is right only if nothing was appended since the clock was read: a process that slept sees it."""
        newest = newest_batch(lake, stream, table)
        follows = 0 if newest is None else newest.number + 1
        if batch.number != follows:
            raise FencedError(
                f"batch {batch.number} of {stream.name!r} was not appended: batch {follows} is next in the log, so "
                "another process has taken over while this one was away. Nothing is lost; let the other one run, or "
                f"stop it and start again (`tidemark status {stream.name}` names it)."
            )

    staged.commit(batch.to_json(), late_numbers(batch), fence=fence, txn=txn)
    return batch


def _numbers_of_origin(schema: StructType) -> list[str]:
    """The fields of `_origin` that number rows, such as a position or an offset: hardly two rows share one."""
    origin = schema["_origin"].dataType
    assert isinstance(origin, StructType)
    return [f"_origin.{field.name}" for field in origin.fields if isinstance(field.dataType, LongType)]
