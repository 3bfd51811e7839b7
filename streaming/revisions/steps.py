"""The step from the log of revisions to that of changes: one batch becomes one batch, stamped as it was.

The changes say in their own commit how far they are, then what stands does. Whatever kills a step, the next one begins
where what stands is, and writes the changes only where they are not that far yet.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property, reduce
from operator import and_
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StringType, StructField, StructType

from streaming.base import (
    ADDED,
    BATCH,
    INGESTED_AT,
    MICROSECOND,
    ORIGIN,
    SIGN,
    STAMP,
    ChangedDeclaration,
    FencedError,
    interval,
    optional_micros,
    to_micros,
)
from streaming.clocks import BatchSummary
from streaming.declare import Stream
from streaming.keyed import BUCKETS, DUE, HASH, NEVER, StateTable, StoredState, hash_of, in_buckets, marks
from streaming.lake import Lake
from streaming.log import (
    Batch,
    LogFiles,
    OperatorCounts,
    about_log,
    batches_after,
    commit_batch,
    ever_rejected,
    log_schema,
    newest_batch,
    operator_columns,
    read_log,
    retraction_of,
    valid,
)
from streaming.operators import StateCleaner
from streaming.revisions.fold import (
    CONCERNS,
    DELETES,
    REPORT,
    RETRACTED_TIMES,
    SEQUENCE,
    Counts,
    Extract,
    Forgetting,
    RevisionReport,
    WriteRevisions,
    latest_of,
)
from streaming.tables import TableAbout, delta, storage

_log = logging.getLogger("tidemark")

_THROUGH, _DECLARED = "through", "declared"
"""Numbers of both tables: the batch of revisions that they have followed, and one that stands for what is declared."""
FORGOTTEN_UNTIL = "forgotten"
"""The number of what stands that tells the latest time of a delete that is forgotten, in microseconds."""
_TOLD_EVERY = 50
"""Batches after which somebody who waits is told how many there are."""
PLACE = "_place"
"""The column that orders the revisions of a batch as their source did."""


class Revising:
    """Follows the log of revisions of one stream in one process.

    `counts`: what each commit of the changes counts for the operators that read them, by their names.
    """

    def __init__(self, spark: SparkSession, lake: Lake, stream: Stream, counts: Mapping[str, OperatorCounts]) -> None:
        self._spark = spark
        self._lake = lake
        self._stream = stream
        self._counts = counts
        self._came = LogFiles(lake, stream.revisions)
        self._schema = log_schema(spark, stream)
        self._cleaner = StateCleaner()
        self._is_wide = False
        """True once both tables have all columns that are declared."""

    def follow(self, now: datetime) -> Batch | None:
        """Follow every batch that came; returns the newest batch of the changes, None where there is none yet.

        Raises:
            ChangedDeclaration: another key, sequence or condition made the changes that are there.
            FencedError: another process has taken over.
        """
        lake, stream = self._lake, self._stream
        changes, standing = (delta.open_table(uri) for uri in (lake.log(stream), lake.standing(stream)))
        _check_key(lake, stream, changes, standing)
        if changes is None:
            # What it tells of batches is of changes that are gone.
            storage.remove_folder(lake.batches(stream))
        if standing is not None and followed_by(changes) < followed_by(standing):
            # The same rows follow from the log once more.
            _log.warning(
                f"the changes of {stream.name!r} are lost, or older than what stands; they follow from its log anew"
            )
            storage.remove_folder(lake.standing(stream))
            standing = None
        behind = batches_after(lake, stream.revisions, followed_by(standing))
        told: dict[int, Batch] = {}
        if followed_by(standing) < followed_by(changes):
            # What the changes said of an extract holds, whatever share of the keys may be gone by now.
            told = {batch.number: batch for batch in batches_after(lake, stream, followed_by(standing))}
        for done, batch in enumerate(behind):
            if done and done % _TOLD_EVERY == 0:
                _log.info(f"{stream.name}: {done:,} of {len(behind):,} batches of revisions are followed")
            if changes is None or standing is None or not self._is_wide:
                changes, standing = self._created()
            elif done:
                # Somebody may have compacted what stands since the batch before.
                standing.update_incremental()
            self._step(batch, changes, standing, told.get(batch.number))
        if standing is not None:
            self._cleaner.after_step(lake.standing(stream), now)
        return None if changes is None else newest_batch(lake, stream, changes)

    def _step(self, batch: Batch, changes: DeltaTable, standing: DeltaTable, told: Batch | None) -> None:
        uri = self._lake.standing(self._stream)
        state = StateTable(standing, uri, self._stored, len(self._stream.key))
        forgetting = self._forgetting(batch, standing)
        has_rows = batch.summary.rows > batch.rejected
        due = forgetting is not None and any(file.due < forgetting.clock for file in state.files)
        report = self._folded(batch, state, forgetting) if has_rows or due else RevisionReport()
        refused = self._is_refused(report) if told is None else bool(told.revised.get("refused"))
        if refused and told is None:
            _log.warning(
                f"batch {batch.number} of {self._stream.name!r} is an extract without {report.counts.missing:,} of the "
                f"{report.stood:,} keys that stand, more than {self._stream.snapshots} allows: it changes nothing. If "
                "they are gone, raise at_most_gone and land the extract again."
            )
        if refused:
            report = RevisionReport(counts=Counts(refused=report.counts.revisions))
        if followed_by(changes) < batch.number:
            self._commit_changes(changes, batch, report)
        delta.commit_files(
            uri,
            report.standing,
            table=standing,
            says=self._stream.revised_by,
            numbers={**self._numbers(batch), BUCKETS: state.buckets.count, **_until(forgetting, report)},
            fence=lambda table: _fence(table, self._stream, batch.number),
            outdated=sorted({*report.replaced}),
        )

    def _forgetting(self, batch: Batch, standing: DeltaTable) -> Forgetting | None:
        """The deletes that a batch forgets; None where none ever is."""
        if self._stream.forget is None:
            return None
        watermark = optional_micros(batch.after.watermark)
        after = interval(self._stream.forget) // MICROSECOND
        until = standing.transaction_version(FORGOTTEN_UNTIL)
        return Forgetting(after, NEVER if watermark is None else watermark, until)

    def _folded(self, batch: Batch, state: StateTable, forgetting: Forgetting | None) -> RevisionReport:
        stream = self._stream
        rows = self._came.with_batches(self._spark, batch.number - 1, batch.number)
        # What is due at the clock itself is remembered still.
        clock = NEVER if forgetting is None else forgetting.clock - 1
        stored = state.stored(clock) if stream.snapshots is None else state.of_all()
        task = WriteRevisions(
            key=stream.key,
            columns=stream.columns,
            compared=stream.compared,
            event_time=stream.event_time,
            as_before=stream.as_before,
            made_of=stream.made_of if stream.as_before else {},
            uri=self._lake.log(stream),
            changes=to_arrow_schema(self._schema, timezone="UTC"),
            standing=stored,
            extract=None if stream.snapshots is None else _extract(batch),
            forgetting=forgetting,
        )
        return fold_revisions(self._spark, as_revisions(rows, stream), stream, stored, task)

    def _is_refused(self, report: RevisionReport) -> bool:
        """True for an extract in which more keys are missing than may be gone."""
        snapshots = self._stream.snapshots
        return snapshots is not None and report.counts.missing > snapshots.at_most_gone * report.stood

    def _commit_changes(self, table: DeltaTable, batch: Batch, report: RevisionReport) -> None:
        lake, stream = self._lake, self._stream
        staged = delta.staged_files(lake.log(stream), table, self._schema, report.changes)
        counted: Mapping[str, Any] = {}
        if self._counts and staged.rows:
            row = staged.read(self._spark).agg(*operator_columns(self._counts)).first()
            assert row is not None
            counted = row.asDict()
        of_changes = _batch_of_changes(batch, report.counts, self._counts, counted)
        commit_batch(staged, lake, stream, of_changes, numbers=self._numbers(batch))

    def _numbers(self, batch: Batch) -> dict[str, int]:
        """The numbers that both tables keep once they have followed a batch."""
        return {_THROUGH: batch.number, _DECLARED: _number(self._stream)}

    def _created(self) -> tuple[DeltaTable, DeltaTable]:
        lake, stream = self._lake, self._stream
        stored = from_arrow_schema(self._stored, prefer_timestamp_ntz=True)
        changes = delta.create(
            lake.log(stream),
            self._schema,
            append_only=True,
            description=f"Rows of {stream.name} as revisions add them and take them back",
            # The rows that a batch takes back are of any day, and each would be a file of its own.
            partition_by=(),
            about=about_log(stream),
        )
        standing = delta.create(
            lake.standing(stream),
            stored,
            append_only=False,
            description=f"The newest revision of each key of {stream.name}; of one that is gone its sequence",
            partition_by=(),
            about=TableAbout(bounded=(HASH, DUE)),
        )
        if not self._is_wide:
            changes, standing = (
                delta.widened(lake.log(stream), self._schema),
                delta.widened(lake.standing(stream), stored),
            )
            self._is_wide = True
        return changes, standing

    @cached_property
    def _stored(self) -> pa.Schema:
        """The columns of what stands."""
        return stored_schema(self._spark, self._stream, (ADDED, StringType()))


def sequence_of(stream: Stream) -> Column:
    """The place of a revision among those of its key, as a column of the log of revisions."""
    # The newest extract counts, and a batch is one.
    return F.col(BATCH).alias(SEQUENCE) if stream.snapshots else F.expr(f"({stream.sequence}\n)").alias(SEQUENCE)


def stored_schema(spark: SparkSession, stream: Stream, *more: tuple[str, DataType]) -> pa.Schema:
    """The columns of revisions as they are stored, with `more`. Those of which a step asks for bounds come first."""
    log = log_schema(spark, stream.revisions)
    sequence = StructField(SEQUENCE, spark.createDataFrame([], log).select(sequence_of(stream)).schema[0].dataType)
    own = [log[name] for name in (*stream.key, *(name for name in stream.columns if name not in stream.key))]
    told = StructType([*own, sequence, *(StructField(name, type_) for name, type_ in more)])
    first = [pa.field(HASH, pa.int64()), pa.field(DUE, pa.timestamp("us", "UTC"))]
    return pa.schema([*first, *to_arrow_schema(told, timezone="UTC")])


def concerns_a_row(stream: Stream) -> Column:
    """True for the valid rows that are revisions: others came before the stream had a key, or say nothing of a row."""
    known = (F.col(f"`{name}`").isNotNull() for name in stream.key)
    concerns = reduce(and_, known, F.expr(stream.concerns) & sequence_of(stream).isNotNull())
    return F.coalesce(concerns, F.lit(False))


def as_revisions(rows: DataFrame, stream: Stream) -> DataFrame:
    """The rows of the log of revisions as tasks fold them, with what orders those of a key."""
    return rows.select(
        hash_of([F.col(f"`{name}`") for name in stream.key]).alias(HASH),
        BATCH,
        sequence_of(stream),
        is_gone(rows, stream).alias(DELETES),
        retraction_of(rows).alias(RETRACTED_TIMES),
        identity_of_revision().alias(ADDED),
        concerns_a_row(stream).alias(CONCERNS),
        stream.source.order_of(F.col(ORIGIN)).alias(PLACE),
        *(f"`{name}`" for name in stream.columns),
        ORIGIN,
        INGESTED_AT,
        STAMP,
    )


def fold_revisions(
    spark: SparkSession,
    revisions: DataFrame,
    stream: Stream,
    stored: StoredState,
    task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> RevisionReport:
    """Have a task fold revisions, key by key and in their order, onto what is stored; returns what it reports."""
    if stored.visited:
        revisions = revisions.unionByName(marks(spark, stored.buckets), allowMissingColumns=True)
    ordered = in_buckets(revisions, stored.buckets).sortWithinPartitions(
        HASH, *(f"`{name}`" for name in stream.key), BATCH, PLACE
    )
    reports = ordered.drop(PLACE).mapInArrow(task, f"{REPORT} string").collect()
    return sum((RevisionReport.from_json(row[REPORT]) for row in reports), RevisionReport())


def identity_of_revision() -> Column:
    """The text that stands for a row of the log of revisions, and for no other one."""
    return F.md5(F.to_json(F.struct(BATCH, ORIGIN)))


def forgotten_in(rejected: DataFrame) -> DataFrame:
    """The identities, as `_added`, of the revisions that rejected rows of a log of changes tell as forgotten."""
    return rejected.select(F.col(ORIGIN)["identity"].alias(ADDED))


def is_gone(rows: DataFrame, stream: Stream) -> Column:
    """True for the revisions that say that their key is gone, as such or because somebody takes its row back."""
    deletes = F.lit(False) if stream.deletes is None else F.coalesce(F.expr(f"({stream.deletes}\n)"), F.lit(False))
    retraction = retraction_of(rows)
    return F.when(retraction > 0, retraction % 2 == 1).otherwise(deletes)


def _until(forgetting: Forgetting | None, report: RevisionReport) -> dict[str, int]:
    """The number that tells the latest delete which is forgotten; none where there is no such delete."""
    until = latest_of(report.forgotten_until, None if forgetting is None else forgetting.until)
    return {} if until is None else {FORGOTTEN_UNTIL: until}


def _extract(batch: Batch) -> Extract:
    stamp = batch.state.watermark
    return Extract(
        batch.number,
        to_micros(batch.summary.processed_at),
        None if stamp is None else to_micros(stamp),
        # Nobody knows the keys of rejected rows, and what is repaired is a few rows of an extract.
        is_whole=batch.cause == "source" and not batch.rejected,
    )


def _batch_of_changes(
    batch: Batch, counts: Counts, operators: Mapping[str, OperatorCounts], counted: Mapping[str, Any]
) -> Batch:
    """The batch of changes that follows from one of revisions: it has the same number and the same clock."""
    summary = batch.summary
    return Batch(
        number=batch.number,
        query=batch.query,
        query_batch=batch.query_batch,
        state=batch.state,
        summary=BatchSummary(summary.greatest, counts.rows, summary.processed_at, summary.partitions_end, summary.told),
        clock=batch.clock,
        rejected=counts.forgotten,
        late={name: counted.get(f"late_{name}") or 0 for name in operators},
        unassigned={name: counted.get(f"unassigned_{name}") or 0 for name in operators},
        counted_by={name: each.by for name, each in operators.items()},
        end_of_input=batch.end_of_input,
        source_times=batch.source_times,
        source=batch.source,
        pins=batch.pins,
        revised=counts.to_json(),
        retraction=batch.retraction,
        after=batch.after,
    )


def _number(stream: Stream) -> int:
    """A number that is the same for the same declaration."""
    text = json.dumps(stream.revised_by, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def _check_key(lake: Lake, stream: Stream, *tables: DeltaTable | None) -> None:
    """Refuse to go on from changes that another key, sequence or condition has made.

    Raises:
        ChangedDeclaration: with the ways to go on.
    """
    there = {table.transaction_version(_DECLARED) for table in tables if table is not None}
    if there <= {None, _number(stream)}:
        return
    raise ChangedDeclaration(
        f"stream {stream.name!r} is declared with {_told(stream)}, and the changes at {lake.log(stream)!r} follow from "
        "another key, sequence, deletes or forget",
        f"Give the old declaration back; or move that table, {lake.batches(stream)!r} and {lake.standing(stream)!r} "
        "away, so that they are made anew from the log, and `tidemark rebuild` the operators of the stream.",
        stream=stream.name,
    )


def _told(stream: Stream) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in stream.revised_by.items())


def followed_by(table: DeltaTable | None) -> int:
    """The newest batch of revisions that an open table, of changes or of what stands, has followed; -1 for none."""
    through = None if table is None else table.transaction_version(_THROUGH)
    return -1 if through is None else through


def _fence(table: DeltaTable, stream: Stream, number: int) -> None:
    through = table.transaction_version(_THROUGH)
    if number != (0 if through is None else through + 1):
        raise FencedError(
            f"batch {number} of {stream.name!r} was not folded onto what stands, which has followed batch {through}: "
            "another process has taken over while this one was away. Nothing is lost; let the other one run, or stop "
            f"it and start again (`tidemark status {stream.name}` names it)."
        )


def net(changes: DataFrame) -> DataFrame:
    """The valid rows of a log of changes that were added and not taken back, whatever was taken back without that."""
    origin = F.col(ORIGIN)
    same = SortedBy.partitionBy(origin["identity"])
    counted = valid(changes).withColumn("_net", F.sum(origin["change"]).over(same))
    return counted.where((F.col("_net") != 0) & (origin["change"] == F.signum("_net"))).drop("_net")


def rows_now(spark: SparkSession, lake: Lake, stream: Stream) -> DataFrame:
    """The rows of a stream with a key that stand, in the order of their keys, or stood as of the batch that is read.

    Raises:
        LogError: nothing has been ingested yet.
    """
    columns, order = ([f"`{name}`" for name in names] for names in (stream.columns, stream.key))
    changes = read_log(spark, lake, stream)
    if lake.cut is None and delta.exists(lake.standing(stream)):
        return standing_rows(spark, lake, stream).orderBy(*order)
    return net(changes).select(*columns).orderBy(*order)


def of_revisions(lake: Lake, stream: Stream) -> dict[str, Callable[[SparkSession], DataFrame]]:
    """The frames that people may look at of a stream with a key, by name; nothing of another stream."""
    if not stream.revised:
        return {}
    return {
        "changes": lambda spark: _changes(read_log(spark, lake, stream)),
        "rows": lambda spark: rows_now(spark, lake, stream),
        "forgotten": lambda spark: ever_rejected(read_log(spark, lake, stream)).orderBy(BATCH, ORIGIN),
    }


def _changes(log: DataFrame) -> DataFrame:
    """The rows of the log of changes, each with its sign first."""
    return log.select(F.col(ORIGIN)["change"].alias(SIGN), *log.columns).orderBy(BATCH, ORIGIN)


def standing_rows(spark: SparkSession, lake: Lake, stream: Stream, version: int | None = None) -> DataFrame:
    """The rows of a stream with a key that stand, with its columns, at one Delta `version` or now."""
    rows = delta.read(spark, lake.standing(stream), version).where(F.col(ADDED).isNotNull())
    return rows.select(*(f"`{name}`" for name in stream.columns))
