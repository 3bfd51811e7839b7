"""Source to event log: judge, stamp and append one batch in one commit.

There are two ways. Tasks in Python workers (`_ByTasks`) read payloads, judge the rows with Arrow, and write those of
which they are certain; payloads that they leave in doubt are judged by Spark's expressions, within the same commit.
Where tasks cannot compute a part of a stream (see `places`), Spark's expressions (`_BySpark`) judge all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from typing import Any

from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from streaming.base import (
    INGESTED_AT,
    WARNED,
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
from streaming.declare import Rule, Stream
from streaming.formats import TYPED, UNKNOWN, added_types
from streaming.lake import IngestMode, Lake
from streaming.log.batches import (
    NOTHING_PINNED,
    QUERY,
    SHARES_BEFORE,
    Batch,
    OperatorCounts,
    add_unknown,
    count_partitions,
    count_reasons,
    count_unknown,
    late_numbers,
    newest_batch,
    next_pins,
    operator_columns,
    optional_instants,
    summary_columns,
)
from streaming.log.judgement import Stamps
from streaming.log.masking import Masking, checked_salts, masked
from streaming.log.places import Places, computed, derived_types, is_plain, places_of
from streaming.log.read import RETRACTED_FROM, RETRACTIONS, about_log, first_retraction, origin_type, with_origin
from streaming.log.tasks import TaskReport, WriteCertain, percentiles, write_certain
from streaming.log.validate import RowValidator, broken, check_expressions, check_revisions, rule_violation
from streaming.sources import Memory, Reading, Taken, older_copy
from streaming.spark import Analysis, query_id, refusal
from streaming.tables import delta, nullable, read_paths, storage

_ONLY_PARTITION = ""
"""The name of the source partition of all rows, where a source has but one."""
_POSITION = "position"
"""A field of `_origin` that numbers the rows of a batch as they are read: tasks and Spark may number them otherwise."""


def stamp(rows: DataFrame, declared: Sequence[str], number: int, watermark: datetime | None, *others: str) -> DataFrame:
    """`rows` with the batch `number` and the `watermark` as their stamp, in the log's column order.

    `declared` are the stream's own columns; `others` are columns of `rows` that follow after those of the log.
    """
    batch = constant(number).alias("_batch")
    stamped = constant(watermark).alias("_watermark")
    return rows.select(*declared, "_rejected", "_raw", "_origin", batch, INGESTED_AT, stamped, "_day", *others)


class Ingest:
    """Appends the batches of a stream's source to its log; `now` gives the processing time.

    `counts`: what each commit counts for the operators that read the log, by their names. `pinned`: tells the newest
    batch of each control stream that the stream pins. `mode`: "fast" lets tasks ingest where they can, "careful" Spark
    alone, and "both" lets both ingest each batch, compares them, and commits what Spark made.
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
        # A salt that is missing is told before anything is read.
        Masking.of(stream)
        self._by_spark = _BySpark(spark, lake, stream, counts)
        self._by_tasks: _ByTasks | None = None
        if mode != "careful":
            places = places_of_ingest(spark, stream, counts)
            if places.judgement is not None:
                self._by_tasks = _ByTasks(self._by_spark, places, counts)
        self._may_repeat = True

    def __call__(self, raw: DataFrame, query_batch: int, head: Batch | None) -> Batch | None:
        """Append the payloads of batch `query_batch` of the streaming query as the batch after `head`.

        Returns None where the log holds them already. `raw` is the query's frame of that batch, as the `read` of the
        source defines it.

        Raises:
            CheckpointError: the query's checkpoint is gone, or is an older copy.
            SaltError: a salt is another one than that of the rows before.
            SourceError: something of the batch was lost.
            FencedError: another process has appended to the log.
            LogError: tasks and Spark differ, in the mode "both", or a column has another type than in the log.
            RuleViolation: a row breaks a rule that stops the stream.
        """
        stream = self._stream
        memory = {} if head is None else head.source
        reading = Reading(self._lake, self._lake.checkpoint(stream, QUERY), memory, self._origins)
        query = query_id(stream.source.checkpoint(reading.checkpoint, reading.memory))
        if query is None:
            raise CheckpointError(f"the checkpoint of {stream.name!r} vanished while its query runs; stop and restart.")
        # After a restart Spark may replay batches committed before the crash; they come first, so after the first new
        # one the table need not be asked again.
        if self._may_repeat:
            held = self._newest_held(query)
            if held >= query_batch:
                stream.source.check_repeated(reading, query_batch)
                if held == query_batch:
                    return None
                raise older_copy(reading.checkpoint, f"its batch {query_batch} comes now, and the log has batch {held}")
            self._may_repeat = False
        checked_salts(stream, {} if head is None else head.salts)
        taken = stream.source.take(self._spark, reading, query_batch, raw)
        processed_at = self._now()
        stamps = _stamps(stream, head, processed_at)
        written = self._write(taken, stamps)
        if stream.stopped_by(written.report.warned):
            written.discard()
            raise rule_violation(
                stream, self._by_spark.validated(taken.rows(), stamps), stamps.number, written.report.warned
            )
        next_batch = _NextBatch(self._lake, stream, head, stamps, self._counts, self._pinned())
        memory = taken.remember(lambda: written.staged.read(self._spark), written.report.rows)
        batch = next_batch.commit(written, memory, (query, query_batch))
        written.forget_payloads()
        taken.committed()
        return batch

    def _newest_held(self, query: str) -> int:
        """The newest batch of the query that the log holds; -1 for none. A query repeats none that is older."""
        table = delta.open_table(self._lake.log(self._stream))
        newest = None if table is None else table.transaction_version(query)
        return -1 if newest is None else newest

    def _write(self, taken: Taken, stamps: Stamps) -> _Written:
        by_tasks = None if self._by_tasks is None else self._by_tasks.write(taken, stamps)
        if by_tasks is not None and self._mode == "fast":
            return by_tasks
        by_spark = self._by_spark.write(taken.rows(), stamps)
        if self._by_tasks is not None:
            self._by_tasks.resume_after(by_spark)
        if by_tasks is not None:
            _check_same(self._spark, self._stream, by_spark, by_tasks)
            by_tasks.discard()
        return by_spark

    def _origins(self) -> DataFrame | None:
        """The column `_origin` of every row of the log; None while there is no log."""
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
    """The rows of a batch in files beside the log, not committed yet, and their counts in a `report`.

    `source_times` as those of a `Batch`, in microseconds since the epoch. `payloads`: files of the payloads in doubt,
    which tasks have put aside for Spark; their rows are among the staged ones.
    """

    staged: delta.Staged
    report: TaskReport
    source_times: Sequence[float] | None
    payloads: tuple[str, ...] = ()

    def forget_payloads(self) -> None:
        """Remove the files of payloads, once their rows are committed."""
        self._remove(self.payloads)

    def discard(self) -> None:
        """Remove all files: others with the same rows are committed in their place."""
        self._remove((*self.staged.paths, *self.payloads))

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            storage.remove(f"{self.staged.uri}/{path}")


@dataclass(frozen=True)
class _NextBatch:
    """The batch that comes after `head`, the newest one of the log, and is stamped with the clock as `head` left it."""

    lake: Lake
    stream: Stream
    head: Batch | None
    stamps: Stamps
    counts: Mapping[str, OperatorCounts]
    pinned: Mapping[str, int]

    def commit(
        self,
        written: _Written,
        memory: Memory | None,
        query_batch: tuple[str, int] | None,
        retraction: Mapping[str, Any] | None = None,
    ) -> Batch:
        """Append the rows in one commit, after which the source remembers `memory`.

        `memory` is None where the source goes on remembering what it did. `query_batch` is the query that the rows come
        from, and the number of its batch; None where they come from no query. A `retraction` moves no clock by its
        rows.
        """
        head, report, stream = self.head, written.report, self.stream
        moved = {} if retraction else report.greatest
        greatest = {partition: optional_instant(micros) for partition, micros in moved.items()}
        before = {} if head is None else head.source
        salts = {} if head is None else head.salts
        after = before if memory is None else memory
        told = stream.source.told_watermark(self.lake, after)
        batch = Batch(
            number=self.stamps.number,
            query=None if query_batch is None else query_batch[0],
            query_batch=None if query_batch is None else query_batch[1],
            state=next_state(head),
            summary=BatchSummary(greatest, sum(report.rows.values()), self.stamps.ingested_at, told=told),
            clock=stream.clock,
            rejected=report.rejected,
            late={name: report.late.get(name, 0) for name in self.counts},
            unassigned={name: report.unassigned.get(name, 0) for name in self.counts},
            counted_by={name: each.by for name, each in self.counts.items()},
            source_times=None if query_batch is None else optional_instants(written.source_times),
            unknown=add_unknown([report.unknown]),
            source=after,
            pins=next_pins({} if head is None else head.pins, self.pinned),
            kept_from=self.stamps.kept_from,
            warned={} if retraction else {rule.name: report.warned.get(rule.name, 0) for rule in warning(stream)},
            reasons=report.reasons,
            salts=salts if retraction else checked_salts(stream, salts),
            retraction=retraction or {},
        )
        numbers = {} if query_batch is None else dict([query_batch])
        if retraction:
            first = first_retraction(self.lake, stream)
            numbers = {RETRACTIONS: batch.number, RETRACTED_FROM: batch.number if first is None else first}
        return commit_batch(written.staged, self.lake, stream, batch, numbers)


def warning(stream: Stream) -> list[Rule]:
    """The rules of a stream that only warn."""
    return [rule for rule in stream.watched if rule.on_violation == "warn"]


class _BySpark:
    """The ingest of a stream by expressions of Spark."""

    def __init__(self, spark: SparkSession, lake: Lake, stream: Stream, counts: Mapping[str, OperatorCounts]) -> None:
        self.spark = spark
        self.lake = lake
        self.stream = stream
        self._counts = counts

    def write(self, raw: DataFrame, stamps: Stamps) -> _Written:
        """Parse and judge the payloads of `raw`, and write their rows."""
        return self.write_validated(self.validated(raw, stamps), stamps)

    def validated(self, raw: DataFrame, stamps: Stamps) -> DataFrame:
        """The payloads of `raw`, parsed and judged, with masked values."""
        judged = self.validate(with_origin(self.stream.format.parse(raw)), stamps.ingested_at, stamps.kept_from)
        return masked(judged, self.stream)

    def write_validated(self, validated: DataFrame, stamps: Stamps) -> _Written:
        """Write the rows that `validate` gave, and count them on the way."""
        stream, observed = self.stream, Observation()
        watched = [WARNED] if stream.watched else []
        rows = stamp(validated, stream.columns, stamps.number, stamps.watermark, *watched, UNKNOWN)
        counted_only = [UNKNOWN] if stream.warns else [UNKNOWN, *watched]
        staged = stage_batch(rows.observe(observed, *self._summary).drop(*counted_only), self.lake, stream)
        counted = observed.get
        number, rejected = counted["rows"], counted["rejected"]
        partitions = {_ONLY_PARTITION: number}
        greatest = {} if number == rejected else {_ONLY_PARTITION: counted["greatest"]}
        if stream.source.partitioned:
            # A batch without rows has no files that could be read.
            partitions, greatest = count_partitions(staged.read(self.spark), stream) if number else ({}, {})
        report = TaskReport(
            rows=partitions,
            rejected=rejected,
            greatest=greatest,
            unknown=count_unknown(counted["unknown"]),
            late={name: counted[f"late_{name}"] for name in self._counts},
            unassigned={name: counted[f"unassigned_{name}"] for name in self._counts},
            warned={rule.name: counted[f"warned_{rule.name}"] for rule in stream.watched},
            reasons=count_reasons(staged.undated("_rejected")) if rejected else {},
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
    """The ingest of a stream by tasks in Python workers; what its `places` leave to Spark is for `by_spark`.

    Rules that only Spark can judge are judged over the files that the tasks have written. If one does not hold for a
    row, these files are of no use, and Spark ingests the batch; tasks then pause until no row of a batch breaks a rule.
    """

    def __init__(self, by_spark: _BySpark, places: Places, counts: Mapping[str, OperatorCounts]) -> None:
        self._by_spark = by_spark
        self._places = places
        self._schema = log_schema(by_spark.spark, by_spark.stream)
        self._counts = {name: each for name, each in counts.items() if name in places.counts}
        self._table: DeltaTable | None = None
        self._paused = False

    def write(self, taken: Taken, stamps: Stamps) -> _Written | None:
        """Write the rows of a batch; None where Spark is to write all of them.

        That is while tasks pause, where a rule that only Spark judges is broken, and where a payload is in doubt that
        has masked values, as no file may have it.
        """
        if self._paused:
            return None
        spark, stream, judgement = self._by_spark.spark, self._by_spark.stream, self._places.judgement
        decoder = stream.format.decoder
        assert judgement is not None and decoder is not None
        judgement = replace(judgement, masking=Masking.of(stream))
        table = self._opened()
        uri = self._by_spark.lake.log(stream)
        statistics, diverse = _bounded_and_diverse(stream, self._schema)
        by_day = bool(delta.partitions(table))
        write = WriteCertain(uri, decoder, judgement, stamps, statistics, diverse, by_day)
        report = write_certain(spark, taken, write)
        staged = delta.staged_files(uri, table, self._schema, report.files)
        payloads = tuple(file.path for file in report.doubtful)
        written = _Written(staged, report, percentiles(report.source_times, SHARES_BEFORE), payloads)
        if report.unwritten:
            written.discard()
            return None
        if staged.rows and (self._places.rules or self._counts):
            judged = self._judged_by_spark(staged)
            if judged is None:
                written.discard()
                self._paused = True
                return None
            written = replace(written, report=report + judged)
        if payloads:
            doubtful = self._by_spark.write(_payloads(spark, uri, payloads, stream), stamps)
            written = replace(
                written, staged=staged.with_rows_of(doubtful.staged), report=written.report + doubtful.report
            )
        return written

    def resume_after(self, by_spark: _Written) -> None:
        """End the pause, if no row of the batch that Spark has ingested breaks a rule."""
        breaks_a_rule = by_spark.report.rejected > 0 or any(by_spark.report.warned.values())
        self._paused = self._paused and breaks_a_rule

    def _judged_by_spark(self, staged: delta.Staged) -> TaskReport | None:
        """The counts that are left to Spark, over the valid rows that tasks have written.

        None where a rule that is left to Spark does not hold for one of these rows.
        """
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
            delta.refresh(self._table)
        return self._table


def _payloads(spark: SparkSession, uri: str, paths: Sequence[str], stream: Stream) -> DataFrame:
    """The payloads in doubt that tasks have put aside in files at `paths` beside the log at `uri`."""
    schema = StructType(_struct(f"_raw binary, _origin {stream.source.origin}, {TYPED} boolean"))
    return read_paths(spark, uri, schema, (), paths)


def _check_same(spark: SparkSession, stream: Stream, by_spark: _Written, by_tasks: _Written) -> None:
    """Refuse a batch of which tasks and Spark make different rows or counts.

    Raises:
        LogError: naming the first count that differs, or a row that only one of them has.
    """
    for name in ("rows", "rejected", "greatest", "unknown", "late", "unassigned", "reasons"):
        one, other = getattr(by_spark.report, name), getattr(by_tasks.report, name)
        if one != other:
            raise _differs(stream, name, one, other)
    one, other = (_broken_rules(each.report) for each in (by_spark, by_tasks))
    if one != other:
        raise _differs(stream, "warned", one, other)
    if by_spark.source_times != by_tasks.source_times:
        raise _differs(stream, "source_times", by_spark.source_times, by_tasks.source_times)
    spark_rows, task_rows = _texts(by_spark.staged.read(spark)), _texts(by_tasks.staged.read(spark))
    for rows, others, who in ((spark_rows, task_rows, "Spark"), (task_rows, spark_rows, "tasks")):
        more = rows.exceptAll(others).first()
        if more is not None:
            raise _differs(stream, "a row", f"{more[0]} (of {who} alone)", "none")


def _broken_rules(report: TaskReport) -> dict[str, int]:
    """The watched rules that rows break; tasks do not name those that only Spark judges, which then hold."""
    return {name: number for name, number in report.warned.items() if number}


def _texts(rows: DataFrame) -> DataFrame:
    """Each row as one text, without its position in the batch, by which tasks and Spark may differ."""
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

    They come from no query, and were judged with the first day that `next_kept_from` gives. `counts` as those of
    `Ingest`; `pinned` is the newest batch of each control stream that the stream pins.

    Raises:
        FencedError: `head` is not the newest batch of the log.
        RuleViolation: a row breaks a rule that stops the stream.
        SettingsError, SaltError: as `checked_salts`.
    """
    checked_salts(stream, {} if head is None else head.salts)
    stamps = _stamps(stream, head, processed_at)
    written = _BySpark(validated.sparkSession, lake, stream, counts).write_validated(validated, stamps)
    if stream.stopped_by(written.report.warned):
        written.discard()
        raise rule_violation(stream, validated, stamps.number, written.report.warned)
    return _NextBatch(lake, stream, head, stamps, counts, pinned).commit(written, None, None)


def append_retraction(
    rows: DataFrame,
    lake: Lake,
    stream: Stream,
    head: Batch,
    processed_at: datetime,
    counts: Mapping[str, OperatorCounts],
    retraction: Mapping[str, Any],
    pinned: Mapping[str, int] = NOTHING_PINNED,
) -> Batch:
    """Append rows that take back others, or put them back, as the batch after `head`, in one commit.

    `rows` have the stream's columns, `_origin` with what they take back, and `_day`; `retraction` says who did it and
    why.

    Raises:
        FencedError: `head` is not the newest batch of the log.
    """
    stamps = _stamps(stream, head, processed_at)
    validated = rows.select(
        *(f"`{name}`" for name in stream.columns),
        F.lit(None).cast("array<string>").alias("_rejected"),
        F.lit(None).cast("binary").alias("_raw"),
        "_origin",
        literal(processed_at).alias(INGESTED_AT),
        "_day",
        F.lit(None).cast("array<string>").alias(UNKNOWN),
        *([F.lit(None).cast("array<string>").alias(WARNED)] if stream.watched else []),
    )
    written = _BySpark(rows.sparkSession, lake, stream, counts).write_validated(validated, stamps)
    return _NextBatch(lake, stream, head, stamps, counts, pinned).commit(written, None, None, retraction)


def next_state(head: Batch | None) -> ClockState:
    """The clock after everything that is in the log; it stamps the batch that comes next."""
    return ClockState() if head is None else head.after


def kept_from(head: Batch | None, stream: Stream, stamp: datetime | None) -> date | None:
    """The first day of which the batch after `head` may have valid rows, by the watermark `stamp` that stamps it.

    None for any day. It never goes back, even where a longer retention is declared: the log may have dropped the rows
    of earlier days, and new rows of such a day would then pass for all rows of it.
    """
    before = None if head is None else head.kept_from
    oldest = None if stream.retention is None else earlier(stamp, interval(stream.retention))
    return max(filter(None, (before, None if oldest is None else oldest.date())), default=None)


def next_kept_from(head: Batch | None, stream: Stream) -> date | None:
    """The first day of which the batch that comes after `head` may have valid rows; None for any day."""
    return kept_from(head, stream, stream.clock.watermark(next_state(head)))


def widen_log(spark: SparkSession, lake: Lake, stream: Stream) -> None:
    """Add the declared columns, and fields of structs, that an existing log lacks; its rows read null there.

    So a view can read them before the first row that has them.

    Raises:
        LogError: a column has another type than in the log.
    """
    delta.widen(lake.log(stream), log_schema(spark, stream))


def log_schema(spark: SparkSession, stream: Stream) -> StructType:
    """The columns of the next batch, by the declaration alone: there need not be a log yet.

    Raises:
        DeclarationError: Spark cannot read the columns, or compute a derived one, a rule or the clock's condition.
    """
    return _StreamAnalysis.once(spark, stream).log_schema


def places_of_ingest(spark: SparkSession, stream: Stream, counts: Mapping[str, OperatorCounts]) -> Places:
    """The place where each part of a stream's ingest is computed; `counts` as those of `Ingest`.

    Raises:
        DeclarationError: as `log_schema` says.
    """
    return _StreamAnalysis.once(spark, stream).places(counts)


class _StreamAnalysis(Analysis[Stream]):
    """A stream as Spark sees it."""

    @cached_property
    def validate(self) -> RowValidator:
        """The judge of the stream's parsed rows, in Spark."""
        return RowValidator(self.of)

    @cached_property
    def parsed(self) -> DataFrame:
        """A frame without a row, with the columns that the stream's format parses and the time of ingestion."""
        stream = self.of
        payload = f"_raw binary, _origin {origin_type(stream)}"
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
        """Every expression of the stream over `parsed`, as `computed` names them."""
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
        if stream.key:
            check_revisions(stream, parsed)
        return expressions

    @cached_property
    def log_schema(self) -> StructType:
        """The columns of the stream's log."""
        stream, there = self.of, self.parsed.schema
        derived = derived_types(self.expressions.schema, stream)
        own = [StructField(name, derived[name] if name in derived else there[name].dataType) for name in stream.columns]
        added = _struct(
            f"_rejected array<string>, _raw binary, _origin {origin_type(stream)}, _batch bigint, "
            f"{INGESTED_AT} timestamp, _watermark timestamp, _day date{f', {WARNED} array<string>' * stream.warns}"
        )
        return nullable(StructType([*own, *added]))

    def places(self, counts: Mapping[str, OperatorCounts]) -> Places:
        """The places of all parts of the stream's ingest, found once for equal `counts`."""
        key = tuple((name, each.by) for name, each in counts.items())
        if key not in self._places:
            self._places[key] = places_of(self.expressions, self.of, self.log_schema, counts)
        return self._places[key]

    @cached_property
    def _places(self) -> dict[tuple[tuple[str, str], ...], Places]:
        return {}


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
    told_watermark: datetime | None = None,
) -> Batch:
    """Append a row that has only a stamp, as the batch after `head`: it tells every operator how far the clock is.

    `state` is the clock that the row is stamped with. `end_of_input` says that no row comes any more, so that windows
    close whatever the clock says. `next_memory` is what the source remembers from here on, where a part of it has come
    to its end (see `Source.after_end`); `pinned` is the newest batch of each control stream that the stream pins;
    `told_watermark` is that of the source, where it tells one.

    Raises:
        FencedError: `head` is not the newest batch of the log.
    """
    types = delta.schema_of(lake.log(stream))
    # The table does not have the columns that were declared since its last row came.
    declared = [name for name in stream.columns if name in types.names]
    row = spark.range(1).select(
        *(F.lit(None).cast(types[name].dataType).alias(name) for name in declared),
        F.lit(None).cast("array<string>").alias("_rejected"),
        F.lit(None).cast("binary").alias("_raw"),
        F.expr(f"cast(null as {origin_type(stream)})").alias("_origin"),
        literal(now).alias(INGESTED_AT),
        F.lit(None).cast("date").alias("_day"),
    )
    number = head.number + 1
    batch = Batch(
        number=number,
        query=None,
        query_batch=None,
        state=state,
        summary=BatchSummary({}, 0, now, partitions_end=next_memory is not None, told=told_watermark),
        clock=stream.clock,
        end_of_input=end_of_input,
        source=head.source if next_memory is None else next_memory,
        pins=next_pins(head.pins, pinned),
        kept_from=kept_from(head, stream, stream.clock.watermark(state)),
        salts=head.salts,
    )
    stamped = stamp(row, declared, number, stream.clock.watermark(state))
    return commit_batch(stage_batch(stamped, lake, stream), lake, stream, batch)


def stage_batch(frame: DataFrame, lake: Lake, stream: Stream) -> delta.Staged:
    """Write the rows of one batch beside the log, which is created where it is not there yet."""
    table = _created_log(lake, stream, frame.schema)
    statistics, diverse = _bounded_and_diverse(stream, frame.schema)
    return delta.stage(frame, lake.log(stream), table=table, statistics=statistics, diverse=diverse)


def _created_log(lake: Lake, stream: Stream, schema: StructType) -> DeltaTable:
    description = stream.description or f"Event log of {stream.name}"
    # Revisions are of any day, and each day of a batch would be a file of its own; nobody reads them by the day.
    return delta.create(
        lake.log(stream),
        schema,
        append_only=True,
        description=description,
        partition_by=() if stream.key else None,
        about=about_log(stream),
    )


def _bounded_and_diverse(stream: Stream, schema: StructType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the log whose bounds are kept, and those whose values hardly repeat: see `delta.stage`."""
    return (stream.event_time, "_batch"), (stream.event_time, *_numbers_of_origin(schema))


def _numbers_of_origin(schema: StructType) -> list[str]:
    """The fields of `_origin` that number rows, such as a position or an offset: hardly two rows share one."""
    origin = schema["_origin"].dataType
    assert isinstance(origin, StructType)
    return [f"_origin.{field.name}" for field in origin.fields if isinstance(field.dataType, LongType)]


def commit_batch(
    staged: delta.Staged,
    lake: Lake,
    stream: Stream,
    batch: Batch,
    numbers: Mapping[str, int] | None = None,
) -> Batch:
    """Commit the staged rows to the log, and with them the facts of the `batch`, which is returned.

    `numbers` stay with the table.

    Raises:
        FencedError: the number of the batch is not the next one of the log.
        LogError: a column has another type than in the log.
    """

    def fence(table: DeltaTable) -> None:
        """Refuse a batch that another process came before, because then its stamp is of an older clock."""
        newest = newest_batch(lake, stream, table)
        follows = 0 if newest is None else newest.number + 1
        if batch.number != follows:
            raise FencedError(
                f"batch {batch.number} of {stream.name!r} was not appended: batch {follows} is next in the log, so "
                "another process has taken over while this one was away. Nothing is lost; let the other one run, or "
                f"stop it and start again (`tidemark status {stream.name}` names it)."
            )

    staged.commit(batch.to_json(), {**late_numbers(batch), **(numbers or {})}, fence=fence)
    return batch
