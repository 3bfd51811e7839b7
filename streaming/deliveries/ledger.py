"""The progress of a delivery: its batches are written down before they are sent, and again once they are delivered.

Its table in the lake is written behind a fence. A delivery whose declaration has changed since, or whose rows were
built anew, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StructType

from streaming.base import ChangedDeclaration, DeliveryPaused, FencedError, ProgressError, RedeliveryError, written
from streaming.declare import DEAD, PROGRESS, Delivery
from streaming.deliveries.outbox import Cursor
from streaming.lake import Lake
from streaming.sinks import NumberedBatch, RefusedRow, json_objects
from streaming.tables import (
    DECLARATION,
    FactChange,
    attempts,
    changed_facts,
    delta,
    numbers_named,
    recorded_declaration,
)

RESTORED = -1
"""`of_generation` of a ledger that was restored from a savepoint: no table has it, so its delivery waits for
`redeliver`."""
_COLUMNS = StructType().add("batch", LongType())
SCHEMA = pa.schema(
    [
        ("generation", pa.int64()),
        ("batch", pa.int64()),
        ("position", pa.int64()),
        ("payload", pa.string()),
        ("error", pa.string()),
        ("attempt", pa.int64()),
        ("origin", pa.struct([("unit", pa.int64()), ("row", pa.int64())])),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
"""`payload` is the row as JSON; `attempt` counts from 1; `origin` is the row's place in the table it was read from.

`batch` and `position` are those of the newest attempt.
"""

_ASKED, _ASKED_OF = "asked", "asked_of"


@dataclass(frozen=True)
class Ledger:
    """The state of a delivery.

    `generation` counts how often it began anew; its batches carry it. `of_generation` is that of the table it reads.
    `planned` numbers the newest batch that was cut, `delivered` the newest that arrived: where they differ, the batch
    of `rows` rows from (`since_unit`, `since_row`) to (`unit`, `row`) is to be sent, as often as it takes. `retries`:
    it holds dead letters of the batches up to this one instead; -1 for rows of the table. `sent_rows` counts the rows
    of the table in all batches of the generation that are delivered, those in its dead letters included, and
    `sent_before` those of the generations before; this one begins in unit `begins_at`, after `skipped_rows` rows of it.

    Of what is current, unit `whole_at` holds all that is current by then, those after it what changes; -1 where every
    unit holds changes. With `repeats` it also takes back what was taken back before.

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
    whole_at: int = -1
    repeats: int = 0

    @classmethod
    def beginning(cls, unit: int, of_generation: int = 0, *, whole: bool) -> Ledger:
        """The state of a delivery that begins with a unit, which is `whole` where it is of what is current."""
        whole_at = unit if whole else -1
        return cls(unit=unit, since_unit=unit, begins_at=unit, of_generation=of_generation, whole_at=whole_at)

    @classmethod
    def of(cls, table: DeltaTable) -> Ledger:
        """The state that an open table records."""
        return cls(**numbers_named(table, [field.name for field in fields(cls)]))

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
        """Where the next batch for a request begins: at `begin` where none of its batches was made yet."""
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
            whole_at=self.whole_at,
            repeats=self.repeats,
        )


def ledger_of(lake: Lake, delivery: Delivery) -> Ledger | None:
    """The state of a delivery now; None before it has begun."""
    return LedgerTable(lake, delivery, "").read()


class LedgerTable:
    """The ledger in the lake: a table without rows, whose commits hold the numbers."""

    def __init__(self, lake: Lake, delivery: Delivery, command: str) -> None:
        self.uri = lake.table(delivery, PROGRESS)
        self._delivery = delivery
        self._command = command

    def read(self) -> Ledger | None:
        """The state now; None before the delivery has begun."""
        table = delta.open_table(self.uri)
        return None if table is None or table.transaction_version("planned") is None else Ledger.of(table)

    def identity(self) -> str:
        """The id that tells this delivery, which has begun, from one of the same name in another lake."""
        return str(delta.opened(self.uri).metadata().id)

    def begin(self, ledger: Ledger) -> None:
        """Create the ledger."""
        about = f"How far delivery {self._delivery.name} is"
        delta.create(self.uri, _COLUMNS, append_only=False, description=about, properties=recorded_by(self._delivery))
        delta.note(self.uri, says=vars(ledger), numbers=vars(ledger))

    def write(self, before: Ledger, after: Ledger) -> None:
        """Go on from one state to the next.

        Raises:
            FencedError: another process has gone on from the state `before`.
        """

        def fence(table: DeltaTable) -> None:
            there = Ledger.of(table)
            if there != before:
                raise FencedError(
                    f"delivery {self._delivery.name!r} was at batch {before.planned} of generation {before.generation} "
                    f"and is at batch {there.planned} of generation {there.generation} now, so another process has "
                    "taken over. Nothing is lost; let the other one run."
                )

        delta.note(self.uri, says=vars(after), numbers=vars(after), fence=fence)

    def check_declaration(self) -> None:
        """Refuse a declaration under which the cut of the batches would be another one.

        Raises:
            ChangedDeclaration: with the differences, and the commands that go on.
        """
        changes = self.declaration_changes()
        if changes:
            raise ChangedDeclaration(
                f"delivery {self._delivery.name!r} is not the one that has delivered so far: "
                f"{'; '.join(map(str, changes))}. Give the old declaration back; or {self.way_out(changes)}. Nothing "
                "was delivered."
            )

    def check_places(self, *, again: bool) -> None:
        """Refuse to begin anew by a declaration whose rows have other places and revisions than those delivered so far.

        `again`: with all rows, which is refused where the target keeps keys, as it would keep older rows of these.

        Raises:
            RedeliveryError: with the way out.
        """
        changes = self.declaration_changes()
        if self.has_other_places(changes) and (not again or self._delivery.identity):
            raise RedeliveryError(
                f"delivery {self._delivery.name!r} is of other rows than those that it has delivered so far: "
                f"{'; '.join(map(str, changes))}. Their places say nothing of which of the new ones follow, nor their "
                f"revisions of which are newer. Give the old declaration back; or {self.way_out(changes)}. Nothing has "
                "changed."
            )

    def way_out(self, changes: Sequence[FactChange]) -> str:
        """The ways to go on with a declaration that differs in these facts, as a clause."""
        if not self.has_other_places(changes):
            return (
                f"let `{self._command} --go-on` deliver by the new one what comes from now on, or `--all` everything "
                "from the beginning"
            )
        anew = "declare the new one under a name and with a target of its own"
        return anew if self._delivery.identity else f"{anew}, or let `{self._command} --all` deliver everything to this"

    def has_other_places(self, changes: Sequence[FactChange]) -> bool:
        """True if rows are numbered in another way than by the declaration that differs in these facts."""
        changed = {each.fact for each in changes}
        # First results are numbered by the ends of their windows, whichever operator they are of.
        return bool(changed & {"what", "output"}) or ("of" in changed and self._delivery.what != "first")

    def check_generation(self, ledger: Ledger, generation: int) -> None:
        """Refuse a table of another `generation` than the one that was delivered from so far.

        Raises:
            ChangedDeclaration: with the commands that go on; DeliveryPaused: the lake was made of a savepoint.
        """
        if ledger.is_held:
            raise DeliveryPaused(
                f"delivery {self._delivery.name!r} is held, because this lake was made of a savepoint, and does not "
                f"know what was delivered since from the other one. `{self._command} --go-on` delivers what follows "
                "the savepoint; `--all` delivers everything again. Give a second lake a target of its own. Nothing was "
                "delivered."
            )
        if generation != ledger.of_generation:
            raise ChangedDeclaration(
                f"delivery {self._delivery.name!r} has delivered from generation {ledger.of_generation} of "
                f"{self._delivery.of.name!r}, which was built anew since and is of generation {generation}. "
                f"`{self._command} --go-on` delivers what follows, or of what is current what differs; `--all` "
                "delivers everything again. Nothing was delivered."
            )

    def adopt(self) -> None:
        """Record the declaration as it is now."""
        table = delta.open_table(self.uri)
        if table is not None:
            table.alter.set_table_properties(recorded_by(self._delivery), raise_if_not_exists=False)

    def has_selected_the_same(self) -> bool:
        """True if the selection is as it was when the generation began, so that every row of it has these columns."""
        table = delta.open_table(self.uri)
        recorded = None if table is None else recorded_declaration(table)
        return recorded is not None and recorded.get("selects") == dict(self._delivery.selected)

    def declaration_changes(self) -> tuple[FactChange, ...]:
        """The facts in which the declaration differs from the one that has delivered so far."""
        table = delta.open_table(self.uri)
        recorded = None if table is None else recorded_declaration(table)
        return () if recorded is None else tuple(changed_facts(recorded["makes"], dict(self._delivery.fingerprint)))


def recorded_by(delivery: Delivery) -> dict[str, str]:
    """The properties of every table of the delivery."""
    recorded = {
        "operator": delivery.name,
        "kind": "Delivery",
        "makes": dict(delivery.fingerprint),
        "selects": dict(delivery.selected),
    }
    return {DECLARATION: json.dumps(recorded)}


class DeadLetters:
    """The table `<delivery>_dead`.

    Whoever delivers writes its rows, and removes those that it has sent again; `redeliver` removes those of earlier
    generations.
    """

    def __init__(self, lake: Lake, delivery: Delivery, now: Callable[[], datetime]) -> None:
        self.uri = lake.table(delivery, DEAD)
        self._now = now
        self._recorded = recorded_by(delivery)
        self._about = f"Rows of delivery {delivery.name} that its target refused, or that cannot be computed"

    def put_aside(
        self,
        batch: NumberedBatch,
        refused: Sequence[RefusedRow],
        places: Sequence[Cursor],
        tried: Sequence[int],
    ) -> None:
        """Keep the refused rows of a batch in place of those of an earlier attempt at it, in one commit.

        `places` and `tried` (attempts before this one) are those of the rows of the batch.
        """
        table = delta.open_table(self.uri)
        same = f"generation = {batch.generation} and batch = {batch.number}"
        if not refused and not self._has(batch.generation, batch.number):
            return
        payloads = json_objects(batch.messages.take(pa.array([row.position for row in refused], pa.int64())))
        rows = [
            {
                "generation": batch.generation,
                "batch": batch.number,
                "position": row.position,
                "payload": payload.decode(),
                "error": written(row.error),
                "attempt": tried[row.position] + 1,
                "origin": {"unit": places[row.position].unit, "row": places[row.position].row},
                "at": self._now(),
            }
            for row, payload in zip(refused, payloads, strict=True)
        ]
        content = pa.Table.from_pylist(rows, SCHEMA)
        if table is None:
            self._create(content)
            return
        for attempt in attempts(table):
            with attempt:
                write_deltalake(table, content, mode="overwrite", predicate=same)

    def pending(self, generation: int, through: int) -> list[dict[str, Any]]:
        """The dead letters of the batches up to `through`, oldest first."""
        table = delta.open_table(self.uri)
        if table is None:
            return []
        rows, order = delta.contents(table), [("batch", "ascending"), ("position", "ascending")]
        kept: list[dict[str, Any]] = rows.filter(_are_of(rows, generation, None, through)).sort_by(order).to_pylist()
        return kept

    def to_send_again(self, generation: int, delivered: int) -> list[dict[str, Any]]:
        """Those for which somebody has asked, of the batches up to `delivered`, oldest first."""
        asked = min(self.asked(generation), delivered)
        return self.pending(generation, asked) if asked >= 0 and self._has(generation, None, asked) else []

    def forget(self, generation: int, through: int) -> None:
        """Remove those of the batches up to `through`, which have been sent again."""
        if self._has(generation, None, through):
            self._delete(f"generation = {generation} and batch <= {through}")

    def forget_before(self, generation: int) -> None:
        """Remove those of generations before."""
        if self.count_before(generation):
            self._delete(f"generation < {generation}")

    def count_before(self, generation: int) -> int:
        """The number of dead letters of generations before, which no batch of it sends again."""
        return int(pc.sum(pc.less(self._batches()["generation"], generation)).as_py() or 0)

    def places(self) -> list[Cursor]:
        """The places of the rows that they are of, of whatever generation."""
        table = delta.open_table(self.uri)
        origins = [] if table is None else delta.contents(table, columns=["origin"])["origin"].to_pylist()
        return [Cursor(origin["unit"], origin["row"]) for origin in origins]

    def count(self) -> int:
        """The number of dead letters."""
        return delta.row_count(delta.open_table(self.uri))

    def ask(self, generation: int, through: int) -> None:
        """Ask whoever delivers to send those of the batches of a generation up to `through` again."""
        if delta.exists(self.uri):
            asked = {_ASKED: through, _ASKED_OF: generation}
            delta.note(self.uri, says=asked, numbers=asked)

    def asked(self, generation: int) -> int:
        """The batch up to which dead letters of a generation are to be sent again; -1 for none."""
        table = delta.open_table(self.uri)
        if table is None or table.transaction_version(_ASKED_OF) != generation:
            return -1
        asked = table.transaction_version(_ASKED)
        return -1 if asked is None else asked

    def _create(self, content: pa.Table) -> None:
        table = delta.opened_or_created(self.uri, SCHEMA, description=self._about, properties=self._recorded)
        write_deltalake(table, content, mode="append")

    def _delete(self, condition: str) -> None:
        table = delta.opened(self.uri)
        for attempt in attempts(table):
            with attempt:
                table.delete(condition)

    def _batches(self) -> pa.Table:
        """The generation and batch of each, without payloads, of which there may be very many."""
        columns = ["generation", "batch"]
        table = delta.open_table(self.uri)
        return SCHEMA.empty_table().select(columns) if table is None else delta.contents(table, columns=columns)

    def _has(self, generation: int, batch: int | None, through: int | None = None) -> bool:
        return bool(pc.any(_are_of(self._batches(), generation, batch, through)).as_py())


def _are_of(rows: pa.Table, generation: int, batch: int | None, through: int | None) -> pa.ChunkedArray:
    """True for the dead letters of a batch, or of those up to `through`, of a generation."""
    wanted = pc.equal(rows["generation"], generation)
    if batch is not None:
        wanted = pc.and_(wanted, pc.equal(rows["batch"], batch))
    return wanted if through is None else pc.and_(wanted, pc.less_equal(rows["batch"], through))
