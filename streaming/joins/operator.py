"""Joins as an operator: their steps, their laws, and what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
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
    from_micros,
    literal,
    told,
)
from streaming.clocks import latest
from streaming.declare import CURRENT, FAILED, LATE, LEFT_AT, RIGHT_AT, UNMATCHED, Joined, Stream
from streaming.joins.frame import (
    ERROR,
    OTHER,
    Due,
    Side,
    alone,
    batch_of,
    current_rows,
    due,
    due_alone,
    failed_alone,
    failed_pairs,
    is_due,
    pairs,
    pairs_that_come,
    partners_of,
    reach,
    results,
    side_rows,
    standing_pairs,
    unmatched,
)
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, head, read_log, valid
from streaming.operators import (
    Batches,
    Coming,
    Effect,
    Finding,
    Law,
    LogAtVersion,
    OperatorRuntime,
    Outputs,
    PinnedTables,
    Progress,
    SteppedRuntime,
    Written,
    are_net,
    built_anew,
    can_be_compared,
    create_table,
    effect_of_rows,
    of_kept_days,
    require_table,
    rows_per_day,
    runtime_of,
    version_read,
    whole_in,
    whole_since,
)
from streaming.sources import UnitTable
from streaming.spark import Analysis, as_json, exact_json
from streaming.tables import TimeRange, delta, merged, moved, shifted
from streaming.windows import whole_days

_SHORTEST = timedelta(seconds=1)
_TAKEN_BACK = "the pairs of a row are taken back with it; what is current are pairs of rows that stand"
_FEW = 20_000
"""Rows of a side, new ones and those near them, up to which it is cheaper to compare old ones with each other again."""


class _JoinedAnalysis(Analysis[Joined]):
    """A join over both logs, as Spark sees it."""

    @cached_property
    def sides(self) -> Mapping[Side, DataFrame]:
        """No row of each side."""
        streams: dict[Side, Stream] = {"left": self.of.left, "right": self.of.right}
        return {side: side_rows(self.of, side, self.inputs[stream.name]) for side, stream in streams.items()}

    @cached_property
    def pairs(self) -> DataFrame:
        """No pair."""
        return pairs(self.of, self.sides["left"], self.sides["right"], "left")


class JoinedSteps:
    """The steps of one join in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, joined: Joined) -> None:
        self._spark = spark
        self._lake = lake
        self._joined = joined
        self._streams = {"left": joined.left, "right": joined.right}
        logs = {stream.name: LogFiles(lake, stream) for stream in joined.reads}
        self._logs: dict[Side, LogFiles] = {"left": logs[joined.left.name], "right": logs[joined.right.name]}
        self._none = _JoinedAnalysis.once(spark, joined, {name: log.columns() for name, log in logs.items()})
        self._outputs = Outputs(lake, joined)
        self._ready: set[str] = set()
        # Finer ranges would hardly be shorter, once the bounds are added to them.
        self._width = max(_SHORTEST, (joined.upper - joined.lower) / 4)

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log."""
        return self._outputs.pieces(most_rows)

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the join's own table in order and without a gap.

        Raises:
            FencedError: another process has taken over.
        """
        uris = {suffix: self._created(suffix) for suffix in self._outputs.suffixes}
        stands = {suffix: self._outputs.at(suffix) for suffix in self._outputs.suffixes}
        before, instant, written = stands[""], now(), 0
        after = before.after(batches)
        for suffix in (to for to in self._outputs.suffixes if stands[to].is_behind(after)):
            find = self._unmatched if suffix == UNMATCHED else self._pairs
            frame = find(before, after, batches)
            rows = None if frame is None else results(self._joined, frame, after.batch, instant)
            written += self._commit(uris[suffix], rows, stands[suffix], after)
        return Written(written)

    def _pairs(self, before: Progress, after: Progress, batches: Batches) -> DataFrame | None:
        """The pairs of which a row is new; None where none can be."""
        near = self._near_new(before, after, batches)
        if self._are_few(near, after):
            return self._at_once(near, before, after)
        parts = [
            # A pair of two new rows comes with the left one.
            self._with_partners("left", before, after, after, batches),
            self._with_partners("right", before, after, before, batches),
        ]
        frames = [part for part in parts if part is not None]
        return reduce(DataFrame.unionByName, frames) if frames else None

    def _near_new(self, before: Progress, after: Progress, batches: Batches) -> dict[Side, list[TimeRange]]:
        """The stretches of event time of each side in which its new rows lie, and the possible partners of others."""
        new = {side: self._new_ranges(side, before, after, batches) for side in OTHER}
        partners = {side: moved(new[OTHER[side]], *partners_of(self._joined, OTHER[side])) for side in OTHER}
        return {side: merged([*new[side], *partners[side]]) for side in OTHER}

    def _are_few(self, near: Mapping[Side, Sequence[TimeRange]], at: Progress) -> bool:
        through = {side: at.through[self._streams[side].name] for side in OTHER}
        counts = [self._logs[side].rows_within(near[side], through[side], self._width) for side in OTHER]
        return all(count is not None and count <= _FEW for count in counts)

    def _at_once(self, near: Mapping[Side, Sequence[TimeRange]], before: Progress, after: Progress) -> DataFrame | None:
        """The pairs of a new row, from all pairs of rows that are near new ones: one join, where these are few."""
        left, right = (self._rows(side, near[side], after) for side in OTHER)
        if left is None or right is None:
            return None
        is_new = [
            F.col(batch_of(side)) > constant(before.through[self._streams[side].name], batch_of(side)) for side in OTHER
        ]
        return pairs(self._joined, left, right, "left", _FEW).where(reduce(or_, is_new))

    def _with_partners(
        self, new: Side, before: Progress, after: Progress, partners_at: Progress, batches: Batches
    ) -> DataFrame | None:
        """The pairs of the new rows of one side with the other's that have come by `partners_at`."""
        stream, old = self._streams[new].name, OTHER[new]
        ranges = self._new_ranges(new, before, after, batches)
        if not ranges:
            return None
        partners = self._rows(old, moved(ranges, *partners_of(self._joined, new)), partners_at)
        rows = self._rows(new, ranges, after, before.through[stream])
        if partners is None or rows is None:
            return None
        frames = {new: rows, old: partners}
        count = sum(batch.summary.rows for batch in batches[stream])
        return pairs(self._joined, frames["left"], frames["right"], new, count)

    def _unmatched(self, before: Progress, after: Progress, batches: Batches) -> DataFrame | None:
        """The rows whose last possible partner both clocks have passed by now; None where none can be."""
        parts = (self._unmatched_of(side, before, after, batches) for side in self._joined.outer_sides)
        frames = [part for part in parts if part is not None]
        return reduce(DataFrame.unionByName, frames) if frames else None

    def _unmatched_of(self, side: Side, before: Progress, after: Progress, batches: Batches) -> DataFrame | None:
        new = self._new_ranges(side, before, after, batches)
        waited = due(self._joined, side, before, after, new)
        candidates = self._due_rows(side, waited, before, after)
        if candidates is None:
            return None
        other, near = OTHER[side], moved(waited.ranges, *partners_of(self._joined, side))
        partners = self._rows(other, near, after)
        if partners is not None:
            count = self._logs[other].rows_within(near, after.through[self._streams[other].name], self._width)
            candidates = unmatched(self._joined, side, candidates, partners, count)
        return alone(self._joined, side, candidates, self._none.sides[other])

    def _due_rows(self, side: Side, waited: Due, before: Progress, after: Progress) -> DataFrame | None:
        name = self._streams[side].name
        ripe_rows = self._rows(side, waited.ripe, after)
        came_late = self._rows(side, waited.late, after, before.through[name])
        parts = [
            *([] if ripe_rows is None else [ripe_rows.where(waited.is_ripe(side))]),
            *([] if came_late is None else [came_late.where(waited.is_late(side))]),
        ]
        return reduce(DataFrame.unionByName, parts) if parts else None

    def _new_ranges(self, side: Side, before: Progress, after: Progress, batches: Batches) -> list[TimeRange]:
        """The stretches of event time in which the new rows of a side lie."""
        name = self._streams[side].name
        if not _has_rows(batches[name]):
            return []
        return self._logs[side].occupied(before.through[name], after.through[name], self._width)

    def _rows(self, side: Side, ranges: Sequence[TimeRange], at: Progress, after: int = -1) -> DataFrame | None:
        rows = self._logs[side].within(self._spark, ranges, at.through[self._streams[side].name], self._width, after)
        return None if rows is None else side_rows(self._joined, side, rows)

    def _commit(self, uri: str, rows: DataFrame | None, at: Progress, after: Progress) -> int:
        there = replace(after, counts=at.counts, generation=at.generation)
        metadata = {"through": dict(after.through), "after": dict(at.through)}
        fence = partial(at.fence, self._joined)
        if rows is None:
            delta.note(uri, says=metadata, numbers=there.numbers(), fence=fence)
            return 0
        return delta.append(
            rows,
            uri,
            says=metadata,
            statistics=(AT, BATCH),
            numbers=there.numbers(),
            fence=fence,
        )

    def _created(self, suffix: str) -> str:
        uri = self._lake.table(self._joined, suffix)
        if suffix not in self._ready:
            # Pairs that are taken back are of any day, and each would be a file of its own.
            partitions = () if self._joined.signed else None
            schema = results(self._joined, self._none.pairs, 0, EPOCH).schema
            create_table(self._lake, self._joined, suffix, schema, partition_by=partitions)
            # Where all columns are selected, one may have been added to a stream since; both tables are read together.
            delta.widen(uri, schema)
            self._ready.add(suffix)
        return uri


def _has_rows(batches: Sequence[Batch]) -> bool:
    return any(batch.summary.rows > batch.rejected for batch in batches)


@runtime_of.register
def _(operator: Joined, lake: Lake) -> OperatorRuntime:
    return JoinedRuntime(operator, lake)


def _widest(joined: Joined) -> timedelta:
    """The greatest time that the rows of a pair may lie apart."""
    return max(abs(joined.lower), abs(joined.upper))


class JoinedRuntime(SteppedRuntime[Joined, JoinedSteps]):
    """A join runs in steps over both logs; nothing is kept from one to the next."""

    def unit_table(self, output: str = "") -> UnitTable:
        if self.operator.signed:
            raise self._would_follow("pairs of a join")
        return self._rows_by_batch(output)

    def analyse(self, spark: SparkSession, columns: Mapping[str, str]) -> None:
        none = _JoinedAnalysis.once(spark, self.operator, columns)
        _ = results(self.operator, none.pairs, 0, EPOCH).schema

    def waiting(self) -> int:
        """Rows that it has not followed yet, and those of which the clocks do not say yet whether they stay alone."""
        at = Progress.now(self.lake, self.operator)
        return super().waiting() + sum(self._undecided(side, at) for side in self.operator.outer_sides)

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        # The clocks of both streams must pass whatever waits on either side.
        return latest(*(self._last_due(side, stream, rows) for side in self.operator.outer_sides))

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        sides: dict[str, Callable[[SparkSession], DataFrame]] = {LATE: self._late}
        if self.operator.diverts:
            sides[FAILED] = self._failed
        if self.operator.signed:
            return {CURRENT: self._standing, **sides, "signed": self._pairs}
        if not self.operator.outer_sides:
            return {CURRENT: self._pairs, **sides}
        return {CURRENT: self._current, "pairs": self._pairs, UNMATCHED: self._unmatched, **sides}

    def current_at(self, spark: SparkSession, versions: Mapping[str, int]) -> DataFrame:
        pairs = delta.read(spark, self.lake.table(self.operator), versions[""])
        sides = self.operator.outer_sides
        if self.operator.signed:
            return standing_pairs(pairs, self.operator).select(*(f"`{name}`" for name in self.operator.columns), DAY)
        if not sides:
            return pairs
        # They are written before the pairs of their step.
        step = Progress.of(self.operator, delta.open_table(self.lake.table(self.operator), versions[""])).batch
        unmatched = delta.read(spark, self.lake.table(self.operator, UNMATCHED), versions[UNMATCHED])
        return current_rows(pairs, unmatched.where(F.col(BATCH) <= step), sides)

    def watermark_at(self, version: int) -> datetime | None:
        return Progress.of(self.operator, delta.open_table(self.lake.table(self.operator), version)).watermark

    def left_out(self, spark: SparkSession, logs: Mapping[str, DataFrame]) -> int:
        return 0 if self.operator.late == "join" else self._late_of(logs).count()

    def late_per_day(self, spark: SparkSession) -> Mapping[tuple[date, str], int]:
        return rows_per_day(self._late(spark), F.col(AT), F.col("stream"))

    def effects(self, spark: SparkSession, coming: Coming) -> Sequence[Effect]:
        joined, logs = self.operator, coming.logs(spark, self.lake, self.operator.reads)
        if logs is None or not joined.signed:
            return ()
        come = results(joined, pairs_that_come(joined, logs, coming), coming.batch, EPOCH)
        # A row may meet one that was taken back since, and what takes that back.
        sums = come.groupBy(ADDED, DAY).agg(F.sum(SIGN).cast("int").alias(SIGN)).where(F.col(SIGN) != 0)
        return (effect_of_rows(joined, "", "pair", sums),)

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        # A row of either side may still meet one that lies before it.
        joined = self.operator
        if any(each.name not in since for each in joined.reads):
            return None
        # One that is told of without a partner waits for the last that might come, and the first lies before it.
        reach = max(_widest(joined), joined.upper - joined.lower) if joined.outer_sides else _widest(joined)
        return min(since[each.name] for each in joined.reads) - whole_days(reach)

    def whole_since(self, dropped: Mapping[str, date]) -> date:
        # A result has the later time of both rows.
        return super().whole_since(dropped) + whole_days(_widest(self.operator))

    def described(self, analysis: Mapping[str, Any]) -> dict[str, str]:
        joined = self.operator
        return {
            "results": _results(joined),
            "computed": "new left rows with all right ones, and old left rows with new right ones; nothing is kept, "
            "and of the logs only files near the event times of new rows are read",
            "without a pair": _unmatched(joined),
            "late rows": "join like all others" if joined.late == "join" else "are left out; `late` shows them",
            **({"taken back": _TAKEN_BACK} if joined.signed else {}),
        }

    def position(self) -> str:
        return _position(self.lake, self.operator)

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Joined], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return audit_joined(spark, self.lake, pinned, logs)

    def _pairs(self, spark: SparkSession) -> DataFrame:
        return self._read("", spark).orderBy(BATCH, ORIGIN)

    def _standing(self, spark: SparkSession) -> DataFrame:
        return self.current_at(spark, self.versions()).orderBy(AT)

    def _unmatched(self, spark: SparkSession) -> DataFrame:
        return self._read(UNMATCHED, spark).orderBy(BATCH, ORIGIN)

    def _current(self, spark: SparkSession) -> DataFrame:
        pairs = self._read("", spark)
        # They are written before the pairs of their step.
        at = Progress.now(self.lake, self.operator)
        unmatched = self._read(UNMATCHED, spark).where(F.col(BATCH) <= at.batch)
        return current_rows(pairs, unmatched, self.operator.outer_sides).orderBy(AT, ORIGIN)

    def _undecided(self, side: Side, at: Progress) -> int:
        stream = self.operator.left if side == "left" else self.operator.right
        if at.through[stream.name] < 0:
            return 0
        since = due(self.operator, side, Progress.of(self.operator, None), at, ()).before
        late = self.operator.late == "join"
        return LogFiles(self.lake, stream).count_since(since or FIRST_INSTANT, at.through[stream.name], late=late)

    def _failed(self, spark: SparkSession) -> DataFrame:
        logs = {stream.name: read_log(spark, self.lake, stream) for stream in self.operator.reads}
        rows = _failed(self.operator, logs, Progress.as_read(self.lake, self.operator))
        return rows.where(can_be_compared(whole_since(self.lake, self.operator))).orderBy(
            "_left_batch", "_right_batch", ORIGIN
        )

    def _late(self, spark: SparkSession) -> DataFrame:
        return self._late_of({stream.name: read_log(spark, self.lake, stream) for stream in self.operator.reads})

    def _late_of(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        """The late rows of `logs`, by stream, as JSON, because two streams have columns of their own."""
        parts = []
        for stream in self.operator.reads:
            late = valid(logs[stream.name]).where(f"`{stream.event_time}` < _watermark")
            row = exact_json(F.struct(*(f"`{name}`" for name in stream.columns)), nulls=False)
            named = (F.lit(stream.name).alias("stream"), F.col(f"`{stream.event_time}`").alias(AT))
            parts.append(late.select(*named, STAMP, BATCH, row.alias("row")))
        return reduce(DataFrame.unionAll, parts)

    def _read(self, suffix: str, spark: SparkSession) -> DataFrame:
        joined = self.operator
        table = require_table(self.lake, joined, suffix)
        return delta.read(spark, self.lake.table(joined, suffix), version_read(self.lake, joined, table))

    def _last_due(self, side: Side, stream: Stream, rows: DataFrame) -> datetime | None:
        """The watermark at which no row of the side waits any more; `rows` are those of the log of `stream`."""
        own = self.operator.left if side == "left" else self.operator.right
        if own != stream:
            if not delta.exists(self.lake.log(own)):
                return None
            rows = valid(read_log(rows.sparkSession, self.lake, own))
        greatest = rows.agg(F.unix_micros(F.max(f"`{own.event_time}`"))).first()
        assert greatest is not None
        if greatest[0] is None:
            return None
        return shifted(from_micros(greatest[0]), reach(self.operator, side) + MICROSECOND)

    def _begun(self, spark: SparkSession) -> JoinedSteps:
        return JoinedSteps(spark, self.lake, self.operator)


def _results(joined: Joined) -> str:
    lower, upper = joined.between
    keys = " and ".join(f"equal {left}" if left == right else f"{left} equal to {right}" for left, right in joined.keys)
    where = "" if joined.where is None else f" where {joined.where}"
    streams = f"{joined.left.name} and {joined.right.name}"
    return f"pairs of {streams} with {keys}, the latter from {lower} to {upper} later{where}"


def _unmatched(joined: Joined) -> str:
    if not joined.outer_sides:
        return "rows tell nothing"
    rows = " and ".join(f"{side} rows" for side in joined.outer_sides)
    table = joined.table_name(UNMATCHED)
    return f"{rows} are told of in {table} once both clocks have passed their last possible partner"


def _position(lake: Lake, joined: Joined) -> str:
    at = Progress.of(joined, delta.open_table(lake.table(joined)))
    places = []
    for stream in joined.reads:
        newest = head(lake, stream)
        assert newest is not None
        places.append(f"batch {at.through[stream.name]:,} of {newest.number:,} of {stream.name}")
    return f"{', '.join(places)}, joint watermark {told(at.watermark)}{built_anew(at.generation)}"


def _failed(joined: Joined, logs: Mapping[str, DataFrame], at: Progress) -> DataFrame:
    """The failed pairs, and failed rows without one in time, of the `logs`, by stream, up to where the join is.

    `error`, `row` (both rows as JSON, null for one that is not there), `_left_batch`, `_right_batch`, `_origin` of
    both, `_day`.
    """
    streams = {"left": joined.left, "right": joined.right}
    rows: dict[Side, DataFrame] = {}
    for side in OTHER:
        name = streams[side].name
        rows[side] = side_rows(joined, side, valid(logs[name]).where(F.col(BATCH) <= at.through[name]))
    parts = [failed_pairs(joined, rows["left"], rows["right"])]
    for side in joined.outer_sides:
        due, others = rows[side].where(is_due(joined, side, literal(at.watermark))), rows[OTHER[side]]
        parts.append(failed_alone(joined, alone(joined, side, unmatched(joined, side, due, others), others)))
    sides = (_row(joined.pair.left, LEFT_AT).alias("left"), _row(joined.pair.right, RIGHT_AT).alias("right"))
    return reduce(DataFrame.unionByName, parts).select(
        F.col(ERROR).alias("error"),
        as_json(sides).alias("row"),
        "_left_batch",
        "_right_batch",
        F.struct(F.col("_left_origin").alias("left"), F.col("_right_origin").alias("right")).alias(ORIGIN),
        F.to_date(F.greatest(LEFT_AT, RIGHT_AT)).alias(DAY),
    )


def _row(names: Mapping[str, str], at: str) -> Column:
    """The row of one side of a pair, by the `names` that its columns have there; null where it has none."""
    fields = [F.col(f"`{alias}`").alias(name) for name, alias in names.items()]
    return F.when(F.col(at).isNotNull(), F.struct(*fields) if fields else F.struct(at))


def audit_joined(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Joined], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """The laws: each pair once, each row told of alone that had none in time, and what is current is one outer join.

    Raises:
        OperatorError: nothing is joined yet.
    """
    joined = pinned.operator
    if pinned.versions[""] == delta.BEFORE:
        raise pinned.nothing_yet(lake, "joined")
    at = Progress.of(joined, delta.open_table(lake.table(joined), pinned.versions[""]))
    sides = {side: _followed(joined, side, logs, at) for side in OTHER}
    since = whole_in(lake, joined, logs)
    kept, whole = can_be_compared(since), of_kept_days(since)
    met = _comparable(delta.read(spark, lake.table(joined), pinned.versions[""])).where(kept)
    expected = _computed(joined, pairs(joined, sides["left"], sides["right"], "left")).where(kept)
    yield Law("cuts", joined.name, met, expected, f"pairs: joined again, equal{whole}").finding()
    if joined.signed:
        yield are_net(joined, met, [ADDED])
    if not joined.outer_sides:
        return
    stored = delta.read(spark, lake.table(joined, UNMATCHED), pinned.versions[UNMATCHED])
    # Written before the pairs, so it may be a step ahead of them.
    unmatched_rows = _comparable(stored.where(F.col(BATCH) <= at.batch)).where(kept)
    alone_in_time = _alone(joined, sides, at, only_in_time=True).where(kept)
    words = f"rows without a partner in time: found again, equal{whole}"
    yield Law("first result", joined.table_name(UNMATCHED), unmatched_rows, alone_in_time, words).finding()
    current = current_rows(met, unmatched_rows, joined.outer_sides)
    every = expected.unionByName(_alone(joined, sides, at, only_in_time=False).where(kept))
    yield Law("convergence", joined.name, current, every, f"rows: current = one join of both logs{whole}").finding()


def _followed(joined: Joined, side: Side, logs: Mapping[str, LogAtVersion], at: Progress) -> DataFrame:
    stream = joined.left if side == "left" else joined.right
    rows = valid(logs[stream.name].rows).where(F.col(BATCH) <= at.through[stream.name])
    return side_rows(joined, side, rows)


def _alone(joined: Joined, sides: Mapping[Side, DataFrame], at: Progress, *, only_in_time: bool) -> DataFrame:
    """The rows that are due and have no pair; `only_in_time`: none with a partner that came in time."""
    parts = (due_alone(joined, side, sides, at.watermark, only_in_time=only_in_time) for side in joined.outer_sides)
    return _computed(joined, reduce(DataFrame.unionByName, parts))


def _computed(joined: Joined, rows: DataFrame) -> DataFrame:
    return _comparable(results(joined, rows, 0, EPOCH))


def _comparable(rows: DataFrame) -> DataFrame:
    """Without the number of the step, which depends on how the logs go on side by side."""
    return rows.drop(BATCH, WRITTEN_AT)
