"""The verdict on parsed rows in Arrow: as `RowValidator` judges them in Spark, or in doubt where that is not certain.

It runs in Python workers, and imports nothing that starts Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import (
    DAY,
    END_OF_EVENT_TIMES,
    EPOCH,
    FIRST_EVENT_TIME,
    INGESTED_AT,
    MICROSECOND,
    ORIGIN,
    STAMP,
    interval,
    to_micros,
)
from streaming.clocks import Clock
from streaming.formats import UNKNOWN, UNREADABLE, WRONG
from streaming.spark import ArrowExpression, Rows

INSTANT = pa.timestamp("us", "UTC")
_MICROS_A_DAY = 86_400_000_000
_FIRST_MICRO, _LAST_MICRO = (to_micros(each.replace(tzinfo=UTC)) for each in (datetime.min, datetime.max))
_FIRST_DAY, _LAST_DAY = _FIRST_MICRO // _MICROS_A_DAY, _LAST_MICRO // _MICROS_A_DAY
_REJECTED = pa.list_(pa.string())


@dataclass(frozen=True)
class TimeReasons:
    """The reasons against the event time of a row, in the order in which they are looked for."""

    event_time: str
    clock: Clock

    @property
    def missing(self) -> str:
        """There is none."""
        return f"event_time: {self.event_time} is missing"

    @property
    def beyond(self) -> str:
        """It is no instant that a window could have."""
        return f"event_time: {self.event_time} lies outside the years 100 to 9899"

    @property
    def ahead(self) -> str:
        """It is too long after the row came."""
        return f"max_ahead: {self.event_time} is more than {self.clock.max_ahead} after its ingestion"

    @property
    def behind(self) -> str:
        """It is too long before the row came."""
        return f"max_behind: {self.event_time} is more than {self.clock.max_behind} before its ingestion"

    def not_kept(self, kept_from: date) -> str:
        """It is of a day that retention has dropped."""
        return f"retention: {self.event_time} is of a day before {kept_from}, the first one that the log keeps"


def broken_rule(name: str, condition: str) -> str:
    """The reason against a row for which a rule does not hold."""
    return f"{name}: not ({condition})"


@dataclass(frozen=True)
class Stamps:
    """Everything that the rows of one batch have in common, and are judged by."""

    number: int
    ingested_at: datetime
    watermark: datetime | None
    kept_from: date | None


@dataclass(frozen=True)
class JudgedRule:
    """A rule: where it does not hold, the `reason` against a row of which all columns of `made_of` could be read."""

    reason: str
    holds: ArrowExpression
    made_of: tuple[str, ...]


@dataclass(frozen=True)
class JudgedTime:
    """The event time; `made_of` as of a rule.

    `sent`: the columns of the payload that it is derived from, of which a row that has them all says that it has a
    time.
    """

    name: str
    clock: Clock
    made_of: tuple[str, ...]
    sent: tuple[str, ...]

    def reasons(
        self, time: pa.Array, stamps: Stamps, has_all: Callable[[Sequence[str]], np.ndarray]
    ) -> tuple[list[tuple[np.ndarray, str]], np.ndarray]:
        """Which rows have which reason against their time, and those of which only Spark says it."""
        said = TimeReasons(self.name, self.clock)
        micros, there = _micros(time), _mask(time.is_valid())
        at = to_micros(stamps.ingested_at)
        known = there & (micros >= to_micros(FIRST_EVENT_TIME)) & (micros < to_micros(END_OF_EVENT_TIMES))
        ahead = known & (micros > at + _length(self.clock.max_ahead))
        # Of which values none could be made, the reason tells in Spark's words.
        doubtful = ~there & has_all(self.sent) if self.sent else np.zeros(len(time), bool)
        found = [(~there, said.missing), (there & ~known, said.beyond), (ahead, said.ahead)]
        if self.clock.max_behind is not None:
            behind = known & ~ahead & (micros < at - _length(self.clock.max_behind))
            found.append((behind, said.behind))
        if stamps.kept_from is not None:
            first = (stamps.kept_from - EPOCH.date()).days
            # Spark asks for the day of every time that there is.
            found.append((there & (micros // _MICROS_A_DAY < first), said.not_kept(stamps.kept_from)))
        return found, doubtful


@dataclass(frozen=True)
class Counted:
    """The counts of one operator in the commit: late pairs of a row, and whether the row is in no window."""

    late: ArrowExpression | None
    unassigned: ArrowExpression | None


@dataclass(frozen=True)
class Verdict:
    """The rows of which all is certain, as the log has them, with `_day`; and for each row whether it is in doubt.

    `unknown`: per certain row the fields that nobody declared. `moves`: which of them move the clock. `partition`: that
    of each certain row, none where there is but one. `source_time`: that of each row, also of those in doubt, in
    microseconds since the epoch.
    """

    rows: pa.RecordBatch
    doubtful: np.ndarray
    unknown: pa.Array
    moves: np.ndarray
    partition: pa.Array | None
    source_time: pa.Array
    late: Mapping[str, int]
    unassigned: Mapping[str, int]


@dataclass(frozen=True)
class Judgement:
    """The judge of one stream's rows.

    `payload` names the columns of the format, `derived` has the expressions of the others, all over the parsed rows;
    `counts`, by operator, are over rows of the log. `is_partial`: rules that are not among `rules` are judged by Spark
    afterwards, so that a row which is rejected for another reason is in doubt. `types` are those of the log.
    """

    payload: tuple[str, ...]
    derived: Mapping[str, ArrowExpression]
    time: JudgedTime
    rules: tuple[JudgedRule, ...]
    is_partial: bool
    moved_by: ArrowExpression | None
    source_time: ArrowExpression
    partition: ArrowExpression | None
    counts: Mapping[str, Counted]
    keep_raw: bool
    types: pa.Schema

    def of(self, parsed: pa.RecordBatch, stamps: Stamps) -> Verdict:
        """The verdict on rows with `_raw`, `_origin` and what a decoder has added."""
        judging = _Judging(self, parsed, stamps)
        return judging.verdict()


class _Judging:
    """One batch of rows while it is judged."""

    def __init__(self, judgement: Judgement, parsed: pa.RecordBatch, stamps: Stamps) -> None:
        self._of = judgement
        self._stamps = stamps
        self._number = parsed.num_rows
        self._parsed = dict(zip(parsed.schema.names, parsed.columns, strict=True))
        self._parsed[INGESTED_AT] = self._constant(stamps.ingested_at, INSTANT)
        inputs = {name: self._parsed[name] for name in (*judgement.payload, ORIGIN, INGESTED_AT)}
        self._rows = Rows(inputs, self._number)
        self._values = {name: inputs[name] for name in judgement.payload}
        self._doubtful = np.zeros(self._number, bool)
        for name, expression in judgement.derived.items():
            values = self._rows.array_of(expression)
            if name != judgement.time.name:
                self._doubtful |= _is_beyond(values)
            self._values[name] = values

    def verdict(self) -> Verdict:
        """The verdict on all rows."""
        of = self._of
        rejected = self._rejected(self._reasons())
        time = self._values[of.time.name]
        micros = _micros(time)
        is_valid = ~_mask(rejected.is_valid())
        known = (micros >= to_micros(FIRST_EVENT_TIME)) & (micros < to_micros(END_OF_EVENT_TIMES))
        self._values[of.time.name] = _where(known, time)
        days = pa.array(micros // _MICROS_A_DAY, pa.int32(), mask=~is_valid).cast(pa.date32())
        moves = is_valid.copy()
        if of.moved_by is not None:
            moves &= _mask(self._rows.array_of(of.moved_by))
        unknown = self._parsed[UNKNOWN]
        whole = self._whole(rejected, unknown, days)
        partition = None if of.partition is None else self._rows.array_of(of.partition)
        source_time = self._rows.array_of(of.source_time)
        counted = Rows(dict(zip(whole.schema.names, whole.columns, strict=True)), self._number)
        late = {name: counted.array_of(each.late) for name, each in of.counts.items() if each.late is not None}
        unassigned = {
            name: counted.array_of(each.unassigned) for name, each in of.counts.items() if each.unassigned is not None
        }
        doubtful = self._doubtful | self._rows.doubtful | counted.doubtful
        if of.is_partial:
            # Of a payload that could not be read at all, no rule is asked.
            doubtful |= ~is_valid & ~_mask(self._parsed[UNREADABLE].is_valid())
        certain = pa.array(~doubtful)
        is_whole = not doubtful.any()

        def kept(values: pa.Array) -> pa.Array:
            return values if is_whole else values.filter(certain)

        return Verdict(
            whole if is_whole else whole.filter(certain),
            doubtful,
            kept(unknown),
            moves[~doubtful],
            None if partition is None else kept(partition),
            source_time,
            {name: pc.sum(kept(values)).as_py() or 0 for name, values in late.items()},
            {name: pc.sum(kept(values)).as_py() or 0 for name, values in unassigned.items()},
        )

    def _reasons(self) -> Iterator[tuple[np.ndarray, str | pa.Array]]:
        """Which rows have a reason, and that reason, or those of all rows, in the order in which a row has them."""
        of = self._of
        yield _present(self._parsed[UNREADABLE])
        wrong = self._wrong
        for name in of.payload:
            if name in wrong:
                yield _present(wrong[name])
        time = self._values[of.time.name]
        against, doubtful = of.time.reasons(time, self._stamps, self._has_all)
        is_read = self._is_read(of.time.made_of)
        self._doubtful |= doubtful & is_read
        for mask, text in against:
            yield mask & is_read, text
        for rule in of.rules:
            holds = _mask(self._rows.array_of(rule.holds))
            yield ~holds & self._is_read(rule.made_of), rule.reason

    def _rejected(self, reasons: Iterator[tuple[np.ndarray, str | pa.Array]]) -> pa.Array:
        """All reasons against each row, each once; null where there is none."""
        found = [(mask, reason) for mask, reason in reasons if mask.any()]
        if not found:
            return pa.nulls(self._number, _REJECTED)
        texts: dict[int, dict[str, None]] = {}
        for mask, reason in found:
            places = np.flatnonzero(mask)
            told = [reason] * len(places) if isinstance(reason, str) else reason.take(pa.array(places)).to_pylist()
            for place, text in zip(places.tolist(), told, strict=True):
                texts.setdefault(place, {})[text] = None
        return pa.array([[*texts[row]] if row in texts else None for row in range(self._number)], _REJECTED)

    @cached_property
    def _wrong(self) -> dict[str, pa.Array]:
        """The reasons against values, by column; without the columns that have none."""
        wrong = self._parsed[WRONG]
        if wrong.null_count == len(wrong):
            return {}
        fields = dict(zip((field.name for field in wrong.type), wrong.flatten(), strict=True))
        return {name: reasons for name, reasons in fields.items() if reasons.null_count < len(reasons)}

    def _is_read(self, columns: Sequence[str]) -> np.ndarray:
        """True where all of the payload's `columns` could be read."""
        read = ~_mask(self._parsed[UNREADABLE].is_valid())
        wrong = self._wrong
        for name in columns:
            if name in wrong:
                read &= ~_mask(wrong[name].is_valid())
        return read

    def _has_all(self, columns: Sequence[str]) -> np.ndarray:
        has = np.ones(self._number, bool)
        for name in columns:
            has &= _mask(self._parsed[name].is_valid())
        return has

    def _whole(self, rejected: pa.Array, unknown: pa.Array, days: pa.Array) -> pa.RecordBatch:
        """The rows as the log has them."""
        stamps, raw = self._stamps, self._parsed["_raw"].cast(pa.binary())
        kept = _mask(rejected.is_valid()) | _mask(unknown.is_valid())
        given = {
            **self._values,
            "_rejected": rejected,
            "_raw": raw if self._of.keep_raw else _where(kept, raw),
            "_batch": self._constant(stamps.number, pa.int64()),
            INGESTED_AT: self._parsed[INGESTED_AT],
            STAMP: self._constant(stamps.watermark, INSTANT),
            DAY: days,
        }
        columns = [
            _origin(self._parsed[ORIGIN], field.type) if field.name == ORIGIN else _as(given[field.name], field.type)
            for field in self._of.types
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._of.types)

    def _constant(self, value: object, type_: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, type_), self._number)


def _present(texts: pa.Array) -> tuple[np.ndarray, pa.Array]:
    return _mask(texts.is_valid()), texts


def _mask(values: pa.Array) -> np.ndarray:
    """True where a boolean value is, and where there is one."""
    known = values if values.null_count == 0 else pc.fill_null(values, False)
    mask: np.ndarray = known.to_numpy(zero_copy_only=False)
    return mask


def _micros(instants: pa.Array) -> np.ndarray:
    """Microseconds since the epoch; some number for no instant that no instant has which may be an event time."""
    numbers = instants.cast(INSTANT).view(pa.int64())
    micros: np.ndarray = (numbers if numbers.null_count == 0 else pc.fill_null(numbers, -(2**62))).to_numpy()
    return micros


def _is_beyond(values: pa.Array) -> np.ndarray:
    """True for times outside the years 1 to 9999, which Python cannot read."""
    if pa.types.is_date(values.type):
        numbers, first, last = values.view(pa.int32()), _FIRST_DAY, _LAST_DAY
    elif pa.types.is_timestamp(values.type):
        numbers, first, last = values.view(pa.int64()), _FIRST_MICRO, _LAST_MICRO
    else:
        return np.zeros(len(values), bool)
    return _mask(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))


def _where(mask: np.ndarray, values: pa.Array) -> pa.Array:
    if mask.all():
        return values
    return pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))


def _as(values: pa.Array, type_: pa.DataType) -> pa.Array:
    return values if values.type == type_ else values.cast(type_)


def _origin(origin: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    """The origins with the fields of the log: those that the source does not tell are null."""
    told = dict(zip((field.name for field in origin.type), origin.flatten(), strict=True))
    fields = [
        _as(told[field.name], field.type) if field.name in told else pa.nulls(len(origin), field.type)
        for field in type_
    ]
    mask = None if origin.null_count == 0 else origin.is_null()
    return pa.StructArray.from_arrays(fields, fields=list(type_), mask=mask)


def _length(text: str) -> int:
    """An interval in microseconds."""
    return interval(text) // MICROSECOND
