"""Updates of sessions: what late rows make of them, published as soon as they are closed.

A late row may lengthen a session, join two that were published apart, or join one that was published to one still open.
So it is the whole session, of all rows up to a batch, that is published: by the batch that brought the late row, or by
the one that closes the session where it was open then. It stands for every session that has become part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from streaming.base import (
    FIRST_INSTANT,
    LAST_MILLISECOND,
    WINDOW,
    constant,
    earlier,
    from_micros,
    literal,
    to_micros,
)
from streaming.declare import Windowed
from streaming.log import Batch, LogFiles
from streaming.views.kinds import SESSION, kind_of, with_sessions
from streaming.views.late import in_lateness
from streaming.views.position import Position
from streaming.views.results import finish_or_retract, group, pairs

_BROUGHT, _CLOSED, _PUBLISHED = "_brought", "_closed", "_batch"
_NEWEST_LATE, _STAMP = "_newest_late", "_stamp"
_START, _END = f"{WINDOW}.start", f"{WINDOW}.end"
_SINCE, _UNTIL = "open_since", "open_until"


@dataclass(frozen=True)
class OpenWithLateRows:
    """Sessions with late rows that are published once they are closed: none begins before `since`.

    None ends before `until`; a session that goes on ends later. Both are far in the future where there is none.
    """

    since: datetime = LAST_MILLISECOND
    until: datetime = LAST_MILLISECOND

    @classmethod
    def of(cls, updates: DeltaTable | None) -> OpenWithLateRows:
        """What the open table of updates says."""
        kept = [] if updates is None else [updates.transaction_version(name) for name in (_SINCE, _UNTIL)]
        return cls(*(from_micros(number) for number in kept if number is not None))

    def numbers(self) -> dict[str, int]:
        """The same as a table keeps it."""
        return {_SINCE: to_micros(self.since), _UNTIL: to_micros(self.until)}

    def may_close(self, view: Windowed, at: Position) -> bool:
        """Whether one of them may be closed `at` a position."""
        return at.watermark is not None and self.until <= view.window.closed_by(at.watermark)

    def and_those_of(self, other: OpenWithLateRows) -> OpenWithLateRows:
        """These and the `other` ones."""
        return OpenWithLateRows(min(self.since, other.since), min(self.until, other.until))


def sessions_with_late_rows(
    counted: DataFrame, view: Windowed, before: Position, batches: Sequence[Batch]
) -> DataFrame:
    """What late rows have made of sessions, as a pure function of the pairs `counted`, up to the last of `batches`.

    Groups in the form that `finish` takes, one for each session and batch that brought it late rows in time, and
    `_batch`: the batch that publishes it, null while it is open. `batches` are those that follow the position `before`;
    what was published by then is left out.
    """
    late = counted.where("_late").select(*view.by).distinct()
    counted = _of_keys(counted, late, view) if view.by else counted
    numbered = with_sessions(counted, view.by, F.col(_START), F.col(_END))
    followed = constant(before.batch, _PUBLISHED)
    # What came before is one lot, however many batches brought it: all that is still to be published of it is what was
    # open then.
    late_batch = F.when(F.col("_late"), F.greatest("_batch", followed))
    same_session = SortedBy.partitionBy(*view.by, SESSION)
    brought = F.collect_set(late_batch).over(same_session)
    # Of the rows that came later, a session takes in those on time, as long as it is open. The late ones are counted
    # with the batch that brought them.
    batches_with_row = F.filter(brought, lambda batch: (F.col("_batch") <= batch) | ~F.col("_late"))
    rows = numbered.withColumn("_known", batches_with_row).withColumn(_BROUGHT, F.explode("_known"))
    extra = {_NEWEST_LATE: F.max(late_batch), _STAMP: F.max(F.when(F.col("_late"), F.col("_watermark")))}
    sessions = group(rows, view, SESSION, _BROUGHT, extra=extra).where(F.col(_NEWEST_LATE) == F.col(_BROUGHT))
    sessions = _with_publication(sessions, view, before, batches)
    all_of_them = F.collect_list(F.struct(_BROUGHT, WINDOW)).over(same_session)
    sessions = sessions.withColumn("_outdated", F.exists(all_of_them, _replaces)).where("not _outdated")
    new = F.col(_PUBLISHED).isNull() | (F.col(_PUBLISHED) > followed)
    return sessions.where(new & in_lateness(view, F.col(_END), F.col(_STAMP)))


def _replaces(other: Column) -> Column:
    """Whether late rows joined the session before it was published, so that it is published with them."""
    before = other[_BROUGHT] <= F.coalesce(F.col(_PUBLISHED), other[_BROUGHT])
    touches = (other[WINDOW]["start"] <= F.col(_END)) & (other[WINDOW]["end"] >= F.col(_START))
    return (other[_BROUGHT] > F.col(_BROUGHT)) & before & touches


def _with_publication(sessions: DataFrame, view: Windowed, before: Position, batches: Sequence[Batch]) -> DataFrame:
    """`sessions` with the batch that publishes each: the one that brought its late rows or, later, that closed it."""
    ends: list[tuple[int, int, int]] = []
    since = FIRST_INSTANT
    for number, watermark in [(before.batch, before.watermark), *((b.number, b.after.watermark) for b in batches)]:
        by = since if watermark is None else view.window.closed_by(watermark)
        if by > since:
            ends.append((to_micros(since), to_micros(by), number))
            since = by
    closing = sessions.sparkSession.createDataFrame(ends, f"_after bigint, _by bigint, {_CLOSED} bigint")
    closed = (F.unix_micros(_END) > F.col("_after")) & (F.unix_micros(_END) <= F.col("_by"))
    with_closing = sessions.join(F.broadcast(closing), closed, "left").drop("_after", "_by")
    publication = F.when(F.col(_CLOSED).isNotNull(), F.greatest(_BROUGHT, _CLOSED))
    return with_closing.withColumn(_PUBLISHED, publication).drop(_CLOSED)


def published(sessions: DataFrame, view: Windowed) -> DataFrame:
    """The updates that `sessions_with_late_rows` are: the view's columns, `_batch`, `_retracted` and `_day`."""
    return finish_or_retract(sessions.where(F.col(_PUBLISHED).isNotNull()), view, _PUBLISHED)


def still_open(sessions: DataFrame) -> OpenWithLateRows:
    """Those of `sessions_with_late_rows` that are not published yet."""
    row = (
        sessions.where(F.col(_PUBLISHED).isNull())
        .agg(F.unix_micros(F.min(_START)).alias("since"), F.unix_micros(F.min(_END)).alias("until"))
        .first()
    )
    return OpenWithLateRows() if row is None or row[0] is None else OpenWithLateRows(*map(from_micros, row))


def first_time(spark: SparkSession, log: LogFiles, view: Windowed, before: Position, through: int) -> datetime | None:
    """No row before it is in a session that the late rows of the batches in (before, through] update.

    It is looked for further and further back, until no such session begins just behind it. None where that is the
    beginning of the log, or where sessions have gaps of their own, so that nobody knows.
    """
    reach = view.window.reach
    if before.watermark is None or reach is None:
        return None
    # A session that ends there or before is not updated any more, and another one has a row within its reach.
    past = earlier(before.watermark, view.lateness)
    newest = earlier(past, reach)
    late = pairs(log.with_batches(spark, before.batch, through), view).where("_late")
    keys = late.select(*view.by).distinct().persist(StorageLevel.MEMORY_AND_DISK)
    try:
        back = 2 * reach
        while (since := earlier(newest, back)) is not None:
            rows = _of_keys(pairs(log.with_times(spark, since, None, through), view), keys, view)
            sessions = kind_of(view).group(rows, view.by, [])
            begun = (F.col(_END) > literal(past)) & (F.col(_START) <= literal(since + reach))
            if sessions.where(begun).isEmpty():
                return since
            back *= 4
        return None
    finally:
        keys.unpersist()


def _of_keys(counted: DataFrame, keys: DataFrame, view: Windowed) -> DataFrame:
    """The pairs of these `keys`; of a view without any, all if there is a row in `keys`."""
    wanted = keys.select(F.lit(True).alias("_wanted"), *(F.col(name).alias(f"_its_{name}") for name in view.by))
    same = [counted[name].eqNullSafe(wanted[f"_its_{name}"]) for name in view.by]
    return counted.join(F.broadcast(wanted), reduce(Column.__and__, same, F.lit(True)), "left_semi")
