"""Days of a view whose published numbers were kept though rows of theirs were erased: nobody can compute them again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date

from deltalake import DeltaTable

from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.tables import delta

_KEPT = "tidemark.kept"


def kept_days(table: DeltaTable | None) -> set[date]:
    """The days that an open table of first results keeps so; none once the view was built anew."""
    text = None if table is None else table.metadata().configuration.get(_KEPT)
    kept = json.loads(text) if text else {}
    return {date.fromisoformat(day) for day in kept["days"]} if kept.get("of") == generation_of(table) else set()


def keep_days(lake: Lake, view: Windowed, days: Iterable[date]) -> None:
    """Keep the numbers of these days as they are published, and say so to the audit."""
    table = delta.open_table(lake.first(view))
    if table is not None:
        every = sorted({*kept_days(table), *days})
        kept = {"of": generation_of(table), "days": [day.isoformat() for day in every]}
        table.alter.set_table_properties({_KEPT: json.dumps(kept)}, raise_if_not_exists=False)
