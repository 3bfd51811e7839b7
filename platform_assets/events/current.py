"""The current results of an operator, told of by whoever has just published them."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pyarrow.compute as pc

from platform_assets.events.metadata import table_metadata
from platform_assets.keys import current_keys
from platform_assets.lineage import lineage_of_table
from streaming import Lake
from streaming.declare import CURRENT, Operator
from streaming.tables import delta


def report_current(context: Any, lake: Lake, operator: Operator) -> None:
    """Tell of the operator's current results, where they are an asset of their own and there are any yet."""
    if operator.overlaid and delta.exists(lake.table(operator)):
        (key,) = current_keys(operator)
        context.log_event(dg.AssetMaterialization(key, metadata=current_metadata(lake, operator)))


def current_metadata(lake: Lake, operator: Operator) -> dict[str, Any]:
    """The table of current results, and how many of its rows stand for a first result; nothing where there is none."""
    table = delta.open_table(lake.table(operator, CURRENT))
    if table is None:
        return {}
    reasons = delta.contents(table, columns=["_reason"])["_reason"]
    corrected = pc.sum(pc.not_equal(reasons, "first")).as_py() or 0
    return {
        **table_metadata(lake.table(operator, CURRENT), lineage_of_table(operator, CURRENT)),
        "corrected_rows": corrected,
    }
