"""The stream's clock: one pure step from batch to batch, stored in the commit that it stamped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from streaming.base import (
    FIRST_INSTANT,
    LAST_MILLISECOND,
    MILLISECOND,
    DeclarationError,
    FrozenMapping,
    interval,
    names_in,
)
from streaming.clocks.state import ClockState, latest
from streaming.clocks.summary import BatchSummary


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The base of all clocks; declare one of `BoundedOutOfOrderness`, `Ascending` and `Punctuated`.

    Watermark = least of the partitions' greatest event times, less `delay`, in whole milliseconds, as Spark's own is,
    which closes the windows; it never moves back. A batch is stamped with the watermark after the batches before it.
    Only partitions that have brought a valid row count: one that the clock has never seen cannot hold it.

    `delays`: partitions with a delay of their own, by name; the watermark is the least of what each gives. `removed`:
    partitions that come no more; they no longer count, and their rows, should some come, move no clock.

    Limits of an event time, measured from the moment its row is ingested; a row beyond one is rejected and moves no
    clock. `max_ahead`: how far after it, so that one bad timestamp cannot close every window. `max_behind`: how far
    before it, so that random dates do not become thousands of day partitions; off by default.

    Silence, in processing time; both off by default.

    - `idle_after`: a partition without a valid row for this long is left out of the least; it counts again with its
      next row, and the watermark stays where it is meanwhile. It also stays where all are idle; Flink's would go on to
      the greatest. Without it, a silent partition holds the watermark for ever.
    - `heartbeat_after`: once no row of any kind has come for this long, the watermark moves on by the processing time
      that has passed since the last one, from where it was then (bytewax's `EventClock`). So the last windows of a
      live source close, and those of old data that are read now stay open as long. Time in which no process ran counts
      too: after a week without rows the watermark moves on by that week. It does not before rows have moved it once,
      nor does an end of input change from where it moves on.

    Semantics as Flink's watermark strategies (`WatermarkOutputMultiplexer`, `withIdleness`), but cut at batches, and
    with the boundary of `window_end <= watermark` (no extra millisecond); idle from exactly `idle_after` on.

    Raises:
        DeclarationError: an interval cannot be read, or a silence is empty.
    """

    delay: str = "0 seconds"
    max_ahead: str = "1 day"
    max_behind: str | None = None
    idle_after: str | None = None
    heartbeat_after: str | None = None
    delays: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "delays", FrozenMapping(self.delays))
        object.__setattr__(self, "removed", tuple(self.removed))
        for limit in (self.delay, self.max_ahead, self.max_behind, *self.delays.values()):
            if limit is not None:
                interval(limit)
        for name, length in (("idle_after", self.idle_after), ("heartbeat_after", self.heartbeat_after)):
            if length is not None and not interval(length):
                raise DeclarationError(
                    f"{name}={length!r} would call every source silent at once; give it a length, such as "
                    f"'2 minutes', or leave {name} out."
                )

    @property
    def moved_by(self) -> str | None:
        """The SQL condition of the valid rows that move the watermark; None where all do."""
        return None

    def advance(self, state: ClockState, summary: BatchSummary) -> ClockState:
        """The state after a batch with this summary; stamps the batch that comes next.

        A summary of 0 rows is a tick: it finds what has fallen silent by its `processed_at`. The same tick again
        changes nothing. Where the partitions end, the watermark waits for those that follow to pass it.
        """
        if summary.partitions_end:
            state = replace(state, greatest={}, last_valid_row_at={})
        greatest = dict(state.greatest)
        for partition, instant in summary.greatest.items():
            greatest[partition] = latest(greatest.get(partition), instant)
        now = summary.processed_at
        valid_row_at = {} if self.idle_after is None else _last_valid_rows(state, summary, greatest)
        active = [
            self._behind(partition, instant)
            for partition, instant in greatest.items()
            if partition not in self.removed and not _is_silent(valid_row_at.get(partition), now, self.idle_after)
        ]
        moved_to = latest(state.moved_to, _least(active))
        last_row_at, at_last_row = None, None
        if self.heartbeat_after is not None:
            last_row_at, at_last_row = state.last_row_at, state.moved_to_at_last_row
            if summary.rows or last_row_at is None:
                last_row_at, at_last_row = latest(last_row_at, now), moved_to
            elif at_last_row is not None and _is_silent(last_row_at, now, self.heartbeat_after):
                moved_to = latest(moved_to, _later(at_last_row, now - last_row_at))
        return ClockState(greatest, moved_to, valid_row_at, last_row_at, at_last_row, state.closed_to)

    def watermark(self, state: ClockState) -> datetime | None:
        """The watermark in force; null before the first valid row."""
        return state.watermark

    def to_json(self) -> dict[str, Any]:
        """The declaration as JSON values, for the commit of a batch that it stamps."""
        values = {name: getattr(self, name) for name in (each.name for each in fields(self))}
        return {"kind": type(self).__name__, **values, "delays": dict(self.delays), "removed": list(self.removed)}

    def _behind(self, partition: str, instant: datetime | None) -> datetime | None:
        """`instant` less the partition's delay, and less what is no whole millisecond.

        There is no instant before the year 1.
        """
        if instant is None:
            return None
        delay = interval(self.delays.get(partition, self.delay))
        return _whole_millisecond(instant - min(delay, instant - FIRST_INSTANT))


@dataclass(frozen=True)
class BoundedOutOfOrderness(Clock):
    """Rows come out of order by at most `delay`, which the watermark stays behind the greatest event time.

    A row exactly `delay` behind is not late. Flink: `forBoundedOutOfOrderness`.
    """

    delay: str = field(kw_only=False)


@dataclass(frozen=True)
class Ascending(Clock):
    """Rows of a partition come in order, so that the watermark is the greatest event time: the delay is 0.

    Flink: `forMonotonousTimestamps`.
    """


@dataclass(frozen=True)
class Punctuated(Clock):
    """Only valid rows for which the SQL `where` is true move the watermark, to their event time less `delay`.

    A partition whose rows have not moved it yet holds it back. Flink: a generator that emits in `onEvent`.
    """

    where: str

    def __post_init__(self) -> None:
        super().__post_init__()
        names_in(self.where)

    @property
    def moved_by(self) -> str:
        """The SQL condition `where`."""
        return self.where


def clock_from_json(value: dict[str, Any]) -> Clock:
    """The inverse of `Clock.to_json`."""
    fields = {name: entry for name, entry in value.items() if name != "kind"}
    return {kind.__name__: kind for kind in (BoundedOutOfOrderness, Ascending, Punctuated)}[value["kind"]](**fields)


def _last_valid_rows(state: ClockState, summary: BatchSummary, partitions: Iterable[str]) -> dict[str, datetime | None]:
    """When each of the partitions last brought a valid row; where that was not kept so far, silence begins now."""
    now = summary.processed_at
    before = {partition: state.last_valid_row_at.get(partition, now) for partition in partitions}
    return before | {partition: latest(before[partition], now) for partition in summary.greatest}


def _is_silent(since: datetime | None, now: datetime, limit: str | None) -> bool:
    return since is not None and limit is not None and now - since >= interval(limit)


def _later(instant: datetime, passed: timedelta) -> datetime:
    """`instant` and what has `passed` since, in whole milliseconds; there is no instant after the year 9999."""
    return _whole_millisecond(instant + min(passed, LAST_MILLISECOND - instant))


def _whole_millisecond(instant: datetime) -> datetime:
    """The last one that is not after `instant`."""
    return instant - (instant - FIRST_INSTANT) % MILLISECOND


def _least(instants: list[datetime | None]) -> datetime | None:
    """The least one; null where there is none, or where one is null."""
    instants_there = [instant for instant in instants if instant is not None]
    return min(instants_there) if instants_there and len(instants_there) == len(instants) else None
