"""Tables of what is published, as they are at moments that are hard to meet."""

from __future__ import annotations

import shutil

from streaming import Lake
from streaming.declare import CHANGES, CURRENT, Operator
from streaming.tables import delta


def unpublish(lake: Lake, operator: Operator) -> None:
    """Leave the tables of what is published as they are when just made: without rows, and without a revision."""
    for suffix in (CHANGES, CURRENT):
        uri = lake.table(operator, suffix)
        schema, days = delta.schema_of(uri), delta.partitions(delta.opened(uri))
        shutil.rmtree(uri)
        delta.create(uri, schema, append_only=False, description="just made", partition_by=days)
