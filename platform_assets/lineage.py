"""Which columns of which assets the columns of an asset are computed from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from platform_assets import keys
from quality import Pin
from streaming import Lake, Pipeline, Stream
from streaming.declare import CURRENT, Operator, log_columns

Origin = tuple[dg.AssetKey, str]
"""A column of an asset."""

Lineage = Mapping[str, Iterable[Origin]]
"""For each column of an asset the columns that it is computed from."""


def lineage_metadata(lineage: Lineage) -> dict[str, Any]:
    """The lineage as Dagster keeps it; nothing where nothing is known."""
    deps = {column: [dg.TableColumnDep(*origin) for origin in origins] for column, origins in lineage.items()}
    columns = {column: origins for column, origins in deps.items() if origins}
    return {"dagster/column_lineage": dg.TableColumnLineage(columns)} if columns else {}


def origins_in_words(origins: Iterable[Origin]) -> str:
    """`From flights/log: dep_delay.`; the open-source UI draws no lineage of columns, but shows what is said of one."""
    columns: dict[str, list[str]] = {}
    for asset, column in origins:
        columns.setdefault(asset.to_user_string(), []).append(column)
    return " ".join(f"From {asset}: {', '.join(names)}." for asset, names in columns.items())


def lineage_of_table(operator: Operator, suffix: str = "") -> Lineage:
    """Where the columns of an operator's table come from: columns of the logs that it reads, and of what is current.

    What is current and put together from several tables comes from these. A suffix may also be that of late rows or of
    failures, which are reads of the logs.
    """
    if suffix == CURRENT and operator.overlaid:
        return lineage_of_current(operator)
    of = {stream.name: keys.log_key(stream) for stream in operator.reads}
    of |= {below.name: keys.table_key(below, CURRENT) for below in operator.reads_current}
    of |= {table.name: keys.external_key(table) for table in operator.external}
    return {spec.name: [(of[source], column) for source, column in spec.of] for spec in operator.columns_of(suffix)}


def lineage_of_rejected(stream: Stream) -> Lineage:
    """Where the columns of rejected rows come from: the log, of which they are a read."""
    return {spec.name: [(keys.log_key(stream.revisions), spec.name)] for spec in log_columns(stream)}


def lineage_of_log(stream: Stream) -> Lineage:
    """Where the columns of a log come from: what its payloads declare, and of changes the log of revisions."""
    if stream.revised:
        return {spec.name: [(keys.log_key(stream.revisions), spec.name)] for spec in log_columns(stream)}
    return {spec.name: [(keys.source_key(stream), column) for _, column in spec.of] for spec in log_columns(stream)}


def lineage_of_current(operator: Operator) -> Lineage:
    """Where current results come from: the same columns of every table that they are put together from."""
    tables = [table for table in operator.tables if table.is_result]
    there = {table.suffix: {spec.name for spec in operator.columns_of(table.suffix)} for table in tables}
    return {
        spec.name: [
            (keys.table_key(operator, table.suffix), spec.name) for table in tables if spec.name in there[table.suffix]
        ]
        for spec in operator.columns_of(CURRENT)
    }


def lineage_of_report(
    lake: Lake, pipeline: Pipeline, read: Mapping[str, Iterable[tuple[str, str]]], dimensions: Mapping[str, Pin]
) -> dict[str, list[Origin]]:
    """Where a report's columns come from, given the columns that each has `read`, with where their tables lie.

    A column that is read from several result tables of an operator is read from what is current of it. `dimensions` are
    the versions that the report joined, by name.
    """
    logs = {_path(lake.log(stream)): keys.log_key(stream) for stream in pipeline.logs}
    others = {_path(pin.uri): keys.dimension_key(name) for name, pin in dimensions.items()}
    return {column: _origins(lake, pipeline, logs | others, of) for column, of in read.items()}


def _origins(
    lake: Lake, pipeline: Pipeline, inputs: Mapping[str, dg.AssetKey], read: Iterable[tuple[str, str]]
) -> list[Origin]:
    results = {
        _path(lake.table(operator, table.suffix)): (operator, table.suffix)
        for operator in pipeline.operators
        for table in operator.tables
    }
    origins: set[Origin] = set()
    suffixes: dict[tuple[Operator, str], set[str]] = {}
    for location, column in read:
        for place, key in inputs.items():
            if _lies_in(location, place):
                origins.add((key, column))
        for place, (operator, suffix) in results.items():
            if _lies_in(location, place):
                suffixes.setdefault((operator, column), set()).add(suffix)
    for (operator, column), of in suffixes.items():
        asset = CURRENT if len(of) > 1 else of.pop()
        origins.add((keys.table_key(operator, asset), column))
    return sorted(origins, key=lambda origin: (origin[0].path, origin[1]))


def _lies_in(location: str, place: str) -> bool:
    return f"{_path(location)}/".startswith(f"{place}/")


def _path(uri: str) -> str:
    """Spark writes `file:` before paths of this machine, the lake need not."""
    return re.sub(r"^file:(//)?", "", uri).rstrip("/")
