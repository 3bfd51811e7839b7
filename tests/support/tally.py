"""An operator of another kind than windows: it tells that nothing above the operators' contract knows of views.

It appends to one table how many rows each batch of its streams' logs brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streaming.declare.operator import Operator, TableSpec
from streaming.declare.stream import Stream
from streaming.lake.lake import Lake
from streaming.log.batch import Batch
from streaming.operators.declaration import check_declaration, create_table
from streaming.operators.finding import Finding
from streaming.operators.runtime import LogAtVersion, OperatorRuntime, RunContext, runtime_of
from streaming.spark.checkpoint import query_id
from streaming.tables import delta, storage


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
    """Runs as one query over the union of the logs."""

    operator: Tally

    def __init__(self, operator: Tally, lake: Lake) -> None:
        self.operator = operator
        self.lake = lake

    def has_started(self) -> bool:
        return any(storage.listed(f"{self.lake.operator_checkpoint(self.operator)}/offsets"))

    def check(self) -> None:
        check_declaration(self.lake, self.operator)

    def bootstrap(self, context: RunContext, head: Batch) -> int:
        # The query itself begins with the logs' first versions.
        return 0

    def plan_query(self, context: RunContext, **trigger: Any) -> Callable[[], StreamingQuery]:
        reader = context.spark.readStream.format("delta").option("startingVersion", 0)
        checkpoint = self.lake.operator_checkpoint(self.operator)
        frames = [
            reader.load(self.lake.log(stream)).select(F.lit(stream.name).alias("stream"), "_batch", "_origin")
            for stream in self.operator.of
        ]
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.unionByName(frame.withColumn("_origin", F.lit(None).cast(frames[0].schema["_origin"].dataType)))

        def run_batch(batch: DataFrame, number: int) -> None:
            counted = self._count(batch).withColumn("_day", F.lit(None).cast("date"))
            uri = create_table(self.lake, self.operator, "", counted.schema)
            query = query_id(checkpoint)
            assert query is not None
            txn = delta.Txn(query, number)
            context.on_rows(delta.append(counted, uri, txn=txn, metadata=lambda: {"query": query}))

        named = rows.writeStream.queryName(f"{self.operator.folder}.{self.operator.name}")
        return (
            named.option("checkpointLocation", checkpoint)
            .trigger(**trigger)
            .foreachBatch(context.around(self.operator.name, run_batch))
            .start
        )

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

    @staticmethod
    def _count(rows: DataFrame) -> DataFrame:
        return rows.groupBy("stream", "_batch").agg(F.count(F.lit(1)).alias("rows"))
