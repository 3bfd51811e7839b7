"""Asset keys, named like a table's place in the lake, and the names of everything else that Dagster knows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

import dagster as dg

from streaming import Pipeline, Stream
from streaming.declare import CORRECTIONS, CURRENT, FAILED, LATE, Delivery, ExternalTable, Operator


def source_key(stream: Stream) -> dg.AssetKey:
    """The key of what lands for a stream, and is not taken in yet."""
    return dg.AssetKey([stream.name, "source"])


def followed_keys(stream: Stream) -> list[dg.AssetKey]:
    """The tables of the lake that a stream follows."""
    return [
        log_key(of.revisions) if isinstance(of, Stream) else table_key(of, side) for of, side in stream.source.follows
    ]


def log_key(stream: Stream) -> dg.AssetKey:
    """The log that operators read: of a stream with a key its changes, of its `revisions` all that came."""
    return dg.AssetKey([stream.name, "changes" if stream.revised else "log"])


def read_keys(operator: Operator) -> list[dg.AssetKey]:
    """The tables that an operator reads: logs, what is current of other operators, and tables of others."""
    logs = (stream for stream in operator.reads if stream in (*operator.follows, *operator.pins))
    current = (key for below in operator.reads_current for key in current_keys(below))
    return [*map(log_key, logs), *current, *map(external_key, operator.external)]


def external_key(table: ExternalTable) -> dg.AssetKey:
    """A table that an operator reads and nobody in its pipeline writes."""
    if table.operator is not None:
        return table_key(table.operator, CURRENT)
    return dg.AssetKey(["external", *filter(None, table.place.split("/"))])


def rejected_key(stream: Stream) -> dg.AssetKey:
    """The rejected rows of the log."""
    return dg.AssetKey([stream.name, "rejected"])


def table_key(operator: Operator, suffix: str = "") -> dg.AssetKey:
    """A table of an operator; without a suffix its own, such as the first results of a view."""
    return dg.AssetKey([operator.folder, operator.table_name(suffix)])


def delivery_key(delivery: Delivery) -> dg.AssetKey:
    """The key of what a delivery has carried to its target."""
    return dg.AssetKey([delivery.folder, delivery.name])


def delivered_table_key(delivery: Delivery) -> dg.AssetKey:
    """The table whose rows a delivery carries on."""
    of = delivery.of
    if isinstance(of, Delivery):
        return delivery_key(of)
    if isinstance(of, Stream):
        return rejected_key(of) if delivery.what == "rejected" else log_key(of)
    if delivery.what == "current":
        return current_keys(of)[0]
    return late_key(of) if delivery.what == "late" and of.tells_late else table_key(of, delivery.output)


def late_key(operator: Operator) -> dg.AssetKey:
    """The late rows of an operator that tells them, of a view its late pairs."""
    return table_key(operator, LATE)


def failed_key(operator: Operator) -> dg.AssetKey:
    """The key of what an operator cannot be computed for, where that is a read of its logs."""
    return table_key(operator, FAILED)


def corrections_key(operator: Operator) -> dg.AssetKey:
    """The corrections of an operator."""
    return table_key(operator, CORRECTIONS)


def current_keys(operator: Operator) -> list[dg.AssetKey]:
    """The keys of an operator's current results: one asset, also where several tables are put together for it."""
    if operator.overlaid:
        return [table_key(operator, CURRENT)]
    return [table_key(operator, table.suffix) for table in operator.tables if table.is_result]


def parts_key(operator: Operator, by: str) -> dg.AssetKey:
    """The current results of an operator, with a partition for each value of a column."""
    return dg.AssetKey([operator.folder, operator.name, "by", by.strip("_")])


def trend_key(pipeline: Pipeline) -> dg.AssetKey:
    """The hours of the running stream in numbers."""
    return dg.AssetKey([pipeline.name, "trend"])


def result_keys(operators: Iterable[Operator]) -> list[dg.AssetKey]:
    """Everything that is current is made of these: of views the first results, updates and corrections."""
    return [table_key(operator, table.suffix) for operator in operators for table in operator.tables if table.is_result]


def streamed_keys(pipeline: Pipeline) -> list[dg.AssetKey]:
    """Everything that a drain or a running stream brings up to date."""
    return [
        *map(log_key, pipeline.logs),
        *map(rejected_key, pipeline.streams),
        *(table_key(operator, table.suffix) for operator in pipeline.operators for table in operator.streamed),
        *(late_key(operator) for operator in pipeline.operators if operator.tells_late),
        *(failed_key(operator) for operator in pipeline.operators if operator.tells_failed),
    ]


def report_key(name: str) -> dg.AssetKey:
    """A published report."""
    return dg.AssetKey(["reports", name])


def dimension_key(name: str) -> dg.AssetKey:
    """A dimension of reports."""
    return dg.AssetKey(["dimensions", name])


Kind = Literal[
    # Jobs
    "control",
    "corrections",
    "drain",
    "fork",
    "maintenance",
    "publication",
    "reconciliation",
    "repair",
    "restore",
    "retraction",
    "savepoint",
    "stream",
    "trend",
    # Steps; they share one namespace with the jobs.
    "alerts",
    "ask",
    "backfill",
    "catalog",
    "checks",
    "correct",
    "drain_step",
    "fork_step",
    "maintain",
    "observe",
    "publish",
    "reconcile",
    "repair_step",
    "restore_step",
    "retraction_step",
    "savepoint_step",
    "supervise",
    "trend_hours",
    # Sensors and schedules
    "arrivals",
    "commits",
    "corrections_hourly",
    "follows",
    "keeper",
    "late_data",
    "maintenance_hourly",
    "reconciliation_nightly",
    "trend_hourly",
    # Sets of partitions
    "days",
    "parts",
]
"""The kind of a named thing. No kind ends with `_` and another kind, so that the end of a name tells its kind."""

KINDS: tuple[Kind, ...] = get_args(Kind)


def dagster_name(kind: Kind, *owner: str) -> str:
    """The name in Dagster of what belongs to `owner`: a pipeline, or a pipeline and one of its tables.

    `flights_drain`, `flights__departures_by_origin_days`. Different arguments never give the same name: between two
    underscores of a part, and after one at its end, stands `U`, which no part contains, so that `__` separates parts.
    """
    return f"{'__'.join(_without_double_underscores(part) for part in owner)}_{kind}"


def report_name(report: str) -> str:
    """The name of a report's job: the report's own, unless that reads as the name of something of a pipeline."""
    reads_as_a_pipelines = any(report.endswith(f"_{kind}") for kind in KINDS)
    return dagster_name("publication", report) if reads_as_a_pipelines else report


def _without_double_underscores(part: str) -> str:
    return re.sub(r"_(?=_|$)", "_U", part)
