"""The jobs of a pipeline as OpenLineage knows them: what each reads and writes, and which columns come from which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streaming.base import Dataset, dataset_at, names_in
from streaming.declare import (
    CHANGES,
    CURRENT,
    DEAD,
    ColumnSpec,
    Delivery,
    Operator,
    Pipeline,
    Stream,
    log_columns,
)
from streaming.lake import Lake
from streaming.service.query_errors import ingest_query
from streaming.sinks import DeltaTable

Origins = tuple[tuple[Dataset, str], ...]
"""Columns of datasets from which one column is computed."""


@dataclass(frozen=True)
class LineageTable:
    """A dataset, and what the declaration says of it.

    `table` is where a Delta table lies whose version is told, empty for anything else. `columns` have names, types and
    meanings, and `origins` those columns of what the job reads from which one is computed, by its name.
    """

    dataset: Dataset
    table: str = ""
    columns: tuple[ColumnSpec, ...] = ()
    origins: Mapping[str, Origins] = field(default_factory=dict)
    description: str = ""


@dataclass(frozen=True)
class LineageJob:
    """One query of a pipeline, whatever it does again and again: the ingest of a stream, an operator or a delivery.

    `query` is its name in progress and status; the first table of `writes` is the one whose rows that counts.
    `is_ingest`: it writes a log, of whose rows some are rejected.
    """

    name: str
    query: str
    description: str
    reads: tuple[LineageTable, ...]
    writes: tuple[LineageTable, ...]
    is_ingest: bool = False


def jobs_of(lake: Lake, pipeline: Pipeline) -> tuple[LineageJob, ...]:
    """The jobs of a run of the pipeline: a job for each stream, operator and delivery, in this order."""
    ingests = (_ingest(lake, pipeline, stream) for stream in pipeline.streams)
    steps = (_steps(lake, pipeline, operator) for operator in pipeline.operators)
    deliveries = (_delivery(lake, pipeline, delivery) for delivery in pipeline.deliveries)
    return (*ingests, *steps, *deliveries)


def corrections_of(lake: Lake, pipeline: Pipeline, operator: Operator) -> tuple[LineageJob]:
    """The job that corrects days of an operator: it computes them from the logs, and publishes what is current then."""
    tables = [table.suffix for table in operator.tables if table.written_by == "backfill"]
    written = [*tables, *(table.suffix for table in operator.published)]
    job = LineageJob(
        f"{pipeline.name}.{operator.name}.correct",
        operator.name,
        f"Corrections of {operator.kind_name} {operator.name}, by days.",
        _read(lake, operator),
        tuple(_table_of(lake, operator, suffix) for suffix in written),
    )
    return (job,)


def rebuild_of(lake: Lake, pipeline: Pipeline, operator: Operator) -> tuple[LineageJob]:
    """The job that builds all tables of an operator anew from the logs, those of corrections and of state too."""
    job = LineageJob(
        f"{pipeline.name}.{operator.name}.rebuild",
        operator.name,
        f"Tables of {operator.kind_name} {operator.name}, built anew from the logs.",
        _read(lake, operator),
        tuple(_table_of(lake, operator, table.suffix, table.description) for table in operator.tables),
    )
    return (job,)


def _ingest(lake: Lake, pipeline: Pipeline, stream: Stream) -> LineageJob:
    sources = stream.source.datasets(lake)
    columns = log_columns(stream)
    origins = {spec.name: tuple((source, name) for source in sources for _, name in spec.of) for spec in columns}
    query = ingest_query(pipeline, stream)
    return LineageJob(
        f"{pipeline.name}.{query}",
        query,
        stream.description or f"The event log of {stream.name}.",
        tuple(LineageTable(source) for source in sources),
        tuple(
            _lake_table(lake.log(log), columns, origins, stream.description)
            for log in dict.fromkeys((stream.revisions, stream))
        ),
        is_ingest=True,
    )


def _steps(lake: Lake, pipeline: Pipeline, operator: Operator) -> LineageJob:
    written = [(table.suffix, table.description) for table in (*operator.streamed, *operator.published)]
    return LineageJob(
        f"{pipeline.name}.{operator.name}",
        operator.name,
        operator.description or f"{operator.kind_name.capitalize()} {operator.name}.",
        (*_read(lake, operator), *(_lake_table(uri) for uri in _looked_up(lake, operator))),
        tuple(_table_of(lake, operator, suffix, description) for suffix, description in written),
    )


def _looked_up(lake: Lake, operator: Operator) -> list[str]:
    """The addresses of the tables in which an operator looks rows up."""
    tables = (*operator.looks_up, *operator.dimensions)
    return [table if isinstance(table, str) else lake.table(table) for table in tables]


def _delivery(lake: Lake, pipeline: Pipeline, delivery: Delivery) -> LineageJob:
    reads = _delivered(lake, delivery)
    origins = {
        name: tuple((read.dataset, column) for read in reads for column in sorted(names_in(expression)))
        for name, expression in delivery.selected.items()
    }
    columns = tuple(ColumnSpec(name, "") for name in delivery.selected)
    table = lake.path(delivery.to.uri) if isinstance(delivery.to, DeltaTable) else ""
    return LineageJob(
        f"{pipeline.name}.{delivery.name}",
        delivery.name,
        delivery.description or f"Delivery {delivery.name} of {delivery.of.name}.",
        reads,
        tuple(LineageTable(dataset, table, columns, origins) for dataset in delivery.to.datasets(lake)),
    )


def _delivered(lake: Lake, delivery: Delivery) -> tuple[LineageTable, ...]:
    """The table whose rows are delivered; late ones are a read of the logs."""
    of = delivery.of
    if isinstance(of, Delivery):
        return (_lake_table(lake.table(of, DEAD)),)
    if isinstance(of, Stream) and delivery.what == "rejected":
        return _logs(lake, (of.revisions,))
    if isinstance(of, Stream) or delivery.what == "late":
        return _logs(lake, of.reads)
    return (_table_of(lake, of, CHANGES if delivery.what == "current" else delivery.output),)


def _read(lake: Lake, operator: Operator) -> tuple[LineageTable, ...]:
    """The logs that an operator reads, what is current of other operators, and tables of others."""
    logs = (stream for stream in operator.reads if stream in (*operator.follows, *operator.pins))
    external = (_lake_table(lake.path(table.place)) for table in operator.external)
    return (*_logs(lake, logs), *(_table_of(lake, below, CURRENT) for below in operator.reads_current), *external)


def _logs(lake: Lake, streams: Iterable[Stream]) -> tuple[LineageTable, ...]:
    return tuple(_lake_table(lake.log(stream), log_columns(stream)) for stream in streams)


def _table_of(lake: Lake, operator: Operator, suffix: str, description: str = "") -> LineageTable:
    sources = {stream.name: dataset_at(lake.log(stream)) for stream in operator.reads}
    sources |= {below.name: dataset_at(lake.table(below, CURRENT)) for below in operator.reads_current}
    sources |= {table.name: dataset_at(lake.path(table.place)) for table in operator.external}
    columns = operator.columns_of(suffix)
    origins = {
        spec.name: tuple((table, column) for source, column in spec.of if (table := sources.get(source)) is not None)
        for spec in columns
    }
    return _lake_table(lake.table(operator, suffix), columns, origins, description)


def _lake_table(
    uri: str,
    columns: tuple[ColumnSpec, ...] = (),
    origins: Mapping[str, Origins] | None = None,
    description: str = "",
) -> LineageTable:
    """The Delta table at `uri`; a lake on a storage without a naming has its own URIs for names."""
    return LineageTable(dataset_at(uri) or Dataset("tidemark", uri), uri, columns, origins or {}, description)
