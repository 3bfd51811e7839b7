"""Deliveries around an erasure: at rest before, and told afterwards what their tables do not have any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import SparkSession

from streaming.base import ErasureError
from streaming.declare import CHANGES, Delivery, Operator, Pipeline, Stream
from streaming.deliveries import DeliveryRuntime
from streaming.lake import Lake
from streaming.operations.erasure.person import Person
from streaming.operations.erasure.record import Erasure
from streaming.service import Delivering
from streaming.tables import delta, take_out


def check_delivered(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime], *, is_begun: bool
) -> None:
    """Deliver all there is: what is in the midst of being delivered is told by places that an erasure would move.

    Where the erasure `is_begun`, the pipeline may have run since it died, so it is looked at again. Deliveries of what
    was built anew by then are passed over: nothing was delivered of it, and they are told afterwards.

    Raises:
        ErasureError: a target is away, or a delivery waits for a decision.
    """
    delivering = Delivering.alone(spark, lake, pipeline, now)
    ledgers = ((each, each.ledger.read()) for each in delivering.runtimes)
    begun = [
        each
        for each, ledger in ledgers
        if ledger is not None and not (is_begun and ledger.of_generation != each.outbox.generation())
    ]
    for runtime in begun:
        delivering.deliver_all(only=runtime.delivery.name)
    waits = {name: waiting.why for name, waiting in delivering.waiting.items()}
    waits |= {name: str(refused) for name, refused in delivering.paused.items()}
    if waits:
        named = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in waits.items())
        raise ErasureError(
            f"deliveries of pipeline {pipeline.name!r} have not delivered everything, and what they have begun must "
            f"not change: {named}. Bring the targets back, or decide with `tidemark redeliver {pipeline.name} NAME`; "
            "then run this again. Nothing was erased."
        )


def tell_deliveries(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    erasure: Erasure,
    person: Person,
    now: Callable[[], datetime],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Let deliveries go on over tables that lost rows; returns those whose targets were told, and those to be told.

    Of what is current the differences are delivered as upserts and deletes, before the lake forgets what they were.

    Raises:
        ErasureError: a target is away.
    """
    logs = {table.removesuffix("/log") for table, removed in erasure.tables.items() if removed.rows}
    touched = {*erasure.streams, *erasure.generations, *logs}
    recipients, to_tell = [], []
    for delivery in pipeline.deliveries:
        runtime = DeliveryRuntime(delivery, lake, now, pipeline.name)
        if runtime.ledger.read() is None or not _sources(delivery) & touched:
            continue
        runtime.begin_anew(again=False)
        if delivery.what != "current":
            to_tell.append(delivery.name)
            continue
        _deliver(spark, lake, pipeline, delivery, now)
        changes = lake.table(delivery, CHANGES)
        if delta.exists(changes):
            take_out(spark, changes, person.split(), {"erasure": erasure.id})
            # What was sent is told by rows that are gone now.
            runtime.begin_anew(again=False)
        recipients.append(delivery.name)
    return tuple(recipients), tuple(to_tell)


def _deliver(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, delivery: Delivery, now: Callable[[], datetime]
) -> None:
    delivering = Delivering.alone(spark, lake, pipeline, now)
    delivering.deliver_all(only=delivery.name)
    waiting = delivering.waiting.get(delivery.name)
    refused = delivering.paused.get(delivery.name)
    if waiting or refused:
        raise ErasureError(
            f"{delivery.to.address} has not taken what changes by the erasure: {waiting.why if waiting else refused}. "
            "What is erased so far stays erased; bring the target back, and run the same command again, which goes on."
        )


def _sources(delivery: Delivery) -> set[str]:
    """The names of the stream or operator that a delivery is of, and of the streams that this reads."""
    of: Delivery | Operator | Stream = delivery.of
    while isinstance(of, Delivery):
        of = of.of
    return {of.name} if isinstance(of, Stream) else {of.name, *(stream.name for stream in of.reads)}
