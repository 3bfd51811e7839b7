"""The runtime of a delivery: it cuts batches, writes each down, sends it, and notes that it arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import SparkSession

from streaming.base import RedeliveryError
from streaming.declare import Delivery
from streaming.deliveries.cutting import Cutting, ask_for_days, check_days, check_repeatable
from streaming.deliveries.ledger import DeadLetters, Ledger, LedgerTable
from streaming.deliveries.outbox import Cursor
from streaming.deliveries.outboxes import outbox_of
from streaming.lake import Lake
from streaming.operators import Written, clean_state
from streaming.sinks import Delivered, NumberedBatch, RefusedRow, Sink

_CLEANED_EVERY = 500


@dataclass(frozen=True)
class DeliveryProgress:
    """The progress of a delivery: its batch and generation, rows sent and dead, and how far behind its table it is.

    `behind`: units (batches, revisions, or microseconds of window ends) that it has yet to deliver; 0 for none.
    """

    generation: int
    delivered: int
    rows: int
    dead: int
    behind: int


class DeliveryRuntime:
    """One delivery on one lake, in one process.

    `pipeline` names the pipeline that it belongs to, for commands that are proposed; left out, as its stream.
    """

    def __init__(
        self, delivery: Delivery, lake: Lake, now: Callable[[], datetime], pipeline: str | None = None
    ) -> None:
        self.delivery = delivery
        self._command = f"tidemark redeliver {pipeline or delivery.folder} {delivery.name}"
        self.dead_letters = DeadLetters(lake, delivery, now)
        self.ledger = LedgerTable(lake, delivery, self._command)
        self.outbox = outbox_of(delivery, lake)
        self._lake = lake
        self._now = now
        self._cutting = Cutting(delivery, self.outbox, self.ledger, self.dead_letters, now, self._command)
        self._sink: Sink | None = None
        self._state: Ledger | None = None
        self._written = 0

    @property
    def name(self) -> str:
        """The delivery's own name in the lake, by which targets know it."""
        return f"{self.delivery.folder}/{self.delivery.name}"

    @property
    def generation(self) -> int | None:
        """The generation of the delivery that the lake tells of; None before it has begun."""
        ledger = self._state or self.ledger.read()
        return None if ledger is None else ledger.generation

    @property
    def has_rows_waiting(self) -> bool:
        """True if rows wait for a batch to be full."""
        return self._cutting.has_rows_waiting

    def check(self) -> None:
        """Refuse to go on where it is not told what is meant; before the first step of a process.

        Raises:
            ChangedDeclaration: another declaration has delivered so far, or from another generation of the table.
        """
        ledger = self.ledger.read()
        if ledger is None:
            return
        self.ledger.check_declaration()
        self._check_generation(ledger)

    def _check_generation(self, ledger: Ledger) -> None:
        self.ledger.check_generation(ledger, self.outbox.generation())

    def next_batch(self, spark: SparkSession, *, all_of_it: bool = False) -> int | None:
        """Cut the next batch if it is due, and write it down; returns its number, None where there is none.

        It is due once it is full, or has waited for as long as declared; with `all_of_it` it waits for nothing.

        Raises:
            ChangedDeclaration: as `check`.
            FencedError: another process has taken over.
        """
        ledger = self._read()
        if ledger.is_pending:
            return ledger.planned
        self._check_generation(ledger)
        while True:
            after = self._cutting.next(spark, ledger, all_of_it=all_of_it)
            if after is None:
                return None
            self._write(ledger, after)
            if after.is_pending:
                return after.planned
            if after.answered == ledger.answered:
                return None
            ledger = after

    def deliver(self, spark: SparkSession) -> Written:
        """Send the batch that was cut, and note that it arrived; returns the rows that did.

        Raises:
            SinkError: the target is away, or refuses the batch as a whole; it is to be sent again.
            ProgressError: the target and the ledger do not agree.
            FencedError: another process has taken over.
        """
        ledger = self._read()
        assert ledger.is_pending
        sink = self._connected()
        refused = 0
        if not ledger.is_there(sink.delivered_through(ledger.generation), self.delivery.to.address, self._command):
            held = self._cutting.held(spark, ledger)
            batch = NumberedBatch(self.name, ledger.generation, ledger.planned, held.rows)
            unwritable = batch.unwritable()
            sent, positions = batch.without({row.position for row in unwritable})

            def put_aside(rows: Sequence[RefusedRow]) -> None:
                nonlocal refused
                all_refused = [*unwritable, *(RefusedRow(positions[row.position], row.error) for row in rows)]
                refused = len(all_refused)
                in_order = sorted(all_refused, key=lambda row: row.position)
                self.dead_letters.put_aside(batch, in_order, held.places, held.tried)

            sink.deliver(sent, put_aside)
        self._write(ledger, ledger.arrived())
        self._forget_retried(ledger)
        return Written(ledger.rows - refused)

    def begin_anew(self, *, again: bool) -> Ledger:
        """Begin the next generation of the delivery: with what follows, or `again` with everything.

        The declaration as it is now is the one that counts from here on. Dead letters of the generation before stay. A
        batch that was being sent is sent again, unless the target says that it got there.

        Raises:
            SinkError: such a batch is open, and the target is away.
            RedeliveryError: nobody can tell what follows in the table as it is now.
        """
        before = self.ledger.read()
        if before is None:
            return self._read()
        begins = before.cursor
        if before.is_pending and before.has_new_rows:
            arrived = self._connected().delivered_through(before.generation) == before.planned
            begins = before.cursor if arrived else before.since
        if again and self.delivery.what != "current":
            at = Cursor(self.outbox.begin)
        else:
            at = begins if before.is_held else self.outbox.goes_on(begins, before.of_generation)
        after = before.anew(self.outbox.generation(), at)
        self.ledger.write(before, after)
        # The declaration last: whoever dies before it is refused once more, and delivers nothing by half of a decision.
        self.outbox.begin_anew(again=again)
        self.ledger.adopt()
        self.forget()
        return after

    def ask_for_days(self, days: Iterable[date]) -> int:
        """Ask whoever delivers to deliver some days again; returns the number of the request.

        Raises:
            RedeliveryError: that cannot be done for this delivery, or nothing was delivered of a day.
            ChangedDeclaration: as `check`.
            FencedError: somebody else asks at the same moment; nothing is asked for.
        """
        check_repeatable(self.delivery)
        ledger, asked = self.ledger.read(), frozenset(days)
        if ledger is None:
            raise RedeliveryError(f"delivery {self.delivery.name!r} has not begun, so there is nothing to send again.")
        self.check()
        check_days(self._lake, self.delivery, asked)
        return ask_for_days(self.ledger.uri, asked, ledger.answered)

    def has_answered(self, request: int) -> bool:
        """True if all rows that a request asks for have arrived, or are dead letters."""
        ledger = self.ledger.read()
        return ledger is not None and ledger.has_answered(request)

    def standing(self) -> DeliveryProgress:
        """The standing of the delivery now; reads tables and starts no Spark."""
        ledger = self.ledger.read() or Ledger(unit=self.outbox.begin)
        begins = ledger.arrived_up_to
        behind = max(0, self.outbox.end(begins.unit) - begins.unit)
        return DeliveryProgress(
            ledger.generation, ledger.delivered, ledger.sent_rows, self.dead_letters.count(), behind
        )

    def forget(self) -> None:
        """Read everything anew, and connect anew: after an error, or once somebody has changed the ledger."""
        self._state = None
        self._cutting.forget()
        self.disconnect()

    def disconnect(self) -> None:
        """Let go of the connection; the next batch makes another one."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def connected(self) -> Sink:
        """The connection to the target, for an audit."""
        return self._connected()

    def _read(self) -> Ledger:
        if self._state is None:
            self.check()
            self._state = self.ledger.read()
            if self._state is None:
                begin = self.outbox.begin
                self._state = Ledger(
                    unit=begin, since_unit=begin, begins_at=begin, of_generation=self.outbox.generation()
                )
                self.ledger.begin(self._state)
            # A process may have died before it forgot what it had sent again.
            if not self._state.is_pending:
                self._forget_retried(self._state)
        return self._state

    def _write(self, before: Ledger, after: Ledger) -> None:
        try:
            self.ledger.write(before, after)
        except BaseException:
            self._state = None
            raise
        self._state = after
        self._written += 1
        if self._written % _CLEANED_EVERY == 0:
            clean_state(self.ledger.uri, self._now())

    def _connected(self) -> Sink:
        if self._sink is None:
            delivered = Delivered(
                self.name, self.ledger.identity(), self.delivery.identity, self.delivery.what == "current"
            )
            self._sink = self.delivery.to.connect(self._lake, delivered)
        return self._sink

    def _forget_retried(self, ledger: Ledger) -> None:
        if ledger.retries >= 0:
            self.dead_letters.forget(ledger.generation, ledger.retries)
