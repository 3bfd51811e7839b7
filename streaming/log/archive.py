"""The archive of a log: what its commits said of their batches, kept when they are cleaned away."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming.declare import Stream
from streaming.lake import Lake
from streaming.tables import delta, storage

_APP = "archive"
_SCHEMA = pa.schema([("batch", pa.int64()), ("described", pa.string())])


def archived(lake: Lake, stream: Stream) -> dict[int, dict[str, Any]]:
    """Per batch number what its commit said, as JSON values; empty where nothing was archived."""
    table = delta.open_table(lake.batches(stream))
    return {} if table is None else _documents(delta.contents(table))


def newest_archived(lake: Lake, stream: Stream) -> dict[str, Any] | None:
    """What the commit of the newest archived batch said, or None where nothing was archived."""
    table = delta.open_table(lake.batches(stream))
    number = None if table is None else table.transaction_version(_APP)
    if table is None or number is None:
        return None
    return _documents(delta.contents(table, [("batch", "=", number)]))[number]


def archived_through(lake: Lake, stream: Stream) -> int | None:
    """The newest archived batch, or None where nothing was archived; batches are archived without a gap."""
    table = delta.open_table(lake.batches(stream))
    return None if table is None else table.transaction_version(_APP)


def archive(lake: Lake, stream: Stream, described: Mapping[int, Mapping[str, Any]]) -> int:
    """Append those of `described` that are newer than the archive, in one commit; returns how many they were.

    Batches are numbered without a gap, so the newest one says which are there: each is archived once, whenever a
    process dies.

    Raises:
        CommitFailedError: another process has archived meanwhile; the next call finds what is left.
    """
    uri = storage.location(lake.batches(stream))
    table = DeltaTable.create(
        uri,
        _SCHEMA,
        mode="ignore",
        name="batches",
        description=f"What the commits of the event log of {stream.name} said of their batches",
        configuration=delta.CONFIGURATION | {"delta.appendOnly": "true"},
    )
    newest = table.transaction_version(_APP)
    new = sorted(number for number in described if newest is None or number > newest)
    if new:
        rows = pa.table([new, [json.dumps(described[number]) for number in new]], schema=_SCHEMA)
        commit = CommitProperties(app_transactions=[Transaction(_APP, new[-1])], max_commit_retries=0)
        write_deltalake(table, rows, mode="append", commit_properties=commit)
    return len(new)


def replace_archived(lake: Lake, stream: Stream, described: Mapping[int, Mapping[str, Any]]) -> None:
    """Put `described` in place of what the archive has of these batches, in one commit."""
    table = DeltaTable(storage.location(lake.batches(stream)))
    # Whatever kills this: a table that takes no replacement is made so again by whoever replaces next.
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    new = {**archived(lake, stream), **described}
    rows = pa.table([sorted(new), [json.dumps(new[number]) for number in sorted(new)]], schema=_SCHEMA)
    write_deltalake(table, rows, mode="overwrite", commit_properties=CommitProperties(max_commit_retries=0))
    table.alter.set_table_properties({"delta.appendOnly": "true"})


def _documents(rows: pa.Table) -> dict[int, dict[str, Any]]:
    texts = zip(rows["batch"].to_pylist(), rows["described"].to_pylist(), strict=True)
    return {number: json.loads(text) for number, text in texts}
