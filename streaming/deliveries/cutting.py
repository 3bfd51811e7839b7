"""What a delivery sends next: dead letters or days that somebody asked for, or the rows that follow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DAY, SinkError, date_literal, interval
from streaming.declare import Delivery
from streaming.deliveries.asked_days import AskedDays, next_asked
from streaming.deliveries.dead_letters import DeadLetters
from streaming.deliveries.held import Held, first_of, new, place_of, retried
from streaming.deliveries.ledger import Ledger
from streaming.deliveries.ledger_table import LedgerTable
from streaming.deliveries.outbox import UNIT, Cursor, Outbox, wanted
from streaming.deliveries.reader import READ_AT_ONCE, ROW, Reader, as_delivered, with_places, without_places

_SKIPPED_EVERY = timedelta(minutes=1)


class Cutting:
    """Cuts the batches of a delivery; whoever delivers writes each into the ledger before it is sent."""

    def __init__(
        self,
        delivery: Delivery,
        outbox: Outbox,
        ledger: LedgerTable,
        dead_letters: DeadLetters,
        now: Callable[[], datetime],
        command: str,
    ) -> None:
        self._delivery = delivery
        self._outbox = outbox
        self._ledger = ledger
        self._dead_letters = dead_letters
        self._now = now
        self._command = command
        self._waiting_since: datetime | None = None
        self._skipped_at: datetime | None = None
        self.forget()

    @property
    def has_rows_waiting(self) -> bool:
        """Whether rows wait for a batch to be full."""
        return self._waiting_since is not None

    def forget(self) -> None:
        """Read everything anew."""
        self._reader = Reader(self._outbox, self._delivery, self._command)
        self._days: _DaysReader | None = None
        self._cut: Held | None = None

    def next(self, spark: SparkSession, ledger: Ledger, *, all_of_it: bool) -> Ledger | None:
        """What the ledger is to say next: with a batch planned, or further on without one; None if nothing is due.

        Raises:
            ChangedDeclaration: the table was built anew meanwhile.
        """
        self._cut = None
        dead = self._dead_letters.to_send_again(ledger.generation, ledger.delivered)
        if dead:
            return ledger.plan_retry(*first_of(dead, self._delivery.most_rows))
        asked = next_asked(self._ledger.uri, ledger.answered)
        if asked is not None:
            return self._again(spark, ledger, asked)
        self._outbox.follow(spark, self._now)
        end = self._outbox.end(ledger.unit)
        waiting = self._reader.fill(spark, ledger.cursor, end)
        if waiting == 0:
            self._waiting_since = None
            return self._skipped(ledger, end, now=all_of_it)
        if waiting < self._delivery.most_rows and not all_of_it and not self._has_waited():
            return None
        self._waiting_since = None
        rows = min(waiting, self._delivery.most_rows)
        # The view may have been built anew while its rows were read.
        self._ledger.check_generation(ledger, self._outbox.generation())
        batch, until = self._reader.cut(rows)
        self._cut = new(batch, ledger.cursor)
        return ledger.plan(until, rows)

    def held(self, spark: SparkSession, ledger: Ledger) -> Held:
        """What the batch that the ledger has planned holds.

        Raises:
            SinkError: the rows are not all there any more.
            ChangedDeclaration: the table was built anew meanwhile.
        """
        if ledger.retries >= 0:
            pending = self._dead_letters.pending(ledger.generation, ledger.retries)
            return retried(spark, self._reader, pending)
        if self._cut is None:
            self._ledger.check_generation(ledger, self._outbox.generation())
            self._cut = self._cut_before(spark, ledger)
        return self._cut

    def _cut_before(self, spark: SparkSession, ledger: Ledger) -> Held:
        if ledger.request < 0:
            return new(self._reader.again(spark, ledger.since, ledger.cursor, ledger.rows), ledger.since)
        asked = next_asked(self._ledger.uri, ledger.request - 1)
        assert asked is not None
        return self._reader_of(asked).again(spark, ledger)

    def _again(self, spark: SparkSession, ledger: Ledger, asked: AskedDays) -> Ledger:
        unit = self._outbox.tell_again(spark, asked.days)
        if unit is not None:
            return ledger.answer(asked.number, Cursor(unit))
        since = ledger.again_since(asked.number, Cursor(self._outbox.begin))
        batch = self._reader_of(asked).cut(spark, since, ledger)
        self._ledger.check_generation(ledger, self._outbox.generation())
        if batch is None:
            return ledger.answer(asked.number, since)
        self._cut, until = batch
        return ledger.plan_again(asked.number, since, until, self._cut.rows.num_rows)

    def _reader_of(self, asked: AskedDays) -> _DaysReader:
        if self._days is None or self._days.asked != asked:
            self._days = _DaysReader(self._outbox, self._delivery, self._dead_letters, asked)
        return self._days

    def _skipped(self, ledger: Ledger, end: int, *, now: bool) -> Ledger | None:
        """Units without a row to deliver are not read again by the next process; now and then is enough for that."""
        due = now or self._skipped_at is None or self._now() - self._skipped_at >= _SKIPPED_EVERY
        if not due or ledger.cursor >= Cursor(end):
            return None
        self._skipped_at = self._now()
        return ledger.moved(Cursor(end))

    def _has_waited(self) -> bool:
        waits, now = self._delivery.waits, self._now()
        if waits is None:
            return True
        self._waiting_since = self._waiting_since or now
        return now - self._waiting_since >= interval(waits)


class _DaysReader:
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
