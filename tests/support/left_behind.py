"""What a run of the scenario left behind, so that two runs can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.declare.operator import STATE
from streaming.log.batches import read_batches
from streaming.tables import location, storage
from tests.support.runs import read_current, tuples
from tests.support.scenario import BY_ID, PIPELINE, REPORT, VISITS

# What may differ: when a row was written, and under which folder the lake lies.
WHEN = {"_ingested_at", "_written_at", "_corrected_at"}


@dataclass(frozen=True)
class Left:
    """What a run left behind."""

    log: list[dict[str, Any]]
    log_version: int
    clock: list[tuple[Any, ...]]
    first: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    state: list[dict[str, Any]]
    corrections: list[dict[str, Any]]
    current: list[tuple[Any, ...]]
    report: list[dict[str, Any]]
    csv: bytes | None


def left(spark: SparkSession, lake: Lake) -> Left:
    """What there is now."""
    stream = PIPELINE.stream
    clock = [
        (
            batch.number,
            batch.query_batch,
            batch.state,
            batch.summary.greatest,
            batch.summary.rows,
            batch.rejected,
            batch.late,
        )
        for batch in read_batches(lake, stream)
    ]
    return Left(
        log=rows(lake.log(stream)),
        log_version=DeltaTable(location(lake.log(stream))).version(),
        clock=clock,
        first=rows(lake.first(BY_ID)),
        sessions=rows(lake.first(VISITS)),
        state=rows(lake.table(VISITS, STATE)),
        corrections=rows(lake.corrections(BY_ID)),
        current=tuples(read_current(spark, lake, BY_ID)),
        report=rows(lake.report(REPORT)),
        csv=storage.read_bytes(f"{lake.report(REPORT)}.csv"),
    )


def rows(uri: str) -> list[dict[str, Any]]:
    """The rows of a table but for what may differ, in an order of their own."""
    records = [
        {name: value for name, value in row.items() if name not in WHEN}
        for row in DeltaTable(location(uri)).to_pyarrow_table().to_pylist()
    ]
    for row in records:
        if row.get("_origin"):
            row["_origin"]["path"] = PurePosixPath(row["_origin"]["path"]).name
    return sorted(records, key=repr)
