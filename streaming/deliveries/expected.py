"""The rows that a target should hold, made from the table again, for an audit that reads the target back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.declare import Delivery
from streaming.deliveries.changes import ChangesOutbox
from streaming.deliveries.computed import value_of
from streaming.deliveries.ledger import Ledger
from streaming.deliveries.outbox import UNIT, Cursor, Outbox, wanted
from streaming.deliveries.reader import ROW, as_delivered, with_places, without_places
from streaming.sinks import REVISION

_ROWS_AT_ONCE = 250_000
_NEWEST = "_newest"


def expected_rows(
    spark: SparkSession, outbox: Outbox, delivery: Delivery, ledger: Ledger, dead: Sequence[Cursor]
) -> Iterator[pa.Table] | str:
    """All rows that the target should hold of this generation, in pieces; or why nobody can say which they are.

    `dead` are the places of the dead letters. Every piece reads the table again, so that not all of it is in memory.
    """
    keeps_one = delivery.identity and delivery.to.keeps_keys
    if not keeps_one or (delivery.to.keeps_history and not isinstance(outbox, ChangesOutbox)):
        frame = _every(spark, outbox, delivery, ledger, dead)
    elif dead:
        return "of a key whose row was refused, an older one may be there"
    elif isinstance(outbox, ChangesOutbox):
        if ledger.row:
            return "it is within a revision"
        frame = outbox.told(spark, ledger.unit)
    elif ledger.generation:
        return "rows of a generation before may be there"
    else:
        frame = _newest_of_keys(_every(spark, outbox, delivery, ledger, dead), outbox, delivery)
    return _pieces(frame, outbox, delivery, 1 + ledger.sent_rows // _ROWS_AT_ONCE)


def _every(
    spark: SparkSession, outbox: Outbox, delivery: Delivery, ledger: Ledger, dead: Sequence[Cursor]
) -> DataFrame:
    until = ledger.unit + (1 if ledger.row else 0)
    rows = wanted(outbox.rows(spark, ledger.begins_at, until), delivery)
    if not (dead or ledger.row or ledger.skipped_rows):
        return rows
    unit, row = F.col(UNIT), F.col(ROW)
    begun = (unit > ledger.begins_at) | (row >= ledger.skipped_rows)
    placed = with_places(rows, outbox).where(begun & ((unit < ledger.unit) | (row < ledger.row)))
    return without_places(placed, dead) if dead else placed


def _newest_of_keys(rows: DataFrame, outbox: Outbox, delivery: Delivery) -> DataFrame:
    """The row of the greatest revision of each key; of several, the one that was delivered last."""
    key = [value_of(name, delivery, UNIT) for name in delivery.identity]
    within = [each.desc() for each in outbox.order_of(rows)]
    order = SortedBy.partitionBy(*key).orderBy(F.desc_nulls_last(REVISION), F.desc(UNIT), *within)
    return rows.withColumn(_NEWEST, F.row_number().over(order)).where(F.col(_NEWEST) == 1)


def _pieces(frame: DataFrame, outbox: Outbox, delivery: Delivery, pieces: int) -> Iterator[pa.Table]:
    order = outbox.order_of(frame)
    for piece in range(pieces):
        of_piece = frame if pieces == 1 else frame.where(F.pmod(F.xxhash64(*order), F.lit(pieces)) == piece)
        yield as_delivered(of_piece, delivery).toArrow()
