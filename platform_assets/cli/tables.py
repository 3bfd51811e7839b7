"""The tables and reads of a pipeline that `tidemark show` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from streaming.base import DeclarationError, LogError, OperatorError
from streaming.declare import CURRENT, DEAD, SUBSCRIPTIONS, Delivery, Operator, Pipeline, Receiver, Stream
from streaming.lake import Lake
from streaming.log import clock_history, read_log, rejected, retractions, told_batches, warned
from streaming.reading import StoredRows, stored_rows
from streaming.tables import delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[["SparkSession"], "DataFrame"]

_RETRACTIONS = "retractions"
OF_STREAM = ("log", "changes", "rows", "clock", "rejected", "warned", _RETRACTIONS)
"""The names of what is shown of the stream that an operator reads first, whatever the operator."""


def readable(lake: Lake, pipeline: Pipeline, operator: Operator) -> Mapping[str, Read]:
    """The reads that show an operator and the log that it reads, by name, in an order for people.

    What the operator itself shows comes first. A function raises LogError or OperatorError without its table.
    """
    from streaming.operators import runtime_of
    from streaming.revisions import of_revisions

    stream = operator.reads[0]
    columns = ("_batch", "_rejected", "_raw", "_origin")
    own = runtime_of(operator, lake).readable
    return {
        **own,
        "log": lambda spark: read_log(spark, lake, stream.revisions).orderBy("_batch", "_origin"),
        # What an operator has forgotten stands before what its stream has.
        **{**of_revisions(lake, stream), **own},
        "clock": lambda spark: spark.createDataFrame(_clock(lake, pipeline, stream)),
        "rejected": lambda spark: rejected(read_log(spark, lake, stream.revisions)).select(*columns).orderBy("_batch"),
        "warned": lambda spark: warned(read_log(spark, lake, stream.revisions), stream).orderBy("_batch", "_origin"),
        _RETRACTIONS: lambda spark: spark.createDataFrame(_retractions(lake, pipeline, stream)),
        **{each.table_name(DEAD): partial(_dead_letters, lake=lake, delivery=each) for each in pipeline.deliveries},
        **{
            each.table_name(SUBSCRIPTIONS): partial(_subscriptions, lake=lake, receiver=each)
            for each in pipeline.receivers
            if each.subscriptions is not None
        },
    }


def read_named(lake: Lake, pipeline: Pipeline, operator: Operator, name: str | None) -> tuple[str, Read]:
    """The read of that name, with a title; without a name, the first that the operator shows.

    Raises:
        DeclarationError: there is no such thing to show; the text lists those there are.
    """
    reads = readable(lake, pipeline, operator)
    chosen = next(iter(reads)) if name is None else name
    if chosen not in reads:
        others = [each.name for each in pipeline.operators if chosen in readable(lake, pipeline, each)]
        instead = f" Of {others[0]!r} there is one: add `--view {others[0]}`." if others else ""
        raise DeclarationError(
            f"there is no {chosen!r} to show of {operator.kind_name} {operator.name!r} of {pipeline.name!r}; "
            f"there are: {', '.join(reads)}.{instead}",
            operator=operator.name,
            choices=tuple(reads),
        )
    return _title(pipeline, operator, chosen), reads[chosen]


def stored_named(lake: Lake, pipeline: Pipeline, operator: Operator, name: str | None) -> tuple[str, StoredRows] | None:
    """The rows of that name, with a title, as they lie in the lake; None where Spark has to compute them."""
    chosen = CURRENT if name is None else name
    if chosen == "clock":
        clock = _clock(lake, pipeline, operator.reads[0])
        return _title(pipeline, operator, chosen), StoredRows(clock, tuple(clock.column_names))
    if chosen == _RETRACTIONS:
        told = _retractions(lake, pipeline, operator.reads[0])
        return _title(pipeline, operator, chosen), StoredRows(told, tuple(told.column_names))
    rows = stored_rows(lake, pipeline, operator, chosen)
    return None if rows is None else (_title(pipeline, operator, chosen), rows)


def _title(pipeline: Pipeline, operator: Operator, name: str) -> str:
    return f"{operator.reads[0].name if name in OF_STREAM else f'{pipeline.name}/{operator.name}'}: {name}"


def _check_now(lake: Lake, name: str) -> None:
    """Refuse what follows no batch of a log."""
    if lake.cut is not None:
        raise OperatorError(f"what {name!r} keeps follows no batch of a log, so it is there as it is now only.")


def _subscriptions(spark: SparkSession, lake: Lake, receiver: Receiver) -> DataFrame:
    _check_now(lake, receiver.name)
    uri = lake.table(receiver, SUBSCRIPTIONS)
    if not delta.exists(uri):
        raise OperatorError(
            f"receiver {receiver.name!r} has asked for nothing yet; `tidemark receive` or `up` starts it.",
            receiver=receiver.name,
        )
    return delta.read(spark, uri).orderBy("first_seen")


def _dead_letters(spark: SparkSession, lake: Lake, delivery: Delivery) -> DataFrame:
    _check_now(lake, delivery.name)
    uri = lake.table(delivery, DEAD)
    if not delta.exists(uri):
        raise OperatorError(
            f"delivery {delivery.name!r} has no dead letters: no row was refused so far, or failed.",
            delivery=delivery.name,
        )
    return delta.read(spark, uri).orderBy("generation", "batch", "position")


def _retractions(lake: Lake, pipeline: Pipeline, stream: Stream) -> pa.Table:
    """The retractions of a stream, a row each, oldest first."""
    types = [
        pa.field("id", pa.int64()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("who", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("where", pa.string()),
        pa.field("undoes", pa.int64()),
        pa.field("rows", pa.int64()),
    ]
    rows = [vars(each) for each in retractions(lake, pipeline) if each.stream == stream.name]
    return pa.Table.from_pylist(rows, pa.schema(types))


def _clock(lake: Lake, pipeline: Pipeline, stream: Stream) -> pa.Table:
    """The history of the stream's watermark, a row per batch, oldest first."""
    readings = clock_history(told_batches(lake, stream))
    if not readings:
        raise LogError(
            f"stream {stream.name!r} has no event log at {lake.log(stream)!r} yet",
            f"run `tidemark run {pipeline.name}` first, or point TIDEMARK_HOME to the lake that has it.",
            stream=stream.name,
        )
    instant, number = pa.timestamp("us", "UTC"), pa.int64()
    columns = {
        "batch": pa.array([each.batch for each in readings], number),
        "cause": pa.array([each.cause for each in readings], pa.string()),
        "stamp": pa.array([each.stamp for each in readings], instant),
        "after": pa.array([each.after for each in readings], instant),
        "greatest": pa.array([each.greatest for each in readings], instant),
        "rows": pa.array([each.rows for each in readings], number),
        "rejected": pa.array([each.rejected for each in readings], number),
    }
    for name in (operator.name for operator in pipeline.operators_of(stream)):
        columns[f"late_{name}"] = pa.array([each.late.get(name, 0) for each in readings], number)
    columns["processed_at"] = pa.array([each.processed_at for each in readings], instant)
    if any(each.unknown for each in readings):
        unknown = [[*each.unknown.items()] for each in readings]
        columns["unknown_fields"] = pa.array(unknown, pa.map_(pa.string(), number))
    if any(each.warned for each in readings):
        columns["warned"] = pa.array([[*each.warned.items()] for each in readings], pa.map_(pa.string(), number))
    return pa.table(columns)
