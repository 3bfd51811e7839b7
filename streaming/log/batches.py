"""The batches of an event log: how a commit describes each, how they are read, and what retention has dropped of each.

Once commits are cleaned up, the archive has what they said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming.base import EPOCH, WARNED, F, FrozenMapping, LogError, from_micros, pc, shown, to_micros
from streaming.clocks import BatchSummary, Clock, ClockState, clock_from_json
from streaming.declare import MASKED_LABELS, Stream
from streaming.formats import UNKNOWN
from streaming.lake import Lake
from streaming.sources import Memory
from streaming.spark import guarded, holds
from streaming.tables import attempts, commits_of, delta, newest_commits, storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

Cause = Literal["source", "heartbeat", "repair", "retraction"]
QUERY = "log"
"""The name of the streaming query that fills a log, and of its checkpoint."""
_DROPPED_BEFORE = "dropped_before"
_NOTHING: Mapping[str, Any] = {"valid": 0, "rejected": 0, "late": {}}
_DROPPED = pa.schema([("before", pa.date32()), ("batch", pa.int64()), ("gone", pa.string())])
OTHERS = "..."
"""Under this name the rarer fields count together."""

_MOST_NAMES = 20
_MOST_SETS = 1_000
_NAMES_OF_A_ROW = 50
_LONGEST_SET, _LONGEST_NAME = 4_000, 100
"""Characters: names are up to whoever sends them, and counts of them are in every commit."""
_BETWEEN = "\x1f"
SHARES_BEFORE = (0.5, 0.05, 0.01)
"""The shares of a batch's rows that the source had before each of `Batch.source_times`.

Less the instant of the commit, these are the median, 95th and 99th percentile of latency: what came first waited
longest.
"""
_BESIDE = "_day"
"""A column that all stamped rows have, as `guarded` asks for."""
_APP = "archive"
_SCHEMA = pa.schema([("batch", pa.int64()), ("described", pa.string())])


def dropped_before(log: DeltaTable | None) -> date | None:
    """The day before which an open log has no valid row any more; None where none was dropped."""
    number = None if log is None else log.transaction_version(_DROPPED_BEFORE)
    return None if number is None else EPOCH.date() + timedelta(days=number)


def dropped_days(lake: Lake, streams: Iterable[Stream]) -> dict[str, date]:
    """The day before which each log has no valid row now, by stream; without `streams` that have all their days."""
    days = {stream.name: dropped_before(delta.open_table(lake.log(stream))) for stream in streams}
    return {name: day for name, day in days.items() if day is not None}


def dropped_number(before: date) -> dict[str, int]:
    """The number that the log's table keeps once the days `before` are dropped."""
    return {_DROPPED_BEFORE: (before - EPOCH.date()).days}


def note_dropped(lake: Lake, stream: Stream, before: date, by_batch: Mapping[int, Mapping[str, Any]]) -> None:
    """Note what is about to be dropped of each batch, as `Batch.dropped` says, with all days `before`.

    It counts from the commit of the log on that drops the days. Where that was noted before, and rows have gone or come
    since, the difference is noted.
    """
    noted = dropped_rows(lake, stream, before)
    gone = dropped_rows(lake, stream, dropped_before(delta.open_table(lake.log(stream))))
    changes = {
        batch: _sum(_sum(by_batch.get(batch, _NOTHING), gone.get(batch, _NOTHING)), noted.get(batch, _NOTHING), -1)
        for batch in {*noted, *by_batch}
    }
    about = f"How many rows of each batch of {stream.name} its retention has dropped from the log"
    table = delta.opened_or_created(lake.dropped(stream), _DROPPED, description=about, append_only=True)
    number = dropped_number(before)[_DROPPED_BEFORE]
    batches = sorted(batch for batch, counts in changes.items() if any(counts.values()))
    counts = [json.dumps(changes[batch]) for batch in batches]
    rows = pa.table([[before] * len(batches), batches, counts], schema=_DROPPED)
    commit = CommitProperties(app_transactions=[Transaction(_DROPPED_BEFORE, number)], max_commit_retries=0)
    write_deltalake(table, rows, mode="append", commit_properties=commit)


def noted_before(lake: Lake, stream: Stream) -> date | None:
    """The newest day for which `note_dropped` has noted what goes, dropped by now or not yet; None for none."""
    return dropped_before(delta.open_table(lake.dropped(stream)))


def is_dropping(lake: Lake, stream: Stream) -> bool:
    """True if days are noted that the log still has: somebody is dropping them, or was killed before."""
    noted, dropped = noted_before(lake, stream), dropped_before(delta.open_table(lake.log(stream)))
    return noted is not None and (dropped is None or noted > dropped)


def dropped_rows(lake: Lake, stream: Stream, before: date | None) -> dict[int, dict[str, Any]]:
    """Per batch what was dropped of it, as `Batch.dropped` says, of a log that has lost the days `before`."""
    table = None if before is None else delta.open_table(lake.dropped(stream))
    losses: dict[int, dict[str, Any]] = {}
    for row in () if table is None else delta.contents(table).to_pylist():
        if row["before"] <= before:
            losses[row["batch"]] = _sum(losses.get(row["batch"], _NOTHING), json.loads(row["gone"]))
    return losses


def _sum(one: Mapping[str, Any], other: Mapping[str, Any], sign: int = 1) -> dict[str, Any]:
    """The counts of `one`, with those of `other` added, or with `sign` -1 taken away."""
    late = Counter(one["late"])
    late.update({view: sign * number for view, number in other["late"].items()})
    counts = {name: one[name] + sign * other[name] for name in ("valid", "rejected")}
    return {**counts, "late": {view: number for view, number in late.items() if number}}


def check_as_of(lake: Lake, stream: Stream) -> None:
    """Refuse to read a lake as of a batch that had not seen all rows of the days that were dropped since.

    Raises:
        LogError: with the batches that it can be read as of.
    """
    newest = lake.batch_read(stream)
    before = None if newest is None else dropped_days(lake, (stream,)).get(stream.name)
    if newest is None or before is None:
        return
    last = max(dropped_rows(lake, stream, before), default=-1)
    if newest < last:
        raise LogError(
            f"stream {stream.name!r} cannot be read as of batch {newest}: days before {before} were dropped from its "
            f"log by its retention, and rows of them came up to batch {last}, so nobody can tell any more what was "
            f"known of them before. Choose batch {last} or a newer one."
        )


def unknown_fields() -> Column:
    """An aggregate over parsed rows: how many rows have each set of unknown fields, for `count_unknown`.

    It needs one pass and bounded memory. Where a batch has more than some 700 different sets, the counts of the rarer
    ones are estimates.
    """
    names = F.substring(F.array_join(F.slice(UNKNOWN, 1, _NAMES_OF_A_ROW), _BETWEEN), 1, _LONGEST_SET)
    # The number of sets is given twice: how many are told, and how many are counted.
    return F.call_function("approx_top_k", names, F.lit(_MOST_SETS), F.lit(_MOST_SETS)).alias("unknown")


def count_unknown(sets: Iterable[Row]) -> dict[str, int]:
    """Rows per field, from what `unknown_fields` gives; `add_unknown` bounds them."""
    rows = Counter[str]()
    for names, number in sets:
        rows.update(dict.fromkeys(() if names is None else map(_shown, names.split(_BETWEEN)), number))
    return dict(rows)


def count_names(unknown: Iterable[Sequence[str]]) -> dict[str, int]:
    """Rows per field, of the unknown ones of each row; as many of a row count as `unknown_fields` tells."""
    rows = Counter[str]()
    for names in unknown:
        told = _BETWEEN.join(names[:_NAMES_OF_A_ROW])[:_LONGEST_SET]
        rows.update(dict.fromkeys(map(_shown, told.split(_BETWEEN)), 1))
    return dict(rows)


def count_reasons(rejected: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    """Reasons per label, such as the name of a rule, of rows whose reasons are lists of texts, null for a valid row.

    What masks have done to a row is no reason against it.
    """
    texts = pc.list_flatten(rejected)
    if not len(texts):
        return {}
    labels = pc.list_element(pc.split_pattern(texts, ": ", max_splits=1), 0)
    return {
        each["values"]: each["counts"]
        for each in pc.value_counts(labels).to_pylist()
        if each["values"] not in MASKED_LABELS
    }


def bounded_unknown(rows: Mapping[str, int], most: int = _MOST_SETS) -> dict[str, int]:
    """Rows per field, the most frequent first, and of the rarer ones than `most` together."""
    counts = dict(rows)
    others = counts.pop(OTHERS, 0)
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    others += sum(number for _, number in ranked[most:])
    return dict(ranked[:most]) | ({OTHERS: others} if others else {})


def _shown(name: str) -> str:
    """A name as people may see it: short, and nothing in it that a terminal obeys."""
    name = " ".join(shown(name).split())
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}{OTHERS}"


def add_unknown(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of several batches together."""
    rows = Counter[str]()
    for count in counts:
        rows.update(count)
    return bounded_unknown(rows, _MOST_NAMES)


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
    `streaming.log.batches`). `source`: what the source remembers after the batch (see `streaming.sources.Memory`).
    `pins`: how far the control streams were that the stream pins, by name. `revised`: of a batch of changes, how many
    revisions came and what became of them (see `streaming.revisions`). `erased`: per erasure, by its id, how many
    `valid` and `rejected` rows of the batch it took out of the log, and per view how many `late` pairs these had made;
    the other numbers stay what they were when the batch came. `kept_from`: valid rows of the batch, and of all that
    come later, are of this day or a later one; null where the stream keeps all days. `dropped`: what its retention took
    out of the log since, as one of `erased`; empty for nothing. `warned`: of each rule that only warns, how many valid
    rows break it. `reasons`: the reasons against rejected rows, by what they begin with: the name of a rule, or one of
    the platform's own such as `event_time`. Batches of older releases have neither. `salts`: by the variable of each
    salt with which values were hashed by now, a check by which it is known again. `retraction`: of a batch by which
    somebody took rows back, or put them back, who that was, why, and which rows (see `streaming.operations`); empty for
    others.
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
    revised: Mapping[str, int] = field(default_factory=dict)
    erased: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kept_from: date | None = None
    dropped: Mapping[str, Any] = field(default_factory=dict)
    warned: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    salts: Mapping[str, str] = field(default_factory=dict)
    retraction: Mapping[str, Any] = field(default_factory=dict)
    after: ClockState = field(default_factory=ClockState, compare=False)

    def __post_init__(self) -> None:
        if self.after == ClockState():
            object.__setattr__(self, "after", self.clock.advance(self.state, self.summary))

    @property
    def cause(self) -> Cause:
        """The cause of the batch: rows of the source, no row, rejected rows that came back, or rows taken back."""
        if self.query is not None:
            return "source"
        if self.retraction:
            return "retraction"
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
    def rows_dropped(self) -> int:
        """The rows of the batch that retention has dropped."""
        return self.dropped.get("valid", 0) + self.dropped.get("rejected", 0)

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
        revised = {"revised": dict(self.revised)} if self.revised else {}
        retraction = {"retraction": dict(self.retraction)} if self.retraction else {}
        warned = {"warned": dict(self.warned)} if self.warned else {}
        reasons = {"reasons": dict(self.reasons)} if self.reasons else {}
        salts = {"salts": dict(self.salts)} if self.salts else {}
        return {
            **salts,
            **retraction,
            **warned,
            **reasons,
            **erased,
            **kept,
            **revised,
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
            revised=value.get("revised") or {},
            retraction=value.get("retraction") or {},
            warned=value.get("warned") or {},
            reasons=value.get("reasons") or {},
            salts=value.get("salts") or {},
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


def count_partitions(rows: DataFrame, stream: Stream) -> tuple[dict[str, int], dict[str, int | None]]:
    """Rows per source partition; and the greatest event time that moves the clock, in microseconds, or null.

    The second has the partitions with valid rows.
    """
    partition = stream.source.partition_of(F.col("_origin")).alias("partition")
    aggregates = (F.count(F.lit(1)).alias("rows"), F.count("_day").alias("valid"), _greatest(stream))
    partitions = rows.groupBy(partition).agg(*aggregates).collect()
    greatest = {row["partition"]: row["greatest"] for row in partitions if row["valid"]}
    return {row["partition"]: row["rows"] for row in partitions}, greatest


def optional_instants(micros: Sequence[float] | None) -> tuple[datetime, ...] | None:
    """Microseconds since the epoch as instants."""
    return None if micros is None else tuple(from_micros(round(entry)) for entry in micros)


@dataclass(frozen=True)
class OperatorCounts:
    """The counts of one operator in the commit of a batch, as columns over stamped rows; both are null for other rows.

    `late`: how many late pairs a row makes; `unassigned`: whether it is in no window; `by`: one text for declarations
    of a name that count the same, and another for those that do not. A row for which the operator's expressions cannot
    be computed counts as neither: that is for the operator to tell, and must not keep the row from the log.
    """

    late: Column
    unassigned: Column
    by: str


def summary_columns(stream: Stream, counts: Mapping[str, OperatorCounts]) -> list[Column]:
    """The aggregates of its stamped rows that a commit records.

    `rows`, `rejected`, `greatest`, `source_times` (see `SHARES_BEFORE`), `unknown`, for each rule that warns or stops
    `warned_<rule>`, and for each operator in `counts` `late_<operator>` and `unassigned_<operator>`.
    """
    valid = F.col("_day").isNotNull()
    source_time = F.unix_micros(stream.source.time_of(F.col("_origin")))
    return [
        F.count(F.lit(1)).alias("rows"),
        _number_of(~valid).alias("rejected"),
        _greatest(stream),
        F.percentile(source_time, F.array(*(F.lit(share) for share in SHARES_BEFORE))).alias("source_times"),
        unknown_fields(),
        *(
            _number_of(F.array_contains(WARNED, F.lit(rule.name))).alias(f"warned_{rule.name}")
            for rule in stream.watched
        ),
        *operator_columns(counts),
    ]


def operator_columns(counts: Mapping[str, OperatorCounts]) -> list[Column]:
    """The aggregates of `summary_columns` for each operator."""
    return [
        *(F.coalesce(F.sum(_of_row(each.late)), F.lit(0)).alias(f"late_{name}") for name, each in counts.items()),
        *(_number_of(_of_row(each.unassigned)).alias(f"unassigned_{name}") for name, each in counts.items()),
    ]


def read_batches(lake: Lake, stream: Stream, version: int | None = None) -> list[Batch]:
    """Every batch of the log, at one Delta `version` or the newest, newest first, up to that of which the lake is read.

    Of commits that were cleaned away there is what the archive kept.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    table = delta.open_table(lake.log(stream), version)
    if table is None:
        return []
    # Commits before the archive: what is cleaned away between the two reads was archived by then.
    commits = commits_of(table)
    live = {batch.number: batch for batch in _described(commits)}
    kept = archived(lake, stream)
    # The archive may know of batches that came after the version.
    newest = max(live, default=None)
    past = {number for number in kept.keys() - live.keys() if newest is None or number < newest}
    batches = live | {number: Batch.from_json(kept[number]) for number in past}
    # Only the archive tells what was erased since.
    erased = {number: kept[number]["erased"] for number in batches.keys() & kept.keys() if "erased" in kept[number]}
    batches |= {number: replace(batches[number], erased=erasures) for number, erasures in erased.items()}
    gone = dropped_rows(lake, stream, dropped_before(table))
    batches |= {number: replace(batches[number], dropped=gone[number]) for number in batches.keys() & gone.keys()}
    if not batches:
        _refuse_forgotten(lake, stream, commits)
    until = lake.batch_read(stream)
    return [batches[number] for number in sorted(batches, reverse=True) if until is None or number <= until]


def with_changes(came: Batch, changes: Batch) -> Batch:
    """A batch of revisions as people are told of it: with what its changes are to the operators that read them."""
    return replace(came, late=changes.late, unassigned=changes.unassigned, counted_by=changes.counted_by)


def told_batches(lake: Lake, stream: Stream) -> list[Batch]:
    """Every batch of the stream that operators may follow, newest first, with all that came in it.

    Raises:
        LogError: as `read_batches`.
    """
    batches = read_batches(lake, stream)
    if not stream.revised:
        return batches
    changes = {batch.number: batch for batch in batches}
    came = (batch for batch in read_batches(lake, stream.revisions) if batch.number in changes)
    return [with_changes(batch, changes[batch.number]) for batch in came]


def archive_batches(lake: Lake, stream: Stream) -> int:
    """Archive the batches that are not in the archive yet; returns how many they were.

    Reads their commits, and none that is older. Where somebody else archives at the same moment, such as maintenance
    beside a savepoint, whoever comes second looks again for what is left.
    """
    table, number = delta.open_table(lake.log(stream)), 0
    if table is None:
        return 0
    for attempt in attempts(table):
        with attempt:
            number = _archive_new(lake, stream, table)
    return number


def _archive_new(lake: Lake, stream: Stream, log: DeltaTable) -> int:
    through = archived_through(lake, stream)
    new = takewhile(lambda batch: through is None or batch.number > through, _described(newest_commits(log)))
    return archive(lake, stream, {batch.number: batch.to_json() for batch in new})


def note_erased(lake: Lake, stream: Stream, erasure: str, by_batch: Mapping[int, Mapping[str, Any]]) -> None:
    """Note in the archive what an erasure takes out of each batch, as `Batch.erased` says; it may be noted again.

    All batches have to be archived. Which rows a retraction took back, and why, may name the person, and goes too.
    """
    kept = archived(lake, stream)
    for number in by_batch.keys() & kept.keys():
        if told := kept[number].get("retraction"):
            kept[number]["retraction"] = {**told, "where": None, "reason": None}
    erasures = {number: {**kept[number].get("erased", {}), erasure: dict(each)} for number, each in by_batch.items()}
    _replace_archived(lake, stream, {number: {**kept[number], "erased": each} for number, each in erasures.items()})


def late_numbers(batch: Batch) -> dict[str, int]:
    """The numbers that the log's table keeps of a batch: its own, for each view that it brought late pairs."""
    return {_late_number(view): batch.number for view, pairs in (batch.late or {}).items() if pairs}


def newest_late(log: DeltaTable, view: str) -> int | None:
    """The newest batch of an open log that brought late pairs of the view; None where none did. Reads no commit."""
    return log.transaction_version(_late_number(view))


def _late_number(view: str) -> str:
    return f"late.{view}"


def head(lake: Lake, stream: Stream, version: int | None = None) -> Batch | None:
    """The newest batch, at one Delta `version` or the newest, or None where the log is empty or missing.

    Of a lake that is read as of a batch it is that one.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    if lake.cut is not None:
        return next(iter(read_batches(lake, stream, version)), None)
    table = delta.open_table(lake.log(stream), version)
    return None if table is None else newest_batch(lake, stream, table)


def batches_after(lake: Lake, stream: Stream, number: int) -> list[Batch]:
    """The batches of the log that come after batch `number`, oldest first; reads their commits, and none that is older.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    table = delta.open_table(lake.log(stream))
    if table is None:
        return []
    newer = list(takewhile(lambda batch: batch.number > number, _described(newest_commits(table))))[::-1]
    # Commits that were cleaned away are in the archive; where there is no newer one, neither is an older one needed.
    first = newer[0].number if newer else _number_after(lake, stream, table)
    if first > number + 1:
        kept = archived(lake, stream)
        if any(each not in kept for each in range(number + 1, first)):
            raise _forgotten(lake, stream)
        newer = [Batch.from_json(kept[each]) for each in range(number + 1, first)] + newer
    until = lake.batch_read(stream)
    return [batch for batch in newer if until is None or batch.number <= until]


def _number_after(lake: Lake, stream: Stream, table: DeltaTable) -> int:
    newest = newest_batch(lake, stream, table)
    return 0 if newest is None else newest.number + 1


def version_after(lake: Lake, stream: Stream, number: int) -> int | None:
    """The Delta version of the log that ends with batch `number`; None where its commit was cleaned away."""
    table = delta.open_table(lake.log(stream))
    for commit in () if table is None else newest_commits(table):
        for batch in _described([commit]):
            if batch.number <= number:
                return int(commit["version"]) if batch.number == number else None
    return None


def newest_batch(lake: Lake, stream: Stream, table: DeltaTable) -> Batch | None:
    """The newest batch in an open log, or None where it is empty.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    for batch in _described(newest_commits(table)):
        return batch
    kept = newest_archived(lake, stream)
    if kept is None:
        _refuse_forgotten(lake, stream, commits_of(table))
        return None
    return Batch.from_json(kept)


def _refuse_forgotten(lake: Lake, stream: Stream, commits: list[dict[str, Any]]) -> None:
    if not commits or commits[-1]["version"] > 0:
        raise _forgotten(lake, stream)


def _forgotten(lake: Lake, stream: Stream) -> LogError:
    return LogError(
        f"the history of the log {lake.log(stream)!r} was cleaned away, and no archive at "
        f"{lake.batches(stream)!r} tells of its batches, so the clock is not known. Restore the log's _delta_log "
        "or the archive from a backup; clean up with `maintain` only, which archives first."
    )


def _described(commits: Iterable[dict[str, Any]]) -> Iterator[Batch]:
    """The batches of `commits`; those without a clock, such as compaction, are passed over."""
    for commit in commits:
        if isinstance(commit["userMetadata"], dict) and "clock" in commit["userMetadata"]:
            yield Batch.from_json(commit["userMetadata"])


def archived(lake: Lake, stream: Stream) -> dict[int, dict[str, Any]]:
    """Per batch number what its commit said, as JSON values; empty where nothing was archived."""
    table = delta.open_table(lake.batches(stream))
    return {} if table is None else _documents(delta.contents(table))


def newest_archived(lake: Lake, stream: Stream) -> dict[str, Any] | None:
    """The content of the newest archived batch's commit, or None where nothing was archived."""
    table = delta.open_table(lake.batches(stream))
    number = None if table is None else table.transaction_version(_APP)
    if table is None or number is None:
        return None
    return _documents(delta.contents(table, [("batch", "=", number)]))[number]


def archived_through(lake: Lake, stream: Stream) -> int | None:
    """The newest archived batch, or None where nothing was archived; batches are archived without a gap."""
    table = delta.open_table(lake.batches(stream))
    return None if table is None else table.transaction_version(_APP)


def archive(lake: Lake, stream: Stream, described: Mapping[int, Mapping[str, Any]]) -> int:
    """Append those of `described` that are newer than the archive, in one commit; returns how many they were.

    Batches are numbered without a gap, so the newest one says which are there: each is archived once, whenever a
    process dies.

    Raises:
        CommitFailedError: another process has archived meanwhile; the next call finds what is left.
    """
    uri = storage.location(lake.batches(stream))
    about = f"What the commits of the event log of {stream.name} said of their batches"
    table = delta.opened_or_created(uri, _SCHEMA, description=about, append_only=True)
    newest = table.transaction_version(_APP)
    new = sorted(number for number in described if newest is None or number > newest)
    if new:
        rows = pa.table([new, [json.dumps(described[number]) for number in new]], schema=_SCHEMA)
        commit = CommitProperties(app_transactions=[Transaction(_APP, new[-1])], max_commit_retries=0)
        write_deltalake(table, rows, mode="append", commit_properties=commit)
    return len(new)


def _replace_archived(lake: Lake, stream: Stream, described: Mapping[int, Mapping[str, Any]]) -> None:
    """Put `described` in place of what the archive has of these batches, in one commit."""
    table = delta.opened(lake.batches(stream))
    # Whatever kills this: a table that takes no replacement is made so again by whoever replaces next.
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    new = {**archived(lake, stream), **described}
    rows = pa.table([sorted(new), [json.dumps(new[number]) for number in sorted(new)]], schema=_SCHEMA)
    write_deltalake(table, rows, mode="overwrite", commit_properties=CommitProperties(max_commit_retries=0))
    table.alter.set_table_properties({"delta.appendOnly": "true"})


def _documents(rows: pa.Table) -> dict[int, dict[str, Any]]:
    texts = zip(rows["batch"].to_pylist(), rows["described"].to_pylist(), strict=True)
    return {number: json.loads(text) for number, text in texts}


@dataclass(frozen=True)
class ClockReading:
    """One batch of the log as the clock sees it.

    `cause`: rows of the source, no row at all, or rejected rows that came back; `stamp`: the watermark in force when
    the batch was read, and `after` the one that it left behind, null before the first valid row; `greatest`: the
    greatest event time of the rows that move the clock, null where there is none; `rows`: rows read, `rejected` ones
    among them; `late`: late pairs per view; `processed_at`: the batch's processing time; `unknown`: rows per field
    that nobody declared; `warned`: valid rows per rule that they break and that only warns.
    """

    batch: int
    cause: Cause
    stamp: datetime | None
    after: datetime | None
    greatest: datetime | None
    rows: int
    rejected: int
    late: Mapping[str, int]
    processed_at: datetime
    unknown: Mapping[str, int] = field(default_factory=dict)
    warned: Mapping[str, int] = field(default_factory=dict)


def clock_history(batches: Iterable[Batch]) -> list[ClockReading]:
    """One reading per batch, oldest first."""
    return [
        ClockReading(
            batch=batch.number,
            cause=batch.cause,
            stamp=batch.state.watermark,
            after=batch.after.watermark,
            greatest=max((time for time in batch.summary.greatest.values() if time is not None), default=None),
            rows=batch.summary.rows,
            rejected=batch.rejected,
            late=batch.late or {},
            processed_at=batch.summary.processed_at,
            unknown=batch.unknown or {},
            warned=batch.warned,
        )
        for batch in sorted(batches, key=lambda batch: batch.number)
    ]
