"""The rows of its key that made what a keyed function emits at one time, recomputed from exactly these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType

from streaming.base import (
    AT,
    BATCH,
    MICROSECOND,
    STAMP,
    F,
    FrozenMapping,
    FunctionError,
    earlier,
    interval,
    is_same,
    to_micros,
    told,
)
from streaming.declare import REPLACES_FROM, REPLACES_UNTIL, Keyed, Stream
from streaming.keyed import (
    NEVER,
    ROW,
    Call,
    PinnedRules,
    calls_of,
    emitted_over,
    pinned_rules,
    rows_of_control,
    unstamped,
)
from streaming.keyed import migrations_of as made_by_older
from streaming.lake import Lake
from streaming.operators import Corrected, Progress, whole_since
from streaming.provenance.answer import (
    TAKEN_BACK,
    Evidence,
    InputRow,
    PinInForce,
    Question,
    Row,
    evidence_of,
    waits_for_correction,
)
from streaming.provenance.changes import changes_of_group, corrections_of_look, newest_look
from streaming.provenance.groups import keys_of_streams
from streaming.provenance.log_rows import LogRows, as_input, read_by_spark, rows_near, types_of_log
from streaming.spark import frame_of_arrow, lenient_session
from streaming.tables import Between, FilesRead, contents_on, nullable


@keys_of_streams.register
def _(operator: Keyed, key: Row) -> dict[Stream, list[Row]]:
    return {stream: [{name: key[name] for name in operator.by}] for stream in operator.streams}


@evidence_of.register
def _(operator: Keyed, question: Question) -> Evidence:
    lake, moment = question.lake, _Moment.of(operator, question)
    rows = _KeyRows.read(question, operator, moment)
    followed = replace(Progress.as_read(lake, operator), through=FrozenMapping(moment.through))
    rules = pinned_rules(question.spark(), lake, operator, followed)
    evidence = Evidence(
        (),
        None,
        rows.rejected,
        files=sum((log.files for log in rows.logs), _of_rules(question, operator, rules)),
        versions={lake.log(log.stream): log.version for log in rows.logs},
        # A fold is the same to the last digit, in however many parts its rows come.
        roundings=dict.fromkeys(operator.columns, 0.0),
    )
    why_not = _why_not_whole(lake, operator, rows.since)
    try:
        made = _Emission.of(rows, rules)
        recomputed = made.recomputed()
    except FunctionError as error:
        inputs = tuple(rows.inputs(rows.followed, {}))
        return replace(evidence, inputs=inputs).without(why_not or f"the function raised: {error}")
    inputs = tuple(rows.inputs(made.rows, made.left_out))
    evidence = replace(
        evidence,
        inputs=inputs,
        recomputed=recomputed,
        changes=changes_of_group(lake, operator, question.key, [row for row in inputs if row.late]),
        notes=(
            *made.notes(),
            *(waits_for_correction(question, question.key[AT], inputs) if operator.corrected else ()),
        ),
        pins=tuple(made.pins()),
    )
    return evidence.without(why_not) if why_not else evidence


def _of_rules(question: Question, operator: Keyed, rules: PinnedRules | None) -> FilesRead:
    """The files with the rows that the rules, or the dimension, follow from."""
    pinned, lake = operator.rules, question.lake
    control = None if pinned is None else rows_of_control(question.spark(), lake, pinned)
    if pinned is None or rules is None or control is None:
        return FilesRead()
    uri = lake.log(pinned.control) if pinned.history is None else lake.table(pinned.history)
    return read_by_spark((control.where(F.col(BATCH) <= rules.pins.last),), (uri,))


def _why_not_whole(lake: Lake, operator: Keyed, begins: datetime | None) -> str:
    """The reason why the rows of a key, which are there from an instant on, are not all that its state follows from."""
    migrated, since = made_by_older(lake, operator), whole_since(lake, operator)
    if migrated:
        return f"older declarations made a part of its state, which was migrated {', '.join(migrated)}"
    if since is not None and (begins is None or begins.astimezone(UTC).date() < since):
        return f"its state follows from rows of days before {since} too, which are gone"
    return ""


@dataclass(frozen=True)
class _Moment:
    """The batch of each log up to which a published result follows from rows, and the clock then.

    `corrected`: a correction stands for it, which has late rows in their place.
    """

    through: Mapping[str, int]
    watermark: datetime | None
    corrected: bool = False

    @classmethod
    def of(cls, operator: Keyed, question: Question) -> _Moment:
        """The moment of what is published of the question."""
        lake, at = question.lake, Progress.as_read(question.lake, operator)
        moment = cls(at.through, at.watermark)
        if question.what == "first" or not operator.corrected:
            return moment
        if lake.cut is not None:
            # As of older batches corrections are computed for these.
            return replace(moment, corrected=True)
        table = corrections_of_look(lake, operator, newest_look(lake, operator))
        if table is None or not _is_replaced(table, operator, question.key):
            return moment
        corrected = Corrected.of(operator, question.key[AT].astimezone(UTC).date(), table)
        return cls(corrected.through, corrected.watermark, corrected=True)


def _is_replaced(corrections: DeltaTable, operator: Keyed, key: Row) -> bool:
    at: datetime = key[AT]
    rows = contents_on(
        corrections, {at.astimezone(UTC).date()}, [*operator.by, REPLACES_FROM, REPLACES_UNTIL]
    ).to_pylist()
    of_key = (row for row in rows if all(is_same(row[name], key[name]) for name in operator.by))
    return any(row[REPLACES_FROM] <= at < row[REPLACES_UNTIL] for row in of_key)


@dataclass(frozen=True)
class _KeyRows:
    """The valid rows of a key that may have made what it emits at one time, numbered log after log.

    In order `event` these are the rows up to that time, with `idle` since the key was without one for so long, which
    is from `since` on; in order `arrival` all rows, as also an old one may come late.
    """

    question: Question
    operator: Keyed
    moment: _Moment
    logs: tuple[LogRows, ...]
    since: datetime | None

    @classmethod
    def read(cls, question: Question, operator: Keyed, moment: _Moment) -> _KeyRows:
        """The rows, from those files of the logs that may have some of them."""
        if operator.order == "arrival":
            return cls(question, operator, moment, _logs_between(question, operator, Between()), None)
        at: datetime = question.key[AT]
        if operator.idle is None:
            return cls(question, operator, moment, _logs_between(question, operator, Between(None, at)), None)
        idle = span = interval(operator.idle)
        since = earlier(at, idle)
        logs = _logs_between(question, operator, Between(since, at))
        while True:
            times = (log.valid.column(log.stream.event_time).to_pylist() for log in logs)
            begins = _beginning(sorted((each for of_log in times for each in of_log), reverse=True), at, idle)
            before = earlier(begins, idle)
            if since is None or (before is not None and since <= before):
                return cls(question, operator, moment, logs, begins)
            # Each time twice as far, as every file that has rows of the span is read for it.
            span *= 2
            older = _logs_between(question, operator, Between(earlier(since, span), since - MICROSECOND))
            logs = tuple(map(LogRows.with_newer, older, logs))
            since = earlier(since, span)

    @cached_property
    def rows(self) -> list[tuple[Stream, dict[str, Any]]]:
        """Every row with its stream, in the order of their numbers."""
        return [(log.stream, row) for log in self.logs for row in log.valid.to_pylist()]

    @cached_property
    def left(self) -> dict[int, str]:
        """The numbers of the rows for which the function was not called, each with the reason."""
        reasons = ((number, self._reason(stream, row)) for number, (stream, row) in enumerate(self.rows))
        return {number: reason for number, reason in reasons if reason}

    @cached_property
    def followed(self) -> list[int]:
        """The numbers of the rows for which the function was called, those that were taken back among them."""
        return [number for number, _ in enumerate(self.rows) if number not in self.left and self._is_near(number)]

    @property
    def rejected(self) -> tuple[Any, ...]:
        """The rejected rows that may be of the key, also of a session that one of them would have made longer."""
        idle = None if self.operator.idle is None else interval(self.operator.idle)
        since = earlier(self.since, idle)
        return tuple(row for log in self.logs for row in log.rejected_since(since))

    def frames(self, spark: SparkSession, numbers: Collection[int]) -> dict[str, DataFrame]:
        """Some of the rows as frames by stream, with their numbers in the column `ROW`."""
        session = spark if self.operator.condition is None else lenient_session(spark)
        chosen, first, frames = {*numbers}, 0, {}
        for log in self.logs:
            own = range(first, first + log.valid.num_rows)
            numbered = log.valid.append_column(ROW, pa.array(own, pa.int64()))
            rows = numbered.filter(pa.array([number in chosen for number in own], pa.bool_()))
            types = types_of_log(self.question.lake, log.stream).add(ROW, LongType())
            frames[log.stream.name] = frame_of_arrow(session, rows, nullable(types))
            first = own.stop
        return unstamped(frames) if self.moment.corrected else frames

    def inputs(self, counting: Sequence[int], reasons: Mapping[int, str]) -> Iterator[InputRow]:
        """The rows that count, in this order, and then those that were left out for a reason, batch after batch."""
        for number in counting:
            yield self._input(number, "")
        left = {**self.left, **reasons}.items()
        for number, reason in sorted(left, key=lambda each: self.rows[each[0]][1][BATCH]):
            if self._is_near(number):
                yield self._input(number, reason)

    def _input(self, number: int, reason: str) -> InputRow:
        stream, row = self.rows[number]
        return as_input(stream, row, stream.columns, late=_is_late(stream, row), counts=not reason, reason=reason)

    def _is_near(self, number: int) -> bool:
        stream, row = self.rows[number]
        return self.since is None or row[stream.event_time] >= self.since

    def _reason(self, stream: Stream, row: Mapping[str, Any]) -> str:
        """The reason why the function was not called for a row; empty where it was."""
        if row[BATCH] > self.moment.through[stream.name]:
            return "not followed yet"
        if self.operator.order == "arrival":
            return ""
        watermark = self.moment.watermark
        if watermark is None or row[stream.event_time] >= watermark:
            return f"the clock, {told(watermark)}, has not passed it yet"
        if _is_late(stream, row) and not self.moment.corrected:
            late = f"late: the clock was {told(row[STAMP])} when it came"
            if self.question.what == "first":
                return late
            waits = "it waits for a correction" if self.operator.corrected else "without idle nothing is corrected"
            return f"{late}; {waits}"
        return ""


def _logs_between(question: Question, operator: Keyed, between: Between) -> tuple[LogRows, ...]:
    keys = keys_of_streams(operator, question.key)
    return tuple(rows_near(question.lake, stream, of_stream, between) for stream, of_stream in keys.items())


def _beginning(times: Sequence[datetime], at: datetime, idle: timedelta) -> datetime:
    """The first of some falling times from which on to `at` there is no gap of `idle`."""
    for later, time in pairwise([at, *times]):
        if later - time >= idle:
            return later
    return times[-1] if times else at


def _is_late(stream: Stream, row: Mapping[str, Any]) -> bool:
    stamp = row[STAMP]
    return stamp is not None and bool(row[stream.event_time] < stamp)


@dataclass(frozen=True)
class _Emission:
    """The `calls` of a function up to the last that emits at one time, since nothing was kept of the key.

    Where none emits then, these are all calls since. `earlier` are those before, which change nothing of it.
    """

    rows_of_key: _KeyRows
    rules: PinnedRules | None
    calls: Sequence[Call]
    earlier: Sequence[Call]
    taken_back: Collection[int]

    @classmethod
    def of(cls, rows: _KeyRows, rules: PinnedRules | None) -> _Emission:
        """The emission, by the calls for all rows of the key.

        Raises:
            FunctionError: the function raised.
        """
        at, watermark = to_micros(rows.question.key[AT]), rows.moment.watermark
        clock = NEVER if watermark is None else min(to_micros(watermark), at)
        frames = rows.frames(rows.question.spark(), rows.followed)
        calls = calls_of(rows.operator, frames, clock, rules)
        emitting = [place for place, call in enumerate(calls) if call.emitted and call.at == at]
        last = emitting[-1] + 1 if emitting else len(calls)
        until = emitting[0] if emitting else max(last - 1, 0)
        first = next((place + 1 for place in reversed(range(until)) if calls[place].is_empty), 0)
        taken_back = {*rows.followed} - {call.row for call in calls}
        return cls(rows, rules, calls[first:last], calls[:first], taken_back)

    @cached_property
    def rows(self) -> list[int]:
        """The numbers of the rows that made it, in the order in which the function was called for them."""
        return [call.row for call in self.calls if call.row is not None]

    @property
    def left_out(self) -> dict[int, str]:
        """The numbers of rows for which the function was not called, though they were followed, and the reason."""
        return dict.fromkeys(self.taken_back, TAKEN_BACK)

    @property
    def _timer(self) -> str | None:
        """The timer that has emitted last; None where a row has."""
        return self.calls[-1].timer if self.calls and self.calls[-1].emitted else None

    def recomputed(self) -> tuple[Row, ...]:
        """The results that the function emits at the time over exactly these rows.

        Raises:
            FunctionError: it raised.
        """
        of, operator = self.rows_of_key, self.rows_of_key.operator
        at: datetime = of.question.key[AT]
        # Timers that fired later than the last of these calls belong to other results.
        clock = NEVER if self._timer is None else to_micros(at)
        frames = of.frames(of.question.spark(), self.rows)
        emitted = emitted_over(operator, frames, clock, "", self.rules).toArrow().to_pylist()
        return tuple(row for row in emitted if row[AT] == at)

    def notes(self) -> Iterator[str]:
        """The timer that has emitted, and how many rows there were before."""
        if self._timer is not None:
            yield f"timer {self._timer!r} has emitted it, which was set to this time"
        before = len({call.row for call in self.earlier} - {None})
        if before:
            left = "row of the key has" if before == 1 else "rows of the key have"
            yield f"{before:,} earlier {left} no part in it: nothing was kept of the key since"

    def pins(self) -> Iterator[PinInForce]:
        """The states of the rules that the rows have seen, and the timer."""
        pinned, rows = self.rows_of_key.operator.rules, self.rows_of_key.rows
        if pinned is None:
            return
        name, stream = (pinned.history or pinned.control).name, self.rows_of_key.operator.streams[0].name
        seen: dict[int, set[int]] = {}
        for call in self.calls:
            if call.row is not None and call.pin is not None:
                seen.setdefault(call.pin, set()).add(rows[call.row][1][BATCH])
        for pin, batches in sorted(seen.items()):
            yield PinInForce(name, pin, stream, min(batches), max(batches))
        last = self.calls[-1] if self._timer is not None else None
        if last is not None and last.pin is not None:
            # A late row sets a timer to the past, and it sees what the row has seen.
            yield PinInForce(name, last.pin, stream)
