"""What a delivery sends next: dead letters or days that somebody asked for, or the rows that follow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from streaming.base import interval
from streaming.declare import Delivery
from streaming.deliveries.asked_days import AskedDays, next_asked
from streaming.deliveries.days import DaysReader
from streaming.deliveries.dead_letters import DeadLetters
from streaming.deliveries.held import Held, first_of, new, retried
from streaming.deliveries.ledger import Ledger
from streaming.deliveries.ledger_table import LedgerTable
from streaming.deliveries.outbox import Cursor, Outbox
from streaming.deliveries.reader import Reader

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
        self._days: DaysReader | None = None
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

    def _reader_of(self, asked: AskedDays) -> DaysReader:
        if self._days is None or self._days.asked != asked:
            self._days = DaysReader(self._outbox, self._delivery, self._dead_letters, asked)
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
