"""State that a declaration adds: keys that are there have none of it yet, and keep what they have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streaming.base import arrow_schema
from streaming.declare import STATE, Keyed
from streaming.keyed.schemas import spark_schema
from streaming.lake import Lake
from streaming.operators import declaration_properties, recorded_declaration
from streaming.tables import delta

_STATE = "state"


def counts_as(keyed: Keyed, makes: dict[str, Any]) -> dict[str, Any]:
    """The fingerprint `makes` of an older declaration, taken for today's where only fields were added to its state."""
    return {**makes, _STATE: keyed.state} if _STATE in makes and _added(keyed, makes[_STATE]) else makes


def add_state(lake: Lake, keyed: Keyed) -> list[str]:
    """Add the fields that the table of state lacks, empty, and record the declaration; returns the fields' names.

    To be called by whoever steps the function, once its declaration is checked.
    """
    uri = lake.table(keyed, STATE)
    table = delta.open_table(uri)
    recorded = None if table is None else recorded_declaration(table)
    added = [] if recorded is None else _added(keyed, recorded["makes"].get(_STATE, keyed.state))
    if added:
        delta.widen(uri, spark_schema(pa.schema(added), partitioned=False))
        # The state says last that it is of the new declaration: whoever dies before does all of it again.
        for suffix in (*(spec.suffix for spec in keyed.tables if not spec.is_state), STATE):
            of_keyed = delta.open_table(lake.table(keyed, suffix))
            if of_keyed is not None:
                of_keyed.alter.set_table_properties(declaration_properties(keyed), raise_if_not_exists=False)
    return [field.name for field in added]


def _added(keyed: Keyed, before: str) -> list[pa.Field]:
    """The fields that today's state has and `before` had not; none where one of those was removed or changed."""
    old, new = arrow_schema(before) if before.strip() else pa.schema([]), keyed.state_schema
    if any(field.name not in new.names or new.field(field.name).type != field.type for field in old):
        return []
    return [field for field in new if field.name not in old.names]
