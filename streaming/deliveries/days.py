"""The rows of some days that were delivered before, to be delivered again in batches of their own."""

from __future__ import annotations

from bisect import bisect_left

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DAY, SinkError, date_literal
from streaming.declare import Delivery
from streaming.deliveries.asked_days import AskedDays
from streaming.deliveries.dead_letters import DeadLetters
from streaming.deliveries.held import Held, place_of
from streaming.deliveries.ledger import Ledger
from streaming.deliveries.outbox import UNIT, Cursor, Outbox, wanted
from streaming.deliveries.reader import READ_AT_ONCE, ROW, as_delivered, with_places, without_places


class DaysReader:
    """The rows of the days of a request that lie before the place where the delivery is, but for its dead letters.

    They keep their places in the table. Those that were read ahead are kept in memory.
    """

    def __init__(self, outbox: Outbox, delivery: Delivery, dead_letters: DeadLetters, asked: AskedDays) -> None:
        self.asked = asked
        self._outbox = outbox
        self._delivery = delivery
        self._dead_letters = dead_letters
        self._units: list[tuple[int, int]] | None = None
        self._ahead: pa.Table | None = None
        self._begins: Cursor | None = None
        self._ends = Cursor(0)

    def cut(self, spark: SparkSession, since: Cursor, ledger: Ledger) -> tuple[Held, Cursor] | None:
        """The next batch from `since` on, and the place after it; None where there is no row any more."""
        if self._begins != since:
            self._ahead, self._ends = None, since
        while self._ahead is None or not self._ahead.num_rows:
            if not self._read_ahead(spark, ledger):
                return None
        batch = self._ahead.slice(0, self._delivery.most_rows)
        self._ahead = self._ahead.slice(batch.num_rows)
        held = _held(batch)
        self._begins = _after(held.places[-1])
        return held, self._begins

    def again(self, spark: SparkSession, ledger: Ledger) -> Held:
        """The rows of the batch that the ledger is about to send.

        Raises:
            SinkError: they are not all there any more.
        """
        rows = self._read(spark, ledger.since, ledger.again_until, ledger).toArrow().combine_chunks()
        if rows.num_rows != ledger.rows:
            raise SinkError(
                f"of the {ledger.rows:,} rows that delivery {self._delivery.name!r} is about to deliver again, "
                f"{rows.num_rows:,} are there: its table was changed by hand. Restore it."
            )
        return _held(rows)

    def _read_ahead(self, spark: SparkSession, ledger: Ledger) -> bool:
        """Read the next rows; False where there are none."""
        if self._units is None:
            rows = self._outbox.rows(spark, self._outbox.begin, _whole(ledger.cursor))
            sizes = self._of_days(wanted(rows, self._delivery)).groupBy(UNIT).count().orderBy(UNIT).collect()
            self._units = [(row[UNIT], row["count"]) for row in sizes]
        most, size = max(READ_AT_ONCE, self._delivery.most_rows), 0
        until = self._ends
        for unit, of_unit in self._units[bisect_left(self._units, (self._ends.unit, 0)) :]:
            if size and size + of_unit > most:
                break
            size, until = size + of_unit, min(Cursor(unit + 1), ledger.cursor)
        if until <= self._ends:
            return False
        # One unit alone may have more rows than should be in memory.
        self._ahead = self._read(spark, self._ends, until, ledger).limit(most).toArrow().combine_chunks()
        self._ends = until if self._ahead.num_rows < most else _after(_held(self._ahead).places[-1])
        return True

    def _read(self, spark: SparkSession, since: Cursor, until: Cursor, ledger: Ledger) -> DataFrame:
        """The rows of the days in [since, until), in order."""
        unit, row = F.col(UNIT), F.col(ROW)
        whole = self._outbox.rows(spark, since.unit, _whole(until))
        placed = self._of_days(with_places(wanted(whole, self._delivery), self._outbox))
        rows = placed.where((unit > since.unit) | (row >= since.row)).where((unit < until.unit) | (row < until.row))
        dead = self._dead_letters.pending(ledger.generation, ledger.delivered)
        if dead:
            rows = without_places(rows, [place_of(letter) for letter in dead])
        return as_delivered(rows.orderBy(UNIT, ROW), self._delivery, {ROW: row.cast("bigint")})

    def _of_days(self, rows: DataFrame) -> DataFrame:
        first, last = (date_literal(day) for day in (self.asked.first, self.asked.last))
        return rows.where(F.col(DAY).between(first, last))


def _held(rows: pa.Table) -> Held:
    numbers = zip(rows[UNIT].to_pylist(), rows[ROW].to_pylist(), strict=True)
    places = [Cursor(unit, row) for unit, row in numbers]
    return Held(rows.drop_columns([ROW]), places, [0] * rows.num_rows)


def _whole(until: Cursor) -> int:
    """The end of the units that hold the rows before a place."""
    return until.unit + (1 if until.row else 0)


def _after(place: Cursor) -> Cursor:
    return Cursor(place.unit, place.row + 1)
