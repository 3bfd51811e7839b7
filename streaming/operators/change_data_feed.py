"""Delta's change data feed of a pipeline's tables, where its declaration asks for it."""

from __future__ import annotations

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.tables import delta

_PROPERTY = {"delta.enableChangeDataFeed": "true"}


def feed_changes(lake: Lake, pipeline: Pipeline) -> list[str]:
    """Let readers of Delta's change data feed read the tables of a pipeline that declares it; returns which did not.

    They can from the next commit of a table on. Its writer version becomes 4; its reader version stays. A commit that
    replaces a day is read as all old rows of the day deleted and all new ones inserted, as the protocol has it for
    commits without files of their own for changes (Delta protocol, Add CDC File).
    """
    if not pipeline.change_data_feed:
        return []
    uris = [lake.log(stream) for stream in pipeline.streams]
    uris += [
        lake.table(operator, spec.suffix)
        for operator in pipeline.operators
        for spec in (*operator.tables, *operator.published)
        if not spec.is_state
    ]
    tables = [table for table in map(delta.open_table, uris) if table is not None]
    without = [table for table in tables if not _PROPERTY.items() <= table.metadata().configuration.items()]
    for table in without:
        table.alter.set_table_properties(_PROPERTY)
    return [table.table_uri for table in without]
