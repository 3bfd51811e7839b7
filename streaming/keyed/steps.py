"""One step of a keyed function: one pass over state and rows, then one commit for each table.

Each table says in its own commit how far it is, the state last. Whatever kills a step, the next one begins where the
state is, and writes only the tables that are not that far yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from streaming.base import FunctionError, from_micros, to_micros
from streaming.declare import STATE, Keyed
from streaming.keyed.fold import FOREVER, NEVER
from streaming.keyed.frame import Range, in_order, rows_due, spark_schema, table_schemas
from streaming.keyed.migration import cut_state, migrate_state
from streaming.keyed.rules import ControlRules, PinnedRules
from streaming.keyed.schemas import CopiesRows
from streaming.keyed.state_table import BUCKETS, SOURCE, StateTable, StoredState, source_number
from streaming.keyed.tasks import WRITTEN, LastTimer, WriteTables
from streaming.lake import Lake
from streaming.log import LogFiles
from streaming.operators import Batches, Outputs, Progress, StateCleaner, Written, create_table
from streaming.spark import Analysis, lenient_session
from streaming.tables import TaskFile, delta, storage

_FIRST_DUE = "due"
"""The number of the state's table that tells its first timer, in microseconds; `FOREVER` where it has none."""

NEWEST_INSTANT = "written"
"""The number of an output that tells the newest instant in its rows, in microseconds: whoever follows them needs each
step to write a later one, also where the machine's clock was set back."""


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
        self, within: Range, batches: Batches, uris: dict[str, str], state: StateTable, written_at: int
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

    def _frame(self, within: Range, stored: StoredState, rules: PinnedRules | None) -> DataFrame:
        streams = self._keyed.streams
        due = {each.name: rows_due(self._spark, self._keyed, each, self._logs[each.name], within) for each in streams}
        return in_order(self._keyed, due, rules, stored.buckets, visited=bool(stored.visited))

    def _rules_of(self, within: Range, batches: Batches) -> PinnedRules | None:
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


def _range(before: Progress, after: Progress) -> Range:
    return Range(before.through, after.through, before.watermark, after.watermark)


def _later(outputs: Iterable[DeltaTable], now: datetime) -> int:
    """The instant of a step in microseconds: now, or just after the newest that the open tables have."""
    newest = [table.transaction_version(NEWEST_INSTANT) for table in outputs]
    return max(to_micros(now), *(number + 1 for number in newest if number is not None), NEVER)
