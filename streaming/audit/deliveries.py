"""Deliveries held against their tables and their targets: every row is in the target, or in the dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import REVISION, SinkError, counted, utc_now
from streaming.declare import Delivery, Pipeline
from streaming.deliveries import (
    ROW,
    UNIT,
    ChangesOutbox,
    Cursor,
    DeliveryRuntime,
    Ledger,
    Outbox,
    as_delivered,
    place_of,
    value_of,
    wanted,
    with_places,
    without_places,
)
from streaming.lake import Lake
from streaming.log import dropped_days
from streaming.operators import Finding

_ROWS_AT_ONCE = 250_000
_NEWEST = "_newest"


def audit_deliveries(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Iterator[Finding]:
    """The deliveries of a pipeline alone: how many rows there are, and whether they are the rows that were sent.

    Reads every delivered row of each table and of each target that can be read back.
    """
    for delivery in pipeline.deliveries:
        yield from reconcile(spark, lake, delivery)


def reconcile(spark: SparkSession, lake: Lake, delivery: Delivery) -> Iterator[Finding]:
    """The law of one delivery, and where the counts agree also what is in the rows."""
    findings = list(audit_delivery(spark, lake, delivery))
    if delivery.to.keeps_history and len(findings) > 1:
        # Such a target is not counted without reading it, which is what follows.
        yield findings[0]
        yield from _contents(spark, lake, delivery) if findings[0].holds else ()
        return
    yield from findings
    # Where rows cannot be counted, or their number is wrong, there is no more to learn from them.
    if findings[-1].checked and all(finding.holds for finding in findings):
        yield from _contents(spark, lake, delivery)


def audit_delivery(spark: SparkSession, lake: Lake, delivery: Delivery) -> Iterator[Finding]:
    """The law of a delivery: rows of its table up to where it is = rows sent; rows sent = rows there + dead letters.

    The second is told where the target can count. A delivery that has not begun, or is about to send a batch, keeps
    what it promises by sending it; the first finding tells how many rows it has yet to send.
    """
    runtime = DeliveryRuntime(delivery, lake, utc_now)
    ledger = runtime.ledger.read()
    if ledger is not None and ledger.is_held:
        yield Finding("delivery", delivery.name, 0, 0, "held since the lake was made of a savepoint")
        return
    if ledger is not None and ledger.of_generation != runtime.outbox.generation():
        reason = f"not compared: {delivery.of.name} was built anew since, and it waits for `tidemark redeliver`"
        yield Finding("delivery", delivery.name, 0, 0, reason)
        return
    waiting = _waiting(spark, runtime, Cursor(runtime.outbox.start) if ledger is None else ledger.arrived_up_to)
    if ledger is None or _is_fresh(ledger):
        yield Finding("delivery", delivery.name, 0, 0, "nothing is delivered yet", waiting=waiting)
        return
    dropped = dropped_days(lake, (delivery.stream,)).get(delivery.stream.name)
    if runtime.outbox.of_log and dropped is not None:
        reason = (
            f"not compared: it has delivered {ledger.sent_rows:,} rows, and those of days before {dropped} are gone"
        )
        yield Finding("delivery", delivery.name, 0, 0, reason, waiting=waiting)
        return
    yield _sent(spark, runtime, ledger, waiting)
    try:
        held = runtime.connected().count() if not ledger.is_pending else None
    except SinkError as away:
        yield _away(delivery, "not compared", away)
        return
    finally:
        runtime.disconnect()
    expected = _expected(spark, runtime, ledger)
    # What came meanwhile may be there already.
    if held is None or expected is None or runtime.ledger.read() != ledger:
        why = "it is delivered to right now" if ledger.is_pending else "what is there cannot be told apart"
        yield Finding("delivery", delivery.name, 0, 0, f"not compared: {why}")
        return
    rows, compared = expected
    yield Finding(
        "delivery",
        delivery.name,
        held,
        abs(rows - held),
        compared,
        f"{delivery.to.address} has {held:,} rows, and {rows:,} should be there. Where somebody else writes "
        "there, or has deleted rows, this is theirs; `tidemark redeliver` with --all delivers everything again.",
    )


def _contents(spark: SparkSession, lake: Lake, delivery: Delivery) -> Iterator[Finding]:
    """Keys and values of the rows that were sent against those in the target, by a checksum that knows no order."""
    runtime = DeliveryRuntime(delivery, lake, utc_now)
    ledger = runtime.ledger.read()
    if ledger is None or ledger.delivered < 0:
        return
    try:
        outcome = _compared(spark, runtime, ledger)
    except SinkError as away:
        yield _away(delivery, "contents not compared", away)
        return
    finally:
        runtime.disconnect()
    if not isinstance(outcome, Finding) or runtime.ledger.read() != ledger:
        why = "it is delivered to right now" if isinstance(outcome, Finding) else outcome
        yield Finding("delivery", delivery.name, 0, 0, f"contents not compared: {why}")
        return
    yield outcome


def _away(delivery: Delivery, what: str, error: SinkError) -> Finding:
    why = f"the target is away ({error})"
    return Finding("delivery", delivery.name, 0, 0, f"{what}: {why}", unasked=why)


def _compared(spark: SparkSession, runtime: DeliveryRuntime, ledger: Ledger) -> Finding | str:
    delivery = runtime.delivery
    if ledger.is_pending:
        return "it is delivered to right now"
    if not runtime.ledger.has_selected_the_same():
        return "the selection is not the one that older rows were sent with; `tidemark redeliver` with --all sends them"
    letters = runtime.dead_letters.pending(ledger.generation, ledger.delivered)
    expected = expected_rows(spark, runtime.outbox, delivery, ledger, [place_of(letter) for letter in letters])
    if isinstance(expected, str):
        return expected
    comparison = runtime.connected().compare(ledger.generation, expected)
    if comparison is None:
        return "the target cannot be read back, or not for this generation alone"
    named = f", such as {'; '.join(comparison.named)}" if comparison.named else ""
    return Finding(
        "delivery",
        delivery.name,
        comparison.records,
        comparison.differing,
        "contents sent = contents of the target, by checksum",
        f"not as sent: {counted(comparison.differing, *comparison.unit)} of {delivery.to.address}{named}. Where "
        "somebody else has changed them this is theirs; `tidemark redeliver` with --all delivers everything again.",
    )


def _is_fresh(ledger: Ledger) -> bool:
    """True if nothing has arrived, as where the target was never there: what is delivered may not be written down."""
    return not ledger.sent_before and ledger.arrived_up_to <= Cursor(ledger.begins_at, ledger.skipped_rows)


def _waiting(spark: SparkSession, runtime: DeliveryRuntime, done: Cursor) -> int:
    """The rows of the table, and of what is current the changes that nobody has told yet, which are to be sent."""
    outbox = runtime.outbox
    end = outbox.end(done.unit)
    there = wanted(outbox.rows(spark, done.unit, end), runtime.delivery).count() if end > done.unit else done.row
    return max(0, there - done.row) + outbox.untold(spark)


def _sent(spark: SparkSession, runtime: DeliveryRuntime, ledger: Ledger, waiting: int) -> Finding:
    done = ledger.arrived_up_to
    rows = wanted(runtime.outbox.rows(spark, ledger.begins_at, done.unit), runtime.delivery).count() + done.row
    broken = abs(rows - ledger.skipped_rows - ledger.sent_rows)
    more = f"; {counted(waiting, 'row')} still to be delivered" if waiting else ""
    compared = f"rows of the table up to where it is = rows sent{more}"
    return Finding("delivery", runtime.delivery.name, rows, broken, compared, waiting=waiting)


def _expected(spark: SparkSession, runtime: DeliveryRuntime, ledger: Ledger) -> tuple[int, str] | None:
    """The rows that the target should hold, and in words what they are; None if nobody knows.

    A row that is a dead letter is none of them, but another one of its key may be.
    """
    delivery, outbox, dead = runtime.delivery, runtime.outbox, runtime.dead_letters.places()
    but_for = f"; {len(dead):,} dead letters" if dead else ""
    if not delivery.identity or not delivery.to.keeps_keys:
        before = f", of which {ledger.sent_before:,} before it began anew" if ledger.sent_before else ""
        return ledger.sent_before + ledger.sent_rows - len(dead), f"rows sent = rows in the target{before}{but_for}"
    if isinstance(outbox, ChangesOutbox) and not ledger.row:
        told = outbox.told(spark, ledger.unit, dead)
        return told.count(), f"results that are current = rows in the target{but_for}"
    if ledger.generation or ledger.row:
        return None
    rows = wanted(outbox.rows(spark, outbox.begin, ledger.unit), delivery)
    there = without_places(with_places(rows, outbox), dead) if dead else rows
    keys = [value_of(name, delivery, UNIT) for name in delivery.identity]
    return there.select(*keys).distinct().count(), f"keys sent = rows in the target{but_for}"


def expected_rows(
    spark: SparkSession, outbox: Outbox, delivery: Delivery, ledger: Ledger, dead: Sequence[Cursor]
) -> Iterator[pa.Table] | str:
    """All rows that the target should hold of this generation, in pieces; or why nobody can say which they are.

    `dead` are the places of the dead letters. Every piece reads the table again, so that not all of it is in memory.
    """
    keeps_one = delivery.identity and delivery.to.keeps_keys
    if not keeps_one or (delivery.to.keeps_history and not isinstance(outbox, ChangesOutbox)):
        frame = _every(spark, outbox, delivery, ledger, dead)
    elif dead:
        return "of a key whose row was refused, an older one may be there"
    elif isinstance(outbox, ChangesOutbox):
        if ledger.row:
            return "it is within a revision"
        frame = outbox.told(spark, ledger.unit)
    elif ledger.generation:
        return "rows of a generation before may be there"
    else:
        frame = _newest_of_keys(_every(spark, outbox, delivery, ledger, dead), outbox, delivery)
    return _pieces(frame, outbox, delivery, 1 + ledger.sent_rows // _ROWS_AT_ONCE)


def _every(
    spark: SparkSession, outbox: Outbox, delivery: Delivery, ledger: Ledger, dead: Sequence[Cursor]
) -> DataFrame:
    until = ledger.unit + (1 if ledger.row else 0)
    rows = wanted(outbox.rows(spark, ledger.begins_at, until), delivery)
    if not (dead or ledger.row or ledger.skipped_rows):
        return rows
    unit, row = F.col(UNIT), F.col(ROW)
    begun = (unit > ledger.begins_at) | (row >= ledger.skipped_rows)
    placed = with_places(rows, outbox).where(begun & ((unit < ledger.unit) | (row < ledger.row)))
    return without_places(placed, dead) if dead else placed


def _newest_of_keys(rows: DataFrame, outbox: Outbox, delivery: Delivery) -> DataFrame:
    """The row of the greatest revision of each key; of several, the one that was delivered last."""
    key = [value_of(name, delivery, UNIT) for name in delivery.identity]
    within = [each.desc() for each in outbox.order_of(rows)]
    order = SortedBy.partitionBy(*key).orderBy(F.desc_nulls_last(REVISION), F.desc(UNIT), *within)
    return rows.withColumn(_NEWEST, F.row_number().over(order)).where(F.col(_NEWEST) == 1)


def _pieces(frame: DataFrame, outbox: Outbox, delivery: Delivery, pieces: int) -> Iterator[pa.Table]:
    order = outbox.order_of(frame)
    for piece in range(pieces):
        of_piece = frame if pieces == 1 else frame.where(F.pmod(F.xxhash64(*order), F.lit(pieces)) == piece)
        yield as_delivered(of_piece, delivery).toArrow()
