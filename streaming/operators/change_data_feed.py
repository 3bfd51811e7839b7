"""Delta's change data feed of a pipeline's tables, where its declaration asks for it."""

from __future__ import annotations

from collections.abc import Collection

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.tables import delta, set_properties

_PROPERTY = {"delta.enableChangeDataFeed": "true"}


def feed_changes(lake: Lake, pipeline: Pipeline, done: Collection[str] = ()) -> list[str]:
    """Let readers of Delta's change data feed read the tables of a pipeline that declares it; returns which they can.

    They can from the next commit of a table on. Its writer version becomes 4; its reader version stays. A table with
    reader features is left out, as delta-rs would add some that its readers may not know, and `done` are not looked at.
    A commit that replaces a day is read as all old rows of the day deleted and all new ones inserted, as the protocol
    has it for commits without files of their own for changes (Delta protocol, Add CDC File).
    """
    if not pipeline.change_data_feed:
        return []
    uris = [lake.log(stream) for stream in pipeline.logs]
    uris += [
        lake.table(operator, spec.suffix)
        for operator in pipeline.operators
        for spec in (*operator.tables, *operator.published)
        if not spec.is_state
    ]
    fed = []
    for uri in uris:
        table = None if uri in done else delta.open_table(uri)
        if table is not None and set_properties(table, _PROPERTY):
            fed.append(uri)
    return fed
