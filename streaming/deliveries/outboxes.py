"""The outbox of whatever can be delivered: the units, and the order within them, of each kind of table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import singledispatch

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import (
    AT,
    BATCH,
    FIRST_INSTANT,
    ORIGIN,
    REVISION,
    STEP_COLUMN,
    WRITTEN_AT,
    DeclarationError,
    FencedError,
    RedeliveryError,
    to_micros,
)
from streaming.declare import (
    CHANGES,
    DEAD,
    ELEMENT,
    PROGRESS,
    Delivery,
    Enriched,
    History,
    Joined,
    Keyed,
    Operator,
    OverWindows,
    Selected,
    Stream,
    View,
    Windowed,
)
from streaming.deliveries.changes import ChangesOutbox
from streaming.deliveries.ledger import Ledger, recorded_by
from streaming.deliveries.outbox import UNIT, Cursor, Outbox
from streaming.keyed import NEWEST_INSTANT
from streaming.lake import Lake
from streaming.log import LogFiles, batches_after, newest_retraction
from streaming.lookups import STEP
from streaming.operators import NEWEST_BATCH, Progress, Replaced, generation_of
from streaming.sinks import TIME
from streaming.spark import exact_json, frame_of_arrow
from streaming.tables import FileIndex, TableAbout, delta, numbers_named, read_files
from streaming.views import late_pairs, late_rows, read_first

_VALUES = "_values"


@dataclass(frozen=True)
class _Recorded:
    """The dead letters written down: those of all batches up to `batch` of `generation`, in `revision` + 1 looks."""

    revision: int = -1
    generation: int = -1
    batch: int = -1

    @classmethod
    def of(cls, table: DeltaTable | None) -> _Recorded:
        """The state that an open table records."""
        return cls(**numbers_named(table, cls.__annotations__))


class _RefusedOutbox(Outbox):
    """A unit is a revision: all dead letters that one look found.

    They are copied, as a batch that is repeated replaces its own, and those that arrive after a fix are removed. Only
    those of batches that are done are looked at. So a refusal is told once, and a row that is refused again after
    `redeliver` once more, with its next attempt; what arrived before anybody looked is not told.
    """

    begin = 0
    order = ("generation", "batch", "position")

    def __init__(self, lake: Lake, delivery: Delivery, of: Delivery) -> None:
        self._delivery = delivery
        self._of = of
        self._uri = lake.table(delivery, CHANGES)
        self._dead, self._ledger = lake.table(of, DEAD), lake.table(of, PROGRESS)
        self._looked_at: tuple[int, int, int] | None = None

    def generation(self) -> int:
        # What was told stays told, however often the other delivery begins anew.
        return 0

    def end(self, since: int) -> int:
        return _Recorded.of(delta.open_table(self._uri)).revision + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        refused = delta.read(spark, self._uri).where((F.col(REVISION) >= since) & (F.col(REVISION) < until))
        return refused.withColumns({UNIT: F.col(REVISION), TIME: F.col("at")})

    def follow(self, spark: SparkSession, now: Callable[[], datetime]) -> None:
        """Write down the dead letters that came since the last look, in one commit."""
        # The ledger first: of the batches that it calls delivered, all dead letters are there.
        ledger, dead = delta.open_table(self._ledger), delta.open_table(self._dead)
        if ledger is None or dead is None:
            return
        done = Ledger.of(ledger)
        looked_at = (done.generation, done.delivered, dead.version())
        if looked_at == self._looked_at:
            return
        before = _Recorded.of(delta.open_table(self._uri))
        rows = _since(delta.contents(dead), before, done)
        if rows.num_rows:
            self._write(spark, rows, before, _Recorded(before.revision + 1, done.generation, done.delivered))
        self._looked_at = looked_at

    def untold(self, spark: SparkSession) -> int:
        ledger, dead = delta.open_table(self._ledger), delta.open_table(self._dead)
        if ledger is None or dead is None:
            return 0
        before = _Recorded.of(delta.open_table(self._uri))
        return int(_since(delta.contents(dead), before, Ledger.of(ledger)).num_rows)

    def _write(self, spark: SparkSession, rows: pa.Table, before: _Recorded, after: _Recorded) -> None:
        frame = frame_of_arrow(spark, rows).withColumn(REVISION, F.lit(after.revision).cast("bigint"))
        about = f"Dead letters of {self._of.name} for delivery {self._delivery.name}"
        delta.create(
            self._uri,
            frame.schema,
            append_only=True,
            description=about,
            properties=recorded_by(self._delivery),
            about=TableAbout(bounded=(REVISION,)),
        )

        def fence(table: DeltaTable) -> None:
            if _Recorded.of(table) != before:
                raise FencedError(
                    f"the dead letters for delivery {self._delivery.name!r} were written by another process meanwhile; "
                    "let it run alone. Nothing is lost."
                )

        fields = vars(after)
        delta.append(
            frame,
            self._uri,
            says=fields,
            numbers=fields,
            statistics=(REVISION,),
            fence=fence,
        )


def _since(dead: pa.Table, before: _Recorded, done: Ledger) -> pa.Table:
    """The dead letters of batches that were not told, and are done; an earlier generation goes on with no batch."""
    generation, batch = dead["generation"], dead["batch"]
    newer = pc.or_(
        pc.greater(generation, before.generation),
        pc.and_(pc.equal(generation, before.generation), pc.greater(batch, before.batch)),
    )
    settled = pc.or_(
        pc.less(generation, done.generation),
        pc.and_(pc.equal(generation, done.generation), pc.less_equal(batch, done.delivered)),
    )
    return dead.filter(pc.and_(newer, settled))


class _EnrichmentOutbox(Outbox):
    """A unit is a step of the enrichment; within it rows come in the order of the log."""

    begin = 0
    order = (BATCH, ORIGIN)

    def __init__(self, lake: Lake, delivery: Delivery, enriched: Enriched) -> None:
        self._uri = lake.table(enriched, delivery.output)

    def generation(self) -> int:
        return 0

    def end(self, since: int) -> int:
        table = delta.open_table(self._uri)
        newest = None if table is None else table.transaction_version(STEP)
        return self.begin if newest is None else newest + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        unit = F.col(STEP_COLUMN)
        rows = delta.read(spark, self._uri).where((unit >= since) & (unit < until))
        return rows.withColumns({UNIT: unit, REVISION: F.unix_micros(AT), TIME: F.col(AT)})


class _FirstOutbox(Outbox):
    """A unit is the end of a window, in microseconds: results with one end are published by the same step."""

    begin = to_micros(FIRST_INSTANT)

    def __init__(self, lake: Lake, of: OverWindows) -> None:
        self._lake = lake
        self._of = of
        self.order = of.columns if of.gives_many else of.identity

    def generation(self) -> int:
        return Progress.now(self._lake, self._of).generation

    def end(self, since: int) -> int:
        watermark = Progress.now(self._lake, self._of).watermark
        return self.begin if watermark is None else to_micros(self._of.window.closed_by(watermark)) + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        ends = F.unix_micros("window_end")
        results = read_first(spark, self._lake, self._of).where((ends >= since) & (ends < until))
        return results.withColumns({UNIT: ends, REVISION: ends, TIME: F.col("window_start")})


class _KeyedOutbox(Outbox):
    """A unit is the instant of a step, in microseconds, which is later in each; within it rows come by their time."""

    begin = to_micros(FIRST_INSTANT)

    def __init__(self, lake: Lake, delivery: Delivery, keyed: Keyed) -> None:
        self._delivery = delivery
        self._uri = lake.table(keyed, delivery.output)
        self._emitted = keyed.output_schemas[delivery.output].names
        # The text leaves out what is null, by which two rows may differ.
        self.order = (AT, *keyed.by, _VALUES, *self._emitted)

    def generation(self) -> int:
        return generation_of(delta.open_table(self._uri))

    def goes_on(self, at: Cursor, generation: int) -> Cursor:
        return _after_replaced(self._delivery, self._uri, NEWEST_INSTANT, at, generation, self.begin)

    def end(self, since: int) -> int:
        table = delta.open_table(self._uri)
        newest = None if table is None else table.transaction_version(NEWEST_INSTANT)
        return self.begin if newest is None else newest + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        instants = F.unix_micros(WRITTEN_AT)
        rows = delta.read(spark, self._uri).where((instants >= since) & (instants < until))
        values = exact_json(F.struct(*(f"`{name}`" for name in self._emitted)), nulls=False)
        return rows.withColumns({UNIT: instants, REVISION: F.unix_micros(AT), TIME: F.col(AT), _VALUES: values})


class _LogOutbox(Outbox):
    """A unit is a batch of the log; within it rows come in the order of their origins."""

    begin = 0
    of_log = True
    order: tuple[str, ...] = ("_origin",)

    def __init__(self, lake: Lake, delivery: Delivery) -> None:
        self._lake = lake
        self._delivery = delivery
        stream = delivery.stream
        self._stream = stream.revisions if delivery.what == "rejected" else stream
        self._files = LogFiles(lake, self._stream)
        self._sizes: dict[int, int] = {}
        self._newest = -1

    def generation(self) -> int:
        # A log is never built anew.
        return 0

    def end(self, since: int) -> int:
        if self._delivery.what != "rejected" and newest_retraction(self._lake, self._stream) is not None:
            raise DeclarationError(
                f"delivery {self._delivery.name!r} would deliver rows of stream {self._stream.name!r}, of which some "
                "were taken back",
                "deliver what='current' of a view of that stream.",
                delivery=self._delivery.name,
                stream=self._stream.name,
            )
        # What was delivered is not looked at again, however long the log is.
        self._newest = max(self._newest, since - 1)
        for batch in batches_after(self._lake, self._stream, self._newest):
            self._newest = batch.number
            self._sizes[batch.number] = batch.summary.rows
        return self._newest + 1

    def piece(self, since: int, end: int, most: int) -> int:
        if since < end and since not in self._sizes:
            # A delivery that begins anew asks for batches again whose sizes were forgotten.
            again = batches_after(self._lake, self._stream, since - 1)
            self._sizes |= {batch.number: batch.summary.rows for batch in again}
        for unit in [unit for unit in self._sizes if unit < since]:
            del self._sizes[unit]
        rows, until = 0, since
        while until < end and (rows == 0 or rows + self._sizes.get(until, 0) <= most):
            rows += self._sizes.get(until, 0)
            until += 1
        return until

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        named = {UNIT: F.col("_batch"), TIME: F.col(self._stream.event_time)}
        if self._delivery.what == "rejected":
            rejected = self._files.rejected(spark, since - 1, until - 1)
            return rejected.withColumns({**named, TIME: F.col("_ingested_at"), REVISION: F.col("_batch")})
        rows = self._files.with_batches(spark, since - 1, until - 1)
        if self._delivery.what == "late":
            rows = self._late(rows)
        return rows.withColumns({**named, REVISION: F.unix_micros(self._stream.event_time)})

    def _late(self, rows: DataFrame) -> DataFrame:
        return late_rows(rows, self._stream)


class _LatePairsOutbox(_LogOutbox):
    """A row comes once for each window of a view for which it is late."""

    order = ("_origin", "window_start")

    def __init__(self, lake: Lake, delivery: Delivery, view: Windowed) -> None:
        super().__init__(lake, delivery)
        self._view = view

    def _late(self, rows: DataFrame) -> DataFrame:
        return late_pairs(rows, self._view)


class _RowsOutbox(Outbox):
    """A unit is a batch of the table's own sequence, of several logs a step; `order` is that of the rows of one."""

    begin = 0

    def __init__(self, lake: Lake, delivery: Delivery, operator: Operator, order: tuple[str, ...]) -> None:
        self._delivery = delivery
        self._uri = lake.table(operator, delivery.output)
        self._operator = operator
        self._files = FileIndex(self._uri, AT)
        self.order = order

    def generation(self) -> int:
        return generation_of(delta.open_table(self._uri))

    def end(self, since: int) -> int:
        return Progress.of(self._operator, delta.open_table(self._uri)).batch + 1

    def goes_on(self, at: Cursor, generation: int) -> Cursor:
        # Of one log units are its batches, which no rebuild numbers anew.
        if len(self._operator.follows) == 1:
            return at
        return _after_replaced(self._delivery, self._uri, NEWEST_BATCH, at, generation, self.begin)

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        unit, table = F.col(BATCH), self._files.refresh()
        rows = read_files(spark, table, self._uri, self._files.with_batches(since - 1, until - 1))
        wanted = rows.where((unit >= since) & (unit < until))
        return wanted.withColumns({UNIT: unit, REVISION: F.unix_micros(AT), TIME: F.col(AT)})


def _after_replaced(delivery: Delivery, uri: str, newest: str, at: Cursor, generation: int, begin: int) -> Cursor:
    """The place in a table after what followed from the batches that the table of `generation` before it had followed.

    Units are steps, numbered by the number `newest`, which those of another generation have nothing to do with.

    Raises:
        RedeliveryError: not all of that table was delivered, or no step ended where that one did.
    """
    table = delta.open_table(uri)
    if table is None or generation_of(table) == generation:
        return at
    replaced = Replaced.of(table, newest)
    if generation_of(table) != generation + 1:
        why = "it was built anew more than once since"
    elif replaced is None:
        why = "it went on while it was built anew, and no step of the new one ended where the last of the old one did"
    elif at < Cursor(_after(replaced.before, begin)):
        why = "not all rows of it had been delivered when it was built anew"
    else:
        return Cursor(_after(replaced.continues, begin))
    raise RedeliveryError(
        f"nobody can tell which rows of {delivery.of.name!r} follow those that {delivery.name!r} has delivered: {why}. "
        "`tidemark redeliver` with `--all` delivers everything again, in a new generation; where the target keeps "
        "every row that it gets, remove what is there before. Nothing was delivered."
    )


def _after(newest: int | None, begin: int) -> int:
    return begin if newest is None else newest + 1


def outbox_of(delivery: Delivery, lake: Lake) -> Outbox:
    """The outbox that the delivery reads.

    Raises:
        DeclarationError: it is of an operator of a kind for which no outbox is registered with `outbox_for`.
    """
    return outbox_for(delivery.of, delivery, lake)


@singledispatch
def outbox_for(of: Stream | Operator | Delivery, delivery: Delivery, lake: Lake) -> Outbox:
    """The outbox of a delivery of `of`; `outbox_for.register` adds a kind of operator."""
    raise DeclarationError(
        f"delivery {delivery.name!r} is of {of.name!r}, a {type(of).__name__}, which nothing here can deliver; "
        "register an Outbox for that type with `outbox_for.register`."
    )


@outbox_for.register
def _(of: Stream, delivery: Delivery, lake: Lake) -> Outbox:
    return _LogOutbox(lake, delivery)


@outbox_for.register
def _(of: Delivery, delivery: Delivery, lake: Lake) -> Outbox:
    return _RefusedOutbox(lake, delivery, of)


@outbox_for.register
def _of_windows(of: OverWindows, delivery: Delivery, lake: Lake) -> Outbox:
    if delivery.what == "current":
        return ChangesOutbox(lake, delivery, of)
    return _FirstOutbox(lake, of)


@outbox_for.register
def _(of: Windowed, delivery: Delivery, lake: Lake) -> Outbox:
    return _LatePairsOutbox(lake, delivery, of) if delivery.what == "late" else _of_windows(of, delivery, lake)


@outbox_for.register
def _(of: Keyed, delivery: Delivery, lake: Lake) -> Outbox:
    if delivery.what == "current":
        return ChangesOutbox(lake, delivery, of)
    return _KeyedOutbox(lake, delivery, of)


@outbox_for.register
def _(of: Selected, delivery: Delivery, lake: Lake) -> Outbox:
    if delivery.what == "current":
        return ChangesOutbox(lake, delivery, of)
    return _RowsOutbox(lake, delivery, of, (ORIGIN, *([ELEMENT] if of.makes_many(delivery.output) else [])))


@outbox_for.register
def _(of: Joined, delivery: Delivery, lake: Lake) -> Outbox:
    if delivery.what == "current":
        return ChangesOutbox(lake, delivery, of)
    return _RowsOutbox(lake, delivery, of, (ORIGIN,))


@outbox_for.register
def _(of: History, delivery: Delivery, lake: Lake) -> Outbox:
    return ChangesOutbox(lake, delivery, of)


@outbox_for.register
def _(of: View, delivery: Delivery, lake: Lake) -> Outbox:
    return ChangesOutbox(lake, delivery, of)


@outbox_for.register
def _(of: Enriched, delivery: Delivery, lake: Lake) -> Outbox:
    return _EnrichmentOutbox(lake, delivery, of)
