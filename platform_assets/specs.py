"""Descriptions of assets: group, layer, kinds, owner, and what their columns mean and are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import dagster as dg

from platform_assets.lineage import Lineage, Origin, lineage_metadata, origins_in_words
from platform_assets.tags import LAYER_TAG
from streaming import Pipeline
from streaming.contracts import Contract
from streaming.declare import ColumnSpec

Layer = Literal[
    "source",
    "event_log",
    "side_outputs",
    "first_results",
    "results",
    "corrections",
    "current",
    "reports",
    "deliveries",
    "operations",
]
"""The stage of an event's path that an asset is; `results` are final, `first_results` may be corrected."""

WHY = "tidemark/why"
"""The metadata of an asset with the command that explains one of its numbers, as Markdown."""
_MOST_NAMED = 5
UNKNOWN_TYPE = "unknown until it is written"


def asset_spec(
    pipeline: Pipeline,
    key: dg.AssetKey,
    layer: Layer,
    description: str,
    kinds: set[str],
    deps: Sequence[dg.AssetKey] = (),
    columns: Sequence[ColumnSpec] = (),
    lineage: Lineage | None = None,
    why: str = "",
    explained_by: Sequence[str] = (),
    contract: Contract | None = None,
    **more: Any,
) -> dg.AssetSpec:
    """An asset of the pipeline, in the group of its name; the layer is a tag and a kind, by which assets are filtered.

    `why` is the view or report, with options, that `tidemark why` takes to explain a number of the asset, and
    `explained_by` are the columns that tell which one.

    What is known of the columns belongs to the definition: it is there before the first run, and the UI adds its
    descriptions to the types that events tell. Of a table with a data contract, its version is told, and its owners.
    """
    metadata = lineage_metadata(lineage or {})
    if columns:
        described = [
            dg.TableColumn(one.name, one.type or UNKNOWN_TYPE, _description(one, (lineage or {}).get(one.name, ())))
            for one in columns
        ]
        metadata["dagster/column_schema"] = dg.TableSchema(described)
    if why:
        metadata[WHY] = dg.MetadataValue.md(_command(why, explained_by))
    if contract is not None:
        metadata["contract"] = str(contract)
    return dg.AssetSpec(
        key,
        deps=deps,
        group_name=pipeline.name,
        tags={LAYER_TAG: layer},
        kinds={*kinds, layer},
        owners=[*dict.fromkeys((pipeline.owner, *(contract.owners if contract is not None else ())))],
        description=description,
        metadata=metadata,
        **more,
    )


def _command(why: str, explained_by: Sequence[str]) -> str:
    """The command that explains a number, as Markdown: a block that can be copied, and what it takes."""
    named = [f"{name}=VALUE" for name in explained_by[:_MOST_NAMED]]
    command = " ".join(["tidemark why", why, *named])
    others = explained_by[_MOST_NAMED:]
    more = f" Others that it takes: {', '.join(f'`{name}`' for name in others)}." if others else ""
    return f"```\n{command}\n```\nAs many of the columns as it takes to tell which number is meant are enough.{more}"


def _description(column: ColumnSpec, origins: Iterable[Origin]) -> str | None:
    """The meaning of a column, and what it is computed from unless it is handed on under its own name."""
    of = [origin for origin in origins if origin[1] != column.name]
    return " ".join(filter(None, (column.meaning, origins_in_words(origins) if of else ""))) or None
