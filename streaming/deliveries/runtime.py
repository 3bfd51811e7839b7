"""The runtime of a delivery: it cuts batches, records each in the ledger, sends it, and records that it arrived.

After a crash the ledger says which batch was cut and may have been sent, so that the same batch is sent again. A batch
is of dead letters or days that somebody asked for, or of the rows that follow. Below the runtime are what cuts it, the
requests for days, which the ledger keeps as numbers, and the rules for which deliveries and days one may be made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DAY, EPOCH, FencedError, RedeliveryError, SinkError, date_literal, interval
from streaming.declare import Delivery, Operator
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
from streaming.deliveries.outboxes import outbox_of
from streaming.lake import Lake
from streaming.operators import Written, clean_state
from streaming.sinks import Delivered, NumberedBatch, RefusedRow, Sink
from streaming.tables import days_of, delta

_WRITES_PER_CLEANING = 500
"""The number of commits to the ledger after which its old versions are removed."""
_SKIPPED_EVERY = timedelta(minutes=1)
_NEWEST_REQUEST = "requests"
"""The number, in the table of the ledger, of the newest request for days."""
_DAY = timedelta(days=1)
_NAMED = 5
"""The number of days that an error text names at most."""


@dataclass(frozen=True)
class DeliveryProgress:
    """The progress of a delivery.

    `generation` counts how often it began anew, `delivered` is its newest batch that arrived (-1 for none), `rows` the
    number of rows in such batches, and `dead` that of its dead letters. `behind`: the units of its table (batches,
    revisions, or microseconds of window ends) that it has yet to deliver; 0 for none.
    """

    generation: int
    delivered: int
    rows: int
    dead: int
    behind: int


class DeliveryRuntime:
    """One delivery on one lake, in one process.

    `now` gives the processing time. `pipeline` is the pipeline's name in the commands that error texts propose; where
    it is left out, the delivery's folder stands for it.
    """

    def __init__(
        self, delivery: Delivery, lake: Lake, now: Callable[[], datetime], pipeline: str | None = None
    ) -> None:
        self.delivery = delivery
        self._command = f"tidemark redeliver {pipeline or delivery.folder} {delivery.name}"
        self.dead_letters = DeadLetters(lake, delivery, now)
        self.ledger = LedgerTable(lake, delivery, self._command)
        self.outbox = outbox_of(delivery, lake)
        self._lake = lake
        self._now = now
        self._cutting = _Cutting(delivery, self.outbox, self.ledger, self.dead_letters, now, self._command)
        self._sink: Sink | None = None
        self._state: Ledger | None = None
        self._writes = 0

    @property
    def name(self) -> str:
        """The delivery's own name in the lake, by which targets know it."""
        return f"{self.delivery.folder}/{self.delivery.name}"

    @property
    def generation(self) -> int | None:
        """The generation of the delivery, by its ledger; None before it has begun."""
        ledger = self._state or self.ledger.read()
        return None if ledger is None else ledger.generation

    @property
    def has_rows_waiting(self) -> bool:
        """True if rows were found that wait until a batch is full, or they have waited long enough."""
        return self._cutting.has_rows_waiting

    def check(self) -> None:
        """Refuse to go on where somebody must decide how; called before the first batch of a process.

        Raises:
            ChangedDeclaration: another declaration has delivered so far, or from another generation of the table.
            DeliveryPaused: the lake was made of a savepoint.
        """
        ledger = self.ledger.read()
        if ledger is None:
            return
        self.ledger.check_declaration()
        self._check_generation(ledger)

    def _check_generation(self, ledger: Ledger) -> None:
        self.ledger.check_generation(ledger, self.outbox.generation())

    def next_batch(self, spark: SparkSession, *, all_of_it: bool = False) -> int | None:
        """Cut the next batch if it is due, and record it in the ledger; returns its number, None where none is due.

        It is due once it is full, or its first rows have waited as long as declared; with `all_of_it`, as soon as there
        is a row. Where the ledger has a batch that did not arrive yet, that one is the next.

        Raises:
            ChangedDeclaration: as `check`.
            DeliveryPaused: as `check`.
            FencedError: another process has taken over.
        """
        ledger = self._read()
        if ledger.is_pending:
            return ledger.planned
        self._check_generation(ledger)
        while True:
            after = self._cutting.next(spark, ledger, all_of_it=all_of_it)
            if after is None:
                return None
            self._write(ledger, after)
            if after.is_pending:
                return after.planned
            if after.answered == ledger.answered:
                return None
            # A request for days is done without a batch of its own, so the next one may be due.
            ledger = after

    def deliver(self, spark: SparkSession) -> Written:
        """Send the batch that `next_batch` has recorded, and record that it arrived; returns the number of its rows.

        Rows that the target refuses become dead letters, and do not count. Nothing is sent where the target says that
        it has the batch already; all its rows count then.

        Raises:
            SinkError: the target is away, or refuses the batch as a whole; it is to be sent again.
            ProgressError: the target and the ledger do not agree.
            FencedError: another process has taken over.
        """
        ledger = self._read()
        assert ledger.is_pending
        sink = self.connected()
        refused = 0
        if not ledger.is_there(sink.delivered_through(ledger.generation), self.delivery.to.address, self._command):
            held = self._cutting.held(spark, ledger)
            batch = NumberedBatch(self.name, ledger.generation, ledger.planned, held.rows)
            unwritable = batch.unwritable()
            sent, positions = batch.without({row.position for row in unwritable})

            def put_aside(rows: Sequence[RefusedRow]) -> None:
                nonlocal refused
                all_refused = [*unwritable, *(RefusedRow(positions[row.position], row.error) for row in rows)]
                refused = len(all_refused)
                in_order = sorted(all_refused, key=lambda row: row.position)
                self.dead_letters.put_aside(batch, in_order, held.places, held.tried)

            sink.deliver(sent, put_aside)
        self._write(ledger, ledger.arrived())
        self._forget_retried(ledger)
        return Written(ledger.rows - refused)

    def begin_anew(self, *, again: bool) -> Ledger:
        """Begin the next generation of the delivery: with the rows that follow, or `again` with all rows.

        The declaration as it is now counts from here on. Dead letters of the generation before stay. A batch that was
        being sent is sent again, unless the target says that it arrived.

        Raises:
            SinkError: a batch was being sent, and the target, which has to be asked unless it is `again`, is away.
            RedeliveryError: nobody can tell which rows follow in the table as it is now, or the target would keep
                older rows of its keys.
            FencedError: another process has gone on meanwhile.
        """
        before = self.ledger.read()
        if before is None:
            return self._read()
        self.ledger.check_places(again=again)
        if again:
            at = Cursor(self.outbox.start)
        elif before.is_held:
            # The ledger of a lake that was made of a savepoint names no generation of the table to go on from.
            at = before.arrived_up_to
        else:
            at = self.outbox.goes_on(self._arrived_up_to(before), before.of_generation)
        after = before.anew(self.outbox.generation(), at)
        if again and self.delivery.what == "current":
            after = replace(after, whole_at=at.unit, repeats=1)
        self.ledger.write(before, after)
        # The declaration is recorded last: after a crash before it, `check` refuses to deliver until this is repeated.
        self.ledger.adopt()
        self.forget()
        return after

    def _arrived_up_to(self, ledger: Ledger) -> Cursor:
        """The place up to which every row was sent, by what the target says of a batch that was being sent."""
        may_be_there = ledger.is_pending and ledger.has_new_rows
        if may_be_there and self.connected().delivered_through(ledger.generation) == ledger.planned:
            return ledger.cursor
        return ledger.arrived_up_to

    def ask_for_days(self, days: Iterable[date]) -> int:
        """Record in the ledger that `days` are to be delivered again; returns the number of the newest request.

        The process that delivers the rows answers it: `has_answered` tells when.

        Raises:
            RedeliveryError: no day of this delivery can be sent again, or its table has no row of one of the days.
            ChangedDeclaration: as `check`.
            DeliveryPaused: as `check`.
            FencedError: somebody else asks at the same moment; nothing is asked for.
        """
        check_repeatable(self.delivery)
        ledger, asked = self.ledger.read(), frozenset(days)
        if ledger is None:
            raise RedeliveryError(f"delivery {self.delivery.name!r} has not begun, so there is nothing to send again.")
        self.check()
        _check_days(self._lake, self.delivery, asked)
        return _ask_for_days(self.ledger.uri, asked, ledger.answered)

    def has_answered(self, request: int) -> bool:
        """True if all rows that a request, by its number, asks for have arrived, or are dead letters."""
        ledger = self.ledger.read()
        return ledger is not None and ledger.has_answered(request)

    def forget_earlier(self) -> int:
        """Remove dead letters of generations before one that began with all rows; returns how many of others stay.

        Once all rows have arrived, so have theirs, or they are refused as new ones. After a generation that only went
        on, they stay: no batch of this one sends them again.
        """
        ledger = self.ledger.read()
        if ledger is None:
            return 0
        began_with_all = (ledger.begins_at, ledger.skipped_rows) == (self.outbox.start, 0)
        if began_with_all and not ledger.is_pending and self.standing().behind == 0:
            self.dead_letters.forget_before(ledger.generation)
        return self.dead_letters.count_before(ledger.generation)

    def standing(self) -> DeliveryProgress:
        """The progress of the delivery now; reads tables and starts no Spark."""
        ledger = self.ledger.read() or self._beginning()
        arrived_up_to = ledger.arrived_up_to
        behind = max(0, self.outbox.end(arrived_up_to.unit) - arrived_up_to.unit)
        return DeliveryProgress(
            ledger.generation, ledger.delivered, ledger.sent_rows, self.dead_letters.count(), behind
        )

    def forget(self) -> None:
        """Forget what is in memory, and the connection: after an error, or once somebody has changed the ledger."""
        self._state = None
        self._cutting.forget()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection to the target; the next batch opens another one."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def connected(self) -> Sink:
        """The open connection to the target; it is opened where there is none."""
        if self._sink is None:
            delivered = Delivered(
                self.name,
                identity=self.ledger.identity(),
                key=self.delivery.identity,
                changes=self.delivery.what == "current",
            )
            self._sink = self.delivery.to.connect(self._lake, delivered)
        return self._sink

    def _read(self) -> Ledger:
        """The state of the ledger, which is kept in memory; the ledger is created where there is none."""
        if self._state is None:
            self.check()
            self._state = self.ledger.read()
            if self._state is None:
                self._state = self._beginning()
                self.ledger.begin(self._state)
            # A process may have died after a batch of dead letters arrived and before it removed these.
            if not self._state.is_pending:
                self._forget_retried(self._state)
        return self._state

    def _beginning(self) -> Ledger:
        return Ledger.beginning(self.outbox.start, self.outbox.generation(), whole=self.delivery.what == "current")

    def _write(self, before: Ledger, after: Ledger) -> None:
        try:
            self.ledger.write(before, after)
        except BaseException:
            self._state = None
            raise
        self._state = after
        self._writes += 1
        if self._writes % _WRITES_PER_CLEANING == 0:
            clean_state(self.ledger.uri, self._now())

    def _forget_retried(self, ledger: Ledger) -> None:
        """Remove the dead letters that the newest batch has sent again; those refused once more are in new ones."""
        if ledger.retries >= 0:
            self.dead_letters.forget(ledger.generation, ledger.retries)


class _Cutting:
    """Cuts the batches of a delivery; `DeliveryRuntime` records each in the ledger before it is sent.

    `now` gives the processing time; `command` begins the command that error texts propose.
    """

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
        """True if rows were found that wait until a batch is full, or they have waited long enough."""
        return self._waiting_since is not None

    def forget(self) -> None:
        """Forget the rows that were read ahead, and the batch that was cut, so that all is read anew."""
        self._reader = Reader(self._outbox, self._delivery, self._command)
        self._days_reader: _DaysReader | None = None
        self._cut: Slice | None = None

    def next(self, spark: SparkSession, ledger: Ledger, *, all_of_it: bool) -> Ledger | None:
        """The next state of the ledger: with a batch planned, or further on without one; None if nothing is due.

        Dead letters that are to be sent again come first, then days that were asked for, then new rows. With
        `all_of_it` these wait for no full batch.

        Raises:
            ChangedDeclaration: the table was built anew meanwhile.
        """
        self._cut = None
        dead = self._dead_letters.to_send_again(ledger.generation, ledger.delivered)
        if dead:
            return ledger.plan_retry(*first_of(dead, self._delivery.most_rows))
        request = _next_request(self._ledger.uri, ledger.answered)
        if request is not None:
            return self._plan_request(spark, ledger, request)
        self._outbox.follow(spark, self._now)
        end = self._outbox.end(ledger.unit)
        waiting = self._reader.fill(spark, ledger.cursor, end)
        if waiting == 0:
            self._waiting_since = None
            return self._moved_past_empty(ledger, end, at_once=all_of_it)
        if waiting < self._delivery.most_rows and not all_of_it and not self._has_waited():
            return None
        self._waiting_since = None
        rows = min(waiting, self._delivery.most_rows)
        # The table may have been built anew while its rows were read.
        self._ledger.check_generation(ledger, self._outbox.generation())
        batch, until = self._reader.cut(rows)
        self._cut = new(batch, ledger.cursor)
        return ledger.plan(until, rows)

    def held(self, spark: SparkSession, ledger: Ledger) -> Slice:
        """The content of the batch that the ledger has planned; it is read again, unless this process has just cut it.

        Raises:
            SinkError: the rows are not all there any more.
            ChangedDeclaration: the table was built anew meanwhile.
        """
        if ledger.retries >= 0:
            pending = self._dead_letters.pending(ledger.generation, ledger.retries)
            return retried(spark, self._reader, pending)
        if self._cut is None:
            self._ledger.check_generation(ledger, self._outbox.generation())
            self._cut = self._read_again(spark, ledger)
        return self._cut

    def _read_again(self, spark: SparkSession, ledger: Ledger) -> Slice:
        """The rows of a batch that an earlier process, or an attempt that failed, has cut."""
        if ledger.request < 0:
            return new(self._reader.again(spark, ledger.since, ledger.cursor, ledger.rows), ledger.since)
        request = _next_request(self._ledger.uri, ledger.request - 1)
        assert request is not None
        return self._reader_of(request).again(spark, ledger)

    def _plan_request(self, spark: SparkSession, ledger: Ledger, request: _DaysRequest) -> Ledger:
        """The ledger with the next batch of a request for days, or with the request answered where there is none."""
        since = ledger.again_since(request.number, Cursor(self._outbox.begin))
        batch = self._reader_of(request).cut(spark, since, ledger)
        self._ledger.check_generation(ledger, self._outbox.generation())
        if batch is None:
            return ledger.answer(request.number, since)
        self._cut, until = batch
        return ledger.plan_again(request.number, since, until, self._cut.rows.num_rows)

    def _reader_of(self, request: _DaysRequest) -> _DaysReader:
        """The reader of a request; it is kept, because it has read rows ahead for the next batches."""
        if self._days_reader is None or self._days_reader.request != request:
            self._days_reader = _DaysReader(self._outbox, self._delivery, self._dead_letters, request)
        return self._days_reader

    def _moved_past_empty(self, ledger: Ledger, end: int, *, at_once: bool) -> Ledger | None:
        """The ledger at the unit `end`, where no unit before it has a row to deliver; None where that is not due.

        It saves the next process from reading these units again, so once a minute is enough.
        """
        due = at_once or self._skipped_at is None or self._now() - self._skipped_at >= _SKIPPED_EVERY
        if not due or ledger.cursor >= Cursor(end):
            return None
        self._skipped_at = self._now()
        return ledger.moved(Cursor(end))

    def _has_waited(self) -> bool:
        """True if the rows that do not fill a batch have waited for as long as the declaration lets them."""
        waits, now = self._delivery.waits, self._now()
        if waits is None:
            return True
        self._waiting_since = self._waiting_since or now
        return now - self._waiting_since >= interval(waits)


class _DaysReader:
    """The rows of the days of a request that come before the delivery's cursor, without its dead letters.

    They keep their places in the table. Rows that were read ahead are kept in memory.
    """

    def __init__(self, outbox: Outbox, delivery: Delivery, dead_letters: DeadLetters, request: _DaysRequest) -> None:
        self.request = request
        self._outbox = outbox
        self._delivery = delivery
        self._dead_letters = dead_letters
        # Each unit that has rows of these days, in order, with the number of these rows.
        self._units: list[tuple[int, int]] | None = None
        # The rows read ahead, and the places where they begin and end.
        self._ahead: pa.Table | None = None
        self._begins: Cursor | None = None
        self._ends = Cursor(0)

    def cut(self, spark: SparkSession, since: Cursor, ledger: Ledger) -> tuple[Slice, Cursor] | None:
        """The next batch from `since` on, and the place after it; None where no row is left."""
        if self._begins != since:
            self._ahead, self._ends = None, since
        while self._ahead is None or not self._ahead.num_rows:
            if not self._read_ahead(spark, ledger):
                return None
        batch = self._ahead.slice(0, self._delivery.most_rows)
        self._ahead = self._ahead.slice(batch.num_rows)
        cut = _slice_of(batch)
        self._begins = _place_after(cut.places[-1])
        return cut, self._begins

    def again(self, spark: SparkSession, ledger: Ledger) -> Slice:
        """The rows of the batch that the ledger has planned.

        Raises:
            SinkError: they are not all there any more.
        """
        rows = self._read(spark, ledger.since, ledger.again_until, ledger).toArrow().combine_chunks()
        if rows.num_rows != ledger.rows:
            raise SinkError(
                f"of the {ledger.rows:,} rows that delivery {self._delivery.name!r} is about to deliver again, "
                f"{rows.num_rows:,} are there: its table was changed by hand. Restore it."
            )
        return _slice_of(rows)

    def _read_ahead(self, spark: SparkSession, ledger: Ledger) -> bool:
        """Read the rows of the next units ahead, about as many as may be in memory; False where there are none."""
        if self._units is None:
            rows = self._outbox.rows(spark, self._outbox.begin, _end_of_units(ledger.cursor))
            sizes = (
                self._of_days(spark, wanted(rows, self._delivery), ledger).groupBy(UNIT).count().orderBy(UNIT).collect()
            )
            self._units = [(row[UNIT], row["count"]) for row in sizes]
        most = max(READ_AT_ONCE, self._delivery.most_rows)
        size, until = 0, self._ends
        first = bisect_left(self._units, (self._ends.unit, 0))
        for unit, rows_of_unit in self._units[first:]:
            if size and size + rows_of_unit > most:
                break
            size += rows_of_unit
            until = min(Cursor(unit + 1), ledger.cursor)
        if until <= self._ends:
            return False
        # A single unit may have more rows than are to be in memory, so that it is read in parts.
        self._ahead = self._read(spark, self._ends, until, ledger).limit(most).toArrow().combine_chunks()
        self._ends = until if self._ahead.num_rows < most else _place_after(_slice_of(self._ahead).places[-1])
        return True

    def _read(self, spark: SparkSession, since: Cursor, until: Cursor, ledger: Ledger) -> DataFrame:
        """The rows of the days at the places in [since, until), in order."""
        unit, row = F.col(UNIT), F.col(ROW)
        # The place of a row within its unit counts the rows of all days, so it is given before these are chosen.
        whole_units = self._outbox.rows(spark, since.unit, _end_of_units(until))
        placed = self._of_days(spark, with_places(wanted(whole_units, self._delivery), self._outbox), ledger)
        rows = placed.where((unit > since.unit) | (row >= since.row)).where((unit < until.unit) | (row < until.row))
        dead = self._dead_letters.pending(ledger.generation, ledger.delivered)
        if dead:
            rows = without_places(rows, [place_of(letter) for letter in dead])
        return as_delivered(rows.orderBy(UNIT, ROW), self._delivery, {ROW: row.cast("bigint")})

    def _of_days(self, spark: SparkSession, rows: DataFrame, ledger: Ledger) -> DataFrame:
        first, last = date_literal(self.request.first), date_literal(self.request.last)
        of_days = rows.where(F.col(DAY).between(first, last))
        return self._outbox.still_told(spark, of_days, _end_of_units(ledger.cursor))


def _slice_of(rows: pa.Table) -> Slice:
    """The batch of `rows`, which have their places in `_unit` and `_row`; no attempt at them counts so far."""
    numbers = zip(rows[UNIT].to_pylist(), rows[ROW].to_pylist(), strict=True)
    places = [Cursor(unit, row) for unit, row in numbers]
    return Slice(rows.drop_columns([ROW]), places, [0] * rows.num_rows)


def _end_of_units(until: Cursor) -> int:
    """The unit after the last one that has rows before the place `until`."""
    return until.unit + (1 if until.row else 0)


def _place_after(place: Cursor) -> Cursor:
    """The place right after the row at `place`."""
    return Cursor(place.unit, place.row + 1)


@dataclass(frozen=True)
class _DaysRequest:
    """The request `number` to deliver the days from `first` to `last`, both included, again."""

    number: int
    first: date
    last: date

    @property
    def days(self) -> frozenset[date]:
        """All days of the request."""
        return frozenset(self.first + each * _DAY for each in range((self.last - self.first).days + 1))


def _ask_for_days(uri: str, days: Iterable[date], answered: int) -> int:
    """Record in the ledger at `uri` that `days` are to be delivered again; returns the number of the newest request.

    Consecutive days make one request. No request is made where one for just these days is not answered yet; `answered`
    is the newest request that is.

    Raises:
        FencedError: somebody else has asked at the same moment.
    """
    table = delta.opened(uri)
    newest = _newest_request(table)
    waiting = [(request.first, request.last) for request in _requests(table, answered + 1)]
    spans = [span for span in _spans(days) if span not in waiting]
    if not spans:
        return newest
    numbers: dict[str, int] = {}
    # A restored ledger says that requests were answered, but does not have their numbers.
    first_number = max(newest, answered) + 1
    for number, (first, last) in enumerate(spans, start=first_number):
        numbers |= {f"request {number} first": _days_since_epoch(first)}
        numbers |= {f"request {number} last": _days_since_epoch(last)}
    last_number = first_number + len(spans) - 1

    def fence(there: DeltaTable) -> None:
        if _newest_request(there) != newest:
            raise FencedError("somebody else asks for days of the same delivery at this moment; ask again.")

    metadata = {"asked": [[first.isoformat(), last.isoformat()] for first, last in spans]}
    delta.note(uri, says=metadata, numbers={**numbers, _NEWEST_REQUEST: last_number}, fence=fence)
    return last_number


def _next_request(uri: str, answered: int) -> _DaysRequest | None:
    """The oldest request in the ledger at `uri` with a number above `answered`."""
    table = delta.open_table(uri)
    return None if table is None else next(_requests(table, answered + 1), None)


def _requests(table: DeltaTable, since: int) -> Iterator[_DaysRequest]:
    """The requests of an open ledger from the number `since` on, oldest first."""
    for number in range(since, _newest_request(table) + 1):
        first = table.transaction_version(f"request {number} first")
        last = table.transaction_version(f"request {number} last")
        # A restored ledger has gaps between the numbers.
        if first is not None and last is not None:
            yield _DaysRequest(number, _day(first), _day(last))


def _newest_request(table: DeltaTable) -> int:
    """The number of the newest request of an open ledger; -1 for none."""
    newest = table.transaction_version(_NEWEST_REQUEST)
    return -1 if newest is None else newest


def _spans(days: Iterable[date]) -> list[tuple[date, date]]:
    """The first and last day of each run of consecutive days, oldest first."""
    spans: list[tuple[date, date]] = []
    for day in sorted(set(days)):
        if spans and day == spans[-1][1] + _DAY:
            spans[-1] = (spans[-1][0], day)
        else:
            spans.append((day, day))
    return spans


def _days_since_epoch(day: date) -> int:
    return (day - EPOCH.date()).days


def _day(days_since_epoch: int) -> date:
    return EPOCH.date() + days_since_epoch * _DAY


def why_not_by_day(delivery: Delivery) -> str:
    """The reason why no day can be delivered again, and what can be done instead; empty where days can.

    They can where the target keeps one row for each key, and no row there is replaced by one of a lower revision.
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
    """The days of which the delivery's table has rows, or has had rows that were deleted since."""
    of = delivery.of
    if delivery.what == "current" and isinstance(of, Operator):
        results = (lake.table(of, table.suffix) for table in of.tables if table.is_result)
        return set().union(*map(days_of, results))
    if isinstance(of, Operator) and delivery.what != "late":
        return days_of(lake.table(of, delivery.output))
    return days_of(lake.log(delivery.stream))


def check_repeatable(delivery: Delivery) -> None:
    """Refuse a delivery of which no day can be delivered again, as `why_not_by_day` says.

    Raises:
        RedeliveryError: with what can be done instead.
    """
    why_not = why_not_by_day(delivery)
    if why_not:
        raise RedeliveryError(f"{delivery.name!r} cannot deliver a day again: {why_not}. Nothing was delivered.")


def _check_days(lake: Lake, delivery: Delivery, days: frozenset[date]) -> None:
    """Refuse `days` if one of them has nothing to deliver.

    Raises:
        RedeliveryError: with the first and the last day that has something.
    """
    there = days_to_deliver(lake, delivery)
    missing = sorted(days - there)
    if missing:
        extent = f"its days are from {min(there)} to {max(there)}" if there else "it has no days yet"
        raise RedeliveryError(
            f"{delivery.of.name!r} has no row of {', '.join(map(str, missing[:_NAMED]))} for {delivery.name!r}; "
            f"{extent}. Nothing was delivered."
        )
