"""One step of a keyed function: one pass over state and rows, then one commit for each table.

Each table says in its own commit how far it is, the state last. Whatever kills a step, the next one begins where the
state is, and writes only the tables that are not that far yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from streaming.base import FunctionError, from_micros, optional_micros, to_micros, utc_now
from streaming.declare import STATE, Keyed
from streaming.keyed.frame import Range, in_order, rows_due
from streaming.keyed.key import FOREVER, NEVER
from streaming.keyed.schemas import no_rows, spark_schema, table_schemas
from streaming.keyed.source_text import SOURCE, source_number
from streaming.keyed.tasks import WRITTEN, LastTimer, WriteTables
from streaming.lake import Lake
from streaming.log import Batch, LogFiles
from streaming.operators import Written, clean_state, create_table
from streaming.tables import TaskFile, delta, storage
from streaming.views import Position

_FIRST_DUE = "due"
"""The number of the state's table that tells its first timer, in microseconds; `FOREVER` where it has none."""

NEWEST_INSTANT = "written"
"""The number of an output that tells the newest instant in its rows, in microseconds: whoever follows them needs each
step to write a later one, also where the machine's clock was set back."""

_CLEANED_EVERY = timedelta(minutes=10)


class KeyedSteps:
    """The steps of one keyed function in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, keyed: Keyed, log: LogFiles) -> None:
        self._spark = spark
        self._lake = lake
        self._keyed = keyed
        self._log = log
        self._schemas = table_schemas(keyed, log.none(spark))
        # The results say last how far they are: readers go by them.
        self._outputs = [*(suffix for suffix in keyed.output_schemas if suffix), ""]
        self._cleaned_at = utc_now()

    def position(self) -> Position:
        """The batch after which the next step begins: that of the state."""
        return Position.of(self._open(STATE))

    def next_end(self) -> int | None:
        """The batch at which the next step must end, because a table is there already; None where none is ahead."""
        at = self.position().batch
        ahead = [Position.of(self._open(suffix)).batch for suffix in self._outputs]
        return min((batch for batch in ahead if batch > at), default=None)

    def repair(self) -> None:
        """Remove state that is of other results than there are; it follows from the log once more."""
        state, results = self.position(), Position.of(self._open(""))
        if state.batch > results.batch or (state.batch >= 0 and state.generation != results.generation):
            storage.remove_folder(self._uri(STATE))

    def step(self, batches: Sequence[Batch], now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the position in order and without a gap.

        Raises:
            FencedError: another process has taken over.
            FunctionError: the function raised.
        """
        before = self.position()
        after = before.after(batches[-1])
        tables = {suffix: self._created(suffix) for suffix in (*self._outputs, STATE)}
        opened = {suffix: DeltaTable(storage.location(uri)) for suffix, uri in tables.items()}
        stands = {suffix: Position.of(table) for suffix, table in opened.items()}
        behind = [suffix for suffix in self._outputs if stands[suffix].batch < after.batch]
        if not self._anything(before, after, batches):
            for suffix in (*behind, STATE):
                self._append(tables[suffix], [], stands[suffix], after)
            written = Written(0)
        else:
            instant = _later(opened.values(), now())
            files, due = self._fold(before, after, {each: tables[each] for each in (*behind, STATE)}, instant)
            rows = {each: self._append(tables[each], files[each], stands[each], after, instant) for each in behind}
            kept = self._replace(tables[STATE], files[STATE], stands[STATE], after, due)
            written = Written(rows.get("", 0), kept, delta.size(tables[STATE]))
        if now() - self._cleaned_at >= _CLEANED_EVERY:
            self._cleaned_at = now()
            clean_state(tables[STATE], now())
        return written

    def latest_due(self, through: int, watermark: datetime) -> datetime | None:
        """The last timer that is pending once the batches up to `through` are followed and the clock is there."""
        before = self.position()
        within = Range(before.batch, through, before.watermark, watermark)
        task = LastTimer(self._keyed, to_micros(watermark))
        last = max((row["due"] for row in self._run(task, self._frame(within, before))), default=NEVER)
        return None if last == NEVER else from_micros(last)

    def _anything(self, before: Position, after: Position, batches: Sequence[Batch]) -> bool:
        """Whether there can be anything to do: rows, or a timer that is due."""
        if self._keyed.order == "arrival" and any(batch.summary.rows for batch in batches):
            return True
        if after.watermark == before.watermark or after.watermark is None:
            return False
        state = self._open(STATE)
        due = None if state is None else state.transaction_version(_FIRST_DUE)
        return self._keyed.order == "event" or (due is not None and due <= to_micros(after.watermark))

    def _fold(
        self, before: Position, after: Position, uris: dict[str, str], written_at: int
    ) -> tuple[dict[str, list[TaskFile]], int]:
        """Write the files of the tables at `uris`, by suffix; returns them, and the first timer that is pending."""
        clock = optional_micros(after.watermark)
        schemas: dict[str, pa.Schema] = {suffix: self._schemas[suffix] for suffix in uris}
        task = WriteTables(self._keyed, NEVER if clock is None else clock, uris, schemas, written_at)
        within = Range(before.batch, after.batch, before.watermark, after.watermark)
        files: dict[str, list[TaskFile]] = {suffix: [] for suffix in uris}
        due = FOREVER
        for row in self._run(task, self._frame(within, before)):
            files[row["suffix"]].append(TaskFile(row["path"], row["size"], row["rows"], row["day"], row["statistics"]))
            due = min(due, row["due"])
        return files, due

    def _frame(self, within: Range, before: Position) -> DataFrame:
        if before.batch >= 0:
            state = delta.read(self._spark, self._uri(STATE))
        else:
            state = no_rows(self._spark, self._schemas[STATE])
        return in_order(self._keyed, state, rows_due(self._spark, self._keyed, self._log, within))

    def _run(self, task: Callable[..., Iterator[Any]], frame: DataFrame) -> list[Any]:
        reports = frame.mapInArrow(task, WRITTEN).collect()
        for report in reports:
            if report["error"] is not None:
                raise FunctionError(report["error"])
        return reports

    def _append(
        self, uri: str, files: Sequence[TaskFile], at: Position, after: Position, written_at: int | None = None
    ) -> int:
        written = {} if written_at is None else {NEWEST_INSTANT: written_at}
        return delta.commit_files(
            uri,
            files,
            metadata=_metadata(at, after),
            numbers={**_numbers(at, after), **written},
            fence=lambda table: at.fence(self._keyed, table),
        )

    def _replace(self, uri: str, files: Sequence[TaskFile], at: Position, after: Position, due: int) -> int:
        return delta.commit_files(
            uri,
            files,
            metadata=_metadata(at, after),
            numbers={**_numbers(at, after), _FIRST_DUE: due, SOURCE: source_number(self._keyed)},
            fence=lambda table: at.fence(self._keyed, table),
            mode="overwrite",
        )

    def _created(self, suffix: str) -> str:
        schema = spark_schema(self._schemas[suffix], partitioned=suffix != STATE)
        return create_table(self._lake, self._keyed, suffix, schema)

    def _open(self, suffix: str) -> DeltaTable | None:
        return delta.open_table(self._uri(suffix))

    def _uri(self, suffix: str) -> str:
        return self._lake.table(self._keyed, suffix)


def _metadata(at: Position, after: Position) -> dict[str, int]:
    return {"through": after.batch, "after": at.batch}


def _numbers(at: Position, after: Position) -> dict[str, int]:
    """How far a table is after a step; it stays of its generation."""
    return replace(after, generation=at.generation).numbers()


def _later(outputs: Iterable[DeltaTable], now: datetime) -> int:
    """The instant of a step in microseconds: now, or just after the newest that the open tables have."""
    newest = [table.transaction_version(NEWEST_INSTANT) for table in outputs]
    return max(to_micros(now), *(number + 1 for number in newest if number is not None), NEVER)
