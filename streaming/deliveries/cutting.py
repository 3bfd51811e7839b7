"""The next batch of a delivery: dead letters or days that somebody asked for, or the rows that follow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DAY, EPOCH, FencedError, RedeliveryError, SinkError, date_literal, interval
from streaming.declare import CHANGES, Delivery, Operator
from streaming.deliveries.ledger import DeadLetters, Ledger, LedgerTable
from streaming.deliveries.outbox import (
    READ_AT_ONCE,
    ROW,
    UNIT,
    Cursor,
    Outbox,
    Reader,
    Slice,
    as_delivered,
    first_of,
    new,
    place_of,
    retried,
    wanted,
    with_places,
    without_places,
)
from streaming.lake import Lake
from streaming.tables import days_of, delta

_SKIPPED_EVERY = timedelta(minutes=1)
_NEWEST = "requests"
_DAY = timedelta(days=1)
_NAMED = 5


class Cutting:
    """Cuts the batches of a delivery; whoever delivers writes each into the ledger before it is sent."""

    def __init__(
        self,
        delivery: Delivery,
        outbox: Outbox,
        ledger: LedgerTable,
        dead_letters: DeadLetters,
        now: Callable[[], datetime],
        command: str,
    ) -> None:
        self._delivery = delivery
        self._outbox = outbox
        self._ledger = ledger
        self._dead_letters = dead_letters
        self._now = now
        self._command = command
        self._waiting_since: datetime | None = None
        self._skipped_at: datetime | None = None
        self.forget()

    @property
    def has_rows_waiting(self) -> bool:
        """True if rows wait for a batch to be full."""
        return self._waiting_since is not None

    def forget(self) -> None:
        """Read everything anew."""
        self._reader = Reader(self._outbox, self._delivery, self._command)
        self._days: _DaysReader | None = None
        self._cut: Slice | None = None

    def next(self, spark: SparkSession, ledger: Ledger, *, all_of_it: bool) -> Ledger | None:
        """The next state of the ledger: with a batch planned, or further on without one; None if nothing is due.

        Raises:
            ChangedDeclaration: the table was built anew meanwhile.
        """
        self._cut = None
        dead = self._dead_letters.to_send_again(ledger.generation, ledger.delivered)
        if dead:
            return ledger.plan_retry(*first_of(dead, self._delivery.most_rows))
        asked = _next_asked(self._ledger.uri, ledger.answered)
        if asked is not None:
            return self._again(spark, ledger, asked)
        self._outbox.follow(spark, self._now)
        end = self._outbox.end(ledger.unit)
        waiting = self._reader.fill(spark, ledger.cursor, end)
        if waiting == 0:
            self._waiting_since = None
            return self._skipped(ledger, end, now=all_of_it)
        if waiting < self._delivery.most_rows and not all_of_it and not self._has_waited():
            return None
        self._waiting_since = None
        rows = min(waiting, self._delivery.most_rows)
        # The view may have been built anew while its rows were read.
        self._ledger.check_generation(ledger, self._outbox.generation())
        batch, until = self._reader.cut(rows)
        self._cut = new(batch, ledger.cursor)
        return ledger.plan(until, rows)

    def held(self, spark: SparkSession, ledger: Ledger) -> Slice:
        """The content of the batch that the ledger has planned.

        Raises:
            SinkError: the rows are not all there any more.
            ChangedDeclaration: the table was built anew meanwhile.
        """
        if ledger.retries >= 0:
            pending = self._dead_letters.pending(ledger.generation, ledger.retries)
            return retried(spark, self._reader, pending)
        if self._cut is None:
            self._ledger.check_generation(ledger, self._outbox.generation())
            self._cut = self._cut_before(spark, ledger)
        return self._cut

    def _cut_before(self, spark: SparkSession, ledger: Ledger) -> Slice:
        if ledger.request < 0:
            return new(self._reader.again(spark, ledger.since, ledger.cursor, ledger.rows), ledger.since)
        asked = _next_asked(self._ledger.uri, ledger.request - 1)
        assert asked is not None
        return self._reader_of(asked).again(spark, ledger)

    def _again(self, spark: SparkSession, ledger: Ledger, asked: _AskedDays) -> Ledger:
        unit = self._outbox.tell_again(spark, asked.days)
        if unit is not None:
            return ledger.answer(asked.number, Cursor(unit))
        since = ledger.again_since(asked.number, Cursor(self._outbox.begin))
        batch = self._reader_of(asked).cut(spark, since, ledger)
        self._ledger.check_generation(ledger, self._outbox.generation())
        if batch is None:
            return ledger.answer(asked.number, since)
        self._cut, until = batch
        return ledger.plan_again(asked.number, since, until, self._cut.rows.num_rows)

    def _reader_of(self, asked: _AskedDays) -> _DaysReader:
        if self._days is None or self._days.asked != asked:
            self._days = _DaysReader(self._outbox, self._delivery, self._dead_letters, asked)
        return self._days

    def _skipped(self, ledger: Ledger, end: int, *, now: bool) -> Ledger | None:
        """Units without a row to deliver are not read again by the next process; now and then is enough for that."""
        due = now or self._skipped_at is None or self._now() - self._skipped_at >= _SKIPPED_EVERY
        if not due or ledger.cursor >= Cursor(end):
            return None
        self._skipped_at = self._now()
        return ledger.moved(Cursor(end))

    def _has_waited(self) -> bool:
        waits, now = self._delivery.waits, self._now()
        if waits is None:
            return True
        self._waiting_since = self._waiting_since or now
        return now - self._waiting_since >= interval(waits)


class _DaysReader:
    """The rows of the days of a request that lie before the place where the delivery is, but for its dead letters.

    They keep their places in the table. Those that were read ahead are kept in memory.
    """

    def __init__(self, outbox: Outbox, delivery: Delivery, dead_letters: DeadLetters, asked: _AskedDays) -> None:
        self.asked = asked
        self._outbox = outbox
        self._delivery = delivery
        self._dead_letters = dead_letters
        self._units: list[tuple[int, int]] | None = None
        self._ahead: pa.Table | None = None
        self._begins: Cursor | None = None
        self._ends = Cursor(0)

    def cut(self, spark: SparkSession, since: Cursor, ledger: Ledger) -> tuple[Slice, Cursor] | None:
        """The next batch from `since` on, and the place after it; None where there is no row any more."""
        if self._begins != since:
            self._ahead, self._ends = None, since
        while self._ahead is None or not self._ahead.num_rows:
            if not self._read_ahead(spark, ledger):
                return None
        batch = self._ahead.slice(0, self._delivery.most_rows)
        self._ahead = self._ahead.slice(batch.num_rows)
        held = _slice(batch)
        self._begins = _after(held.places[-1])
        return held, self._begins

    def again(self, spark: SparkSession, ledger: Ledger) -> Slice:
        """The rows of the batch that the ledger is about to send.

        Raises:
            SinkError: they are not all there any more.
        """
        rows = self._read(spark, ledger.since, ledger.again_until, ledger).toArrow().combine_chunks()
        if rows.num_rows != ledger.rows:
            raise SinkError(
                f"of the {ledger.rows:,} rows that delivery {self._delivery.name!r} is about to deliver again, "
                f"{rows.num_rows:,} are there: its table was changed by hand. Restore it."
            )
        return _slice(rows)

    def _read_ahead(self, spark: SparkSession, ledger: Ledger) -> bool:
        """Read the next rows; False where there are none."""
        if self._units is None:
            rows = self._outbox.rows(spark, self._outbox.begin, _whole(ledger.cursor))
            sizes = self._of_days(wanted(rows, self._delivery)).groupBy(UNIT).count().orderBy(UNIT).collect()
            self._units = [(row[UNIT], row["count"]) for row in sizes]
        most, size = max(READ_AT_ONCE, self._delivery.most_rows), 0
        until = self._ends
        for unit, of_unit in self._units[bisect_left(self._units, (self._ends.unit, 0)) :]:
            if size and size + of_unit > most:
                break
            size, until = size + of_unit, min(Cursor(unit + 1), ledger.cursor)
        if until <= self._ends:
            return False
        # One unit alone may have more rows than should be in memory.
        self._ahead = self._read(spark, self._ends, until, ledger).limit(most).toArrow().combine_chunks()
        self._ends = until if self._ahead.num_rows < most else _after(_slice(self._ahead).places[-1])
        return True

    def _read(self, spark: SparkSession, since: Cursor, until: Cursor, ledger: Ledger) -> DataFrame:
        """The rows of the days in [since, until), in order."""
        unit, row = F.col(UNIT), F.col(ROW)
        whole = self._outbox.rows(spark, since.unit, _whole(until))
        placed = self._of_days(with_places(wanted(whole, self._delivery), self._outbox))
        rows = placed.where((unit > since.unit) | (row >= since.row)).where((unit < until.unit) | (row < until.row))
        dead = self._dead_letters.pending(ledger.generation, ledger.delivered)
        if dead:
            rows = without_places(rows, [place_of(letter) for letter in dead])
        return as_delivered(rows.orderBy(UNIT, ROW), self._delivery, {ROW: row.cast("bigint")})

    def _of_days(self, rows: DataFrame) -> DataFrame:
        first, last = (date_literal(day) for day in (self.asked.first, self.asked.last))
        return rows.where(F.col(DAY).between(first, last))


def _slice(rows: pa.Table) -> Slice:
    numbers = zip(rows[UNIT].to_pylist(), rows[ROW].to_pylist(), strict=True)
    places = [Cursor(unit, row) for unit, row in numbers]
    return Slice(rows.drop_columns([ROW]), places, [0] * rows.num_rows)


def _whole(until: Cursor) -> int:
    """The end of the units that hold the rows before a place."""
    return until.unit + (1 if until.row else 0)


def _after(place: Cursor) -> Cursor:
    return Cursor(place.unit, place.row + 1)


@dataclass(frozen=True)
class _AskedDays:
    """Request `number`: the days from `first` to `last`, both included."""

    number: int
    first: date
    last: date

    @property
    def days(self) -> frozenset[date]:
        """Each of the days."""
        return frozenset(self.first + each * _DAY for each in range((self.last - self.first).days + 1))


def ask_for_days(uri: str, days: Iterable[date], answered: int) -> int:
    """Note in the ledger at `uri` that `days` are asked for; returns the number of the newest request.

    Days in a row are one request. What is asked for already, and was not begun, is not asked for twice. `answered` is
    the newest request that is done.

    Raises:
        FencedError: somebody else has asked at the same moment.
    """
    table = delta.opened(uri)
    newest = _newest(table)
    waiting = list(_requests(table, answered + 1))
    wanted = [span for span in _spans(days) if span not in [(each.first, each.last) for each in waiting]]
    if not wanted:
        return newest
    numbers: dict[str, int] = {}
    # A ledger that was restored has answered requests that it does not hold.
    since = max(newest, answered) + 1
    for number, (first, last) in enumerate(wanted, start=since):
        numbers |= {f"request {number} first": _ordinal(first), f"request {number} last": _ordinal(last)}
    asked = since + len(wanted) - 1

    def fence(there: DeltaTable) -> None:
        if _newest(there) != newest:
            raise FencedError("somebody else asks for days of the same delivery at this moment; ask again.")

    metadata = {"asked": [[first.isoformat(), last.isoformat()] for first, last in wanted]}
    delta.note(uri, says=metadata, numbers={**numbers, _NEWEST: asked}, fence=fence)
    return asked


def _next_asked(uri: str, answered: int) -> _AskedDays | None:
    """The oldest request in the ledger at `uri` after the one that was `answered` last."""
    table = delta.open_table(uri)
    return None if table is None else next(_requests(table, answered + 1), None)


def _requests(table: DeltaTable, since: int) -> Iterator[_AskedDays]:
    for number in range(since, _newest(table) + 1):
        first, last = (table.transaction_version(f"request {number} {end}") for end in ("first", "last"))
        # Numbers are left out where a ledger was restored.
        if first is not None and last is not None:
            yield _AskedDays(number, _day(first), _day(last))


def _newest(table: DeltaTable) -> int:
    newest = table.transaction_version(_NEWEST)
    return -1 if newest is None else newest


def _spans(days: Iterable[date]) -> list[tuple[date, date]]:
    """Days as spans of days in a row, oldest first."""
    spans: list[tuple[date, date]] = []
    for day in sorted(set(days)):
        if spans and day == spans[-1][1] + _DAY:
            spans[-1] = (spans[-1][0], day)
        else:
            spans.append((day, day))
    return spans


def _ordinal(day: date) -> int:
    return (day - EPOCH.date()).days


def _day(ordinal: int) -> date:
    return EPOCH.date() + ordinal * _DAY


def why_not_by_day(delivery: Delivery) -> str:
    """Why the rows of a day cannot be delivered again, and what can be done instead; empty where they can.

    They can where the target keeps one row for each key, and a row never takes the place of one of a higher revision.
    """
    target = type(delivery.to).__name__
    if delivery.what == "dead":
        return f"dead letters have no event day; `tidemark redeliver` of {delivery.of.name!r} sends them again"
    if delivery.what == "rejected":
        return "rejected rows have no event day; `tidemark repair` brings them back where they are valid now"
    if not delivery.to.keeps_keys:
        return (
            f"{target} keeps every row that it gets, so those of a day would be there twice; remove what is there, and "
            "`--all` delivers everything again, in a new generation; or deliver to a target that keeps one row for "
            "each key, such as Postgres('orders', key=('id',))"
        )
    if not delivery.identity:
        return (
            f"{target} has no key here, so it keeps every row that it gets, and those of a day would be there twice; "
            "declare a key; or remove what is there, and `--all` delivers everything again, in a new generation"
        )
    if delivery.to.keeps_history and delivery.what != "current":
        return (
            f"in {target} the last row of a key stands, so an older one that is delivered again would hide a newer; "
            "deliver what='current', of which each row comes with a new revision; or everything again with `--all`"
        )
    return ""


def days_to_deliver(lake: Lake, delivery: Delivery) -> set[date]:
    """The days of which what is delivered has rows, or had some that are deleted since."""
    of = delivery.of
    if delivery.what == "current" and isinstance(of, Operator):
        results = [lake.table(of, table.suffix) for table in of.tables if table.is_result]
        return set().union(*map(days_of, [*results, lake.table(delivery, CHANGES)]))
    if isinstance(of, Operator) and delivery.what != "late":
        return days_of(lake.table(of, delivery.output))
    return days_of(lake.log(delivery.stream))


def check_repeatable(delivery: Delivery) -> None:
    """Refuse a delivery of which no day can be repeated.

    Raises:
        RedeliveryError: with what can be done instead.
    """
    why_not = why_not_by_day(delivery)
    if why_not:
        raise RedeliveryError(f"{delivery.name!r} cannot deliver a day again: {why_not}. Nothing was delivered.")


def check_days(lake: Lake, delivery: Delivery, days: frozenset[date]) -> None:
    """Refuse days of which there is nothing.

    Raises:
        RedeliveryError: with the days that there are.
    """
    there = days_to_deliver(lake, delivery)
    missing = sorted(days - there)
    if missing:
        extent = f"its days are from {min(there)} to {max(there)}" if there else "it has no days yet"
        raise RedeliveryError(
            f"{delivery.of.name!r} has no row of {', '.join(map(str, missing[:_NAMED]))} for {delivery.name!r}; "
            f"{extent}. Nothing was delivered."
        )
