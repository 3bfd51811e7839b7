"""Small tables that Python computes: verdicts and reports are written without a Spark job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from streaming.lake import Lake
from streaming.tables import delta, location, newest_commits


def table_name(lake: Lake, uri: str) -> str:
    """The name by which people call the table at `uri`: its path below the lake's root, such as `flights/log`."""
    return uri.removeprefix(f"{lake.root.rstrip('/')}/")


def table_id(table: DeltaTable) -> str:
    """The identity of a table: one that was deleted and rebuilt in its place has another."""
    return str(table.metadata().id)


def write_rows(
    uri: str, rows: pa.Table, mode: Literal["append", "overwrite"], *, metadata: Mapping[str, Any], description: str
) -> int:
    """Write `rows` in one commit that carries `metadata` (JSON values); returns the version it made.

    `append` adds to an append-only table, also columns that it does not have yet; `overwrite` replaces rows and schema.
    Rows stay in their order.
    """
    # Chunks are written side by side, and may change places.
    rows = rows.combine_chunks()
    options: dict[str, Any] = {
        "mode": mode,
        "schema_mode": "overwrite" if mode == "overwrite" else "merge",
        "commit_properties": CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)}),
    }
    table = delta.open_table(uri)
    if table is None:
        write_deltalake(
            location(uri),
            rows,
            description=description,
            configuration=delta.DELTA_CONFIGURATION | {"delta.appendOnly": str(mode == "append").lower()},
            **options,
        )
    else:
        write_deltalake(table, rows, **options)
    table = delta.open_table(uri)
    assert table is not None, uri
    # Another process may have written since, so the newest version need not be this one.
    own = json.loads(json.dumps(metadata))
    return next(int(commit["version"]) for commit in newest_commits(table) if commit["userMetadata"] == own)
