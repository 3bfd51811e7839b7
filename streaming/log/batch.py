"""The description of a batch in its commit of the event log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import FrozenMapping, from_micros, optional_instant, to_micros
from streaming.clocks import BatchSummary, Clock, ClockState, clock_from_json
from streaming.declare import Stream
from streaming.log.unknown import unknown_fields
from streaming.sources import Memory
from streaming.spark import guarded, holds

_SHARES_BEFORE = (0.5, 0.05, 0.01)
"""The shares of a batch's rows that the source had before each of `Batch.source_times`.

Less the instant of the commit, these are the median, 95th and 99th percentile of latency: what came first waited
longest.
"""
_BESIDE = "_day"
"""A column that all stamped rows have, as `guarded` asks for."""


@dataclass(frozen=True)
class Batch:
    """One batch of the log, as its commit describes it.

    `number` is the log's own sequence; `query` and `query_batch` name the Spark batch it came from (null for a
    heartbeat and a repair); `state` is the clock when the batch was stamped, by the declaration `clock`, which may be
    another one later. `after` is the clock after the batch, which stamps the next one: no row of a later batch can be
    on time for a window that is closed by its watermark. `summary`, `rejected`, `late` (pairs per view) and
    `unassigned` (rows per view that are in no window) speak of its rows, and `counted_by` tells one declaration by
    which a view's were counted from another. `end_of_input`: a heartbeat that closes what is open, whatever the clock
    says. `source_times`: instants by which the source had half, a twentieth and a
    hundredth of the rows (null for others). `unknown`: rows per field that the payload has and nobody declared (see
    `streaming.log.unknown`). `source`: what the source remembers after the batch (see `streaming.sources.Memory`).
    `pins`: how far the control streams were that the stream pins, by name. `erased`: per erasure, by its id, how many
    `valid` and `rejected` rows of the batch it took out of the log, and per view how many `late` pairs these had made;
    the other numbers stay what they were when the batch came. `kept_from`: valid rows of the batch, and of all that
    come later, are of this day or a later one; null where the stream keeps all days. `dropped`: what its retention took
    out of the log since, as one of `erased`; empty for nothing.
    """

    number: int
    query: str | None
    query_batch: int | None
    state: ClockState
    summary: BatchSummary
    clock: Clock
    rejected: int = 0
    late: dict[str, int] | None = None
    unassigned: dict[str, int] | None = None
    counted_by: dict[str, str] | None = None
    end_of_input: bool = False
    source_times: tuple[datetime, ...] | None = None
    unknown: dict[str, int] | None = None
    source: Memory = field(default_factory=dict)
    pins: Mapping[str, Pin] = field(default_factory=dict)
    erased: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kept_from: date | None = None
    dropped: Mapping[str, Any] = field(default_factory=dict)
    after: ClockState = field(default_factory=ClockState, compare=False)

    def __post_init__(self) -> None:
        if self.after == ClockState():
            object.__setattr__(self, "after", self.clock.advance(self.state, self.summary))

    @property
    def cause(self) -> Literal["source", "heartbeat", "repair"]:
        """The cause of the batch: rows of the source, no row at all, or rejected rows that came back."""
        if self.query is not None:
            return "source"
        return "repair" if self.summary.rows else "heartbeat"

    @property
    def erased_valid(self) -> int:
        """The valid rows that erasures took out of the log since."""
        return sum(each["valid"] for each in self.erased.values())

    @property
    def erased_rejected(self) -> int:
        """The rejected ones."""
        return sum(each["rejected"] for each in self.erased.values())

    @property
    def rows_left(self) -> int:
        """The rows of the batch that the log still has, valid or rejected."""
        return self.valid_left + self.rejected_left

    @property
    def valid_left(self) -> int:
        """The valid ones."""
        return self.summary.rows - self.rejected - self.erased_valid - self.dropped.get("valid", 0)

    @property
    def rejected_left(self) -> int:
        """The rejected ones, repaired or not."""
        return self.rejected - self.erased_rejected - self.dropped.get("rejected", 0)

    def gone_late(self, view: str) -> int:
        """The late pairs of a view that rows had made which were erased or dropped since."""
        return sum(each["late"].get(view, 0) for each in (*self.erased.values(), self.dropped) if each)

    def to_json(self) -> dict[str, Any]:
        """The commit's `userMetadata`."""
        erased = {"erased": {each: dict(counts) for each, counts in self.erased.items()}} if self.erased else {}
        kept = {} if self.kept_from is None else {"kept_from": self.kept_from.isoformat()}
        return {
            **erased,
            **kept,
            "batch": self.number,
            "query": self.query,
            "query_batch": self.query_batch,
            "clock": self.state.to_json(),
            "after": self.after.to_json(),
            "summary": self.summary.to_json(),
            "declared": self.clock.to_json(),
            "rejected": self.rejected,
            "late": self.late or {},
            "unassigned": self.unassigned or {},
            "counted_by": self.counted_by or {},
            "end_of_input": self.end_of_input,
            "unknown": self.unknown or {},
            "source": dict(self.source),
            "pins": _pins_to_json(self.pins),
            "source_times": None if self.source_times is None else [to_micros(time) for time in self.source_times],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Batch:
        """The inverse of `to_json`; commits that were written before they had `after` are read as well."""
        times = value.get("source_times")
        return cls(
            number=value["batch"],
            query=value["query"],
            query_batch=value["query_batch"],
            state=ClockState.from_json(value["clock"]),
            summary=BatchSummary.from_json(value["summary"]),
            clock=clock_from_json(value["declared"]),
            rejected=value["rejected"],
            late=value["late"],
            unassigned=value["unassigned"],
            counted_by=value.get("counted_by") or {},
            end_of_input=value.get("end_of_input", False),
            unknown=value.get("unknown") or {},
            source=value.get("source") or {},
            pins=_pins_from_json(value.get("pins") or {}),
            erased=value.get("erased") or {},
            kept_from=date.fromisoformat(value["kept_from"]) if "kept_from" in value else None,
            after=ClockState.from_json(value["after"]) if "after" in value else ClockState(),
            source_times=None if times is None else tuple(from_micros(time) for time in times),
        )


@dataclass(frozen=True)
class Pin:
    """The point that the log of a control stream had reached: its `newest` batch, -1 where it had none yet.

    `first` is what the first batch with a pin of that stream said, which holds for all batches before it as well.
    """

    first: int
    newest: int


NOTHING_PINNED: Mapping[str, int] = FrozenMapping({})
"""The pins of a stream whose operators need no control streams."""


def next_pins(before: Mapping[str, Pin], newest: Mapping[str, int]) -> dict[str, Pin]:
    """The pins of the next batch, by control stream.

    What nobody asks for any more is carried on, so that each later batch knows what the first one said.
    """
    pins = {
        name: Pin(before[name].first, max(number, before[name].newest)) if name in before else Pin(number, number)
        for name, number in newest.items()
    }
    return {**before, **pins}


def _pins_to_json(pins: Mapping[str, Pin]) -> dict[str, list[int]]:
    """The pins as JSON values."""
    return {name: [pin.first, pin.newest] for name, pin in pins.items()}


def _pins_from_json(value: Mapping[str, list[int]]) -> dict[str, Pin]:
    """The inverse of `_pins_to_json`."""
    return {name: Pin(first, newest) for name, (first, newest) in value.items()}


def _number_of(condition: Column) -> Column:
    # `count_if` makes Spark write every row twice more, as it names what it counts.
    return F.count(F.when(condition, F.lit(1)))


def _of_row(count: Column) -> Column:
    return guarded(count, _BESIDE)["value"]


def _greatest(stream: Stream) -> Column:
    """The greatest event time of the valid rows that move the clock, in microseconds; null where there is none."""
    valid, moved_by = F.col("_day").isNotNull(), stream.clock.moved_by
    moves = valid if moved_by is None else valid & holds(F.expr(moved_by), _BESIDE)
    return F.max(F.when(moves, F.unix_micros(stream.event_time))).alias("greatest")


def count_partitions(rows: DataFrame, stream: Stream) -> tuple[dict[str, int], dict[str, datetime | None]]:
    """Rows per source partition; and the greatest event time that moves the clock, null where none does.

    The second has the partitions with valid rows.
    """
    partition = stream.source.partition_of(F.col("_origin")).alias("partition")
    aggregates = (F.count(F.lit(1)).alias("rows"), F.count("_day").alias("valid"), _greatest(stream))
    partitions = rows.groupBy(partition).agg(*aggregates).collect()
    greatest = {row["partition"]: optional_instant(row["greatest"]) for row in partitions if row["valid"]}
    return {row["partition"]: row["rows"] for row in partitions}, greatest


def optional_instants(micros: Sequence[float] | None) -> tuple[datetime, ...] | None:
    """Microseconds since the epoch as instants."""
    return None if micros is None else tuple(from_micros(round(entry)) for entry in micros)


@dataclass(frozen=True)
class OperatorCounts:
    """The counts of one operator in the commit of a batch, as columns over stamped rows; both are null for other rows.

    `late`: how many late pairs a row makes; `unassigned`: whether it is in no window; `by`: the same text for
    declarations that count the same. A row for which the operator's expressions cannot be computed counts as neither:
    that is for the operator to tell, and must not keep the row from the log.
    """

    late: Column
    unassigned: Column
    by: str


def summary_columns(stream: Stream, counts: Mapping[str, OperatorCounts]) -> list[Column]:
    """The aggregates of its stamped rows that a commit records.

    `rows`, `rejected`, `greatest`, `source_times` (see `SHARES_BEFORE`), `unknown`, and for each operator in `counts`
    `late_<operator>` and `unassigned_<operator>`.
    """
    valid = F.col("_day").isNotNull()
    source_time = F.unix_micros(stream.source.time_of(F.col("_origin")))
    return [
        F.count(F.lit(1)).alias("rows"),
        _number_of(~valid).alias("rejected"),
        _greatest(stream),
        F.percentile(source_time, F.array(*(F.lit(share) for share in _SHARES_BEFORE))).alias("source_times"),
        unknown_fields(),
        *(F.coalesce(F.sum(_of_row(each.late)), F.lit(0)).alias(f"late_{name}") for name, each in counts.items()),
        *(_number_of(_of_row(each.unassigned)).alias(f"unassigned_{name}") for name, each in counts.items()),
    ]
