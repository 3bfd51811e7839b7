"""Rows of a table in units and in an order that nothing ever changes, and the batches that a delivery reads of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import REASON, REVISION, SinkError
from streaming.declare import Delivery
from streaming.operators import comparable
from streaming.sinks import CHANGE, DELETE, FAILURE, TIME
from streaming.spark import failure_of, guarded

UNIT = "_unit"
"""The column that numbers the unit of a row."""
ROW = "_row"
"""The column that numbers a row within its unit, of rows that are read one by one."""

READ_AT_ONCE = 50_000
"""Rows that are read ahead, so that small batches do not each cost a query."""
DeadLetter = Mapping[str, Any]
"""A row of the table of dead letters."""


@dataclass(frozen=True, order=True)
class Cursor:
    """A place between two rows: after all units below `unit`, and after the first `row` rows of that unit."""

    unit: int
    row: int = 0


class Outbox(ABC):
    """Rows in units, such as the batches of a log: once a unit can be read, no row ever comes to it.

    The order of rows within a unit follows from the rows alone, so that compaction, clean-up and a restart change no
    place of any row.
    """

    @property
    @abstractmethod
    def begin(self) -> int:
        """The first unit."""

    @property
    def start(self) -> int:
        """The unit with which a delivery begins that is to get everything."""
        return self.begin

    of_log: bool = False
    """True if it reads rows of an event log, which may drop days once they are delivered."""

    order: tuple[Column | str, ...]
    """The order of the rows of a unit: no two of them may differ and be equal in it."""

    def order_of(self, rows: DataFrame) -> list[Column]:
        """The columns of `order`, by which Spark can sort the `rows`."""
        return [comparable(rows, each) if isinstance(each, str) else each for each in self.order]

    @abstractmethod
    def generation(self) -> int:
        """The number of times that the table was built anew: places in one generation mean nothing in another."""

    @abstractmethod
    def end(self, since: int) -> int:
        """All units below this one can be read, of which those before `since` were; `begin` where there is no table."""

    @abstractmethod
    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        """The rows of the units in [since, until), with `_unit`, `_revision`, `_time`, and all that may be selected."""

    def piece(self, since: int, end: int, most: int) -> int:
        """The end of a piece of [since, end) with about `most` rows, so that a backlog is not read again and again."""
        return end

    def follow(self, spark: SparkSession, now: Callable[[], datetime]) -> None:
        """Bring what is read up to date, where it is derived from other tables."""
        return None

    def untold(self, spark: SparkSession) -> int:
        """The rows that `follow` would add now; writes nothing."""
        return 0

    def still_told(self, spark: SparkSession, rows: DataFrame, until: int | None = None) -> DataFrame:
        """Those of the `rows`, which are told once more, of which nothing newer is told before the unit `until`."""
        return rows

    def goes_on(self, at: Cursor, generation: int) -> Cursor:
        """The place in the table as it is now after which rows follow those before `at` in a `generation` of it.

        Raises:
            RedeliveryError: they cannot be told apart, or what was told cannot go on as the table is now.
        """
        return at


class Reader:
    """Rows of an outbox as a delivery selects them; those that were read ahead are kept in memory."""

    def __init__(self, outbox: Outbox, delivery: Delivery, command: str) -> None:
        self._outbox = outbox
        self._delivery = delivery
        self._command = command
        self._ahead: pa.Table | None = None
        self._begins = self._ends = Cursor(0)

    def fill(self, spark: SparkSession, cursor: Cursor, end: int) -> int:
        """Read ahead from `cursor` for a whole batch, or up to the unit `end`; returns how many rows there are."""
        if self._ahead is None or self._begins != cursor:
            self._ahead, self._begins, self._ends = None, cursor, cursor
        most = max(READ_AT_ONCE, self._delivery.most_rows)
        while self._waiting < self._delivery.most_rows and self._ends.unit < end:
            until = self._outbox.piece(self._ends.unit, end, most)
            rows = self._read(spark, self._ends, until, most)
            self._ends = _after(rows, self._ends) if rows.num_rows == most else Cursor(until)
            self._ahead = rows if self._ahead is None else pa.concat_tables([self._ahead, rows])
        return self._waiting

    def cut(self, rows: int) -> tuple[pa.Table, Cursor]:
        """The next `rows` of those that were read ahead, and the cursor after them; they are not kept."""
        assert self._ahead is not None
        batch, rest = self._ahead.slice(0, rows), self._ahead.slice(rows)
        self._begins = self._ends if rest.num_rows == 0 else _after(batch, self._begins)
        self._ahead = rest
        return batch, self._begins

    def again(self, spark: SparkSession, since: Cursor, until: Cursor, rows: int) -> pa.Table:
        """The rows of a batch that was cut before.

        Raises:
            SinkError: they are not all there any more.
        """
        batch = self._read(spark, since, until.unit + (1 if until.row else 0), rows)
        if batch.num_rows != rows:
            raise SinkError(
                f"of the {rows:,} rows of the batch that delivery {self._delivery.name!r} is about to send, "
                f"{batch.num_rows:,} are there: its table was changed by hand. Restore it, or begin anew with "
                f"`{self._command} --all`."
            )
        return batch

    def at(self, spark: SparkSession, places: Sequence[Cursor]) -> pa.Table:
        """Single rows by their places, in order; those that are there no more, or not to be delivered, are left out."""
        units = sorted({place.unit for place in places})
        frame = self._outbox.rows(spark, units[0], units[-1] + 1).where(F.col(UNIT).isin(units))
        numbered = with_places(wanted(frame, self._delivery), self._outbox)
        asked = spark.createDataFrame([(place.unit, place.row) for place in places], f"{UNIT} bigint, {ROW} bigint")
        rows = numbered.join(F.broadcast(asked), [UNIT, ROW], "left_semi")
        rows = self._outbox.still_told(spark, rows)
        ordered = rows.orderBy(UNIT, *self._outbox.order_of(rows))
        return _arrow(as_delivered(ordered, self._delivery, {ROW: F.col(ROW).cast("bigint")}))

    @property
    def _waiting(self) -> int:
        return 0 if self._ahead is None else self._ahead.num_rows

    def _read(self, spark: SparkSession, since: Cursor, until: int, most: int) -> pa.Table:
        frame = wanted(self._outbox.rows(spark, since.unit, until), self._delivery)
        # Of the first unit some rows may have been read before.
        ordered = frame.orderBy(UNIT, *self._outbox.order_of(frame)).limit(most + since.row)
        rows = _arrow(as_delivered(ordered, self._delivery))
        before = min(since.row, pc.sum(pc.equal(rows[UNIT], since.unit)).as_py() or 0)
        return rows.slice(before)


def wanted(rows: DataFrame, delivery: Delivery) -> DataFrame:
    """The rows that are to be delivered.

    Changes are made of those results for which the condition holds: of a deleted one there is nothing to ask.
    """
    return rows if delivery.what == "current" else chosen_rows(rows, delivery, UNIT)


def as_delivered(frame: DataFrame, delivery: Delivery, more: Mapping[str, Column] | None = None) -> DataFrame:
    """The columns of a batch, and `more`; why a row cannot be computed is among them where one may fail."""
    change_columns = [CHANGE, REASON] if delivery.what == "current" else []
    others = [column.alias(name) for name, column in (more or {}).items()]
    selected = selected_columns(frame, delivery, UNIT)
    return frame.select(UNIT, REVISION, TIME, *change_columns, *others, *selected)


def with_places(frame: DataFrame, outbox: Outbox) -> DataFrame:
    """With the number of each row within its unit, in the column `_row`; `frame` has all rows of its units."""
    order = SortedBy.partitionBy(UNIT).orderBy(*outbox.order_of(frame))
    return frame.withColumn(ROW, F.row_number().over(order) - 1)


def without_places(placed: DataFrame, places: Sequence[Cursor]) -> DataFrame:
    """Those of the numbered rows that `with_places` gave which are at none of the places."""
    others = placed.sparkSession.createDataFrame([(at.unit, at.row) for at in places], f"{UNIT} bigint, {ROW} int")
    return placed.join(F.broadcast(others), [UNIT, ROW], "left_anti")


def places_of(rows: pa.Table, since: Cursor) -> list[Cursor]:
    """The place of each row of a batch that begins at `since`."""
    places: list[Cursor] = []
    unit, row = since.unit, since.row
    for each in rows[UNIT].to_pylist():
        unit, row = (unit, row) if each == unit else (each, 0)
        places.append(Cursor(unit, row))
        row += 1
    return places


def _after(rows: pa.Table, since: Cursor) -> Cursor:
    """The cursor after the rows of a batch that begins at `since`."""
    if rows.num_rows == 0:
        return since
    last = rows[UNIT][-1].as_py()
    of_last = pc.sum(pc.equal(rows[UNIT], last)).as_py()
    return Cursor(last, of_last + (since.row if last == since.unit else 0))


def _arrow(frame: DataFrame) -> pa.Table:
    # The rows of a batch come in many small pieces, and some of them may say that they have no null.
    rows = frame.toArrow().combine_chunks()
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))


def chosen_rows(rows: DataFrame, delivery: Delivery, beside: str) -> DataFrame:
    """Those for which the condition holds, and those for which it cannot be judged, which become dead letters.

    `beside` names any column of the rows, as everywhere here.
    """
    if delivery.where is None or not may_fail(delivery.where, delivery):
        return rows if delivery.where is None else rows.where(delivery.where)
    judged = guarded(_condition(delivery.where), beside)
    return rows.where(judged.isNull() | judged["value"])


def may_fail(sql: str, delivery: Delivery) -> bool:
    """True if the SQL of a delivery is more than a column that it reads."""
    return sql.strip("`") not in delivery.readable


def value_of(name: str, delivery: Delivery, beside: str) -> Column:
    """A column that is selected, null for the rows for which it cannot be computed."""
    sql = delivery.selected[name]
    return guarded(F.expr(sql), beside)["value"] if may_fail(sql, delivery) else F.expr(sql)


def selected_columns(frame: DataFrame, delivery: Delivery, beside: str) -> list[Column]:
    """The columns of a delivery, and where one or the condition may fail for a row of `frame` why it did."""
    columns = [value_of(name, delivery, beside).alias(name) for name in delivery.selected]
    failures = list(_failures(frame, delivery, beside))
    return [*columns, *([F.coalesce(*failures).alias(FAILURE)] if failures else [])]


def _failures(frame: DataFrame, delivery: Delivery, beside: str) -> Iterator[Column]:
    changes = delivery.what == "current"
    # Of a deleted result nothing but what identifies it counts.
    is_there = F.col(CHANGE) != DELETE
    if delivery.where is not None and may_fail(delivery.where, delivery):
        why = failure_of(frame, "where", delivery.where, _condition(delivery.where), beside)
        yield F.when(is_there, why) if changes else why
    for name, sql in delivery.selected.items():
        if may_fail(sql, delivery):
            why = failure_of(frame, f"column {name!r}", sql, F.expr(sql), beside)
            yield F.when(is_there, why) if changes and name not in delivery.identity else why


def _condition(sql: str) -> Column:
    return F.coalesce(F.expr(sql), F.lit(False))


@dataclass(frozen=True)
class Slice:
    """The rows of a batch, the place of each in the table it is of, and how often each was tried before."""

    rows: pa.Table
    places: Sequence[Cursor]
    tried: Sequence[int]


def new(rows: pa.Table, since: Cursor) -> Slice:
    """Rows that come from `since` on, for the first time."""
    return Slice(rows, places_of(rows, since), [0] * rows.num_rows)


def retried(spark: SparkSession, reader: Reader, dead: Sequence[DeadLetter]) -> Slice:
    """The rows behind some dead letters, as the delivery selects them now; those not to be delivered are left out."""
    tried = {place_of(row): int(row["attempt"]) for row in dead}
    rows = reader.at(spark, list(tried))
    pairs = zip(rows[UNIT].to_pylist(), rows[ROW].to_pylist(), strict=True)
    places = [Cursor(unit, row) for unit, row in pairs]
    return Slice(rows.drop_columns([ROW]), places, [tried[place] for place in places])


def place_of(letter: DeadLetter) -> Cursor:
    """The place of the row that a dead letter is of."""
    return Cursor(letter["origin"]["unit"], letter["origin"]["row"])


def first_of(dead: Sequence[DeadLetter], most: int) -> tuple[int, int]:
    """The batch up to which dead letters, oldest first, are sent together, and how many those are.

    About `most`, but all that one batch left.
    """
    through = int(dead[min(most, len(dead)) - 1]["batch"])
    return through, sum(row["batch"] <= through for row in dead)
