"""Dead letters of a delivery: rows that the target refused or that cannot be computed, kept until they arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from streaming.base import written
from streaming.declare import DEAD, Delivery
from streaming.deliveries.ledger import recorded_by
from streaming.deliveries.outbox import Cursor
from streaming.lake import Lake
from streaming.sinks import NumberedBatch, RefusedRow, json_objects
from streaming.tables import attempts, delta

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


class DeadLetters:
    """The table `<delivery>_dead`; only whoever delivers writes its rows."""

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
        if not refused and (table is None or not self._rows(batch.generation, batch.number)):
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
        return self._rows(generation, None, through)

    def to_send_again(self, generation: int, delivered: int) -> list[dict[str, Any]]:
        """Those for which somebody has asked, of the batches up to `delivered`, oldest first."""
        asked = min(self.asked(generation), delivered)
        return self.pending(generation, asked) if asked >= 0 else []

    def forget(self, generation: int, through: int) -> None:
        """Those of the batches up to `through` have been sent again."""
        table = delta.open_table(self.uri)
        if table is None or not self._rows(generation, None, through):
            return
        for attempt in attempts(table):
            with attempt:
                table.delete(f"generation = {generation} and batch <= {through}")

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

    def _rows(self, generation: int, batch: int | None, through: int | None = None) -> list[dict[str, Any]]:
        table = delta.open_table(self.uri)
        if table is None:
            return []
        rows = delta.contents(table)
        wanted = pc.equal(rows["generation"], generation)
        if batch is not None:
            wanted = pc.and_(wanted, pc.equal(rows["batch"], batch))
        if through is not None:
            wanted = pc.and_(wanted, pc.less_equal(rows["batch"], through))
        order = [("batch", "ascending"), ("position", "ascending")]
        kept: list[dict[str, Any]] = rows.filter(wanted).sort_by(order).to_pylist()
        return kept
