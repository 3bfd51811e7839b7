"""The results of a join as Spark frames: pairs of rows of both logs, and rows without a partner in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import and_
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import (
    ADDED,
    AT,
    BATCH,
    DAY,
    EPOCH,
    FIRST_INSTANT,
    MICROSECOND,
    ORIGIN,
    SIGN,
    STAMP,
    WRITTEN_AT,
    constant,
    literal,
)
from streaming.declare import LEFT_AT, RIGHT_AT, Joined, Stream
from streaming.operators import Coming, Progress, identity_in, net, sign_in
from streaming.spark import first_failure, holds
from streaming.tables import TimeRange, merged, shifted

Side = Literal["left", "right"]
OTHER: dict[Side, Side] = {"left": "right", "right": "left"}
ERROR = "_error"
"""The column with what cannot be computed, beside columns that users have named."""
_AT = {"left": LEFT_AT, "right": RIGHT_AT}
_KEPT = 50_000
"""Rows that one task keeps in memory at most, each of them twice, where no key has more of them at one time."""
_PLACE, _WAS_ALONE = "_place", "_was_alone"


def side_rows(joined: Joined, side: Side, log: DataFrame) -> DataFrame:
    """Valid rows of the log of one side, with the names that they have in a pair, and without those left out as late.

    Beside them `_<side>_at`, `_<side>_stamp`, `_<side>_batch`, `_<side>_origin` and the keys, `_<side>_key0` and so on.
    """
    stream = _stream(joined, side)
    names = joined.pair.left if side == "left" else joined.pair.right
    at, stamp = F.col(f"`{stream.event_time}`"), F.col(STAMP)
    rows = log.where(stamp.isNull() | (at >= stamp)) if joined.late == "drop" else log
    return rows.select(
        *(F.col(f"`{name}`").alias(alias) for name, alias in names.items()),
        *(F.col(f"`{key[side == 'right']}`").alias(f"_{side}_key{place}") for place, key in enumerate(joined.keys)),
        at.alias(_AT[side]),
        stamp.alias(f"_{side}_stamp"),
        F.col(BATCH).alias(batch_of(side)),
        F.col(ORIGIN).alias(f"_{side}_origin"),
        *([sign_in(stream).alias(f"_{side}_sign"), identity_in(stream).alias(f"_{side}_row")] if joined.signed else []),
    )


def pairs(joined: Joined, left: DataFrame, right: DataFrame, new: Side, count: int | None = None) -> DataFrame:
    """The pairs of rows of both sides; `new` are the ones whose partners are looked for.

    `count`: how many of these there are at most. Each task then keeps no more than `_KEPT` of them in memory, while the
    others stream by; without it both sides are sorted, on disk if need be.
    """
    return _met(joined, left, right, new, _is_pair(joined), count)


def rows_of_sides(joined: Joined, logs: Mapping[Side, DataFrame], watermark: datetime | None) -> DataFrame:
    """The join of the valid rows of each side's log, in the columns of the join's table.

    Its pairs, with their signs where rows are taken back, and the rows without any that the watermark says are due.
    """
    sides: dict[Side, DataFrame] = {side: side_rows(joined, side, logs[side]) for side in OTHER}
    met = results(joined, pairs(joined, sides["left"], sides["right"], "left"), 0, EPOCH)
    lonely = (results(joined, due_alone(joined, side, sides, watermark), 0, EPOCH) for side in joined.outer_sides)
    return reduce(DataFrame.unionByName, (met, *lonely))


def due_alone(
    joined: Joined,
    side: Side,
    sides: Mapping[Side, DataFrame],
    watermark: datetime | None,
    *,
    only_in_time: bool = False,
) -> DataFrame:
    """The rows of one side that the watermark says are due and have no pair, in the shape of pairs.

    `only_in_time`: none with a partner that came in time.
    """
    rows, others = sides[side].where(is_due(joined, side, literal(watermark))), sides[OTHER[side]]
    return alone(joined, side, unmatched(joined, side, rows, others, only_in_time=only_in_time), others)


def pairs_that_come(joined: Joined, logs: Mapping[str, DataFrame], coming: Coming) -> DataFrame:
    """The pairs of the rows to come with the valid rows of each stream's log, and with each other."""
    of = coming.stream.name
    there: dict[Side, DataFrame] = {side: side_rows(joined, side, logs[_stream(joined, side).name]) for side in OTHER}
    come: dict[Side, DataFrame] = {
        side: side_rows(joined, side, coming.rows) for side in OTHER if _stream(joined, side).name == of
    }
    parts = []
    if "left" in come:
        # A pair of two rows to come is that of the left one.
        right = _together(there["right"], come["right"]) if "right" in come else there["right"]
        parts.append(pairs(joined, come["left"], right, "left", coming.count))
    if "right" in come:
        parts.append(pairs(joined, there["left"], come["right"], "right", coming.count))
    return reduce(_together, parts)


def _together(some: DataFrame, others: DataFrame) -> DataFrame:
    """The rows of both; a log lacks the columns that were declared since its last row came."""
    return some.unionByName(others, allowMissingColumns=True)


def _stream(joined: Joined, side: Side) -> Stream:
    return joined.left if side == "left" else joined.right


def failed_pairs(joined: Joined, left: DataFrame, right: DataFrame) -> DataFrame:
    """The would-be pairs, with `_error`: rows that meet, but whose condition or selected columns cannot be computed."""
    met = _met(joined, left, right, "left", _meets(joined)).withColumn(ERROR, failure(joined))
    failed = met.where(F.col(ERROR).isNotNull())
    if not joined.signed:
        return failed
    return net(failed.select("*", *_signs()), [ADDED], ["_left_batch", "_right_batch"]).drop(ADDED, SIGN)


def failed_alone(joined: Joined, rows: DataFrame) -> DataFrame:
    """The `rows` that `alone` gives, with `_error`, of which what is selected cannot be computed."""
    return rows.withColumn(ERROR, failure(joined, is_pair=False)).where(F.col(ERROR).isNotNull())


def failure(joined: Joined, *, is_pair: bool = True) -> Column:
    """The part of a pair, or of a row alone, that cannot be computed, in words; null where all can.

    Of a pair for which the condition does not hold nothing else is computed.
    """
    parts, kept = [], F.lit(True)
    if is_pair and joined.where is not None:
        kept = F.expr(f"({joined.where}\n)")
        parts.append(("where", joined.where, kept))
    computed = ((name, sql) for name, sql in joined.selected.items() if sql.strip("`") not in joined.pair.types)
    parts += [(f"column {name!r}", sql, F.when(kept, F.expr(f"({sql}\n)"))) for name, sql in computed]
    return first_failure(parts, LEFT_AT)


def _met(
    joined: Joined, left: DataFrame, right: DataFrame, new: Side, condition: Column, count: int | None = None
) -> DataFrame:
    """The pairs of rows of both sides for which the condition is true."""
    frames = {"left": left, "right": right}
    old = OTHER[new]
    looking, candidates = _near(joined, new, frames[new], old, frames[old])
    return candidates.join(_kept(joined, new, looking, count), condition).drop("_left_near", "_right_near")


def batch_of(side: Side) -> str:
    """The column with the batch of the log of one side that brought its row."""
    return f"_{side}_batch"


def _kept(joined: Joined, side: Side, rows: DataFrame, count: int | None) -> DataFrame:
    """The rows, with a hint that they are what is kept in memory: by every task if they are few, else in parts.

    Without a `count` they are what they were.
    """
    if count is None:
        return rows
    if count <= _KEPT:
        return F.broadcast(rows)
    # Spark would make as many parts as there are cores, however many rows that makes in each.
    return rows.repartition(-(-count // _KEPT), *_meeting_at(joined, side)).hint("shuffle_hash")


def unmatched(
    joined: Joined,
    side: Side,
    rows: DataFrame,
    partners: DataFrame,
    count: int | None = None,
    *,
    only_in_time: bool = True,
) -> DataFrame:
    """Those of the `rows` of one side without a pair with one of the `partners`.

    `count`: how many partners there are at most; they are then kept in memory as the new rows of `pairs` are.
    `only_in_time`: with one that came in time for the row, as its stamp has not passed the last event time at which a
    row could be a partner.
    """
    stamp = F.col(f"_{OTHER[side]}_stamp")
    in_time = stamp.isNull() | (F.unix_micros(stamp) <= F.unix_micros(_AT[side]) + _micros(reach(joined, side)))
    partners_near, rows_near = _near(joined, OTHER[side], partners, side, rows)
    met = and_(_is_pair(joined), in_time) if only_in_time else _is_pair(joined)
    kept = _kept(joined, OTHER[side], partners_near, count)
    return rows_near.join(kept, met, "left_anti").drop(f"_{side}_near")


def reach(joined: Joined, side: Side) -> timedelta:
    """The time from a row of the side to its last possible partner; below zero for earlier."""
    return joined.upper if side == "left" else -joined.lower


def partners_of(joined: Joined, side: Side) -> tuple[timedelta, timedelta]:
    """The least and the greatest time from a row of the side to its partners."""
    return (joined.lower, joined.upper) if side == "left" else (-joined.upper, -joined.lower)


def alone(joined: Joined, side: Side, rows: DataFrame, other: DataFrame) -> DataFrame:
    """Rows of one side in the shape of pairs, null where the other one, of the columns of `other`, would be."""
    nothing = {field.name: F.lit(None).cast(field.dataType) for field in other.schema.fields}
    if side == "right":
        names = joined.pair.left
        keys = {names[left]: F.col(f"_right_key{place}") for place, (left, _) in enumerate(joined.keys)}
        nothing |= {name: key.cast(other.schema[name].dataType) for name, key in keys.items()}
    return rows.withColumns(nothing)


def results(joined: Joined, rows: DataFrame, batch: int, now: datetime) -> DataFrame:
    """The rows stored for pairs, or for rows alone: the selected columns, and where each is from."""
    at = F.greatest(LEFT_AT, RIGHT_AT)
    # Of pairs they all can.
    computed = rows.where(failure(joined, is_pair=False).isNull()) if joined.diverts else rows
    return computed.select(
        *(F.expr(f"({sql}\n)").alias(name) for name, sql in joined.selected.items()),
        LEFT_AT,
        RIGHT_AT,
        at.alias(AT),
        F.greatest("_left_stamp", "_right_stamp").alias(STAMP),
        constant(batch, LEFT_AT).alias(BATCH),
        F.struct(F.col("_left_origin").alias("left"), F.col("_right_origin").alias("right")).alias(ORIGIN),
        *(_signs() if joined.signed else ()),
        constant(now, LEFT_AT).alias(WRITTEN_AT),
        F.to_date(at).alias(DAY),
    )


def _signs() -> tuple[Column, ...]:
    """A pair is taken back when one of its rows is, and is there again where both are."""
    identity = F.concat_ws(" ", "_left_row", "_right_row").alias(ADDED)
    return identity, (F.col("_left_sign") * F.col("_right_sign")).alias(SIGN)


def standing_pairs(signed: DataFrame, joined: Joined) -> DataFrame:
    """The pairs that are added and not taken back, of signed ones."""
    return net(signed, [ADDED], [BATCH, ORIGIN]).drop(ADDED, SIGN)


def _near(
    joined: Joined, looking: Side, rows: DataFrame, partner: Side, others: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """Rows and the `others` that may be their partners, with a stretch of time that those of a pair have in common.

    A key that half the rows have would otherwise make candidates of all of them, however far apart they are. A stretch
    is as long as the bounds are apart, so the partners of a row lie in two of them at most.
    """
    width = _micros(joined.upper - joined.lower)
    earliest, latest = (_micros(bound) for bound in partners_of(joined, looking))
    at = F.unix_micros(_AT[looking])
    stretches = F.sequence(_stretch(at + earliest, width), _stretch(at + latest, width))
    return (
        rows.withColumn(f"_{looking}_near", F.explode(stretches)),
        others.withColumn(f"_{partner}_near", _stretch(F.unix_micros(_AT[partner]), width)),
    )


def _stretch(micros: Column, width: int) -> Column:
    """The number of the stretch in which an instant lies; a division would be inexact far from the epoch."""
    length = F.lit(width).cast("bigint")
    return F.call_function("div", micros - F.pmod(micros, length), length)


def _is_pair(joined: Joined) -> Column:
    """True where two rows meet and the condition holds and, where pairs may fail, all of it can be computed."""
    conditions = [] if joined.where is None else [F.expr(f"({joined.where}\n)")]
    if joined.diverts:
        conditions = [*(holds(each, LEFT_AT) for each in conditions), failure(joined).isNull()]
    return reduce(and_, (_meets(joined), *conditions))


def _meets(joined: Joined) -> Column:
    """True where keys are equal, and event times lie within the bounds, to the microsecond."""
    equal = [left == right for left, right in zip(*(_meeting_at(joined, side) for side in OTHER), strict=True)]
    later_by = F.unix_micros(RIGHT_AT) - F.unix_micros(LEFT_AT)
    within = later_by.between(_micros(joined.lower), _micros(joined.upper))
    return reduce(and_, (*equal, within))


def _meeting_at(joined: Joined, side: Side) -> list[Column]:
    """The columns of one side that are equal to those of the other side if two rows are a pair."""
    return [F.col(f"_{side}_{name}") for name in ("near", *(f"key{place}" for place in range(len(joined.keys))))]


def _micros(length: timedelta) -> int:
    return length // MICROSECOND


def current_rows(pairs: DataFrame, unmatched: DataFrame, outer_sides: tuple[Side, ...]) -> DataFrame:
    """`pairs` and `unmatched` are the tables as they are; a row is known by where its source had it."""
    return reduce(
        DataFrame.unionByName, [pairs, *(_parted(pairs, unmatched, side, "left_anti") for side in outer_sides)]
    )


def voided_rows(pairs: DataFrame, unmatched: DataFrame, outer_sides: tuple[Side, ...]) -> DataFrame:
    """Those of the `unmatched` that are not current any more, because they are in one of the `pairs`."""
    return reduce(DataFrame.unionByName, [_parted(pairs, unmatched, side, "left_semi") for side in outer_sides])


def with_reasons(current: DataFrame, unmatched: DataFrame, outer_sides: tuple[Side, ...]) -> DataFrame:
    """With `_reason`: `correction` for a pair of a row that was told of alone, else `first`."""
    corrects = F.lit(False)
    for side in outer_sides:
        origin, was_alone = F.col(ORIGIN)[side], f"{_WAS_ALONE}_{side}"
        alone = unmatched.where(origin.isNotNull()).select(origin.alias(was_alone)).distinct()
        current = current.join(alone, current[ORIGIN][side] == alone[was_alone], "left")
        corrects |= F.col(was_alone).isNotNull()
    is_pair = F.col(ORIGIN)["left"].isNotNull() & F.col(ORIGIN)["right"].isNotNull()
    reason = F.when(is_pair & corrects, F.lit("correction")).otherwise(F.lit("first"))
    return current.withColumn("_reason", reason).drop(*(f"{_WAS_ALONE}_{side}" for side in outer_sides))


def _parted(pairs: DataFrame, unmatched: DataFrame, side: Side, how: str) -> DataFrame:
    """The unmatched rows of a side that are in one of the pairs, or in none."""
    origin = F.col(ORIGIN)[side]
    matched = pairs.select(origin.alias(_PLACE))
    own = unmatched.where(origin.isNotNull())
    return own.join(matched, own[ORIGIN][side] == matched[_PLACE], how)


@dataclass(frozen=True)
class Due:
    """The event times of rows of one side that are due in a step: in [since, before), and of new rows those before.

    `since` is null where nothing was due yet; without `before` nothing is.
    """

    since: datetime | None
    before: datetime | None
    new: tuple[TimeRange, ...] = ()

    @property
    def ripe(self) -> list[TimeRange]:
        """The times of rows, old or new, that the clock has passed in this step."""
        start = FIRST_INSTANT if self.since is None else self.since
        return [(start, self.before - MICROSECOND)] if self.before is not None and start < self.before else []

    @property
    def late(self) -> list[TimeRange]:
        """The times of new rows that it had passed before."""
        if self.since is None:
            return []
        last = self.since - MICROSECOND
        return [(start, min(end, last)) for start, end in self.new if start <= last]

    @property
    def ranges(self) -> list[TimeRange]:
        """Both."""
        return merged([*self.ripe, *self.late])

    def is_ripe(self, side: Side) -> Column:
        """True where a row of the side is due because the clock has moved."""
        at = F.col(_AT[side])
        passed = at < literal(self.before)
        return passed if self.since is None else passed & (at >= literal(self.since))

    def is_late(self, side: Side) -> Column:
        """True where a new row of the side was due before it came."""
        return F.col(_AT[side]) < literal(self.since)


def due(joined: Joined, side: Side, before: Progress, after: Progress, new: Sequence[TimeRange]) -> Due:
    """The rows that are due on the way from `before` to `after`; `new` are the ranges of the new rows' event times."""
    passed = (reached.watermark for reached in (before, after))
    since, until = (None if mark is None else shifted(mark, -reach(joined, side)) for mark in passed)
    return Due(since, until, tuple(new))


def is_due(joined: Joined, side: Side, watermark: Column) -> Column:
    """True where a row of the side is due at a joint watermark."""
    return F.unix_micros(_AT[side]) + reach(joined, side) // MICROSECOND < F.unix_micros(watermark)
