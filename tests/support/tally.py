"""An operator of another kind than windows: it tells that nothing above the operators' contract knows of views.

It appends to one table how many rows each batch of its streams' logs brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.declare.operator import Operator, TableSpec
from streaming.declare.stream import Stream
from streaming.lake.lake import Lake
from streaming.log.batches import Batch, batches_after
from streaming.operators.declaration import check_declaration, create_table
from streaming.operators.runtime import Finding, LogAtVersion, OperatorRuntime, Step, Written, runtime_of
from streaming.tables import delta


@dataclass(frozen=True)
class Tally(Operator):
    """Rows per batch of the streams `of`."""

    name: str
    of: tuple[Stream, ...]
    description: str = "Rows per batch."

    @property
    def reads(self) -> tuple[Stream, ...]:
        return self.of

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("", self.description),)

    @property
    def fingerprint(self) -> dict[str, Any]:
        return {"streams": [stream.name for stream in self.of]}


@runtime_of.register
def _(operator: Tally, lake: Lake) -> OperatorRuntime:
    return TallyRuntime(operator, lake)


class TallyRuntime(OperatorRuntime):
    """One step follows all logs at once; how far it is in each is kept as a number of its table."""

    operator: Tally

    def __init__(self, operator: Tally, lake: Lake) -> None:
        self.operator = operator
        self.lake = lake

    def check(self) -> None:
        check_declaration(self.lake, self.operator)

    def steps(self, spark: SparkSession, now: Callable[[], datetime]) -> Iterator[Step]:
        table = delta.open_table(self.lake.table(self.operator))
        behind: dict[str, Sequence[Batch]] = {}
        for stream in self.operator.of:
            followed = None if table is None else table.transaction_version(stream.name)
            behind[stream.name] = batches_after(self.lake, stream, -1 if followed is None else followed)
        if any(behind.values()):
            yield Step(behind, lambda: self._step(spark, behind))

    def _step(self, spark: SparkSession, behind: Mapping[str, Sequence[Batch]]) -> Written:
        rows = [
            (stream, batch.number, batch.summary.rows or 1, None)
            for stream, batches in behind.items()
            for batch in batches
        ]
        counted = spark.createDataFrame(rows, "stream string, _batch bigint, rows bigint, _day date")
        uri = create_table(self.lake, self.operator, "", counted.schema)
        through = {stream: batches[-1].number for stream, batches in behind.items() if batches}
        return Written(delta.append(counted, uri, numbers=through))

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        return {"tally": lambda spark: delta.read(spark, self.lake.table(self.operator)).orderBy("stream", "_batch")}

    def pin(self, spark: SparkSession) -> int | None:
        return delta.version_of(self.lake.table(self.operator))

    def laws(self, spark: SparkSession, pinned: int, logs: Mapping[str, LogAtVersion]) -> Iterator[Finding]:
        """Every row is tallied once."""
        tallied = delta.read(spark, self.lake.table(self.operator), pinned).agg(F.sum("rows")).first()
        rows = sum(log.rows.count() for log in logs.values())
        assert tallied is not None
        yield Finding("conservation", self.operator.name, rows, abs(rows - (tallied[0] or 0)), "rows: tallied once")
