"""The ledger of a delivery in the lake: read, written behind a fence, and refused where what it is of has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructType

from streaming.base import ChangedDeclaration, DeliveryPaused, FencedError
from streaming.declare import PROGRESS, Delivery
from streaming.deliveries.ledger import Ledger
from streaming.lake import Lake
from streaming.operators import DECLARATION, differences, recorded_declaration
from streaming.tables import delta

_COLUMNS = StructType().add("batch", LongType())


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
        changes = list(self._changes())
        if changes:
            raise ChangedDeclaration(
                f"delivery {self._delivery.name!r} is not the one that has delivered so far: {'; '.join(changes)}. "
                f"Give the old declaration back; or let `{self._command} --go-on` "
                "deliver by the new one what comes from now on, or `--all` everything from the beginning. Nothing was "
                "delivered."
            )

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

    def _changes(self) -> Iterator[str]:
        table = delta.open_table(self.uri)
        recorded = None if table is None else recorded_declaration(table)
        if recorded is not None:
            yield from differences(recorded["makes"], dict(self._delivery.fingerprint))


def recorded_by(delivery: Delivery) -> dict[str, str]:
    """The properties of every table of the delivery."""
    recorded = {
        "operator": delivery.name,
        "kind": "Delivery",
        "makes": dict(delivery.fingerprint),
        "selects": dict(delivery.selected),
    }
    return {DECLARATION: json.dumps(recorded)}
