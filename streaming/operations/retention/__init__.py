"""Retention of event logs: which days may go, and how they go."""

from streaming.operations.retention.declared import drop_old_days
from streaming.operations.retention.dropping import Dropped, drop_days
from streaming.operations.retention.planned import PlannedDrop, planned_drop
from streaming.operations.retention.retained import RetainedDays, retained_days
