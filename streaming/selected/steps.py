"""One step of a selection: one pass over the new rows, then one commit for each output.

Each table says in its own commit how far it is, the selection's own last. Whatever kills a step, the next one begins
where that one is, and writes only the tables that are not that far yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming.base import FunctionError, to_micros
from streaming.declare import Selected
from streaming.lake import Lake
from streaming.log import LogFiles
from streaming.operators import Batches, FilterCounts, Outputs, Progress, Written, create_table
from streaming.selected.frame import columns_by_output, outputs_of, select_all, spark_schema, table_schemas
from streaming.selected.tasks import WRITTEN, WriteOutputs, of_report
from streaming.spark import remembered
from streaming.tables import TaskFile, delta


class SelectedSteps:
    """The steps of one selection in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, selected: Selected) -> None:
        self._spark = spark
        self._lake = lake
        self._selected = selected
        self._logs = {stream.name: LogFiles(lake, stream) for stream in selected.reads}
        key = ("selected", selected, tuple(log.columns() for log in self._logs.values()))
        self._schemas = remembered(spark, key, self._table_schemas)
        self._outputs = Outputs(lake, selected)
        self._ready: set[str] = set()

    def _table_schemas(self) -> dict[str, pa.Schema]:
        nothing = select_all(self._selected, {name: log.none(self._spark) for name, log in self._logs.items()})
        return table_schemas(self._selected, columns_by_output(self._selected, nothing))

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log."""
        return self._outputs.pieces(most_rows)

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the selection's own table in order and without a gap.

        Raises:
            FencedError: another process has taken over.
            FunctionError: the function raised.
        """
        uris = {suffix: self._created(suffix) for suffix in self._outputs.suffixes}
        stands = {suffix: self._outputs.at(suffix) for suffix in self._outputs.suffixes}
        before = stands[""]
        after = before.after(batches)
        behind = [to for to in self._outputs.suffixes if stands[to].is_behind(after)]
        files: dict[str, list[TaskFile]] = {to: [] for to in behind}
        counts = dict.fromkeys(behind, FilterCounts())
        if any(batch.summary.rows > batch.rejected for each in batches.values() for batch in each):
            task = self._task({to: uris[to] for to in behind}, after, now())
            for to, report in self._run(task, before, after):
                if isinstance(report, TaskFile):
                    files[to].append(report)
                else:
                    counts[to] += report
        rows = {to: self._commit(uris[to], files[to], counts[to], stands[to], after) for to in behind}
        return Written(rows.get("", 0))

    def _task(self, uris: Mapping[str, str], after: Progress, now: datetime) -> WriteOutputs:
        several = len(self._selected.reads) > 1
        return WriteOutputs(
            self._selected.name,
            outputs_of(self._selected),
            uris,
            {to: self._schemas[to] for to in uris},
            self._selected.function,
            after.batch if several else None,
            to_micros(now),
        )

    def _run(
        self, task: WriteOutputs, before: Progress, after: Progress
    ) -> Iterator[tuple[str, TaskFile | FilterCounts]]:
        rows = {
            name: log.with_batches(self._spark, before.through[name], after.through[name])
            for name, log in self._logs.items()
        }
        reports = select_all(self._selected, rows).mapInArrow(task, WRITTEN).collect()
        for report in reports:
            if report["error"] is not None:
                raise FunctionError(report["error"])
        for report in reports:
            yield report["suffix"], of_report(report)

    def _commit(self, uri: str, files: Sequence[TaskFile], counts: FilterCounts, at: Progress, after: Progress) -> int:
        there = replace(after, counts=at.counts + counts, generation=at.generation)
        metadata = {
            "through": dict(after.through),
            "after": dict(at.through),
            "rows_in": counts.rows_in,
            "kept": counts.kept,
            "removed": counts.removed,
        }

        def fence(table: DeltaTable) -> None:
            at.fence(self._selected, table)

        if not files:
            delta.note(uri, says=metadata, numbers=there.numbers(), fence=fence)
            return 0
        return delta.commit_files(uri, files, says=metadata, numbers=there.numbers(), fence=fence)

    def _created(self, suffix: str) -> str:
        uri = self._lake.table(self._selected, suffix)
        if suffix not in self._ready:
            schema = spark_schema(self._schemas[suffix])
            create_table(self._lake, self._selected, suffix, schema)
            # Where all columns are selected, one may have been added to the stream since.
            delta.widen(uri, schema)
            self._ready.add(suffix)
        return uri
