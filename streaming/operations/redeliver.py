"""What somebody decides about a delivery: to send its dead letters again, to go on, or to begin from the beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from threading import Event

from pyspark.sql import SparkSession

from streaming.base import LeaseError, utc_now
from streaming.declare import Delivery, Pipeline
from streaming.deliveries import DeliveryRuntime
from streaming.lake import Lake
from streaming.service import Delivering, holder_of, take_lease

_LOOK_EVERY = 0.5
_WAITS_FOR_PROCESS = 60.0


@dataclass(frozen=True)
class Redelivered:
    """What came of it: dead letters before and after, and why the target does not take more; empty if it does.

    `holder`: the process that runs the pipeline and delivers instead of this one; empty if this one did.
    """

    dead_before: int
    dead_after: int
    waiting: str
    holder: str


def redeliver(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    delivery: Delivery,
    now: Callable[[], datetime] = utc_now,
) -> Redelivered:
    """Send the dead letters of a delivery again, each once; those that are refused again stay, with one attempt more.

    Where the pipeline runs, its process sends them; this one waits up to a minute for it.

    Raises:
        ChangedDeclaration, ProgressError: the delivery is paused, and first has to be told what is meant.
    """
    runtime = DeliveryRuntime(delivery, lake, now, pipeline.name)
    before, standing = runtime.dead_letters.count(), runtime.standing()
    if before:
        runtime.dead_letters.ask(standing.generation, standing.delivered)
    waiting, holder = _deliver(spark, lake, pipeline, runtime, now, lambda: _is_done(runtime))
    return Redelivered(before, runtime.dead_letters.count(), waiting, holder)


def begin_anew(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    delivery: Delivery,
    *,
    again: bool,
    now: Callable[[], datetime] = utc_now,
) -> Redelivered:
    """Go on with a delivery that was refused, as it is declared and with the table as it is now.

    What follows is delivered, and of what is current what differs; with `again` everything, once more. Files and
    idempotency keys carry the next generation of the delivery. Where the pipeline runs, its process delivers.

    Raises:
        FencedError: the process that runs the pipeline has delivered meanwhile; run it again.
    """
    runtime = DeliveryRuntime(delivery, lake, now, pipeline.name)
    runtime.begin_anew(again=again)
    dead = runtime.dead_letters.count()
    waiting, holder = _deliver(spark, lake, pipeline, runtime, now, lambda: runtime.standing().behind == 0)
    return Redelivered(dead, runtime.dead_letters.count(), waiting, holder)


def _is_done(runtime: DeliveryRuntime) -> bool:
    standing, ledger = runtime.standing(), runtime.ledger.read()
    asked = runtime.dead_letters.asked(standing.generation)
    pending = runtime.dead_letters.pending(standing.generation, asked)
    return not pending and (ledger is None or not ledger.is_pending)


def _deliver(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    runtime: DeliveryRuntime,
    now: Callable[[], datetime],
    done: Callable[[], bool],
) -> tuple[str, str]:
    """Deliver all there is, here or, where the pipeline runs, there; returns why the target waits, and who delivers."""
    name = runtime.delivery.name
    waited, pause = 0.0, Event()
    while True:
        try:
            with take_lease(lake, pipeline):
                delivering = Delivering.alone(spark, lake, pipeline, now)
                delivering.deliver_all(only=name)
        except LeaseError:
            if waited >= _WAITS_FOR_PROCESS or done():
                return "", str(holder_of(lake, pipeline))
            pause.wait(_LOOK_EVERY)
            waited += _LOOK_EVERY
            continue
        if name in delivering.paused:
            raise delivering.paused[name]
        return (delivering.waiting[name].why if name in delivering.waiting else ""), ""
