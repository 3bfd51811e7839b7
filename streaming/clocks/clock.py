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
    from_micros,
    interval,
    names_in,
    optional_instant,
    optional_micros,
    to_micros,
)


def joint_watermark(marks: Iterable[datetime | None]) -> datetime | None:
    """The least of the streams' watermarks; None until every stream has one.

    No later batch of any of the streams brings, on time, a row with an earlier event time.
    """
    given = list(marks)
    reached = [mark for mark in given if mark is not None]
    return min(reached) if reached and len(reached) == len(given) else None


@dataclass(frozen=True)
class BatchSummary:
    """The facts that a clock may know of one batch; one without rows is a tick of the clock.

    `greatest`: for each source partition that brought valid rows, the greatest event time of those that move the
    clock, null where none of them does; `rows`: rows read, rejected ones too; `processed_at`: processing time.
    `partitions_end`: the partitions so far bring no more rows, because another source follows. `told`: the watermark
    that the source itself tells, as far as its rows are taken; null where it tells none.
    """

    greatest: Mapping[str, datetime | None]
    rows: int
    processed_at: datetime
    partitions_end: bool = False
    told: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values, instants as microseconds since the epoch."""
        return {
            "greatest": micros_of_each(self.greatest),
            "rows": self.rows,
            "processed_at": to_micros(self.processed_at),
            **({"partitions_end": True} if self.partitions_end else {}),
            **({} if self.told is None else {"told": to_micros(self.told)}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BatchSummary:
        """The inverse of `to_json`."""
        return cls(
            instants_of_each(value["greatest"]),
            value["rows"],
            from_micros(value["processed_at"]),
            value.get("partitions_end", False),
            optional_instant(value.get("told")),
        )


def micros_of_each(instants: Mapping[str, datetime | None]) -> dict[str, int | None]:
    """Microseconds since the epoch, of each source partition."""
    return {partition: optional_micros(instant) for partition, instant in instants.items()}


def instants_of_each(micros: Mapping[str, int | None]) -> dict[str, datetime | None]:
    """The inverse of `micros_of_each`."""
    return {partition: optional_instant(value) for partition, value in micros.items()}


@dataclass(frozen=True)
class ClockState:
    """Everything a clock remembers of the batches so far.

    `greatest`: per source partition with a valid row so far, the greatest event time that moves the clock, null where
    there was none yet; `moved_to`: where rows and silence have moved the watermark; `closed_to`: where an end of input
    has moved it. Kept only by the clocks that need them: `last_valid_row_at`, the processing time of each partition's
    last valid row (`idle_after`), `last_row_at`, that of the last row of any kind, and `moved_to_at_last_row`, as
    `moved_to` was after the batch with that row (both `heartbeat_after`).
    """

    greatest: Mapping[str, datetime | None] = field(default_factory=dict)
    moved_to: datetime | None = None
    last_valid_row_at: Mapping[str, datetime | None] = field(default_factory=dict)
    last_row_at: datetime | None = None
    moved_to_at_last_row: datetime | None = None
    closed_to: datetime | None = None

    @property
    def watermark(self) -> datetime | None:
        """The watermark in force; null before there is one."""
        return latest(self.moved_to, self.closed_to)

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, instants as microseconds since the epoch."""
        return {
            "greatest": micros_of_each(self.greatest),
            "watermark": optional_micros(self.watermark),
            "seen": micros_of_each(self.last_valid_row_at),
            "arrived": optional_micros(self.last_row_at),
            "moved_to": optional_micros(self.moved_to),
            "moved_to_at_last_row": optional_micros(self.moved_to_at_last_row),
            "closed_to": optional_micros(self.closed_to),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClockState:
        """The inverse of `to_json`; logs written before there were all of its fields are read as well."""
        greatest, last_row_at = instants_of_each(value["greatest"]), optional_instant(value.get("arrived"))
        if "moved_to" in value:
            moved_to, at_last_row = optional_instant(value["moved_to"]), optional_instant(value["moved_to_at_last_row"])
        else:
            moved_to = optional_instant(value["watermark"])
            # Heartbeats of older versions moved the watermark past all rows; to move on from there by the time since
            # the last row would count that time twice.
            at_last_row = None if last_row_at is None else _earliest(moved_to, latest(*greatest.values()))
        return cls(
            greatest,
            moved_to,
            instants_of_each(value.get("seen", {})),
            last_row_at,
            at_last_row,
            optional_instant(value.get("closed_to")),
        )

    def closed_at(self, instant: datetime) -> ClockState:
        """The state after an end of input at `instant`, or at the whole millisecond after it; never moves back.

        The last millisecond of the year 9999 stands for whatever comes after it.
        """
        end = min(instant, LAST_MILLISECOND)
        end += (FIRST_INSTANT - end) % MILLISECOND
        return self if self.watermark is not None and end <= self.watermark else replace(self, closed_to=end)


def latest(*instants: datetime | None) -> datetime | None:
    """The latest of the instants that are not null; null where all are."""
    return max((instant for instant in instants if instant is not None), default=None)


def _earliest(*instants: datetime | None) -> datetime | None:
    return min((instant for instant in instants if instant is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The base of all clocks; declare one of `BoundedOutOfOrderness`, `Ascending`, `Punctuated` and `Derived`.

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
      the greatest. Without it, a silent partition holds the watermark for ever. Time in which no process ran counts
      too, where Flink's would begin anew: a stream that is run once an hour would never find one silent otherwise. So
      after a stop that is longer, a partition whose waiting rows come with a later batch than others' may be late.
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
                    f"{name}={length!r} would call every source silent at once",
                    f"give it a length, such as '2 minutes', or leave {name} out.",
                    field=name,
                    value=length,
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


@dataclass(frozen=True)
class Derived(Clock):
    """The watermark is the one that the source tells: of a stream of current results that of what they are results of.

    It is the start of the earliest window that may still be published for the first time, so no delay has to be
    guessed, and it moves on where no result changes. Its `delay` and limits of silence mean nothing.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = {each.name: each.default for each in fields(Clock)}
        for name in ("delay", "idle_after", "heartbeat_after"):
            if getattr(self, name) != defaults[name]:
                raise DeclarationError(
                    f"Derived({name}={getattr(self, name)!r}) would move a clock that its source moves",
                    f"leave {name} out, or declare BoundedOutOfOrderness.",
                    field=name,
                )

    def advance(self, state: ClockState, summary: BatchSummary) -> ClockState:
        """The state after a batch with this summary; rows move nothing."""
        told = None if summary.told is None else _whole_millisecond(summary.told)
        return replace(state, moved_to=latest(state.moved_to, told))


def clock_from_json(value: dict[str, Any]) -> Clock:
    """The inverse of `Clock.to_json`."""
    fields = {name: entry for name, entry in value.items() if name != "kind"}
    kinds = (BoundedOutOfOrderness, Ascending, Punctuated, Derived)
    return {kind.__name__: kind for kind in kinds}[value["kind"]](**fields)


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
