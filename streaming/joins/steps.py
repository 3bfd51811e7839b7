"""One step of a join: the pairs that new rows of both logs bring, and the rows that have waited for one in vain.

Each pair comes exactly once, with the row that arrives second: new left rows with all right ones, and old left rows
with new right ones. Nothing is kept from one step to the next. Each table says in its own commit how far it is, the
pairs last; whatever kills a step, the next one writes only the tables that are not that far yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, EPOCH, constant
from streaming.declare import UNMATCHED, Joined
from streaming.joins.frame import (
    OTHER,
    Due,
    Side,
    alone,
    batch_of,
    due,
    pairs,
    partners_of,
    results,
    side_rows,
    unmatched,
)
from streaming.lake import Lake
from streaming.log import Batch, LogFiles
from streaming.operators import Batches, Outputs, Progress, Written, create_table
from streaming.spark import remembered
from streaming.tables import TimeRange, delta, merged, moved

_SHORTEST = timedelta(seconds=1)
_FEW = 20_000
"""Rows of a side, new ones and those near them, up to which it is cheaper to compare old ones with each other again."""


class JoinedSteps:
    """The steps of one join in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, joined: Joined) -> None:
        self._spark = spark
        self._lake = lake
        self._joined = joined
        self._streams = {"left": joined.left, "right": joined.right}
        logs = {stream.name: LogFiles(lake, stream) for stream in joined.reads}
        self._logs: dict[Side, LogFiles] = {"left": logs[joined.left.name], "right": logs[joined.right.name]}
        key = ("joined", joined, tuple(log.columns() for log in self._logs.values()))
        self._no_rows = remembered(
            spark, key, lambda: {side: side_rows(joined, side, log.none(spark)) for side, log in self._logs.items()}
        )
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
        stands = {suffix: self._outputs.at(suffix) for suffix in self._outputs.suffixes}
        before, instant, written = stands[""], now(), 0
        after = before.after(batches)
        for suffix in (to for to in self._outputs.suffixes if stands[to].is_behind(after)):
            find = self._unmatched if suffix == UNMATCHED else self._pairs
            frame = find(before, after, batches)
            rows = None if frame is None else results(self._joined, frame, after.batch, instant)
            written = self._commit(suffix, rows, stands[suffix], after)
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
        return alone(self._joined, side, candidates, self._no_rows[other])

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

    def _commit(self, suffix: str, rows: DataFrame | None, at: Progress, after: Progress) -> int:
        there = replace(after, counts=at.counts, generation=at.generation)
        metadata = {"through": dict(after.through), "after": dict(at.through)}
        uri = self._created(suffix)

        def fence(table: DeltaTable) -> None:
            at.fence(self._joined, table)

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
        if suffix not in self._ready and not delta.exists(uri):
            no_pairs = pairs(self._joined, self._no_rows["left"], self._no_rows["right"], "left")
            create_table(self._lake, self._joined, suffix, results(self._joined, no_pairs, 0, EPOCH).schema)
        self._ready.add(suffix)
        return uri


def _has_rows(batches: Sequence[Batch]) -> bool:
    return any(batch.summary.rows > batch.rejected for batch in batches)
