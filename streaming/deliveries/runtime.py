"""The runtime of a delivery: it cuts batches, records each in the ledger, sends it, and records that it arrived.

After a crash the ledger says which batch was cut and may have been sent, so that the same batch is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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

_WRITES_PER_CLEANING = 500
"""The number of commits to the ledger after which its old versions are removed."""


@dataclass(frozen=True)
class DeliveryProgress:
    """The progress of a delivery.

    `generation` counts how often it began anew, `delivered` is its newest batch that arrived (-1 for none), `rows` the
    number of rows in such batches, and `dead` that of its dead letters. `behind`: the units of its table (batches,
    revisions, or microseconds of window ends) that it has yet to deliver; 0 for none.
    """

    generation: int
    delivered: int
    rows: int
    dead: int
    behind: int


class DeliveryRuntime:
    """One delivery on one lake, in one process.

    `now` gives the processing time. `pipeline` is the pipeline's name in the commands that error texts propose; where
    it is left out, the delivery's folder stands for it.
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
        self._writes = 0

    @property
    def name(self) -> str:
        """The delivery's own name in the lake, by which targets know it."""
        return f"{self.delivery.folder}/{self.delivery.name}"

    @property
    def generation(self) -> int | None:
        """The generation of the delivery, by its ledger; None before it has begun."""
        ledger = self._state or self.ledger.read()
        return None if ledger is None else ledger.generation

    @property
    def has_rows_waiting(self) -> bool:
        """True if rows were found that wait until a batch is full, or they have waited long enough."""
        return self._cutting.has_rows_waiting

    def check(self) -> None:
        """Refuse to go on where somebody must decide how; called before the first batch of a process.

        Raises:
            ChangedDeclaration: another declaration has delivered so far, or from another generation of the table.
            DeliveryPaused: the lake was made of a savepoint.
        """
        ledger = self.ledger.read()
        if ledger is None:
            return
        self.ledger.check_declaration()
        self._check_generation(ledger)

    def _check_generation(self, ledger: Ledger) -> None:
        self.ledger.check_generation(ledger, self.outbox.generation())

    def next_batch(self, spark: SparkSession, *, all_of_it: bool = False) -> int | None:
        """Cut the next batch if it is due, and record it in the ledger; returns its number, None where none is due.

        It is due once it is full, or its first rows have waited as long as declared; with `all_of_it`, as soon as there
        is a row. Where the ledger has a batch that did not arrive yet, that one is the next.

        Raises:
            ChangedDeclaration: as `check`.
            DeliveryPaused: as `check`.
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
            # A request for days is done without a batch of its own, so the next one may be due.
            ledger = after

    def deliver(self, spark: SparkSession) -> Written:
        """Send the batch that `next_batch` has recorded, and record that it arrived; returns the number of its rows.

        Rows that the target refuses become dead letters, and do not count. Nothing is sent where the target says that
        it has the batch already; all its rows count then.

        Raises:
            SinkError: the target is away, or refuses the batch as a whole; it is to be sent again.
            ProgressError: the target and the ledger do not agree.
            FencedError: another process has taken over.
        """
        ledger = self._read()
        assert ledger.is_pending
        sink = self.connected()
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
        """Begin the next generation of the delivery: with the rows that follow, or `again` with all rows.

        The declaration as it is now counts from here on. Dead letters of the generation before stay. A batch that was
        being sent is sent again, unless the target says that it arrived.

        Raises:
            SinkError: a batch was being sent, and the target, which has to be asked unless it is `again`, is away.
            RedeliveryError: nobody can tell which rows follow in the table as it is now, or the target would keep
                older rows of its keys.
            FencedError: another process has gone on meanwhile.
        """
        before = self.ledger.read()
        if before is None:
            return self._read()
        self.ledger.check_places(again=again)
        if again:
            at = Cursor(self.outbox.start)
        elif before.is_held:
            # The ledger of a lake that was made of a savepoint names no generation of the table to go on from.
            at = before.arrived_up_to
        else:
            at = self.outbox.goes_on(self._arrived_up_to(before), before.of_generation)
        after = before.anew(self.outbox.generation(), at)
        if again and self.delivery.what == "current":
            after = replace(after, whole_at=at.unit, repeats=1)
        self.ledger.write(before, after)
        # The declaration is recorded last: after a crash before it, `check` refuses to deliver until this is repeated.
        self.ledger.adopt()
        self.forget()
        return after

    def _arrived_up_to(self, ledger: Ledger) -> Cursor:
        """The place up to which every row was sent, by what the target says of a batch that was being sent."""
        may_be_there = ledger.is_pending and ledger.has_new_rows
        if may_be_there and self.connected().delivered_through(ledger.generation) == ledger.planned:
            return ledger.cursor
        return ledger.arrived_up_to

    def ask_for_days(self, days: Iterable[date]) -> int:
        """Record in the ledger that `days` are to be delivered again; returns the number of the newest request.

        The process that delivers the rows answers it: `has_answered` tells when.

        Raises:
            RedeliveryError: no day of this delivery can be sent again, or its table has no row of one of the days.
            ChangedDeclaration: as `check`.
            DeliveryPaused: as `check`.
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
        """True if all rows that a request, by its number, asks for have arrived, or are dead letters."""
        ledger = self.ledger.read()
        return ledger is not None and ledger.has_answered(request)

    def forget_earlier(self) -> int:
        """Remove dead letters of generations before one that began with all rows; returns how many of others stay.

        Once all rows have arrived, so have theirs, or they are refused as new ones. After a generation that only went
        on, they stay: no batch of this one sends them again.
        """
        ledger = self.ledger.read()
        if ledger is None:
            return 0
        began_with_all = (ledger.begins_at, ledger.skipped_rows) == (self.outbox.start, 0)
        if began_with_all and not ledger.is_pending and self.standing().behind == 0:
            self.dead_letters.forget_before(ledger.generation)
        return self.dead_letters.count_before(ledger.generation)

    def standing(self) -> DeliveryProgress:
        """The progress of the delivery now; reads tables and starts no Spark."""
        ledger = self.ledger.read() or self._beginning()
        arrived_up_to = ledger.arrived_up_to
        behind = max(0, self.outbox.end(arrived_up_to.unit) - arrived_up_to.unit)
        return DeliveryProgress(
            ledger.generation, ledger.delivered, ledger.sent_rows, self.dead_letters.count(), behind
        )

    def forget(self) -> None:
        """Forget what is in memory, and the connection: after an error, or once somebody has changed the ledger."""
        self._state = None
        self._cutting.forget()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection to the target; the next batch opens another one."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def connected(self) -> Sink:
        """The open connection to the target; it is opened where there is none."""
        if self._sink is None:
            delivered = Delivered(
                self.name,
                identity=self.ledger.identity(),
                key=self.delivery.identity,
                changes=self.delivery.what == "current",
            )
            self._sink = self.delivery.to.connect(self._lake, delivered)
        return self._sink

    def _read(self) -> Ledger:
        """The state of the ledger, which is kept in memory; the ledger is created where there is none."""
        if self._state is None:
            self.check()
            self._state = self.ledger.read()
            if self._state is None:
                self._state = self._beginning()
                self.ledger.begin(self._state)
            # A process may have died after a batch of dead letters arrived and before it removed these.
            if not self._state.is_pending:
                self._forget_retried(self._state)
        return self._state

    def _beginning(self) -> Ledger:
        return Ledger.beginning(self.outbox.start, self.outbox.generation(), whole=self.delivery.what == "current")

    def _write(self, before: Ledger, after: Ledger) -> None:
        try:
            self.ledger.write(before, after)
        except BaseException:
            self._state = None
            raise
        self._state = after
        self._writes += 1
        if self._writes % _WRITES_PER_CLEANING == 0:
            clean_state(self.ledger.uri, self._now())

    def _forget_retried(self, ledger: Ledger) -> None:
        """Remove the dead letters that the newest batch has sent again; those refused once more are in new ones."""
        if ledger.retries >= 0:
            self.dead_letters.forget(ledger.generation, ledger.retries)
