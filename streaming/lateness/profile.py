"""The lateness profile of a view: how late its rows come, and what another delay of the clock would have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import numpy as np
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from streaming import log
from streaming.base import MICROSECOND, MILLISECOND, WINDOW, OperatorError, interval
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.lateness.replay import NEVER, Counts, Instants, Outcome, Timeline, outcome, replay
from streaming.views import group
from streaming.views import pairs as pairs_of

_NO_DELAY = "0 seconds"
_QUANTILES = (0.5, 0.9, 0.99, 1.0)
_LADDER = (0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
_MOST_KEYS = 20
_STEPS = {
    "second": (1, 2, 5, 10, 15, 20, 30, 45),
    "minute": (1, 2, 3, 5, 10, 15, 20, 30, 45),
    "hour": (1, 2, 3, 4, 6, 8, 12, 18),
    "day": (1, 2, 3, 5, 7, 10, 14, 21, 30, 60, 90),
}


@dataclass(frozen=True)
class Spread:
    """The spread of the delays that some `pairs` need: half of them are on time with `p50`, all with `greatest`.

    None where no delay is enough, because an end of input had closed the windows.
    """

    of: tuple[str, ...]
    pairs: int
    p50: timedelta | None
    p90: timedelta | None
    p99: timedelta | None
    greatest: timedelta | None


@dataclass(frozen=True)
class Profile:
    """The lateness of a view's (row, window) pairs. Repaired rows are left out: no delay would have waited for them.

    The lateness of a pair is how far the watermark without delay had passed the window's end when the row came; its
    needed delay is the smallest with which it would have been on time. Of sessions it is the row's own time that the
    watermark must not have reached; how long they wait and are open is counted over the sessions of all rows.

    `by_key`: the keys that need most, at most 20; `by_partition`: every source partition; both empty where there are no
    two. `outcomes`: what delays would have meant, shortest first, among them `declared` and those that were asked for.
    `recommended` is the shortest friendly delay that makes the share `complete` of the pairs come on time; None where
    none does.
    """

    view: str
    needed: NeededDelays
    overall: Spread
    by_key: tuple[Spread, ...]
    by_partition: tuple[Spread, ...]
    outcomes: tuple[Outcome, ...]
    declared: str
    complete: float
    recommended: str | None


def profile(
    spark: SparkSession, lake: Lake, view: Windowed, delays: Sequence[str] = (), complete: float = 0.99
) -> Profile:
    """The profile of a view from its log as it is; `delays` are looked at besides those that suggest themselves.

    Raises:
        LogError: nothing has been ingested yet.
        OperatorError: no row of the log is in a window of the view.
        DeclarationError: one of the delays is no interval.
    """
    asked = {interval(delay): delay for delay in delays}
    rows = log.came(log.read_log(spark, lake, view.of)).where(F.col("_origin.repairs").isNull())
    batches = sorted(log.read_batches(lake, view.of), key=lambda batch: batch.number)
    clock = view.of.clock
    undelayed = replay(clock, _NO_DELAY, batches)
    pairs = _pairs(rows, view).persist()
    try:
        per_batch = Counts.of(_triples(pairs.groupBy("batch", "due").agg(F.count(F.lit(1)))))
        if not per_batch.numbers.size:
            raise OperatorError(
                f"no row of {view.of.name!r} is in a window of view {view.name!r} yet, so nothing can be said of its "
                f"lateness",
                f"run `tidemark run {view.of.name}` when data has arrived.",
                operator=view.name,
            )
        groups = _groups(rows, view)
        per_first = Counts.of(_triples(groups.groupBy("first", "end").agg(F.count(F.lit(1)))))
        measured = _with_needed(spark, pairs, undelayed)
        by_key = _spreads(measured, _keys(view), _MOST_KEYS)
        by_partition = _spreads(measured, ["partition"], None)
    finally:
        pairs.unpersist()
    needed = needed_delays(undelayed, per_batch)
    enough = needed.quantile(complete)
    recommended = None if enough is None else friendly(enough)
    ladder = {interval(text): text for text in _ladder(needed, recommended)}
    ladder |= {interval(clock.delay): clock.delay} | asked
    meant = partial(outcome, clock, batches=batches, pairs=per_batch, groups=per_first)
    return Profile(
        view=view.name,
        needed=needed,
        overall=Spread((), needed.total, *(needed.quantile(share) for share in _QUANTILES)),
        by_key=by_key,
        by_partition=by_partition,
        outcomes=tuple(meant(ladder[delay]) for delay in sorted(ladder)),
        declared=clock.delay,
        complete=complete,
        recommended=recommended,
    )


def _ladder(needed: NeededDelays, recommended: str | None) -> Iterable[str]:
    reached = (needed.quantile(share) for share in _LADDER)
    return [_NO_DELAY, *(friendly(delay) for delay in reached if delay is not None), *filter(None, [recommended])]


def _keys(view: Windowed) -> list[str]:
    return [f"key_{number}" for number in range(len(view.by))]


def _pairs(rows: DataFrame, view: Windowed) -> DataFrame:
    """One row per pair: keys, source partition, batch, and in microseconds when it is `due`.

    A pair is late once the watermark has reached the instant at which it was due.
    """
    return pairs_of(rows, view).select(
        *(F.col(name).alias(key) for name, key in zip(view.by, _keys(view), strict=True)),
        view.of.source.partition_of(F.col("_origin")).alias("partition"),
        F.col("_batch").alias("batch"),
        (F.unix_micros(f"{WINDOW}.{view.window.decided_by}") + _grace(view)).alias("due"),
    )


def _groups(rows: DataFrame, view: Windowed) -> DataFrame:
    """One row per key and window over all rows: when it closes (`end`), and the `first` batch that brought a row."""
    groups = group(pairs_of(rows, view), view, extra={"_first": F.min("_batch")})
    end = F.unix_micros(f"{WINDOW}.end") + _grace(view)
    return groups.select(end.alias("end"), F.col("_first").alias("first"))


def _grace(view: Windowed) -> Column:
    return F.lit(view.window.grace // MICROSECOND)


def _triples(counted: DataFrame) -> list[tuple[int, int, int]]:
    return [(row[0], row[1], row[2]) for row in counted.collect()]


def _with_needed(spark: SparkSession, pairs: DataFrame, undelayed: Timeline) -> DataFrame:
    """`pairs` with the needed delay of each in milliseconds (`needed`), infinite where none is enough."""
    marks = spark.createDataFrame(
        [
            (number, _null_if_never(frontier), _null_if_never(closed))
            for number, frontier, closed in zip(
                undelayed.numbers.tolist(), undelayed.unclosed.tolist(), undelayed.closed.tolist(), strict=False
            )
        ],
        "batch bigint, frontier bigint, closed bigint",
    )
    behind = F.floor((F.col("frontier") - F.col("due")) / 1000) + 1
    return pairs.join(F.broadcast(marks), "batch").withColumn(
        "needed",
        F.when(F.col("due") <= F.col("closed"), F.lit(float("inf")))
        .when(F.col("due") <= F.col("frontier"), behind.cast("double"))
        .otherwise(0.0),
    )


def _null_if_never(micros: int) -> int | None:
    return None if micros == NEVER else micros


def _spreads(measured: DataFrame, by: list[str], most: int | None) -> tuple[Spread, ...]:
    """The spread of each group, those that need most first; nothing where there are no two groups."""
    spreads = (
        measured.groupBy(*by)
        .agg(F.count(F.lit(1)).alias("pairs"), *(_quantile(share) for share in _QUANTILES))
        .orderBy(*(F.desc(_name(share)) for share in reversed(_QUANTILES)), *by)
    )
    rows = (spreads if most is None else spreads.limit(most)).collect() if by else []
    return tuple(_spread(row, by) for row in rows) if len(rows) > 1 else ()


def _quantile(share: float) -> Column:
    return F.expr(f"percentile_disc({share}) within group (order by needed)").alias(_name(share))


def _name(share: float) -> str:
    return f"p{share * 100:.0f}"


def _spread(row: Row, by: list[str]) -> Spread:
    quantiles = (row[_name(share)] for share in _QUANTILES)
    delays = (None if millis == float("inf") else timedelta(milliseconds=millis) for millis in quantiles)
    return Spread(tuple(str(row[name]) for name in by), row["pairs"], *delays)


@dataclass(frozen=True)
class NeededDelays:
    """For the pairs of a view the smallest delay, in whole milliseconds, with which each would have been on time.

    `pairs` of them need exactly `millis` (ascending, each once). `never`: pairs that no delay would have brought in
    time, because they came after an end of input that had closed their window.
    """

    millis: Instants
    pairs: Instants
    never: int

    @property
    def total(self) -> int:
        """All pairs."""
        return int(self.pairs.sum()) + self.never

    def share_on_time(self, delay: timedelta) -> float:
        """The share of the pairs, 0 to 1, that are on time with `delay`; 1 where there is no pair."""
        return int(self.pairs[self.millis <= delay // MILLISECOND].sum()) / self.total if self.total else 1.0

    def quantile(self, share: float) -> timedelta | None:
        """The smallest delay with which at least `share` of the pairs are on time; None where no delay reaches it."""
        reached = np.cumsum(self.pairs) >= share * self.total
        if not reached.any():
            return None if self.total else timedelta()
        return int(self.millis[reached.argmax()]) * MILLISECOND


def needed_delays(undelayed: Timeline, pairs: Counts) -> NeededDelays:
    """The delays that the pairs need; `undelayed` is the clock replayed with a delay of 0."""
    place = undelayed.at(pairs.batches)
    frontier, closed = undelayed.unclosed[place], undelayed.closed[place]
    never = (closed != NEVER) & (pairs.ends <= closed)
    behind = ~never & (frontier != NEVER) & (pairs.ends <= frontier)
    millis = np.zeros_like(pairs.ends)
    millis[behind] = (frontier[behind] - pairs.ends[behind]) // 1000 + 1
    distinct, of_each = np.unique(millis[~never], return_inverse=True)
    counts = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(counts, of_each, pairs.numbers[~never])
    return NeededDelays(distinct, counts, int(pairs.numbers[never].sum()))


def friendly(delay: timedelta) -> str:
    """The next delay, as long or longer, that people would write, as an interval: `15 minutes` for 11 minutes."""
    if not delay:
        return "0 seconds"
    for unit, numbers in _STEPS.items():
        for number in numbers:
            text = f"{number} {unit}{'s' if number > 1 else ''}"
            if interval(text) >= delay:
                return text
    return f"{-(-delay // timedelta(days=1))} days"
