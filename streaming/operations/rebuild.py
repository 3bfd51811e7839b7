"""Rebuild an operator's tables from the log, and drop those of an operator that is declared no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import SparkSession

from streaming.base import DeclarationError, ViewError, utc_now
from streaming.declare import Operator, Pipeline
from streaming.lake import Lake
from streaming.log import Batch
from streaming.operators import OperatorRuntime, Written, recorded_declaration, runtime_of
from streaming.service import Run, take_lease
from streaming.tables import delta, storage

_OF_STREAMS = ("log", "batches", "progress")


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did: rows written to the operator's own table, and rows corrected per day."""

    rows: int
    corrected: dict[date, int]


@dataclass(frozen=True)
class LeftTable:
    """A table that no declared operator has: `operator` is the one that made it, the others are its own."""

    operator: str
    name: str
    uri: str


def rebuild(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    operator: Operator,
    now: Callable[[], datetime] = utc_now,
    on_day: Callable[[date, int], None] = lambda day, rows: None,
) -> Rebuilt:
    """Remove the tables of an operator and build them anew from the log, then its corrections.

    Whatever kills it: running it again, or the next run of the pipeline, goes on from the log. `on_day` is told of each
    corrected day.

    Raises:
        LeaseError: the pipeline is running.
        LogError: nothing has been ingested yet.
    """
    written: list[int] = []

    def on_batch(query: str, wrote: Written, batch: Batch | None) -> None:
        written.append(wrote.rows)

    with take_lease(lake, pipeline):
        runtime = runtime_of(operator, lake)
        remove(runtime)
        run = Run(spark, lake, pipeline, now, on_batch)
        run.check_operators()
        run.step(next(each for each in run.operators if each.operator == operator))
        run.catch_up()
        days = [pending.day for pending in runtime.plan(spark)]
        corrected = runtime.correct(spark, days, now, on_day) if days else {}
    return Rebuilt(sum(written), corrected)


def remove(runtime: OperatorRuntime) -> None:
    """Remove the tables of an operator."""
    for uri in runtime.uris():
        storage.remove_folder(uri)


def left_tables(lake: Lake, pipeline: Pipeline) -> Iterator[LeftTable]:
    """The tables beside the logs of a pipeline that none of its operators has any more, renamed or dropped ones."""
    declared = {
        operator.table_name(suffix) for operator in pipeline.operators for suffix in ("", *operator.reserved_suffixes)
    }
    for stream in pipeline.streams:
        for name in sorted(storage.folders(lake.path(stream.name))):
            if name in declared or name in _OF_STREAMS:
                continue
            uri = lake.path(stream.name, name)
            table = delta.open_table(uri)
            if table is not None:
                recorded = recorded_declaration(table)
                operator = name if recorded is None else recorded["operator"]
                yield LeftTable(operator, name, uri)


def drop(lake: Lake, pipelines: Sequence[Pipeline], operator: str) -> list[LeftTable]:
    """Remove the tables that an operator has left behind; returns which.

    Raises:
        DeclarationError: the operator is still declared.
        ViewError: there is no table of it.
        LeaseError: the pipeline beside whose log they lie is running.
    """
    for pipeline in pipelines:
        if any(entry.name == operator for entry in pipeline.operators):
            raise DeclarationError(
                f"view {operator!r} is declared in pipeline {pipeline.name!r}; take it out of the declaration, or "
                f"build it anew with `tidemark rebuild {operator}`. Nothing was removed."
            )
    left = [(pipeline, table) for pipeline in pipelines for table in left_tables(lake, pipeline)]
    removed = [(pipeline, table) for pipeline, table in left if table.operator == operator]
    if not removed:
        raise ViewError(
            f"no table in {lake.root!r} was left by a view {operator!r}; left are those of: "
            f"{', '.join(sorted({table.operator for _, table in left})) or 'none'}."
        )
    for pipeline, table in removed:
        with take_lease(lake, pipeline):
            storage.remove_folder(table.uri)
    return [table for _, table in removed]
