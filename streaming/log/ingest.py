"""Source to event log: validate, stamp and append one batch in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import cached_property

from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from streaming.base import (
    EPOCH,
    INGESTED_AT,
    CheckpointError,
    DeclarationError,
    FencedError,
    constant,
    earlier,
    interval,
    literal,
)
from streaming.clocks import BatchSummary, ClockState
from streaming.declare import Stream
from streaming.formats import UNKNOWN
from streaming.lake import Lake
from streaming.log.batches import (
    NOTHING_PINNED,
    Batch,
    OperatorCounts,
    count_partitions,
    count_unknown,
    late_numbers,
    newest_batch,
    next_pins,
    optional_instant,
    optional_instants,
    summary_columns,
)
from streaming.log.read import origin_type, with_origin
from streaming.log.validate import RowValidator, check_expressions
from streaming.sources import Memory, Reading
from streaming.spark import Analysis, query_id, refusal
from streaming.tables import delta

QUERY = "log"
_PARTITION = ""


def stamp(rows: DataFrame, declared: Sequence[str], number: int, watermark: datetime | None, *others: str) -> DataFrame:
    """`rows` with batch number and stamp, in the log's column order, then `others`; `declared` are the stream's."""
    batch = constant(number).alias("_batch")
    stamped = constant(watermark).alias("_watermark")
    return rows.select(*declared, "_rejected", "_raw", "_origin", batch, INGESTED_AT, stamped, "_day", *others)


class Ingest:
    """Appends the batches of a stream's source to its log; `now` gives the processing time.

    `counts`: what each commit counts for the operators that read the log, by their names. `pinned`: tells the newest
    batch of each control stream that the stream pins.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        stream: Stream,
        counts: Mapping[str, OperatorCounts],
        now: Callable[[], datetime],
        pinned: Callable[[], Mapping[str, int]] = lambda: NOTHING_PINNED,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._stream = stream
        self._counts = counts
        self._now = now
        self._pinned = pinned
        self._validate = _StreamAnalysis.once(spark, stream).validate
        self._summary = summary_columns(stream, counts)
        self._repeats = True

    def __call__(self, parsed: DataFrame, query_batch: int, head: Batch | None) -> Batch | None:
        """Append the rows that the format has `parsed` as the batch after `head`; None where the log holds them."""
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
        taken = stream.source.take(self._spark, reading, query_batch, parsed)
        processed_at = self._now()
        rows = taken.rows if taken.parsed else stream.format.parse(taken.rows)
        validated = self._validate(with_origin(rows), processed_at, next_kept_from(head, stream))
        return append_validated(
            validated,
            self._lake,
            stream,
            head,
            processed_at,
            self._counts,
            txn,
            self._summary,
            taken.remember,
            self._pinned(),
        )

    def _origins(self) -> DataFrame | None:
        log = self._lake.log(self._stream)
        return delta.read(self._spark, log).select("_origin") if delta.exists(log) else None


def append_validated(
    validated: DataFrame,
    lake: Lake,
    stream: Stream,
    head: Batch | None,
    processed_at: datetime,
    counts: Mapping[str, OperatorCounts],
    txn: delta.Txn | None,
    summary: Sequence[Column] | None = None,
    remember: Callable[[DataFrame, Mapping[str, int]], Memory] | None = None,
    pinned: Mapping[str, int] = NOTHING_PINNED,
) -> Batch:
    """Stamp `validated` rows with the clock as it is after `head` and append them as the next batch, in one commit.

    The rows are judged by `next_kept_from`. `summary` are the `summary_columns` of `counts`, which whoever appends many
    batches builds once; `txn` names the Spark batch that the rows come from, if any, and `remember` (see
    `streaming.sources.Taken`) what their source does; `pinned` is the newest batch of each control stream that the
    stream pins.
    """
    state = next_state(head)
    number = 0 if head is None else head.number + 1
    observed = Observation()
    aggregates = summary_columns(stream, counts) if summary is None else summary
    rows = stamp(validated, stream.columns, number, stream.clock.watermark(state), UNKNOWN)

    staged = stage_batch(rows.observe(observed, *aggregates).drop(UNKNOWN), lake, stream)
    counted = observed.get
    there, rows_of = rows, {_PARTITION: counted["rows"]}
    greatest = {} if counted["rows"] == counted["rejected"] else {_PARTITION: optional_instant(counted["greatest"])}
    if stream.source.partitioned:
        rows_of, greatest = {}, {}
        # Of a batch without rows there are no files.
        if counted["rows"]:
            there = staged.read()
            rows_of, greatest = count_partitions(there, stream)
    before = {} if head is None else head.source
    batch = Batch(
        number=number,
        query=None if txn is None else txn.app_id,
        query_batch=None if txn is None else txn.version,
        state=state,
        summary=BatchSummary(greatest, counted["rows"], processed_at),
        clock=stream.clock,
        rejected=counted["rejected"],
        late={name: counted[f"late_{name}"] for name in counts},
        unassigned={name: counted[f"unassigned_{name}"] for name in counts},
        counted_by={name: each.by for name, each in counts.items()},
        source_times=optional_instants(counted["source_times"]) if txn is not None else None,
        unknown=count_unknown(counted["unknown"]),
        source=before if remember is None else remember(there, rows_of),
        pins=next_pins({} if head is None else head.pins, pinned),
        kept_from=next_kept_from(head, stream),
    )
    return commit_batch(staged, lake, stream, batch, txn)


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
    delta.widen(lake.log(stream), no_rows(spark, stream).schema)


def no_rows(spark: SparkSession, stream: Stream) -> DataFrame:
    """No row, with the columns that the next batch of the log will have, whether there is a log by now or not.

    Raises:
        DeclarationError: Spark cannot read the columns, or compute a derived one, a rule or the clock's condition.
    """
    return _StreamAnalysis.once(spark, stream).no_rows


class _StreamAnalysis(Analysis[Stream]):
    """A stream as Spark sees it."""

    @cached_property
    def validate(self) -> RowValidator:
        """The judge of its parsed rows."""
        return RowValidator(self.of)

    @cached_property
    def no_rows(self) -> DataFrame:
        """No row of its log."""
        stream = self.of
        nothing = self.spark.createDataFrame([], f"_raw binary, _origin {origin_type(stream.source)}")
        try:
            parsed = stream.format.parse(nothing)
        except AnalysisException as error:
            raise DeclarationError(
                f"stream {stream.name!r} has columns that Spark cannot read: {refusal(error)}. Correct them in its "
                "format."
            ) from error
        try:
            return stamp(self.validate(parsed, EPOCH), stream.columns, 0, None)
        except AnalysisException as error:
            check_expressions(stream, parsed.withColumn(INGESTED_AT, constant(EPOCH)))
            raise DeclarationError(
                f"stream {stream.name!r} cannot be computed: {refusal(error)}. Correct its columns, rules or clock."
            ) from error


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
    uri = lake.log(stream)
    description = stream.description or f"Event log of {stream.name}"
    delta.create(uri, frame.schema, append_only=True, description=description)
    statistics, diverse = (stream.event_time, "_batch"), (stream.event_time, *_numbers_of_origin(frame.schema))
    return delta.stage(frame, uri, statistics=statistics, diverse=diverse)


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
