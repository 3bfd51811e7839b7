"""Counts of what a contender has written, made by reading it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow.dataset import Dataset
from pyspark.sql.streaming.query import StreamingQuery

from streaming import Lake, Pipeline
from streaming.log.batches import read_batches
from streaming.tables.storage import files_of

Result = dict[str, Any]


def logged(lake: Lake, pipeline: Pipeline) -> Result:
    """The content of the log, by its commits and by a read."""
    batches = read_batches(lake, pipeline.stream)
    rejected, rows = sum(batch.rejected for batch in batches), sum(batch.summary.rows for batch in batches)
    total = total_of(lake.log(pipeline.stream), "value")
    return {"rows": rows, "damaged": rejected, "valid": rows - rejected, "sum": total}


def rows_in(table: Path) -> int:
    """The number of rows of a table."""
    return int(_rows(table).count_rows())


def total_of(table: Path | str, column: str) -> float:
    """The sum of a column, read batch by batch: what is read here counts for the peak memory of the contender."""
    read = _rows(table).to_batches(columns=[column], batch_readahead=1, fragment_readahead=1)
    return sum(pc.sum(batch[column]).as_py() or 0 for batch in read)


def _rows(table: Path | str) -> Dataset:
    opened = DeltaTable(table)
    return opened.to_pyarrow_dataset(filesystem=files_of(opened))


def batches_of(query: StreamingQuery) -> Result:
    """The number of a query's batches, and the seconds that each took, from its trigger to its commit."""
    # Spark counts no rows of a batch that tasks have read without it.
    took = [
        entry.durationMs["triggerExecution"] / 1000 for entry in query.recentProgress if "addBatch" in entry.durationMs
    ]
    return {"batches": len(took), "took": took}
