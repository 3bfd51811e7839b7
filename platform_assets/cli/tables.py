"""The tables and reads of a pipeline that `tidemark show` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from streaming.base import DeclarationError, LogError, OperatorError
from streaming.declare import DEAD, SUBSCRIPTIONS, Delivery, Operator, Pipeline, Receiver, Stream
from streaming.lake import Lake
from streaming.log import clock_history, read_batches, read_log, rejected
from streaming.operators import runtime_of
from streaming.tables import delta

Read = Callable[[SparkSession], DataFrame]

OF_STREAM = ("log", "clock", "rejected")
"""The names of what is shown of the stream that an operator reads first, whatever the operator."""


def readable(lake: Lake, pipeline: Pipeline, operator: Operator) -> Mapping[str, Read]:
    """The reads that show an operator and the log that it reads, by name, in an order for people.

    What the operator itself shows comes first. A function raises LogError or OperatorError without its table.
    """
    stream = operator.reads[0]
    columns = ("_batch", "_rejected", "_raw", "_origin")
    return {
        **runtime_of(operator, lake).readable,
        "log": lambda spark: read_log(spark, lake, stream).orderBy("_batch", "_origin"),
        "clock": lambda spark: _clock_frame(spark, lake, pipeline, stream),
        "rejected": lambda spark: rejected(read_log(spark, lake, stream)).select(*columns).orderBy("_batch"),
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
        raise DeclarationError(
            f"there is no {chosen!r} to show of view {operator.name!r} of {pipeline.name!r}; there are: "
            f"{', '.join(reads)}.",
            operator=operator.name,
            choices=tuple(reads),
        )
    of_stream = chosen in OF_STREAM
    return f"{operator.reads[0].name if of_stream else f'{pipeline.name}/{operator.name}'}: {chosen}", reads[chosen]


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


def _clock_frame(spark: SparkSession, lake: Lake, pipeline: Pipeline, stream: Stream) -> DataFrame:
    """The history of the stream's watermark, a row per batch, oldest first."""
    readings = clock_history(read_batches(lake, stream))
    if not readings:
        raise LogError(
            f"stream {stream.name!r} has no event log at {lake.log(stream)!r} yet",
            f"run `tidemark run {pipeline.name}` first, or point TIDEMARK_HOME to the lake that has it.",
            stream=stream.name,
        )
    views = [operator.name for operator in pipeline.operators_of(stream)]
    unknown = ", unknown_fields map<string, bigint>" if any(reading.unknown for reading in readings) else ""
    rows = [
        (
            reading.batch,
            reading.cause,
            reading.stamp,
            reading.after,
            reading.greatest,
            reading.rows,
            reading.rejected,
            *(reading.late.get(name, 0) for name in views),
            reading.processed_at,
            *([dict(reading.unknown)] if unknown else []),
        )
        for reading in readings
    ]
    late = "".join(f"late_{name} bigint, " for name in views)
    instants = "stamp timestamp, after timestamp, greatest timestamp"
    schema = f"batch bigint, cause string, {instants}, rows bigint, rejected bigint, "
    return spark.createDataFrame(rows, f"{schema}{late}processed_at timestamp{unknown}")
