"""Decisions about a delivery: to send dead letters or some days again, to go on, or to begin anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from threading import Event

from pyspark.sql import SparkSession

from streaming.base import LeaseError, RedeliveryError, utc_now
from streaming.declare import Delivery, Pipeline
from streaming.deliveries import DeliveryRuntime
from streaming.lake import Lake
from streaming.log import Batch
from streaming.operators import Written
from streaming.service import Delivering, Observer, holder_of, look, take_lease

_LOOK_EVERY = 0.5
_WAITS_FOR_PROCESS = 60.0


@dataclass(frozen=True)
class Redelivered:
    """The outcome for a delivery: dead letters before and after, and why the target takes no more; empty if it does.

    `holder`: the process that runs the pipeline and delivers instead of this one; empty if this one did. `done`: all
    that was asked for has arrived. `earlier`: how many of the dead letters are from before the delivery went on by
    another declaration or build, so that only all rows together are sent again with them.
    """

    dead_before: int
    dead_after: int
    waiting: str
    holder: str
    done: bool
    earlier: int = 0


@dataclass(frozen=True)
class DeliveredCurrent:
    """The outcome for deliveries of what is current, by name: rows that arrived, and why one takes no more.

    `holder`: the process that runs the pipeline and delivers instead of this one; empty if this one did.
    """

    rows: Mapping[str, int]
    waiting: Mapping[str, str]
    paused: Mapping[str, str]
    holder: str


def deliver_current(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime] = utc_now
) -> DeliveredCurrent:
    """Deliver what has changed of what is current, and dead letters of that, unless the pipeline's process does."""
    names = [each.name for each in pipeline.deliveries if each.origin.what == "current"]
    rows = dict.fromkeys(names, 0)

    class Counting(Observer):
        """Counts the rows that arrive."""

        def committed(self, query: str, written: Written, batch: Batch | None) -> None:
            rows[query] += written.rows

    if not names:
        return DeliveredCurrent({}, {}, {}, "")
    try:
        with take_lease(lake, pipeline):
            delivering = Delivering(spark, lake, pipeline, Counting(now))
            for runtime in delivering.runtimes:
                if runtime.delivery.name in rows:
                    delivering.deliver_all(only=runtime.delivery.name)
    except LeaseError:
        return DeliveredCurrent(rows, {}, {}, str(holder_of(lake, pipeline)))
    waiting = {name: waits.why for name, waits in delivering.waiting.items()}
    return DeliveredCurrent(rows, waiting, {name: str(why) for name, why in delivering.paused.items()}, "")


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
    earlier = runtime.forget_earlier()
    before, standing = runtime.dead_letters.count(), runtime.standing()
    if before:
        runtime.dead_letters.ask(standing.generation, standing.delivered)
    outcome = _deliver(spark, lake, pipeline, runtime, now, lambda: _is_done(runtime))
    return Redelivered(before, runtime.dead_letters.count(), *outcome, earlier)


def redeliver_days(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    delivery: Delivery,
    days: Iterable[date],
    now: Callable[[], datetime] = utc_now,
) -> Redelivered:
    """Deliver the rows of some days again, as they stand now; dead letters of them stay what they are.

    Of what is current, results and deletes come with a new revision; other rows come with their own, so that none takes
    the place of a newer one. They are asked for in the ledger, and batches like all others: whoever dies meanwhile goes
    on where it was. Where the pipeline runs, its process delivers them; this one waits up to a minute for it.

    Raises:
        RedeliveryError: rows would be there twice, or nothing is there of a day.
        ChangedDeclaration, ProgressError: the delivery is paused, and first has to be told what is meant.
        FencedError: somebody else asks for days at the same moment; ask again.
    """
    runtime = DeliveryRuntime(delivery, lake, now, pipeline.name)
    request = runtime.ask_for_days(days)
    dead = runtime.dead_letters.count()
    outcome = _deliver(spark, lake, pipeline, runtime, now, lambda: runtime.has_answered(request))
    return Redelivered(dead, runtime.dead_letters.count(), *outcome)


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
        RedeliveryError: that process has been sending a batch for a minute; or what `DeliveryRuntime.begin_anew` says.
    """
    runtime = DeliveryRuntime(delivery, lake, now, pipeline.name)
    _await_sent(lake, pipeline, runtime)
    begun = runtime.begin_anew(again=again)
    dead, end = runtime.dead_letters.count(), runtime.outbox.end(begun.unit)

    def has_arrived() -> bool:
        ledger = runtime.ledger.read()
        return ledger is not None and ledger.arrived_up_to.unit >= end

    outcome = _deliver(spark, lake, pipeline, runtime, now, has_arrived)
    return Redelivered(dead, runtime.dead_letters.count(), *outcome)


def _await_sent(lake: Lake, pipeline: Pipeline, runtime: DeliveryRuntime) -> None:
    """Wait until the process that runs the pipeline has noted that the batch arrived which it is sending.

    The target may have taken the batch and not said so yet, so that nobody else can tell whether it is there.
    """
    waited, pause = 0.0, Event()
    while (holder := _sender(lake, pipeline, runtime)) is not None:
        if waited >= _WAITS_FOR_PROCESS:
            raise RedeliveryError(
                f"{holder} is sending a batch of delivery {runtime.delivery.name!r} by the declaration that it began "
                "with, so nobody can tell what of it arrives",
                f"run this again once it has ended{_ended_by(lake, pipeline)}. Nothing has changed.",
            )
        pause.wait(_LOOK_EVERY)
        waited += _LOOK_EVERY


def _ended_by(lake: Lake, pipeline: Pipeline) -> str:
    return f"; `tidemark down {pipeline.name}` ends it" if look(lake, pipeline).running else ""


def _sender(lake: Lake, pipeline: Pipeline, runtime: DeliveryRuntime) -> str | None:
    """The process that may be sending a batch right now, None where there is none, or it waits for what is decided."""
    ledger = runtime.ledger.read()
    if ledger is None or not ledger.is_pending:
        return None
    overview = look(lake, pipeline)
    queries = {} if overview.process is None else overview.process.queries
    query = queries.get(runtime.delivery.name)
    is_paused = query is not None and query.paused is not None
    return None if overview.holder is None or is_paused else str(overview.holder)


def _is_done(runtime: DeliveryRuntime) -> bool:
    """True if none of the dead letters is left that somebody has asked for."""
    standing = runtime.standing()
    return not runtime.dead_letters.to_send_again(standing.generation, standing.delivered)


def _deliver(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    runtime: DeliveryRuntime,
    now: Callable[[], datetime],
    done: Callable[[], bool],
) -> tuple[str, str, bool]:
    """Deliver all there is, here or, where the pipeline runs, there.

    Returns why the target waits, who delivers instead of this process, and whether what was asked for is `done`.
    """
    name = runtime.delivery.name
    waited, pause = 0.0, Event()
    while True:
        try:
            with take_lease(lake, pipeline):
                delivering = Delivering(spark, lake, pipeline, Observer(now))
                delivering.deliver_all(only=name)
        except LeaseError:
            if (is_done := done()) or waited >= _WAITS_FOR_PROCESS:
                return "", str(holder_of(lake, pipeline)), is_done
            pause.wait(_LOOK_EVERY)
            waited += _LOOK_EVERY
            continue
        if name in delivering.paused:
            raise delivering.paused[name]
        waits = delivering.waiting.get(name)
        return ("", "", True) if waits is None else (waits.why, "", False)
