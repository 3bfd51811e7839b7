"""Dead letters of a delivery as what another one reads: each refusal is written down once, before it is delivered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import FencedError
from streaming.declare import CHANGES, DEAD, PROGRESS, Delivery
from streaming.deliveries.ledger import Ledger
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.deliveries.recorded import recorded_by
from streaming.lake import Lake
from streaming.sinks import REVISION, TIME
from streaming.tables import delta


@dataclass(frozen=True)
class Told:
    """What was written down: the dead letters of all batches up to `batch` of `generation`, in `revision` + 1 looks."""

    revision: int = -1
    generation: int = -1
    batch: int = -1

    @classmethod
    def of(cls, table: DeltaTable | None) -> Told:
        """What an open table says."""
        kept = {name: None if table is None else table.transaction_version(name) for name in cls.__annotations__}
        return cls(**{name: number for name, number in kept.items() if number is not None})


class RefusedOutbox(Outbox):
    """A unit is a revision: all dead letters that one look found.

    They are copied, as a batch that is repeated replaces its own, and those that arrive after a fix are removed. Only
    those of batches that are done are looked at. So a refusal is told once, and a row that is refused again after
    `redeliver` once more, with its next attempt; what arrived before anybody looked is not told.
    """

    begin = 0
    order = ("generation", "batch", "position")

    def __init__(self, lake: Lake, delivery: Delivery, of: Delivery) -> None:
        self._delivery = delivery
        self._of = of
        self._uri = lake.table(delivery, CHANGES)
        self._dead, self._ledger = lake.table(of, DEAD), lake.table(of, PROGRESS)
        self._looked_at: tuple[int, int, int] | None = None

    def generation(self) -> int:
        # What was told stays told, however often the other delivery begins anew.
        return 0

    def end(self, since: int) -> int:
        return Told.of(delta.open_table(self._uri)).revision + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        refused = delta.read(spark, self._uri).where((F.col(REVISION) >= since) & (F.col(REVISION) < until))
        return refused.withColumns({UNIT: F.col(REVISION), TIME: F.col("at")})

    def follow(self, spark: SparkSession, now: Callable[[], datetime]) -> None:
        """Write down the dead letters that came since the last look, in one commit."""
        # The ledger first: of the batches that it calls delivered, all dead letters are there.
        ledger, dead = delta.open_table(self._ledger), delta.open_table(self._dead)
        if ledger is None or dead is None:
            return
        done = Ledger.of(ledger)
        looked_at = (done.generation, done.delivered, dead.version())
        if looked_at == self._looked_at:
            return
        before = Told.of(delta.open_table(self._uri))
        rows = _since(delta.contents(dead), before, done)
        if rows.num_rows:
            self._write(spark, rows, before, Told(before.revision + 1, done.generation, done.delivered))
        self._looked_at = looked_at

    def _write(self, spark: SparkSession, rows: pa.Table, before: Told, after: Told) -> None:
        frame = spark.createDataFrame(rows).withColumn(REVISION, F.lit(after.revision).cast("bigint"))
        about = f"Dead letters of {self._of.name} for delivery {self._delivery.name}"
        delta.create(
            self._uri,
            frame.schema,
            append_only=True,
            description=about,
            properties=recorded_by(self._delivery),
        )

        def fence(table: DeltaTable) -> None:
            if Told.of(table) != before:
                raise FencedError(
                    f"the dead letters for delivery {self._delivery.name!r} were written by another process meanwhile; "
                    "let it run alone. Nothing is lost."
                )

        fields = vars(after)
        delta.append(
            frame,
            self._uri,
            txn=None,
            metadata=lambda: fields,
            numbers=lambda: fields,
            statistics=(REVISION,),
            fence=fence,
        )


def _since(dead: pa.Table, before: Told, done: Ledger) -> pa.Table:
    """The dead letters of batches that were not told, and are done; an earlier generation goes on with no batch."""
    generation, batch = dead["generation"], dead["batch"]
    newer = pc.or_(
        pc.greater(generation, before.generation),
        pc.and_(pc.equal(generation, before.generation), pc.greater(batch, before.batch)),
    )
    settled = pc.or_(
        pc.less(generation, done.generation),
        pc.and_(pc.equal(generation, done.generation), pc.less_equal(batch, done.delivered)),
    )
    return dead.filter(pc.and_(newer, settled))
