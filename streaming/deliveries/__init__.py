"""Deliveries as they run: numbered batches of a table's rows, each written down before it is sent to its target."""

from streaming.deliveries.changes import ChangesOutbox, changes_between
from streaming.deliveries.computed import value_of
from streaming.deliveries.cutting import days_to_deliver, why_not_by_day
from streaming.deliveries.delivery_progress import DeliveryProgress
from streaming.deliveries.expected import expected_rows
from streaming.deliveries.ledger import Ledger
from streaming.deliveries.ledger_table import LedgerTable, ledger_of
from streaming.deliveries.outbox import UNIT, Cursor, Outbox, wanted
from streaming.deliveries.outboxes import outbox_for, outbox_of
from streaming.deliveries.reader import with_places, without_places
from streaming.deliveries.runtime import DeliveryRuntime
from streaming.deliveries.slice import place_of
