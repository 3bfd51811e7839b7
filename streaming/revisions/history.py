"""Histories as an operator: their steps over the log of revisions, what they are read as, and their laws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streaming.base import (
    ADDED,
    BATCH,
    DAY,
    INGESTED_AT,
    MICROSECOND,
    ORIGIN,
    REASON,
    SIGN,
    counted,
    interval,
    optional_micros,
)
from streaming.declare import STATE, VALID_FROM, VALID_TO, History, Stream
from streaming.keyed import BUCKETS, DUE, HASH, NEVER, StateTable
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, ever_rejected, head, log_schema, read_batches, read_log, retraction_of, valid
from streaming.operators import (
    ADDED_ROWS,
    MOST_PARTS,
    TAKEN_BACK,
    Batches,
    Coming,
    Effect,
    Finding,
    Law,
    LogAtVersion,
    OperatorRuntime,
    Outputs,
    PinnedTables,
    Progress,
    StateCleaner,
    SteppedRuntime,
    Written,
    built_anew,
    check_followed,
    comparable,
    create_table,
    net,
    require_table,
    runtime_of,
    said_by_sign,
    versions_now,
)
from streaming.revisions.extracts import changes_as_revisions, extracts_as_revisions
from streaming.revisions.fold import RETRACTED_TIMES, SEQUENCE, RevisionReport
from streaming.revisions.history_fold import AGES_FROM, FEW_FILES, GONE, SINCE, STANDS_FOR, Horizon, WriteHistory
from streaming.revisions.steps import (
    as_revisions,
    concerns_a_row,
    fold_revisions,
    forgotten_in,
    identity_of_revision,
    is_gone,
    sequence_of,
    stored_schema,
)
from streaming.sources import UnitTable
from streaming.tables import TaskFile, delta, storage

_COUNTS = (TAKEN_BACK, ADDED_ROWS)
FORGOTTEN = "forgotten"
"""The name of what a history has forgotten, and the number of its table that counts it."""


def since_of(history: History) -> Any:
    """The time of a revision, as a column of the log of revisions."""
    named = [] if history.since is None else [F.col(f"`{history.since}`")]
    return F.coalesce(*named, F.col(f"`{history.of.event_time}`"), F.col(INGESTED_AT))


class HistorySteps:
    """The steps of one history in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, history: History) -> None:
        self._spark = spark
        self._lake = lake
        self._history = history
        self._came = LogFiles(lake, history.of.revisions)
        self._changes = LogFiles(lake, history.of)
        self._outputs = Outputs(lake, history, begins_at=STATE)
        self._cleaner = StateCleaner()
        self._is_wide = False

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log."""
        return self._outputs.pieces(most_rows)

    def repair(self) -> None:
        """Remove state that is of other intervals than there are; it follows from the log once more."""
        if self._outputs.has_other_state():
            storage.remove_folder(self._lake.table(self._history, STATE))

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the state in order and without a gap.

        Raises:
            FencedError: another process has taken over.
            RewrittenError: somebody has compacted the state meanwhile.
        """
        own, stored = self._created()
        at, before = (Progress.of(self._history, table) for table in (own, stored))
        after = before.after(batches)
        state = StateTable(stored, stored.table_uri, self._stored, len(self._history.of.key))
        report = RevisionReport()
        followed = [batch for each in batches.values() for batch in each]
        if any(sum(batch.revised.values()) for batch in followed):
            report = self._folded(before, after, state, followed)
        rows = 0
        if at.is_behind(after):
            forgotten = (
                {} if self._history.of.forget is None else {FORGOTTEN: report.counts.forgotten + _forgotten(own)}
            )
            rows = self._commit(own, report.changes, at, after, forgotten)
        # A file of several buckets is replaced by each of them.
        replaced = {*report.replaced}
        kept = self._commit(stored, report.standing, before, after, {BUCKETS: state.buckets.count}, sorted(replaced))
        self._cleaner.after_step(stored.table_uri, now())
        left = [file for file in state.files if file.path not in replaced]
        size = sum(file.size for file in left) + sum(file.size for file in report.standing)
        return Written(rows, kept + sum(file.rows for file in left), size)

    def _commit(
        self,
        table: DeltaTable,
        files: Sequence[TaskFile],
        at: Progress,
        after: Progress,
        numbers: Mapping[str, int] | None = None,
        outdated: Sequence[str] = (),
    ) -> int:
        return delta.commit_files(
            table.table_uri,
            files,
            says=after.told_from(at),
            numbers={**replace(after, generation=at.generation).numbers(), **(numbers or {})},
            fence=lambda there: at.fence(self._history, there),
            table=table,
            outdated=outdated,
        )

    def _folded(
        self, before: Progress, after: Progress, state: StateTable, followed: Sequence[Batch]
    ) -> RevisionReport:
        history, stream = self._history, self._history.of
        rows = self._came.with_batches(self._spark, before.batch, after.batch)
        stored = state.stored(NEVER)
        task = WriteHistory(
            key=stream.key,
            values=history.values,
            track=history.track,
            is_newest_only=history.kind == 1,
            of_extracts=stream.snapshots is not None,
            as_before=stream.as_before,
            made_of=stream.made_of,
            uri=self._lake.table(history),
            intervals=to_arrow_schema(self._schema, timezone="UTC"),
            stored=stored,
            few_files=FEW_FILES,
            horizon=_horizon(stream, followed),
        )
        if stream.snapshots is None:
            frame = as_revisions(rows, stream).withColumn(SINCE, since_of(history))
            if stream.forget is not None:
                number, changes = F.col(BATCH), read_log(self._spark, self._lake, stream)
                rejected = ever_rejected(changes).where((number > before.batch) & (number <= after.batch))
                frame = frame.join(forgotten_in(rejected), ADDED, "left_anti")
        else:
            changes = self._changes.with_batches(self._spark, before.batch, after.batch)
            frame = changes_as_revisions(changes, rows, history)
        return fold_revisions(self._spark, frame, stream, stored, task)

    def _created(self) -> tuple[DeltaTable, DeltaTable]:
        history, stored = self._history, from_arrow_schema(self._stored, prefer_timestamp_ntz=True)
        # The intervals that a revision takes back are of any day, and each would be a file of its own.
        own = create_table(self._lake, history, "", self._schema, partition_by=())
        state = create_table(self._lake, history, STATE, stored, (HASH, DUE))
        if self._is_wide:
            return delta.opened(own), delta.opened(state)
        tables = delta.widened(own, self._schema), delta.widened(state, stored)
        self._is_wide = True
        return tables

    @cached_property
    def _log(self) -> StructType:
        return log_schema(self._spark, self._history.of.revisions)

    @cached_property
    def _schema(self) -> StructType:
        """The columns of its own table."""
        history = self._history
        return StructType(
            [
                *(StructField(name, self._log[name].dataType) for name in history.values),
                *(StructField(name, TimestampType()) for name in history.bounds),
                StructField(ADDED, StringType()),
                StructField(SIGN, IntegerType()),
                StructField(REASON, StringType()),
                StructField(BATCH, LongType()),
                StructField(DAY, DateType()),
            ]
        )

    @cached_property
    def _stored(self) -> pa.Schema:
        """The columns of its state."""
        forgets = self._history.of.forget is not None
        return stored_schema(
            self._spark,
            self._history.of,
            (SINCE, TimestampType()),
            (ADDED, StringType()),
            (GONE, BooleanType()),
            (RETRACTED_TIMES, IntegerType()),
            *([(AGES_FROM, TimestampType()), (STANDS_FOR, StringType())] if forgets else []),
        )


def _horizon(stream: Stream, followed: Sequence[Batch]) -> Horizon | None:
    """The age from which revisions of a stream are forgotten in some of its batches; None where none is."""
    if stream.forget is None:
        return None
    clocks = {
        batch.number: (optional_micros(batch.state.watermark), optional_micros(batch.after.watermark))
        for batch in followed
    }
    return Horizon(interval(stream.forget) // MICROSECOND, clocks)


def _forgotten(table: DeltaTable) -> int:
    """The number of revisions that the open table of a history tells as forgotten."""
    return max(table.transaction_version(FORGOTTEN) or 0, 0)


@runtime_of.register
def _(operator: History, lake: Lake) -> OperatorRuntime:
    return HistoryRuntime(operator, lake)


class HistoryRuntime(SteppedRuntime[History, HistorySteps]):
    """A history runs in steps over the log of revisions; the revisions of each key are kept from one to the next."""

    def unit_table(self, output: str = "") -> UnitTable:
        raise self._would_follow("intervals of a history")

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        forgotten = {} if self.operator.of.forget is None else {FORGOTTEN: self._forgotten}
        return {"current": self._current, "signed": self._signed, **forgotten}

    def versions(self) -> Mapping[str, int]:
        # Rows as of an older batch are told by themselves.
        return versions_now(self.lake, self.operator)

    def pin(self, spark: SparkSession) -> PinnedTables[History]:
        return PinnedTables(self.operator, self.versions())

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        return intervals_of(self._rows(spark, version), self.operator)

    def why_all(self, stream: Stream) -> str:
        return "splits an interval of any time when a revision comes late"

    def described(self, analysis: Mapping[str, Any]) -> dict[str, str]:
        history = self.operator
        begins = "each revision" if history.track is None else f"another value of {', '.join(history.track)}"
        kept = "all intervals" if history.kind == 2 else "the newest interval of each key, where it has no end"
        return {
            "results": f"{kept}; {begins} begins one, at its {history.fingerprint['since']}",
            "computed": f"from the revisions of {history.of.name}, key by key; nothing is late",
        }

    def position(self) -> str:
        table = delta.open_table(self.lake.table(self.operator))
        assert table is not None
        at = Progress.of(self.operator, table)
        newest = head(self.lake, self.operator.of)
        assert newest is not None
        forgotten = _forgotten(table)
        told = f"; {counted(forgotten, 'revision')} forgotten" if forgotten else ""
        return f"batch {at.batch:,} of {newest.number:,}{built_anew(at.generation)}{told}"

    def effects(self, spark: SparkSession, coming: Coming) -> Sequence[Effect]:
        history, own = self.operator, delta.open_table(self.lake.table(self.operator))
        if own is None:
            return ()
        keys = coming.revisions.select(*(f"`{name}`" for name in history.of.key)).distinct().persist()
        try:
            if history.of.snapshots is None and history.of.forget is None:
                return (_effect_on_intervals(history, coming, keys),)
            stands = intervals_of(self._rows(spark, own.version()), history)
            return (_effect_on_keys(history, keys, stands),)
        finally:
            keys.unpersist()

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[History], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        history = self.operator
        if pinned.versions[""] == delta.BEFORE:
            raise pinned.nothing_yet(self.lake, "followed")
        table = delta.opened(self.lake.table(history), pinned.versions[""])
        read, through = self.lake.batch_read(history.of), Progress.of(history, table).batch
        through = through if read is None else min(read, through)
        # The log of revisions has every batch that its changes have.
        came = valid(read_log(spark, self.lake, history.of.revisions)).where(F.col(BATCH) <= through)
        columns = [*(f"`{name}`" for name in (*history.values, *history.bounds)), DAY]
        stored = self.first_at(spark, pinned.versions[""]).select(*columns)
        words = "intervals: those between the revisions of each key, in the order of their times"
        changes = logs[history.of.name]
        batches: list[Batch] = []
        if history.of.snapshots is not None:
            batches = [each for each in read_batches(self.lake, history.of.revisions) if each.number <= through]
        again = intervals_again(came, history, batches, changes.rows, changes.batches)
        yield Law("history", history.name, stored, again.intervals.select(*columns), words).finding()
        if again.forgotten is not None:
            told = _told_as_forgotten(self._rows(spark, pinned.versions[""])).select(ADDED)
            words = "revisions that are forgotten: those before all that is remembered of their keys"
            yield Law("forgotten", history.name, told, again.forgotten, words).finding()

    def _current(self, spark: SparkSession) -> DataFrame:
        return intervals_of(self._read(spark), self.operator).orderBy(*(f"`{name}`" for name in self._order))

    def _signed(self, spark: SparkSession) -> DataFrame:
        changed = self._read(spark).where(F.col(SIGN) != 0)
        return changed.orderBy(BATCH, *(f"`{name}`" for name in self._order), SIGN)

    def _forgotten(self, spark: SparkSession) -> DataFrame:
        """The revisions that are in no interval, because the stream has forgotten them or the history has."""
        history = self.operator
        columns = (*(f"`{name}`" for name in history.values), VALID_FROM, REASON, BATCH)
        of_stream = ever_rejected(read_log(spark, self.lake, history.of)).withColumns(
            {VALID_FROM: since_of(history), REASON: F.concat_ws("; ", "_rejected")}
        )
        own = _told_as_forgotten(self._read(spark)).select(*columns)
        return own.unionByName(of_stream.select(*columns)).orderBy(BATCH, *(f"`{name}`" for name in self._order))

    @property
    def _order(self) -> tuple[str, ...]:
        return (*self.operator.of.key, VALID_FROM)

    def _read(self, spark: SparkSession) -> DataFrame:
        return self._rows(spark, require_table(self.lake, self.operator, "").version())

    def _rows(self, spark: SparkSession, version: int) -> DataFrame:
        """Intervals that are added and taken back at a version, up to the batch as of which the lake is read."""
        uri = self.lake.table(self.operator)
        rows = delta.read(spark, uri, version)
        if self.lake.cut is None:
            return rows
        newest = head(self.lake, self.operator.of)
        check_followed(self.operator, Progress.of(self.operator, delta.open_table(uri, version)).batch, newest)
        return rows.where(F.col(BATCH) <= (-1 if newest is None else newest.number))

    def _begun(self, spark: SparkSession) -> HistorySteps:
        steps = HistorySteps(spark, self.lake, self.operator)
        steps.repair()
        return steps


def _told_as_forgotten(signed: DataFrame) -> DataFrame:
    """The revisions that rows of a history tell as forgotten, each with its identity."""
    return signed.where(F.col(SIGN) == 0)


def intervals_of(signed: DataFrame, history: History) -> DataFrame:
    """The intervals that signed rows add and do not take back: the columns of a result, `_day` and `_reason`."""
    return net(signed, [ADDED], [BATCH]).select(*(f"`{name}`" for name in history.columns), DAY, REASON)


@dataclass(frozen=True)
class IntervalsAgain:
    """The `intervals` between some revisions that came: the columns of a result, and `_day`.

    `forgotten` are the revisions that the history has forgotten, by their identity as `_added`; None where the stream
    forgets nothing. `ignored` are all that no interval is made of, with `_reason`.
    """

    intervals: DataFrame
    forgotten: DataFrame | None
    ignored: DataFrame


def intervals_again(
    came: DataFrame,
    history: History,
    batches: Sequence[Batch],
    changes: DataFrame,
    changed: Sequence[Batch],
) -> IntervalsAgain:
    """Compute the intervals between the revisions in some rows of the log of what came, by Spark's windows alone.

    They came in `batches`; `changes` are the rows of the log of changes, which has the batches `changed`.
    """
    stream, forgotten, refused = history.of, None, refused_extracts(changed)
    identified = came.withColumn(ADDED, identity_of_revision())
    ignored = [
        _because(
            identified.where(~concerns_a_row(stream)),
            "no revision: it came before the stream had a key, or says nothing",
        )
    ]
    if stream.forget is not None:
        of_stream = forgotten_in(ever_rejected(changes))
        remembered = identified.join(of_stream, ADDED, "left_anti")
        forgotten = _forgotten_by(remembered, history, changed)
        came = remembered.join(forgotten, ADDED, "left_anti").drop(ADDED)
        ignored.append(_because(of_stream, "forgotten: the stream knew nothing of its key any more"))
        ignored.append(_because(forgotten, "forgotten: it came before all that was remembered of its key"))
    if stream.snapshots is None:
        revisions = _revisions_that_came(came, history)
    else:
        ignored.append(_because(identified.where(F.col(BATCH).isin(sorted(refused))), "its extract was refused"))
        in_order = sorted(batches, key=lambda each: each.number)
        revisions = extracts_as_revisions(came, in_order, refused, history)
    return IntervalsAgain(_expected(revisions, history), forgotten, reduce(DataFrame.unionAll, ignored))


def _because(identified: DataFrame, reason: str) -> DataFrame:
    return identified.select(ADDED, F.lit(reason).alias(REASON))


def refused_extracts(changed: Sequence[Batch]) -> frozenset[int]:
    """The batches of what came whose extract was refused, as the batches of the log of changes tell."""
    return frozenset(batch.number for batch in changed if batch.revised.get("refused"))


def _effect_on_intervals(history: History, coming: Coming, keys: DataFrame) -> Effect:
    """The effect of revisions to come on the intervals of their `keys`."""
    names = list(history.of.key)
    before, after = (
        _expected(_revisions_that_came(valid(came).join(keys, names, "left_semi"), history), history)
        for came in (coming.came, coming.came.unionByName(coming.revisions, allowMissingColumns=True))
    )
    columns = [name for name in (*history.values, *history.bounds) if name not in names]
    signed = [
        rows.select(*(f"`{name}`" for name in names), F.struct(*(comparable(rows, name) for name in columns)), sign)
        for rows, sign in ((before, F.lit(-1)), (after, F.lit(1)))
    ]
    differ = signed[0].toDF(*names, "_values", "_sign").unionAll(signed[1].toDF(*names, "_values", "_sign"))
    differ = differ.groupBy(*(f"`{name}`" for name in (*names, "_values"))).agg(F.sum("_sign").alias("_sum"))
    sums = (F.sum(F.greatest(-F.col("_sum"), F.lit(0))), F.sum(F.greatest("_sum", F.lit(0))))
    by_key = differ.where("_sum <> 0").groupBy(*(f"`{name}`" for name in names))
    changed = by_key.agg(sums[0].alias(TAKEN_BACK), sums[1].alias(ADDED_ROWS)).persist()
    try:
        row = changed.agg(F.count(F.lit(1)).alias("keys"), *(F.sum(name).alias(name) for name in _COUNTS)).first()
        first = changed.orderBy(*(f"`{name}`" for name in names)).limit(MOST_PARTS).collect()
    finally:
        changed.unpersist()
    assert row is not None
    counts = {name: row[name] or 0 for name in _COUNTS}
    return Effect(
        history.name,
        f"{said_by_sign(counts, 'interval')}, of {counted(row['keys'], 'key')}",
        {"keys": row["keys"], "taken_back": counts[TAKEN_BACK], "added": counts[ADDED_ROWS]},
        tuple(each.asDict() for each in first),
        row["keys"] - len(first),
    )


def _effect_on_keys(history: History, keys: DataFrame, stands: DataFrame) -> Effect:
    """The effect where more than the revisions of a key decide on its intervals: some of all those may change."""
    names = [f"`{name}`" for name in history.of.key]
    standing = stands.join(keys, list(history.of.key), "left_semi").count()
    first = tuple(row.asDict() for row in keys.orderBy(*names).limit(MOST_PARTS).collect())
    number = keys.count()
    summary = f"intervals of {counted(number, 'key')} would be computed anew, of which there are {standing:,} now"
    return Effect(history.name, summary, {"keys": number, "standing": standing}, first, number - len(first))


def _revisions_that_came(came: DataFrame, history: History) -> DataFrame:
    """The revisions that came, with `SINCE`, `SEQUENCE` and `GONE`, of what is the same the one that counts."""
    stream = history.of
    keys = [f"`{name}`" for name in stream.key]
    place = stream.source.order_of(F.col(ORIGIN))
    rows = came.where(concerns_a_row(stream)).withColumns({SINCE: since_of(history), GONE: is_gone(came, stream)})
    rows = rows.withColumn(SEQUENCE, sequence_of(stream))
    # Of what came twice the first counts, and of what was taken back and put back the newest.
    same = SortedBy.partitionBy(*keys, SINCE, SEQUENCE).orderBy(retraction_of(came).desc(), BATCH, place)
    return rows.withColumn("_copy", F.row_number().over(same)).where("_copy = 1")


def _forgotten_by(came: DataFrame, history: History, batches: Sequence[Batch]) -> DataFrame:
    """The identities, as `_added`, of the revisions that a history forgets, computed key by key from all that came."""
    stream = history.of
    keys = [f"`{name}`" for name in stream.key]
    after = interval(stream.forget or "") // MICROSECOND
    before = {each.number: optional_micros(each.state.watermark) for each in batches}
    behind = {each.number: optional_micros(each.after.watermark) for each in batches}
    in_order = SortedBy.partitionBy(*keys).orderBy(SINCE, SEQUENCE)
    rows = came.where(concerns_a_row(stream)).withColumns({SINCE: since_of(history), SEQUENCE: sequence_of(stream)})
    placed = rows.select(
        *keys,
        ADDED,
        BATCH,
        F.unix_micros(SINCE).alias("_time"),
        F.dense_rank().over(in_order).alias("_rank"),
        retraction_of(rows).alias("_times"),
    )

    def too_old(of_key: pa.Table) -> pa.Table:
        ages: dict[int, int] = {}
        forgotten: list[str] = []
        for number, of_batch in groupby(sorted(of_key.to_pylist(), key=itemgetter(BATCH)), itemgetter(BATCH)):
            clock = before[number]
            last = 0
            for rank in sorted(ages):
                if clock is None or ages[rank] + after >= clock:
                    break
                last = rank
            for row in of_batch:
                if row["_rank"] < last:
                    forgotten.append(row[ADDED])
                elif not row["_times"]:
                    came_at = behind[number]
                    ages.setdefault(row["_rank"], row["_time"] if came_at is None else max(row["_time"], came_at))
        return pa.table({ADDED: pa.array(forgotten, pa.string())})

    return placed.groupBy(*keys).applyInArrow(too_old, f"{ADDED} string")


def _expected(rows: DataFrame, history: History) -> DataFrame:
    """The intervals by all revisions, computed by Spark's windows alone."""
    stream = history.of
    keys = [f"`{name}`" for name in stream.key]
    rising = (SINCE, SEQUENCE)
    in_order = SortedBy.partitionBy(*keys).orderBy(*rising)
    if stream.as_before:
        rows = _with_values_that_were_not_sent(rows, history, keys, rising)
    rows = rows.withColumn(VALID_TO, F.lead(SINCE).over(in_order))
    rows = rows.where(F.col(VALID_TO).isNull() | (F.col(VALID_TO) != F.col(SINCE)))
    begins = F.lag(GONE, 1, True).over(in_order) | F.col(GONE)
    if history.track is None:
        begins = F.lit(True)
    for name in history.track or ():
        begins = begins | ~F.col(f"`{name}`").eqNullSafe(F.lag(f"`{name}`").over(in_order))
    rows = rows.withColumn("_begins", begins).withColumn("_number", F.count_if("_begins").over(in_order))
    of_one = SortedBy.partitionBy(*keys, "_number")
    rows = rows.withColumns(
        {
            VALID_FROM: F.min(SINCE).over(of_one),
            "_last": F.row_number().over(of_one.orderBy(*(F.col(name).desc() for name in rising))),
        }
    )
    rows = rows.where((F.col("_last") == 1) & ~F.col(GONE)).withColumn(DAY, F.to_date(VALID_FROM))
    return rows.where(F.col(VALID_TO).isNull()) if history.kind == 1 else rows


def _with_values_that_were_not_sent(
    rows: DataFrame, history: History, keys: list[str], rising: tuple[str, ...]
) -> DataFrame:
    """The revisions with the values of those before them where none were sent, since their key was last gone."""
    stream, made_of = history.of, history.of.made_of
    lives = F.count_if(GONE).over(SortedBy.partitionBy(*keys).orderBy(*rising))
    since = SortedBy.partitionBy(*keys, "_life").orderBy(*rising)
    unsent = F.coalesce(F.col(f"`{stream.as_before}`"), F.array().cast("array<string>"))
    values = {
        name: F.last(
            F.when(
                ~F.arrays_overlap(unsent, F.array(*map(F.lit, sorted(made_of[name])))) & ~F.col(GONE),
                F.struct(f"`{name}`"),
            ),
            ignorenulls=True,
        ).over(since)[name]
        for name in history.values
        if name not in stream.key
    }
    return rows.withColumn("_life", lives).withColumns(values)
