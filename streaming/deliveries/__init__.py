"""Deliveries as they run: numbered batches of a table's rows, each written down before it is sent to its target."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.deliveries.changes import ChangesOutbox
    from streaming.deliveries.ledger import Ledger, LedgerTable, ledger_of
    from streaming.deliveries.outbox import (
        ROW,
        UNIT,
        Cursor,
        Outbox,
        as_delivered,
        place_of,
        value_of,
        wanted,
        with_places,
        without_places,
    )
    from streaming.deliveries.outboxes import outbox_of
    from streaming.deliveries.runtime import DeliveryRuntime, days_to_deliver, why_not_by_day

make_front(__name__)
