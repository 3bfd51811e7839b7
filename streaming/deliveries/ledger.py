"""The progress of a delivery: its batches are written down before they are sent, and again once they are delivered."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from deltalake import DeltaTable

from streaming.base import ProgressError
from streaming.deliveries.outbox import Cursor

RESTORED = -1
"""The generation of the table that a ledger is of which was restored from a savepoint: none that there is."""


@dataclass(frozen=True)
class Ledger:
    """The state of a delivery.

    `generation` counts how often it began anew; its batches carry it. `of_generation` is that of the table it reads.
    `planned` numbers the newest batch that was cut, `delivered` the newest that arrived: where they differ, the batch
    of `rows` rows from (`since_unit`, `since_row`) to (`unit`, `row`) is to be sent, as often as it takes. `retries`:
    it holds dead letters of the batches up to this one instead; -1 for rows of the table. `sent_rows` counts the rows
    of the table in all batches of the generation that are delivered, those in its dead letters included, and
    `sent_before` those of the generations before; this one begins in unit `begins_at`, after `skipped_rows` rows of it.

    Days that somebody asked to have again are numbered requests, of which those up to `answered` are done: `request`
    is the one that the newest batch is for, -1 for any other batch. Of request `again_of` the rows before
    (`again_unit`, `again_row`) are in batches, or among those that follow.
    """

    generation: int = 0
    of_generation: int = 0
    planned: int = -1
    delivered: int = -1
    since_unit: int = 0
    since_row: int = 0
    unit: int = 0
    row: int = 0
    rows: int = 0
    retries: int = -1
    sent_rows: int = 0
    sent_before: int = 0
    begins_at: int = 0
    skipped_rows: int = 0
    request: int = -1
    answered: int = -1
    again_of: int = -1
    again_unit: int = 0
    again_row: int = 0

    @classmethod
    def of(cls, table: DeltaTable) -> Ledger:
        """The state that an open table records."""
        kept = {field.name: table.transaction_version(field.name) for field in fields(cls)}
        return cls(**{name: number for name, number in kept.items() if number is not None})

    @property
    def cursor(self) -> Cursor:
        """Where the next batch begins."""
        return Cursor(self.unit, self.row)

    @property
    def since(self) -> Cursor:
        """Where the newest batch begins."""
        return Cursor(self.since_unit, self.since_row)

    @property
    def is_pending(self) -> bool:
        """True if a batch was cut that is not delivered yet."""
        return self.planned > self.delivered

    @property
    def arrived_up_to(self) -> Cursor:
        """The place up to which every row was sent, and arrived or is a dead letter."""
        return self.since if self.is_pending and self.has_new_rows else self.cursor

    @property
    def has_new_rows(self) -> bool:
        """True if the newest batch holds rows that no batch before it did."""
        return self.retries < 0 and self.request < 0

    def moved(self, to: Cursor) -> Ledger:
        """Past rows that are not to be delivered."""
        return replace(self, unit=to.unit, row=to.row)

    def plan(self, until: Cursor, rows: int) -> Ledger:
        """With the next batch, of so many rows up to `until`."""
        return replace(
            self.moved(until),
            planned=self.planned + 1,
            since_unit=self.unit,
            since_row=self.row,
            rows=rows,
            retries=-1,
            request=-1,
        )

    def plan_retry(self, through: int, rows: int) -> Ledger:
        """With a batch of the dead letters of the batches up to `through`."""
        return replace(self, planned=self.planned + 1, rows=rows, retries=through, request=-1)

    def plan_again(self, request: int, since: Cursor, until: Cursor, rows: int) -> Ledger:
        """With a batch of `rows` rows from `since` to `until` that a request asks for."""
        return replace(
            self,
            planned=self.planned + 1,
            since_unit=since.unit,
            since_row=since.row,
            rows=rows,
            retries=-1,
            request=request,
            again_of=request,
            again_unit=until.unit,
            again_row=until.row,
        )

    def again_since(self, request: int, begin: Cursor) -> Cursor:
        """Where the next batch for a request begins, which begins at `begin` itself."""
        return self.again_until if self.again_of == request else begin

    @property
    def again_until(self) -> Cursor:
        """Where the newest batch for a request ends."""
        return Cursor(self.again_unit, self.again_row)

    def answer(self, request: int, until: Cursor) -> Ledger:
        """With a request done, once all rows before `until` have arrived."""
        return replace(self, answered=request, again_of=request, again_unit=until.unit, again_row=until.row)

    def has_answered(self, request: int) -> bool:
        """True if all rows that a request asks for have arrived, or are dead letters."""
        there = self.again_of < 0 or self.arrived_up_to >= self.again_until
        return self.answered >= request and there

    def arrived(self) -> Ledger:
        """With the batch delivered, but for its dead letters."""
        new = self.rows if self.has_new_rows else 0
        return replace(self, delivered=self.planned, sent_rows=self.sent_rows + new)

    def is_there(self, through: int | None, address: str, command: str) -> bool:
        """True if the target at `address`, which says that it has the batches up to `through`, has the pending one too.

        `command` is what begins the delivery anew.

        Raises:
            ProgressError: it says something that cannot be.
        """
        if through is None or through == self.delivered:
            return False
        if through == self.planned:
            return True
        raise ProgressError(
            f"{address} says that generation {self.generation} of the delivery got there up to batch {through}, and "
            f"the lake that it is at batch {self.delivered}: one of the two was restored from a backup, or changed by "
            f"hand. Bring them together; `{command} --all` delivers everything again."
        )

    @property
    def is_held(self) -> bool:
        """True if nothing is delivered until somebody says what is meant, as the lake was made of a savepoint."""
        return self.of_generation == RESTORED

    def restored(self) -> Ledger:
        """As it begins in a lake that is made of a savepoint, where nothing was sent from yet.

        Whether a batch that was being sent had arrived is not known there, so it counts as not sent.
        """
        anew = replace(self, sent_rows=0, sent_before=0).anew(RESTORED, self.arrived_up_to)
        return replace(anew, generation=self.generation, planned=self.delivered, delivered=self.delivered)

    def anew(self, of_generation: int, at: Cursor) -> Ledger:
        """The next generation of the delivery, which begins at `at`; a request that is not done begins anew, too."""
        return Ledger(
            generation=self.generation + 1,
            of_generation=of_generation,
            unit=at.unit,
            row=at.row,
            since_unit=at.unit,
            since_row=at.row,
            sent_before=self.sent_before + self.sent_rows,
            begins_at=at.unit,
            skipped_rows=at.row,
            answered=self.answered,
        )
