"""The way from rows to results: each row is paired with its windows, pairs are grouped, groups are finished.

First results, updates, open windows, corrections and the audit all go this way, so that they agree.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from streaming.base import (
    BATCH,
    DAY,
    END_OF_EVENT_TIMES,
    EVENT_TIME,
    FIRST_EVENT_TIME,
    MICROSECOND,
    ORDER,
    ORIGIN,
    RETRACTED,
    SIGN,
    WINDOW,
    OperatorError,
    constant,
    date_literal,
    earlier,
    from_micros,
    interval,
    literal,
    replaced,
)
from streaming.declare import OverWindows, Stream, Windowed
from streaming.lake import Lake
from streaming.log import Batch, can_retract, head, read_log, valid
from streaming.operators import IDENTITY, Progress, check_followed, net, signs
from streaming.spark import computed_or, first_failure, holds, row_values
from streaming.tables import delta
from streaming.views.functions import apply_function
from streaming.windows import Tumbling, Window

SESSION = "_session_number"
_EVERYTHING = "_everything"
_START, _END = "_start", "_end"
_HULL, _OWN = "_hull", "_own_window"
ROWS = "_rows"


class WindowKind(ABC):
    """The way in which pairs become groups, and what a late row may change beyond its own window."""

    merges: bool
    """True if a late row may join windows that were published apart."""

    @abstractmethod
    def group(self, pairs: DataFrame, keys: Sequence[str], aggregates: list[Column]) -> DataFrame:
        """One row per `keys` and `_window` with the `aggregates`."""

    @abstractmethod
    def with_window_id(self, results: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
        """`results` with the column `name`: the same for those of the same `keys` that stand for one window.

        They have `window_start` and `window_end`.
        """

    @abstractmethod
    def same_window(self, one: DataFrame, other: DataFrame) -> Column:
        """True where a result of `one` stands for the window of `other`: both have `window_start` and `window_end`."""


class FixedWindows(WindowKind):
    """Bounds follow from the row alone."""

    merges = False

    def group(self, pairs: DataFrame, keys: Sequence[str], aggregates: list[Column]) -> DataFrame:
        # Spark's fastest map of groups takes two instants as a key, and no struct of them.
        bounds = (F.col(f"{WINDOW}.start").alias(_START), F.col(f"{WINDOW}.end").alias(_END))
        groups = pairs.groupBy(*keys, *bounds).agg(*aggregates)
        others = (name for name in groups.columns if name not in (_START, _END))
        return groups.select(*others, F.struct(F.col(_START).alias("start"), F.col(_END).alias("end")).alias(WINDOW))

    def with_window_id(self, results: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
        return results.withColumn(name, F.struct("window_start", "window_end"))

    def same_window(self, one: DataFrame, other: DataFrame) -> Column:
        return (one["window_start"] == other["window_start"]) & (one["window_end"] == other["window_end"])


class MergingWindows(WindowKind):
    """Sessions: what overlaps or touches is one."""

    merges = True

    def group(self, pairs: DataFrame, keys: Sequence[str], aggregates: list[Column]) -> DataFrame:
        bounds = pairs.select(
            *(name for name in pairs.columns if name != WINDOW),
            F.lit(0).alias(_EVERYTHING),  # Spark refuses sessions without a key.
            F.col(f"{WINDOW}.start").alias(_START),
            F.col(f"{WINDOW}.end").alias(_END),
        )
        seconds = (F.unix_micros(_END) - F.unix_micros(_START)) / F.lit(1_000_000)
        session = F.session_window(_START, F.make_interval(secs=seconds.cast("decimal(18,6)"))).alias("_session")
        # Bounds as aggregates, because Spark would push a filter on the session's own bounds below the merge.
        merged = F.struct(F.min(_START).alias("start"), F.max(_END).alias("end")).alias(WINDOW)
        return bounds.groupBy(_EVERYTHING, *keys, session).agg(merged, *aggregates).drop(_EVERYTHING, "_session")

    def with_window_id(self, results: DataFrame, keys: Sequence[str], name: str) -> DataFrame:
        numbered = with_sessions(results, keys, F.col("window_start"), F.col("window_end"))
        return numbered.withColumnRenamed(SESSION, name)

    def same_window(self, one: DataFrame, other: DataFrame) -> Column:
        return (one["window_start"] <= other["window_end"]) & (other["window_start"] <= one["window_end"])


def with_sessions(frame: DataFrame, keys: Sequence[str], start: Column, end: Column) -> DataFrame:
    """`frame` with `_session_number`, the same for rows of a key that overlap or touch from `start` to `end`."""
    in_order = SortedBy.partitionBy(F.lit(0), *(F.col(name) for name in keys)).orderBy(start, end)
    before = F.max(end).over(in_order.rowsBetween(SortedBy.unboundedPreceding, -1))
    begun = frame.withColumn("_begins", F.when(start <= before, 0).otherwise(1))
    number = F.sum("_begins").over(in_order.rowsBetween(SortedBy.unboundedPreceding, 0))
    return begun.withColumn(SESSION, number).drop("_begins")


_FIXED, _MERGING = FixedWindows(), MergingWindows()


def kind_of(view: OverWindows) -> WindowKind:
    """The kind of the view's windows."""
    return _MERGING if view.window.merging else _FIXED


def counted_rows(view: Windowed) -> Column:
    """True for the valid rows that the view counts, false or null for all others."""
    valid = F.col(DAY).isNotNull()
    if view.where is not None:
        valid = valid & (holds(_where(view), DAY) if view.diverts else F.expr(view.where))
    fails = failure(view)
    return valid if fails is None else valid & fails.isNull()


def failure(view: Windowed) -> Column | None:
    """The part of a row that the view cannot compute, in words, or null; None where no row can fail, or one pauses it.

    Of a row that its condition leaves out nothing else is computed.
    """
    if not view.diverts:
        return None
    time = f"`{view.of.event_time}`"
    counted = F.lit(True) if view.where is None else _where(view)
    parts = [] if view.where is None else [("where", view.where, counted)]
    if view.window.expressions:
        bounds = F.when(counted & has_days(F.col(time)), view.window.bounds(F.col(time)))
        parts.append(("window", ", ".join(view.window.expressions), bounds))
    added = {EVENT_TIME: time, ORDER: f"struct({time} as at, {BATCH}, {ORIGIN})"}
    for name, aggregate in view.aggregates.items():
        if values := row_values(replaced(aggregate.sql, added)):
            parts.append((f"aggregate {name!r}", aggregate.sql, F.when(counted, F.struct(*values))))
    return first_failure(parts, DAY) if parts else None


def _where(view: Windowed) -> Column:
    return F.expr(f"({view.where}\n)")


def counted_by(view: Windowed) -> str:
    """A short text that is the same for declarations by which the same pairs are late."""
    rules = f"{view.of.event_time} {view.window.fingerprint} {view.where}"
    if view.diverts:
        rules += f" but for rows that fail for one of {[each.sql for each in view.aggregates.values()]}"
    return hashlib.sha256(rules.encode()).hexdigest()[:8]


def late_pairs_in(batch: Batch, operator: OverWindows, by: str) -> int | None:
    """The number of late pairs of the operator that a batch of a log brought, where they are counted `by` that.

    None where they were not counted, before it was declared, or by another declaration of it.
    """
    if not batch.summary.rows:
        return 0
    # Older commits do not tell by which declaration they counted.
    alike = (batch.counted_by or {}).get(operator.name) in (None, by)
    return (batch.late or {}).get(operator.name) if alike else None


def possibly_in_windows_after(rows: DataFrame, stream: Stream, window: Window, instant: datetime | None) -> DataFrame:
    """Those `rows` of a log that may be in a window ending after `instant`, found by the files' statistics."""
    earliest = earlier(instant, window.reach)
    if earliest is None:
        return rows
    near = F.col(f"`{stream.event_time}`") >= literal(earliest)
    return rows.where((F.col(DAY) >= date_literal(earliest.date())) & near)


def with_order(rows: DataFrame, view: Windowed) -> DataFrame:
    """`rows` of the log with `_event_time`, and with `_order`, by which first and last are meant."""
    return rows.withColumns(_order(view))


def _order(view: Windowed) -> dict[str, Column]:
    event_time = F.col(view.of.event_time)
    return {EVENT_TIME: event_time, ORDER: F.struct(event_time.alias("at"), "_batch", "_origin")}


def has_windows(view: Windowed) -> Column:
    """True for the rows that the view counts, at a time around which there are days; false or null for all others.

    Logs of older versions may hold valid rows at other times; those are in no window.
    """
    return counted_rows(view) & has_days(F.col(view.of.event_time))


def has_days(event_time: Column) -> Column:
    """True where there are days around the instant; null where the instant is null."""
    return (event_time >= literal(FIRST_EVENT_TIME)) & (event_time < literal(END_OF_EVENT_TIMES))


def assign(rows: DataFrame, view: Windowed) -> DataFrame:
    """`rows` of the log in order once per window, in the column `_window`; once with null where there is no window."""
    # Not over every row: what made a row rejected may make a window overflow.
    windows = F.explode_outer(F.when(has_windows(view), view.window.bounds(F.col(view.of.event_time))))
    return rows.withColumns({**_order(view), WINDOW: windows})


def pairs(rows: DataFrame, view: Windowed) -> DataFrame:
    """The (valid row, window) pairs that the view counts, as a batch read, with a boolean `_late`."""
    assigned = assign(rows.where(counted_rows(view)), view).where(F.col(WINDOW).isNotNull())
    return assigned.withColumn("_late", view.window.late(F.col(WINDOW), F.col("_watermark")))


def possible_pairs(rows: DataFrame, view: Windowed) -> DataFrame:
    """The pairs of a batch read, and those that there may be of rows for which the view cannot compute them.

    It raises for no row. One for which `where` cannot be computed counts, and one of which the window cannot be is in
    one that begins with it: whichever it is in, it is late for none that ends after its own time and before its stamp.
    """
    if view.diverts:
        return pairs(rows, view)
    event_time, counted = F.col(f"`{view.of.event_time}`"), F.col(DAY).isNotNull()
    if view.where is not None:
        counted &= computed_or(F.coalesce(_where(view), F.lit(False)), F.lit(True), DAY)
    windows = F.explode(F.when(counted & has_days(event_time), possible_bounds(view.window, event_time)))
    assigned = rows.withColumns({**_order(view), WINDOW: windows})
    return assigned.withColumn("_late", view.window.late(F.col(WINDOW), F.col("_watermark")))


def possible_bounds(window: Window, event_time: Column) -> Column:
    """The windows of a valid row of a log; where they cannot be computed, one that begins with the row."""
    if not window.expressions:
        return window.bounds(event_time)
    own = F.struct(event_time.alias("start"), F.timestamp_micros(F.unix_micros(event_time) + 1).alias("end"))
    return computed_or(window.bounds(event_time), F.array(own), DAY)


def last_end(pairs: DataFrame, of: OverWindows, day: date) -> datetime:
    """The end of the last of the sessions that begin on the day, or its own where there are none; read at once."""
    sessions = kind_of(of).group(pairs, of.by, [F.count(F.lit(1)).alias("rows")])
    of_day = sessions.where(F.to_date(f"{WINDOW}.start") == date_literal(day))
    row = of_day.agg(F.unix_micros(F.max(f"{WINDOW}.end")).alias("end")).first()
    return datetime.combine(day, time.max, UTC) if row is None or row["end"] is None else from_micros(row["end"])


def ends_within(since: datetime | None, by: datetime) -> Column:
    """True where the window of a pair or group ends in (since, by]; `since` null: by then, however early."""
    end = f"{WINDOW}.end"
    ended = F.col(end) <= constant(by, end)
    return ended if since is None else ended & (F.col(end) > constant(since, end))


def group(of: DataFrame, view: Windowed, *per: str, extra: Mapping[str, Column] | None = None) -> DataFrame:
    """One row per key, window and `per` of the pairs `of`: these, `extra` aggregates, and what `finish` needs."""
    if keeps_rows(view) or can_retract(of):
        kept = [all_rows(view, of)]
    else:
        kept = [aggregate.column().alias(name) for name, aggregate in view.aggregates.items()]
    extras = [column.alias(name) for name, column in (extra or {}).items()]
    return kind_of(view).group(of, (*view.by, *per), [*kept, *extras])


def keeps_rows(view: Windowed) -> bool:
    """True if the rows of a window decide together which of them count."""
    return bool(view.distinct) or view.function is not None or view.of.takes_back


def all_rows(view: Windowed, pairs: DataFrame | None = None) -> Column:
    """An aggregate that keeps the rows of a window themselves, in the column `ROWS`.

    With signs and identities where rows take back others, which of a stream that follows none its `pairs` tell.
    """
    signed = (column.alias(name) for name, column in signs(view.of, pairs).items())
    return F.collect_list(F.struct(*view.of.columns, EVENT_TIME, ORDER, *signed)).alias(ROWS)


def are_signed(groups: DataFrame) -> bool:
    """True for groups that keep rows of which some may take back others."""
    if ROWS not in groups.columns:
        return False
    kept = groups.schema[ROWS].dataType
    return isinstance(kept, ArrayType) and isinstance(kept.elementType, StructType) and SIGN in kept.elementType.names


def finish(groups: DataFrame, view: Windowed, *extra: str) -> DataFrame:
    """Results of `groups`, of their values or of the rows they keep: the view's columns, the `extra` ones, `_day`."""
    results = groups
    if ROWS in groups.columns:
        firsts = members(groups, view, *extra).where(F.col("_copy") == 1)
        keys = (*view.by, WINDOW, *extra)
        if view.function is not None:
            results = apply_function(view.name, view.function, firsts, keys, leaves_out=view.diverts)
        else:
            results = firsts.groupBy(*keys).agg(
                *(aggregate.column().alias(name) for name, aggregate in view.aggregates.items())
            )
    return results.select(
        *view.by,
        F.col(f"{WINDOW}.start").alias("window_start"),
        F.col(f"{WINDOW}.end").alias("window_end"),
        *view.values,
        *extra,
        F.to_date(f"{WINDOW}.start").alias("_day"),
    )


def finish_or_retract(groups: DataFrame, view: Windowed, *extra: str) -> DataFrame:
    """The results with `_retracted`: true in a row without values for each group that has none.

    That is one of which a function gives none, or of which all rows are taken back.
    """
    results = finish(groups, view, *extra).withColumn(RETRACTED, F.lit(False))
    may_have_none = view.function is not None or are_signed(groups)
    return retract_others(results, groups, view, *extra) if may_have_none else results


def retract_others(results: DataFrame, groups: DataFrame, of: OverWindows, *extra: str) -> DataFrame:
    """`results`, and a row without values, with `_retracted`, for each of the `groups` that has none among them."""
    windows = groups.select(
        *of.by,
        F.col(f"{WINDOW}.start").alias("window_start"),
        F.col(f"{WINDOW}.end").alias("window_end"),
        *extra,
        F.to_date(f"{WINDOW}.start").alias("_day"),
    )
    same = [windows[name].eqNullSafe(results[name]) for name in (*of.identity, *extra)]
    without = windows.join(results, same, "left_anti").withColumn(RETRACTED, F.lit(True))
    return results.unionByName(without, allowMissingColumns=True)


def aggregate(of: DataFrame, view: Windowed, *per: str, **extra: Column) -> DataFrame:
    """Results of the pairs `of`: the view's columns, those of `per`, the `extra` aggregates, `_day`."""
    if extra or view.window.merging or view.function is not None or not (keeps_rows(view) or can_retract(of)):
        return finish(group(of, view, *per, extra=extra), view, *per, *extra)
    # A list of the rows of a window would be in memory as a whole.
    rows = _counted(of.withColumns(signs(view.of, of)), view, *per).where("_copy = 1")
    values = [aggregate.column().alias(name) for name, aggregate in view.aggregates.items()]
    return finish(kind_of(view).group(rows, (*view.by, *per), values), view, *per)


def as_batch(spark: SparkSession, lake: Lake, view: Windowed) -> DataFrame:
    """The view as a batch: its results over every valid row of the log, late ones too, in one read.

    Current results are equal to it once everything is corrected.
    """
    return aggregate(pairs(read_log(spark, lake, view.of), view), view).select(*view.columns)


def members(groups: DataFrame, view: Windowed, *extra: str) -> DataFrame:
    """The rows that `groups` keep and that stand, each with its merged `_window`.

    `_position` is a row's place in its window; `_copy` counts the rows that agree in `distinct`, the first being 1.
    """
    return _counted(rows_in(groups, view, *extra), view, *extra)


def _counted(rows: DataFrame, view: Windowed, *extra: str) -> DataFrame:
    """Pairs with `_position` and `_copy`, as `members` has them, where one has a sign of those that stand."""
    if SIGN in rows.columns:
        rows = _standing(rows, [*view.by, WINDOW, *extra])
        if kind_of(view).merges:
            rows = parted(rows, [*view.by, WINDOW, *extra], _own_window(view))
    window = SortedBy.partitionBy(*view.by, WINDOW, *extra)
    copy = F.lit(1)
    if view.distinct:
        same = SortedBy.partitionBy(*view.by, WINDOW, *extra, *view.distinct)
        # In the order of the log, so that what was counted first is not exchanged for a copy that comes late.
        copy = F.row_number().over(same.orderBy(f"{ORDER}._batch", f"{ORDER}._origin"))
    return rows.withColumns({"_position": F.row_number().over(window.orderBy(ORDER)), "_copy": copy})


def rows_in(groups: DataFrame, view: Windowed, *extra: str) -> DataFrame:
    """The rows that `groups` keep, each with the columns of its group."""
    signed = (SIGN, IDENTITY) if are_signed(groups) else ()
    names = [name for name in (*view.of.columns, EVENT_TIME, ORDER, *signed) if name not in view.by]
    return groups.select(*view.by, WINDOW, *extra, F.explode(ROWS).alias("_row")).select(
        *view.by, WINDOW, *extra, *(F.col(f"_row.{name}").alias(name) for name in names)
    )


def sessions_of(hulls: DataFrame, view: Windowed, *extra: str) -> DataFrame:
    """The sessions of the rows that stand, as groups; `hulls` are those of all rows that were ever added."""
    kept = F.collect_list(F.struct(*view.of.columns, EVENT_TIME, ORDER)).alias(ROWS)
    return members(hulls, view, *extra).groupBy(*view.by, WINDOW, *extra).agg(kept)


def standing_sessions(signed: DataFrame, view: Windowed) -> DataFrame:
    """The sessions of those of the `signed` rows that stand, as groups that keep signed rows."""
    own = _standing_signed(signed, view.by).withColumn(WINDOW, _own_window(view))
    kept = F.collect_list(F.struct(*view.of.columns, EVENT_TIME, ORDER, SIGN, IDENTITY)).alias(ROWS)
    return kind_of(view).group(own, view.by, [kept])


def signed_rows(pairs: DataFrame, view: Windowed) -> DataFrame:
    """The rows of pairs, with the columns that a group keeps of each, its sign and its identity among them."""
    signed = (column.alias(name) for name, column in signs(view.of, pairs).items())
    return pairs.select(*view.of.columns, EVENT_TIME, ORDER, *signed)


def _own_window(view: Windowed) -> Column:
    """The window that a row would be in if it were alone."""
    return F.element_at(view.window.bounds(F.col(EVENT_TIME)), 1)


def parted(rows: DataFrame, per: Sequence[str], own: Column) -> DataFrame:
    """The `rows` of each hull with the session in it that they are of, as one falls apart where a row is taken back.

    `per` are the columns that a hull has, `_window` among them; `own` is the window of a row that were alone.
    """
    alone = rows.withColumn(_OWN, own)
    hulls = alone.withColumnRenamed(WINDOW, _HULL)
    within = [_HULL if name == WINDOW else name for name in per]
    numbered = with_sessions(hulls, within, F.col(f"{_OWN}.start"), F.col(f"{_OWN}.end"))
    session = SortedBy.partitionBy(*within, SESSION)
    bounds = F.struct(
        F.min(f"{_OWN}.start").over(session).alias("start"), F.max(f"{_OWN}.end").over(session).alias("end")
    )
    return numbered.withColumn(WINDOW, bounds).drop(_HULL, _OWN, SESSION)


def _standing(rows: DataFrame, per: Sequence[str]) -> DataFrame:
    """Those of the rows that no other one takes back, of each identity the newest."""
    return _standing_signed(rows, per).drop(SIGN, IDENTITY)


def _standing_signed(rows: DataFrame, per: Sequence[str]) -> DataFrame:
    return net(rows, [*per, IDENTITY], [f"{ORDER}._batch", f"{ORDER}._origin"])


def filled(results: DataFrame, view: Windowed, through: datetime) -> DataFrame:
    """`results` of a view with tumbling windows, and a row for every window that has none: the view's `columns`.

    Per key the windows go from its first result to the last one that is closed at the watermark `through`. An empty
    window counts 0 rows, and its other aggregates are null. A later result is kept as it is, without rows in between.

    Raises:
        OperatorError: the view's windows do not tile time, or it computes something else than aggregates.
    """
    window = view.window
    if not isinstance(window, Tumbling) or view.function is not None:
        raise OperatorError(
            f"view {view.name!r} has {type(window).__name__} windows"
            f"{'' if view.function is None else ' and a function'}; empty windows are known for aggregates over "
            "Tumbling(...) only."
        )
    size = F.lit(interval(window.size) // MICROSECOND)
    end = F.unix_micros("window_end")
    before_next = F.lead(end).over(SortedBy.partitionBy(*view.by).orderBy("window_end")) - size
    # Without a next result `least` passes over its null.
    last = F.least(before_next, F.greatest(end, F.unix_micros(literal(through))))
    windows = results.withColumn("_last", last).select("*", F.explode(F.sequence(end, "_last", size)).alias("_end"))
    return windows.select(
        *view.by,
        F.timestamp_micros(F.col("_end") - size).alias("window_start"),
        F.timestamp_micros("_end").alias("window_end"),
        *(
            F.when(F.col("_end") == end, F.col(name)).otherwise(F.lit(aggregate.of_nothing)).alias(name)
            for name, aggregate in view.aggregates.items()
        ),
    )


def read_first(spark: SparkSession, lake: Lake, operator: OverWindows, version: int | None = None) -> DataFrame:
    """The first results as a batch frame, at one Delta `version` or the newest.

    As of batches of the logs those of the windows that the clock had closed by them.

    Raises:
        OperatorError: nothing is published yet, or not up to those batches.
    """
    uri = lake.table(operator)
    table = delta.open_table(uri, version)
    if table is None:
        until = "" if len(operator.reads) == 1 else ", until each of its streams has rows"
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} is not built yet at {uri!r}; run `tidemark run {operator.folder}` "
            f"first{until}, or point TIDEMARK_HOME to the lake that has it."
        )
    rows = delta.read(spark, uri, version)
    if lake.cut is None:
        return rows
    followed = Progress.of(operator, table).through
    for stream in operator.reads:
        check_followed(operator, followed[stream.name], head(lake, stream))
    at = Progress.at_heads(lake, operator)
    # A later row is late for all windows that are closed by then.
    closed = None if at.watermark is None else operator.window.closed_by(at.watermark)
    return rows.where(F.lit(False) if closed is None else F.col("window_end") <= literal(closed))


def late_pairs(log: DataFrame, view: Windowed) -> DataFrame:
    """One row per late (row, window) pair: the log's columns, `window_start`, `window_end`, `window_day`.

    `log` is a batch read of the event log.
    """
    return (
        pairs(log, view)
        .where("_late")
        .select(
            *log.columns,
            F.col(f"{WINDOW}.start").alias("window_start"),
            F.col(f"{WINDOW}.end").alias("window_end"),
            F.to_date(f"{WINDOW}.start").alias("window_day"),
        )
    )


def in_lateness(view: OverWindows, window_end: Column, stamp: Column) -> Column:
    """True where the stamp had not yet passed the window's end by the allowed lateness when the row came.

    Semantics of Flink's `allowedLateness`, on the stamp: `stamp < window_end + lateness`. Of a session it is the end
    that it has with the row.
    """
    return F.unix_micros(stamp) < F.unix_micros(window_end) + F.lit(view.lateness // MICROSECOND)


def late_rows(log: DataFrame, stream: Stream) -> DataFrame:
    """The valid rows whose event time lies before the stamp, with the log's columns; a row at the stamp is not late.

    For logic that looks at single rows. Whether such a row is late for a window is what `late_pairs` says.
    """
    return valid(log).where(F.col(stream.event_time) < F.col("_watermark"))


def unassigned(log: DataFrame, view: Windowed) -> DataFrame:
    """The valid rows that the view counts and that lie in none of its windows, with the log's columns."""
    none = F.col(WINDOW).isNull()
    return assign(log.where(counted_rows(view)), view).where(none).select(*log.columns)


def duplicates(log: DataFrame, view: Windowed) -> DataFrame:
    """The rows that a view with `distinct` does not count, because an earlier row of their window agrees with them.

    Keys, `window_start`, `window_end`, the stream's columns, and `_copy` (2 for the second of its kind).

    Raises:
        OperatorError: the view counts every row.
    """
    if not view.distinct:
        raise OperatorError(f"view {view.name!r} counts every row; declare distinct=(...) to count copies once.")
    copies = members(group(pairs(log, view), view), view)
    others = (name for name in view.of.columns if name not in view.by)
    return copies.where("_copy > 1").select(
        *view.by,
        F.col(f"{WINDOW}.start").alias("window_start"),
        F.col(f"{WINDOW}.end").alias("window_end"),
        *others,
        "_copy",
    )
