"""Reads of the event log: its rows, the valid ones, the dead letters; for steps, only of files that may hold them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache, partial, reduce
from operator import and_, or_
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from streaming.base import (
    DAY,
    FIRST_INSTANT,
    INGESTED_AT,
    LAST_MILLISECOND,
    ORIGIN,
    STAMP,
    WARNED,
    DeclarationError,
    F,
    LogError,
    constant,
    date_literal,
    literal,
)
from streaming.declare import Stream, log_columns
from streaming.lake import Lake, Sample
from streaming.log.batches import check_as_of, dropped_before, dropped_rows, read_batches
from streaming.sources import UnitTable, unit_table_of
from streaming.tables import (
    EVER,
    FileIndex,
    Keys,
    TableAbout,
    TimeRange,
    arrow_schema_of,
    at_most,
    delta,
    have_common,
    merged,
    occupied,
    read_files,
    rows_among,
    storage,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REPAIRS = "repairs"
"""Field of `_origin`: the batch of the rejected row that a row repairs; null for the others."""
RETRACTION, RETRACTS = "retraction", "retracts"
"""Fields of `_origin` that a log has from its first retraction on, null for the rows that came.

How often the row was taken back or put back, so that odd numbers take it back, and the batch in which it came.
"""
RETRACTIONS = "retractions"
"""The number that the log's table keeps once rows of it were taken back: the newest batch that did."""
RETRACTED_FROM = "retracted_from"
"""The number that it keeps besides: the first batch that did."""
OF_CHANGES = (RETRACTION, RETRACTS, "change", "identity")
"""The fields of `_origin` that tell what a row takes back, or that it may be taken back."""
OF_LOGS = (REPAIRS, *OF_CHANGES)
"""The fields of `_origin` that no source gives."""
_BATCH = "_batch"
_DAY_FOLDER = re.compile(r"(?:^|/)_day=(\d{4}-\d\d-\d\d)/")
_MOST_FILES, _MOST_RANGES = 10_000, 32
"""The most files whose ranges of rows are remembered, and the most ranges of each, so that memory is bounded."""
_LARGE = 8 * 2**20
"""Bytes of a file of which it pays to look for the part that is needed."""


def about_log(stream: Stream) -> TableAbout:
    """The meaning of the columns of the stream's log, and which have bounds."""
    return TableAbout.of(log_columns(stream), bounded=(stream.event_time, _BATCH))


def read_log(spark: SparkSession, lake: Lake, stream: Stream, version: int | None = None) -> DataFrame:
    """The log as a batch frame, at one Delta `version` or the newest, up to the batch as of which the lake is read.

    Raises:
        LogError: nothing has been ingested yet, or it cannot be told any more what there was by that batch.
    """
    require_log(lake, stream)
    check_as_of(lake, stream)
    rows, newest = delta.read(spark, lake.log(stream), version), lake.batch_read(stream)
    if lake.sample is not None:
        rows = rows.where(F.col("_day").isNull() | _in_sample(lake.sample))
    return rows if newest is None else rows.where(F.col("_batch") <= newest)


def require_log(lake: Lake, stream: Stream) -> None:
    """Refuse where nothing has been ingested yet.

    Raises:
        LogError: with the command that does.
    """
    uri = lake.log(stream)
    if not delta.exists(uri):
        raise LogError(
            f"stream {stream.name!r} has no event log at {uri!r} yet; run `tidemark run {stream.name}` first, or "
            "point TIDEMARK_HOME to the lake that has it."
        )


def valid(log: DataFrame) -> DataFrame:
    """The valid rows."""
    return log.where(F.col("_day").isNotNull())


def rejected(log: DataFrame) -> DataFrame:
    """The rejected rows that were not repaired: the dead letters, with payload and reasons."""
    origin = F.col("_origin")
    repairs = repaired(log).select(place(origin).alias("_place"), origin[REPAIRS].alias("_repaired_batch"))
    same = [place(origin).eqNullSafe(F.col("_place")), F.col("_batch") == F.col("_repaired_batch")]
    return ever_rejected(log).join(repairs, same, "left_anti")


def ever_rejected(log: DataFrame) -> DataFrame:
    """Every row that was rejected when it came, also those that were repaired since."""
    return log.where(F.col("_day").isNull() & F.col("_rejected").isNotNull())


def warned(log: DataFrame, stream: Stream) -> DataFrame:
    """The valid rows that break a rule which only warns: batch, the names of these rules, the columns, and origin."""
    own = [f"`{name}`" for name in stream.columns if name in log.columns]
    names = F.col(WARNED) if WARNED in log.columns else F.lit(None).cast("array<string>")
    return log.withColumn(WARNED, names).where(F.col(WARNED).isNotNull()).select(_BATCH, WARNED, *own, ORIGIN)


def repaired(log: DataFrame) -> DataFrame:
    """The valid rows that repair a rejected one; `_origin.repairs` is the batch of that one."""
    return came(valid(log)).where(F.col("_origin")[REPAIRS].isNotNull())


def can_retract(rows: DataFrame) -> bool:
    """True for rows of a log of which some may take back others."""
    return ORIGIN in rows.columns and RETRACTION in _fields(rows)


def came(log: DataFrame) -> DataFrame:
    """The rows that came, without those by which somebody took back others or put them back."""
    return log.where(F.col(ORIGIN)[RETRACTION].isNull()) if can_retract(log) else log


def retraction_of(rows: DataFrame) -> Column:
    """The number of a row of a log among those of its identity: 0 for the one that came, odd where it takes it back."""
    return F.coalesce(F.col(ORIGIN)[RETRACTION], F.lit(0)) if can_retract(rows) else F.lit(0)


def sign_of_row(rows: DataFrame) -> Column:
    """The sign of a row: -1 where it takes another one back, 1 for the others."""
    return F.when(retraction_of(rows) % 2 == 1, -1).otherwise(1)


def identity_of_row(rows: DataFrame) -> Column:
    """The identity of a row: where the row came that it is, takes back or puts back."""
    retracts = F.col(ORIGIN)[RETRACTS] if can_retract(rows) else F.lit(None).cast("bigint")
    own = [F.col(ORIGIN)[name].alias(name) for name in _fields(rows) if name not in OF_CHANGES]
    return F.struct(F.coalesce(retracts, F.col(_BATCH)).alias("batch"), *own)


def standing(log: DataFrame) -> DataFrame:
    """The rows of a log, of valid ones those that nobody has taken back; the newest row of each identity tells."""
    if not can_retract(log):
        return log
    taken = (
        valid(log)
        .where(F.col(ORIGIN)[RETRACTION].isNotNull())
        .select(F.to_json(identity_of_row(log)).alias("_identity"), F.col(ORIGIN)[RETRACTION].alias("_number"))
    )
    back = taken.groupBy("_identity").agg(F.max("_number").alias("_number")).where("_number % 2 = 1").drop("_number")
    named = came(log).withColumn("_identity", F.to_json(identity_of_row(log)))
    of_valid = F.when(F.col("_day").isNotNull(), named["_identity"])
    return named.join(back, of_valid == back["_identity"], "left_anti").drop("_identity")


def newest_retraction(lake: Lake, stream: Stream) -> int | None:
    """The newest batch that took rows of the stream back or put them back; None where none did. Reads no commit."""
    table = delta.open_table(lake.log(stream.revisions))
    return None if table is None else table.transaction_version(RETRACTIONS)


def first_retraction(lake: Lake, stream: Stream) -> int | None:
    """The first batch that took rows of the stream back; None where none did.

    Commits are read only of a log whose table keeps the newest such batch alone, as earlier versions wrote it.
    """
    table = delta.open_table(lake.log(stream.revisions))
    first = None if table is None else table.transaction_version(RETRACTED_FROM)
    if table is None or first is not None or table.transaction_version(RETRACTIONS) is None:
        return first
    return min((batch.number for batch in read_batches(lake, stream.revisions) if batch.retraction), default=None)


def _fields(rows: DataFrame) -> list[str]:
    origin = rows.schema[ORIGIN].dataType
    return list(getattr(origin, "names", ()))


@unit_table_of.register
def _(of: Stream, lake: Lake, side: str) -> UnitTable:
    if side:
        raise DeclarationError(f"Table({of.name!r}, side={side!r}): a stream has no side outputs; leave side out.")
    of = of.revisions
    if newest_retraction(lake, of) is not None:
        raise DeclarationError(
            f"Table({of.name!r}) would follow rows of stream {of.name!r}, of which some were taken back",
            "follow what is current of a view of it: Table(<view>, what='current').",
            stream=of.name,
        )
    return UnitTable(
        uri=lake.log(of),
        unit="_batch",
        unit_name="batch",
        written=INGESTED_AT,
        at=of.event_time,
        made_by=f"run `tidemark run {of.name}` first, so that it has rows",
        order=(ORIGIN,),
        dated=True,
        instants=False,
        dropped=partial(_dropped, lake, of),
    )


def _dropped(lake: Lake, stream: Stream, log: DeltaTable) -> dict[int, int]:
    """Per batch the valid rows that have left an open log."""
    return {batch: gone["valid"] for batch, gone in dropped_rows(lake, stream, dropped_before(log)).items()}


def origin_type(stream: Stream) -> str:
    """The type of `_origin` in the log, as Spark DDL."""
    return f"{stream.origin.removesuffix('>')}, {REPAIRS}: bigint>"


def with_origin(taken: DataFrame) -> DataFrame:
    """The rows that a source gives, with the whole `_origin` of each: none of them repairs one."""
    return taken.withColumn("_origin", F.col("_origin").withField(REPAIRS, F.lit(None).cast("bigint")))


def place(origin: Column) -> Column:
    """The part of `_origin` that a row and its repair have in common, for use with the batch of the original."""
    return origin.dropFields(REPAIRS, RETRACTION, RETRACTS)


def _in_sample(sample: Sample) -> Column:
    """True for the valid rows of a log that a sample has."""
    conditions = [F.col("_day").isNotNull()]
    if sample.since is not None:
        conditions.append(F.col("_day") >= date_literal(sample.since))
    if sample.where is not None:
        conditions.append(F.coalesce(F.expr(f"({sample.where}\n)"), F.lit(False)))
    return reduce(and_, conditions)


class LogFiles:
    """The files of one stream's log. It is kept for as long as steps go on, so that each looks at new commits only."""

    def __init__(self, lake: Lake, stream: Stream) -> None:
        self._uri = lake.log(stream)
        self._time = stream.event_time
        self._index = FileIndex(self._uri, stream.event_time)
        self._sample = lake.sample
        # A file never changes, so its times are read once.
        self._ranges_of = lru_cache(_MOST_FILES)(self._read_ranges)

    def with_times(
        self,
        spark: SparkSession,
        since: datetime | None,
        before: datetime | None,
        through: int,
        after: int = -1,
    ) -> DataFrame:
        """The valid rows with event times in [since, before), null for no bound, of the batches in (after, through]."""
        table = self._index.refresh()
        paths = self._index.with_times(since or FIRST_INSTANT, before or LAST_MILLISECOND, through)
        bounds = []
        if since is not None:
            bounds.append(F.col(self._time) >= constant(since, _BATCH))
        if before is not None:
            bounds.append(F.col(self._time) < constant(before, _BATCH))
        return self._valid(self._read(spark, table, paths), after, through, *bounds)

    def first_batch(self, since: datetime | None, before: datetime | None, through: int) -> int:
        """No row with an event time between the two, of the batches up to `through`, is of an earlier batch."""
        self._index.refresh()
        paths = self._index.with_times(since or FIRST_INSTANT, before or LAST_MILLISECOND, through)
        return self._index.first_batch(paths, through)

    def with_batches(self, spark: SparkSession, after: int, through: int) -> DataFrame:
        """The valid rows of the batches in (after, through]."""
        table = self._index.refresh()
        paths = self._index.with_batches(after, through)
        rows = self._read(spark, table, paths)
        if all(self._index.has_only(path, after, through) for path in paths):
            # Of very many rows it costs a fifth to ask each for its batch.
            return rows.where(F.col("_day").isNotNull() if self._sample is None else _in_sample(self._sample))
        return self._valid(rows, after, through)

    def rows(
        self,
        columns: Sequence[str],
        after: int,
        through: int,
        most: int,
        keys: Keys | None = None,
        times: TimeRange = EVER,
    ) -> pa.Table | None:
        """Columns of the valid rows of the batches in (after, through], of all or those that have one of `keys`.

        Files without a row of some `times` are left out. It starts no Spark. None where `rows_among` gives none, or
        files alone do not tell the batches of their rows, as those of a sample or of other partitions do not.
        """
        table = self._index.refresh()
        paths = self._index.with_ranges([times], after, through)
        partitions = delta.partitions(table)
        is_told = partitions in ([], [DAY]) and all(self._index.has_only(path, after, through) for path in paths)
        if self._sample is not None or not is_told:
            return None
        schema = arrow_schema_of(table)
        # Where the day is no partition, it tells of each row whether that is valid.
        told = () if partitions else (DAY,)
        wanted = pa.schema([schema.field(name) for name in dict.fromkeys((*columns, *told))])
        rows = rows_among(self._storage, [*map(self._index.data_file, paths)], wanted, keys, most)
        if rows is None or not told:
            return rows
        return rows.filter(rows[DAY].is_valid()).select(columns)

    def has_rows(self, after: int, through: int) -> bool:
        """True if there may be valid rows of the batches in (after, through]; a heartbeat has none."""
        self._index.refresh()
        return bool(self._index.with_batches(after, through))

    def occupied(self, after: int, through: int, width: timedelta) -> list[TimeRange]:
        """Ranges of whole `width`s that hold the event times of all valid rows of the batches in (after, through].

        It reads the columns that tell, and starts no Spark.
        """
        self._index.refresh()
        ranges: list[TimeRange] = []
        for path in self._index.with_batches(after, through):
            if self._index.has_only(path, after, through):
                ranges += self._ranges_of(path, width)
            else:
                ranges += self._read_ranges(path, width, (after, through))
        return merged(ranges)

    def within(
        self, spark: SparkSession, ranges: Sequence[TimeRange], through: int, width: timedelta, after: int = -1
    ) -> DataFrame | None:
        """Valid rows of the batches in (after, through], among them all with event times in one of the merged `ranges`.

        Only files with a row in the same whole `width` as one of the ranges are read: the bounds of a file with one
        late row are far apart, and nearly all of what is between them is empty. Of a large file, which compaction made
        of neighbours in time, Spark skips the pages without such a row. None where there is no such file.
        """
        table = self._index.refresh()
        paths = self._near(ranges, through, width, after)
        small = [path for path in paths if self._index.size(path) < _LARGE]
        large = [path for path in paths if self._index.size(path) >= _LARGE]
        parts = [self._read(spark, table, small)] if small else []
        if large:
            parts.append(read_files(spark, table, self._uri, large).where(self._is_in(ranges)))
        return self._valid(reduce(lambda one, other: one.unionAll(other), parts), after, through) if parts else None

    def rows_within(self, ranges: Sequence[TimeRange], through: int, width: timedelta) -> int | None:
        """The number of rows in the files that `within` reads of batches up to `through`; None where nobody knows."""
        self._index.refresh()
        return self._index.rows(self._near(ranges, through, width, -1))

    def count_since(self, since: datetime, through: int, *, late: bool = True) -> int:
        """The number of valid rows of the batches up to `through` with event times from `since` on; starts no Spark.

        `late`: with those whose event time is before their stamp.
        """
        self._index.refresh()
        paths = self._index.with_times(since, LAST_MILLISECOND, through)
        from pyarrow import dataset

        at, stamp = dataset.field(self._time), dataset.field(STAMP)
        wanted = (at >= since) & (dataset.field(_BATCH) <= through)
        if not late:
            wanted &= stamp.is_null() | (at >= stamp)
        return int(dataset.dataset(list(paths), filesystem=self._storage, format="parquet").count_rows(filter=wanted))

    def rejected(self, spark: SparkSession, after: int, through: int) -> DataFrame:
        """The rows of the batches in (after, through] that were rejected, also those that were repaired since."""
        table = self._index.refresh()
        paths = self._index.with_batches(after, through, dated=False)
        batch = F.col(_BATCH)
        newer, older = batch > constant(after, _BATCH), batch <= constant(through, _BATCH)
        return ever_rejected(self._read(spark, table, paths)).where(newer & older)

    def columns(self) -> str:
        """The log's columns as Delta writes them down: the same text for the same columns."""
        return str(self._index.refresh().schema().to_json())

    def can_retract(self) -> bool:
        """True if rows of the log may take back others."""
        return self._index.refresh().transaction_version(RETRACTIONS) is not None

    def dropped_before(self) -> date | None:
        """The day before which the log had no valid row any more when it was last read; None where none was dropped."""
        return dropped_before(self._index.table)

    def none(self, spark: SparkSession) -> DataFrame:
        """No row, with the log's columns."""
        return read_files(spark, self._index.refresh(), self._uri, ())

    def _read(self, spark: SparkSession, table: DeltaTable, paths: Sequence[str]) -> DataFrame:
        """The rows of some files, for filters whose bounds are no literals."""
        if self._sample is not None and self._sample.since is not None:
            days = {path: _DAY_FOLDER.search(path) for path in paths}
            paths = [path for path, day in days.items() if day is None or day[1] >= str(self._sample.since)]
        return read_files(spark, table, self._uri, paths, skip_pages=False)

    def _near(self, ranges: Sequence[TimeRange], through: int, width: timedelta, after: int) -> list[str]:
        """The files with a row in the same whole `width` as one of the `ranges`."""
        paths = self._index.with_ranges(ranges, after, through)
        return [path for path in paths if have_common(ranges, self._ranges_of(path, width))]

    def _is_in(self, ranges: Sequence[TimeRange]) -> Column:
        """True where the event time is in one of the merged `ranges` or, where these are many, between close ones.

        Literals, which cost a compilation at each step, are the only bounds by which Spark skips parts of a file.
        """
        at = F.col(self._time)
        few = at_most(ranges, _MOST_RANGES)
        return reduce(or_, (at.between(literal(start), literal(end)) for start, end in few))

    @cached_property
    def _storage(self) -> fs.FileSystem:
        return storage.below(self._uri)

    def _read_ranges(
        self, path: str, width: timedelta, batches: tuple[int, int] | None = None
    ) -> tuple[TimeRange, ...]:
        return tuple(at_most(occupied(self._storage, path, self._time, width, batches), _MOST_RANGES))

    def _valid(self, rows: DataFrame, after: int, through: int, *conditions: Column) -> DataFrame:
        batch = F.col(_BATCH)
        if self._sample is not None:
            conditions = (*conditions, _in_sample(self._sample))
        newer, older = batch > constant(after, _BATCH), batch <= constant(through, _BATCH)
        # In one step, as Spark analyzes the frame after each.
        return rows.where(reduce(and_, (newer, older, *conditions), F.col("_day").isNotNull()))
