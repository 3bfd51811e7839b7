"""The metadata of a table in the UI, read from its Delta log alone: no Spark, no data files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from platform_assets.lineage import Lineage, lineage_metadata
from streaming import Lake, Stream
from streaming.declare import Operator
from streaming.log import head
from streaming.operators import runtime_of, upstream_lags
from streaming.service import skew_of
from streaming.tables import delta, sql_type


def place_metadata(uri: str) -> dict[str, Any]:
    """The place of a table, as Dagster keeps it, and as a URI under the name that dagster-openlineage reads."""
    return {
        "dagster/uri": dg.MetadataValue.path(uri),
        "uri": dg.MetadataValue.path(Path(uri).as_uri() if uri.startswith("/") else uri),
    }


def table_metadata(uri: str, lineage: Lineage | None = None) -> dict[str, Any]:
    """Place, Delta version, row count and column schema of the table's newest version; only the place without one.

    With the `lineage` of its columns, which catalogs read from events: an asset's definition stays in Dagster.
    """
    table = delta.open_table(uri)
    if table is None:
        return place_metadata(uri)
    counts = pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist()
    fields: list[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
    columns = [dg.TableColumn(each["name"], sql_type(each["type"])) for each in fields]
    return {
        **place_metadata(uri),
        **lineage_metadata(lineage or {}),
        "dagster/row_count": sum(counts),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "delta_version": table.version(),
    }


def partitioned_metadata(uri: str, lineage: Lineage | None = None) -> dict[str, Any]:
    """The metadata for an event of one partition, with the partition's row count: the table's is `rows_of_table`."""
    metadata = table_metadata(uri, lineage)
    if (rows := metadata.pop("dagster/row_count", None)) is not None:
        metadata["rows_of_table"] = rows
    return metadata


def watermark_metadata(lake: Lake, stream: Stream) -> dict[str, Any]:
    """The stream's watermark and newest batch; nothing while nothing is ingested."""
    newest = head(lake, stream)
    if newest is None:
        return {}
    metadata: dict[str, Any] = {"newest_batch": newest.number}
    if newest.after.watermark is not None:
        metadata["watermark"] = dg.MetadataValue.timestamp(newest.after.watermark)
    return metadata


def position_metadata(lake: Lake, operator: Operator) -> dict[str, Any]:
    """The newest batch of each log that an operator follows, its watermark, and the rows that wait for it.

    Of several streams the watermark is that of the joint clock, with how far theirs are apart. Nothing while a log is
    empty.
    """
    heads = {stream.name: head(lake, stream) for stream in operator.follows}
    newest = {name: batch for name, batch in heads.items() if batch is not None}
    if len(newest) < len(heads):
        return {}
    suffix = {name: f"_of_{name}" if len(heads) > 1 else "" for name in heads}
    metadata: dict[str, Any] = {f"newest_batch{suffix[name]}": batch.number for name, batch in newest.items()}
    marks = {name: batch.after.watermark for name, batch in newest.items() if batch.after.watermark is not None}
    if marks and len(marks) == len(heads):
        metadata["watermark"] = dg.MetadataValue.timestamp(min(marks.values()))
    metadata |= {"waiting_rows": runtime_of(operator, lake).waiting(), **skew_metadata(operator, marks)}
    return metadata | upstream_metadata(lake, operator)


def upstream_metadata(lake: Lake, operator: Operator) -> dict[str, Any]:
    """The lag of an operator behind the corrections of all that it follows; nothing where it follows first rows."""
    lags = list(upstream_lags(lake, operator))
    if not lags:
        return {}
    numbers = {
        "upstream_days_to_correct": sum(len(lag.due.days) for lag in lags),
        "upstream_revisions_to_follow": sum(lag.revisions for lag in lags),
    }
    return {**numbers, "upstream": "; ".join(filter(None, map(str, lags))) or "nothing is due upstream"}


def skew_metadata(operator: Operator, watermarks: Mapping[str, datetime]) -> dict[str, Any]:
    """The skew between the clocks that the operator joins, and which is behind; nothing where it joins none."""
    skew = skew_of(operator, watermarks)
    return {} if skew is None else {"watermark_skew_seconds": skew.by.total_seconds(), "behind": skew.behind}


def filter_metadata(lake: Lake, operator: Operator, suffix: str) -> dict[str, Any]:
    """The counts of a table's filter since the table was built; nothing where it has none."""
    counts = runtime_of(operator, lake).filtered().get(suffix)
    return {} if counts is None else {"rows_in": counts.rows_in, "kept": counts.kept, "removed": counts.removed}


def counted(what: str, counts: Mapping[str, int]) -> dg.MarkdownMetadataValue:
    """A two-column table of counts."""
    rows = "\n".join(f"| {name} | {count:,} |" for name, count in counts.items())
    return dg.MetadataValue.md(f"| {what} | count |\n|---|---:|\n{rows}" if counts else "none")
