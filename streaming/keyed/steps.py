"""One step of a keyed function: one pass over state and rows, then one commit for each table.

Each table says in its own commit how far it is, the state last. Whatever kills a step, the next one begins where the
state is, and writes only the tables that are not that far yet. Below the steps are the frame that one folds, state and
rows that are due in the order of the fold, and the columns of its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache, reduce
from typing import Any

import pyarrow as pa
import sqlglot
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from sqlglot import exp

from streaming.base import AT, BATCH, ORIGIN, SIGN, WRITTEN_AT, FunctionError, from_micros, to_micros
from streaming.declare import STATE, Keyed, Stream
from streaming.keyed.fold import FOREVER, NEVER
from streaming.keyed.migration import cut_state, migrate_state
from streaming.keyed.rules import ControlRules, PinnedRules
from streaming.keyed.schemas import CopiesRows
from streaming.keyed.state_table import (
    BUCKETS,
    HASH,
    SOURCE,
    Buckets,
    StateTable,
    StoredState,
    hash_of,
    in_buckets,
    marks,
    source_number,
    spark_schema,
    state_schema,
)
from streaming.keyed.tasks import (
    MATCHING,
    STAMP,
    STREAM,
    TIME,
    WRITTEN,
    LastTimer,
    WriteTables,
    key_column,
    value_column,
)
from streaming.lake import Lake
from streaming.log import LogFiles
from streaming.operators import (
    IDENTITY,
    Batches,
    Outputs,
    Progress,
    StateCleaner,
    Written,
    create_table,
    signs,
    standing_among,
)
from streaming.spark import Analysis, guarded, lenient_session
from streaming.tables import TaskFile, delta, storage

_FIRST_DUE = "due"
"""The number of the state's table that tells its first timer, in microseconds; `FOREVER` where it has none."""

NEWEST_INSTANT = "written"
"""The number of an output that tells the newest instant in its rows, in microseconds: whoever follows them needs each
step to write a later one, also where the machine's clock was set back."""

_TIME = pa.timestamp("us", "UTC")
_COMPARISONS = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or, exp.Not),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In, exp.Is),
)


class _KeyedAnalysis(Analysis[Keyed]):
    """A keyed function over the log of its first stream, which has the columns of its keys, as Spark sees it."""

    @cached_property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The columns of each of its tables without the day, by suffix."""
        (log,) = self.inputs.values()
        return table_schemas(self.of, log)


class KeyedSteps:
    """The steps of one keyed function in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, keyed: Keyed) -> None:
        self._spark = spark if keyed.condition is None else lenient_session(spark)
        self._lake = lake
        self._keyed = keyed
        self._logs = {stream.name: LogFiles(lake, stream) for stream in keyed.streams}
        self._rules = None if keyed.rules is None else ControlRules(spark, lake, keyed.streams[0], keyed.rules)
        (first, log), *_ = self._logs.items()
        self._schemas = _KeyedAnalysis.once(spark, keyed, {first: log.columns()}).schemas
        self._outputs = Outputs(lake, keyed, begins_at=STATE)
        self._cleaner = StateCleaner()

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log.

        Nothing is followed until the log says how far the control stream was, and a history is that far.
        """
        if self._rules is None:
            yield from self._outputs.pieces(most_rows)
        elif self._rules.is_known():
            for batches in self._outputs.pieces(most_rows):
                ((stream, behind),) = batches.items()
                foreseen = self._rules.foreseen(behind)
                if foreseen:
                    yield {stream: foreseen}
                if len(foreseen) < len(behind):
                    return

    def repair(self) -> None:
        """Remove state that is of other results than there are; it follows from the log once more."""
        if self._outputs.has_other_state():
            storage.remove_folder(self._uri(STATE))

    def migrate(self) -> str | None:
        """Go on from the state of an older declaration, where there is such; returns in words what was done.

        Raises:
            FunctionError: `migrate` of the declaration failed.
        """
        self._widen_outputs()
        summary = migrate_state(self._spark, self._lake, self._keyed, self._schemas[STATE])
        cut_state(self._spark, self._lake, self._keyed, self._schemas[STATE])
        return summary

    def _widen_outputs(self) -> None:
        """Add the columns that a function which copies whole rows did not have yet; older results read null there."""
        if not isinstance(self._keyed.on_row, CopiesRows):
            return
        for suffix in self._outputs.suffixes:
            if delta.exists(self._uri(suffix)):
                delta.widen(self._uri(suffix), spark_schema(self._schemas[suffix], partitioned=True))

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow `batches` of each log, those after the state in order and without a gap.

        Raises:
            FencedError: another process has taken over.
            FunctionError: the function raised.
            RewrittenError: somebody has compacted the state meanwhile.
        """
        tables = {suffix: self._created(suffix) for suffix in (*self._outputs.suffixes, STATE)}
        opened = {suffix: delta.opened(uri) for suffix, uri in tables.items()}
        stands = {suffix: Progress.of(self._keyed, table) for suffix, table in opened.items()}
        before = stands[STATE]
        after = before.after(batches)
        behind = [suffix for suffix in self._outputs.suffixes if stands[suffix].is_behind(after)]
        if not self._anything(before, after, batches):
            for suffix in (*behind, STATE):
                self._append(tables[suffix], [], stands[suffix], after)
            written = Written(0)
        else:
            instant = _later(opened.values(), now())
            state = self._state(opened[STATE])
            folded = self._fold(_range(before, after), batches, {each: tables[each] for each in behind}, state, instant)
            rows = {
                each: self._append(tables[each], folded.outputs[each], stands[each], after, instant) for each in behind
            }
            written = Written(rows.get("", 0), *self._replace(tables[STATE], state, folded, before, after))
        self._cleaner.after_step(tables[STATE], now())
        return written

    def latest_due(self, watermark: datetime) -> datetime | None:
        """The last timer that is pending once all batches are followed and the clock is there."""
        before = self._outputs.position()
        batches = self._outputs.behind(before)
        within = replace(_range(before, before.after(batches)), until=watermark)
        rules = self._rules_of(within, batches)
        table = delta.open_table(self._uri(STATE))
        stored = StoredState.none(self._schemas[STATE]) if table is None else self._state(table).whole()
        task = LastTimer(self._keyed, to_micros(watermark), stored, rules)
        last = max((row["due"] for row in self._run(task, self._frame(within, stored, rules))), default=NEVER)
        return None if last == NEVER else from_micros(last)

    def _anything(self, before: Progress, after: Progress, batches: Batches) -> bool:
        """True if there can be anything to do: rows, or a timer that is due."""
        if self._keyed.order == "arrival" and any(batch.summary.rows for each in batches.values() for batch in each):
            return True
        if after.watermark == before.watermark or after.watermark is None:
            return False
        state = delta.open_table(self._uri(STATE))
        due = None if state is None else state.transaction_version(_FIRST_DUE)
        return self._keyed.order == "event" or (due is not None and due <= to_micros(after.watermark))

    def _state(self, table: DeltaTable) -> StateTable:
        return StateTable(table, self._uri(STATE), self._schemas[STATE], len(self._keyed.by))

    def _fold(
        self, within: _Range, batches: Batches, uris: dict[str, str], state: StateTable, written_at: int
    ) -> _FoldedFiles:
        """Write the files of the outputs at `uris`, by suffix, and of the state."""
        clock = NEVER if within.until is None else to_micros(within.until)
        schemas: dict[str, pa.Schema] = {suffix: self._schemas[suffix] for suffix in uris}
        rules, stored = self._rules_of(within, batches), state.stored(clock)
        task = WriteTables(self._keyed, clock, uris, schemas, written_at, stored, rules)
        folded = _FoldedFiles({suffix: [] for suffix in uris})
        for row in self._run(task, self._frame(within, stored, rules)):
            folded.add(row)
        return folded

    def _frame(self, within: _Range, stored: StoredState, rules: PinnedRules | None) -> DataFrame:
        streams = self._keyed.streams
        due = {each.name: _rows_due(self._spark, self._keyed, each, self._logs[each.name], within) for each in streams}
        return in_order(self._keyed, due, rules, stored.buckets, visited=bool(stored.visited))

    def _rules_of(self, within: _Range, batches: Batches) -> PinnedRules | None:
        """The rules for what is due; rows that waited see those of their own batch."""
        if self._rules is None:
            return None
        stream = self._keyed.streams[0].name
        first = within.after[stream] + 1
        if self._keyed.order == "event":
            first = min(first, self._logs[stream].first_batch(within.since, within.until, within.through[stream]))
        return self._rules.of(first, batches[stream])

    def _run(self, task: Callable[..., Iterator[Any]], frame: DataFrame) -> list[Any]:
        reports = frame.mapInArrow(task, WRITTEN).collect()
        for report in reports:
            if report["error"] is not None:
                raise FunctionError(report["error"])
        return reports

    def _append(
        self, uri: str, files: Sequence[TaskFile], at: Progress, after: Progress, written_at: int | None = None
    ) -> int:
        written = {} if written_at is None else {NEWEST_INSTANT: written_at}
        return delta.commit_files(
            uri,
            files,
            says=after.told_from(at),
            numbers={**self._numbers(at, after), **written},
            fence=lambda table: at.fence(self._keyed, table),
        )

    def _replace(
        self, uri: str, state: StateTable, folded: _FoldedFiles, at: Progress, after: Progress
    ) -> tuple[int, int]:
        """Put what was folded of the state in the place of what it was; returns the keys and bytes there are."""
        left = state.left_by(folded.buckets)
        replaced = [file.path for file in state.files if file not in left]
        due = min([folded.due, *(file.due for file in left)])
        numbers = {_FIRST_DUE: due, BUCKETS: state.buckets.count, SOURCE: source_number(self._keyed)}
        rows = delta.commit_files(
            uri,
            folded.state,
            says=after.told_from(at),
            numbers={**self._numbers(at, after), **numbers},
            fence=lambda table: at.fence(self._keyed, table),
            outdated=replaced,
        )
        size = sum(file.size for file in left) + sum(file.size for file in folded.state)
        return rows + sum(file.rows for file in left), size

    def _created(self, suffix: str) -> str:
        schema = spark_schema(self._schemas[suffix], partitioned=suffix != STATE)
        return create_table(self._lake, self._keyed, suffix, schema)

    def _numbers(self, at: Progress, after: Progress) -> dict[str, int]:
        """The progress of a table after a step, as numbers; the table stays of its generation."""
        return replace(after, generation=at.generation).numbers()

    def _uri(self, suffix: str) -> str:
        return self._lake.table(self._keyed, suffix)


@dataclass
class _FoldedFiles:
    """The files that the tasks of a step wrote: of outputs by suffix, and of the buckets of state that they folded."""

    outputs: dict[str, list[TaskFile]]
    state: list[TaskFile] = field(default_factory=list)
    buckets: set[int] = field(default_factory=set)
    due: int = FOREVER

    def add(self, report: Any) -> None:
        """Take a row of `WRITTEN`."""
        if report["bucket"] is not None:
            self.buckets.add(report["bucket"])
            self.due = min(self.due, report["due"])
        if report["path"] is not None:
            file = TaskFile(report["path"], report["size"], report["rows"], report["day"], report["statistics"])
            (self.state if report["suffix"] == STATE else self.outputs[report["suffix"]]).append(file)


@dataclass(frozen=True)
class _Range:
    """The batches that a step follows of each log, by stream: those in (after, through].

    Meanwhile the watermark, of several streams the least of theirs, goes from `since` to `until`.
    """

    after: Mapping[str, int]
    through: Mapping[str, int]
    since: datetime | None
    until: datetime | None


def _range(before: Progress, after: Progress) -> _Range:
    return _Range(before.through, after.through, before.watermark, after.watermark)


def _later(outputs: Iterable[DeltaTable], now: datetime) -> int:
    """The instant of a step in microseconds: now, or just after the newest that the open tables have."""
    newest = [table.transaction_version(NEWEST_INSTANT) for table in outputs]
    return max(to_micros(now), *(number + 1 for number in newest if number is not None), NEVER)


def _rows_due(spark: SparkSession, keyed: Keyed, stream: Stream, log: LogFiles, within: _Range) -> DataFrame:
    """The valid rows of a log that a step handles.

    Order `arrival`: those of its batches. Order `event`: those on time that the clock passes on the way, whichever
    batch brought them. A row of a later batch is never one of them, because its stamp is not below `until`. Nor does
    it take one of them back in time, as it has the same event time.
    """
    through = within.through[stream.name]
    if keyed.order == "arrival":
        return log.with_batches(spark, within.after[stream.name], through)
    if within.until is None:
        return log.none(spark)
    return log.with_times(spark, within.since, within.until, through).where(is_on_time(stream))


def is_on_time(stream: Stream) -> Column:
    """True where a row of the log came before the clock of its stream had passed it."""
    stamp = F.col("_watermark")
    return stamp.isNull() | (F.col(stream.event_time) >= stamp)


def in_order(
    keyed: Keyed,
    rows: Mapping[str, DataFrame],
    rules: PinnedRules | None = None,
    buckets: Buckets | None = None,
    *,
    visited: bool = False,
    beside: Sequence[str] = (),
) -> DataFrame:
    """The rows of each stream by the hash of their key, all of a key in one partition and there in their order.

    With `buckets`, all of a bucket are in one partition; `visited`: a row without a batch stands for each of them. Of
    `rules` with conditions, each row has those that are true of it. In order `event` a row that one of the others takes
    back is left out together with that; with `retractions` both come, and each row has its sign. The columns `beside`
    come last, as the rows have them.
    """
    if keyed.order == "event":
        rows = {stream.name: standing_among(rows[stream.name], stream) for stream in keyed.streams}
    if keyed.condition is not None and rules is not None:
        name = keyed.streams[0].name
        rows = {name: rows[name].withColumn(MATCHING, _matching(rules.history.of_all(keyed.condition)))}
    keys = [key_column(place) for place in range(len(keyed.by))]
    parts = [_rows_of(keyed, place, rows[stream.name], beside) for place, stream in enumerate(keyed.streams)]
    if visited and buckets is not None:
        parts.append(marks(parts[0].sparkSession, buckets))
    hashed = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
    time = [F.col(TIME).asc_nulls_first()] if keyed.order == "event" else []
    # One revision takes a row back and adds another one.
    origins = [*(f"{ORIGIN}{place}" for place in range(len(keyed.streams))), *([SIGN, IDENTITY] * keyed.retractions)]
    within_time = [F.col(name).asc_nulls_first() for name in (STREAM, BATCH)]
    placed = hashed.repartition(HASH) if buckets is None else in_buckets(hashed, buckets)
    ordered = placed.sortWithinPartitions(HASH, *keys, *time, *within_time, *origins)
    columns = (HASH, *keys, TIME, STAMP, BATCH, STREAM, *([SIGN] * keyed.retractions), *_matched(keyed))
    values = [name for place in range(len(keyed.streams)) for name in _values(keyed, place)]
    return ordered.select(*columns, *values, *beside)


def table_schemas(keyed: Keyed, log: DataFrame) -> dict[str, pa.Schema]:
    """The columns of each table without the day, by its suffix; `log` tells the types of the keys."""
    keys = key_schema(keyed, log)
    outputs = {
        to: pa.schema([*keys, pa.field(AT, _TIME), *schema, pa.field(WRITTEN_AT, _TIME)])
        for to, schema in keyed.output_schemas.items()
    }
    return {**outputs, STATE: state_schema(keyed, keys)}


def key_schema(keyed: Keyed, log: DataFrame) -> pa.Schema:
    """The key columns, of the types that they have in the `log`."""
    names = [f"`{name}`" for name in keyed.by]
    return to_arrow_schema(log.select(*names).schema, timezone="UTC") if names else pa.schema([])


def _rows_of(keyed: Keyed, place: int, rows: DataFrame, beside: Sequence[str]) -> DataFrame:
    """The rows of one stream: keys, what orders them, and the stream's other columns under names of their own."""
    stream = keyed.streams[place]
    keys = [F.col(f"`{name}`") for name in keyed.by]
    return rows.select(
        hash_of(keys).alias(HASH),
        *(key.alias(key_column(each)) for each, key in enumerate(keys)),
        F.col(stream.event_time).alias(TIME),
        F.col("_watermark").alias(STAMP),
        BATCH,
        F.lit(place).alias(STREAM),
        stream.source.order_of(F.col(ORIGIN)).alias(f"{ORIGIN}{place}"),
        *(column.alias(name) for name, column in _signs(keyed, stream, rows).items()),
        *_matched(keyed),
        *(F.col(f"`{column}`").alias(name) for name, column in _values(keyed, place).items()),
        *beside,
    )


def _signs(keyed: Keyed, stream: Stream, rows: DataFrame) -> dict[str, Column]:
    """The sign and the identity of each row, where the function is called for rows that are taken back."""
    added = {SIGN: F.lit(1), IDENTITY: F.lit(None).cast("string")}
    return {**added, **signs(stream, rows)} if keyed.retractions else {}


def _matched(keyed: Keyed) -> tuple[str, ...]:
    return () if keyed.condition is None else (MATCHING,)


def _matching(conditions: Sequence[str]) -> Column:
    """The places of the conditions that are true of a row."""
    if not conditions:
        return F.array().cast("array<int>")
    true = [f"if(({condition}\n), {place}, null)" for place, condition in enumerate(conditions)]
    # What is computed leniently is null where it cannot be, but not all: intervals, patterns, and some functions raise.
    if not any(map(_may_raise, conditions)):
        return F.expr(f"array_compact(array({', '.join(true)}))")
    guards = ((F.expr(each), _may_raise(condition)) for each, condition in zip(true, conditions, strict=True))
    places = (guarded(place, BATCH)["value"] if may_raise else place for place, may_raise in guards)
    return F.array_compact(F.array(*places))


@lru_cache(10_000)
def _may_raise(condition: str) -> bool:
    """False where a condition does no more than compare columns and constants, which fails for no row."""
    try:
        tree = sqlglot.parse_one(condition, dialect="spark")
    # The stack is deeper here than where the condition was found readable.
    except RecursionError:
        return True
    return not all(isinstance(node, _COMPARISONS) for node in tree.walk())


def _values(keyed: Keyed, place: int) -> dict[str, str]:
    """The columns of a stream that are no keys, by the names under which they go into the fold."""
    others = (name for name in keyed.streams[place].columns if name not in keyed.by)
    return {value_column(place, each): name for each, name in enumerate(others)}
