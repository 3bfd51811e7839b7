"""The verdict on parsed rows in Arrow: the one that `RowValidator` gives in Spark, or doubt where that is not certain.

A row in doubt gets no verdict here; Spark judges its payload afterwards. This runs in Python workers, and imports
nothing that starts Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import (
    DAY,
    DAY_MICROS,
    END_OF_EVENT_TIMES,
    EPOCH,
    FIRST_EVENT_TIME,
    INGESTED_AT,
    MICROSECOND,
    ORIGIN,
    STAMP,
    WARNED,
    as_type,
    days_of,
    interval,
    to_micros,
)
from streaming.clocks import Clock
from streaming.formats import FIRST_DAY, FIRST_MICRO, LAST_DAY, LAST_MICRO, UNKNOWN, UNREADABLE, WRONG
from streaming.log.masking import Masking, unquoted, wrong_values
from streaming.spark import ArrowExpression, Rows

INSTANT = pa.timestamp("us", "UTC")
_TEXTS = pa.list_(pa.string())


@dataclass(frozen=True)
class TimeReasons:
    """The reasons against the event time of a row, in the order in which they are looked for."""

    event_time: str
    clock: Clock

    @property
    def missing(self) -> str:
        """The reason against a row that has no event time."""
        return f"event_time: {self.event_time} is missing"

    @property
    def beyond(self) -> str:
        """The reason against an event time that no window could hold."""
        return f"event_time: {self.event_time} lies outside the years 100 to 9899"

    @property
    def ahead(self) -> str:
        """The reason against an event time too long after the row was ingested."""
        return f"max_ahead: {self.event_time} is more than {self.clock.max_ahead} after its ingestion"

    @property
    def behind(self) -> str:
        """The reason against an event time too long before the row was ingested."""
        return f"max_behind: {self.event_time} is more than {self.clock.max_behind} before its ingestion"

    def not_kept(self, kept_from: date) -> str:
        """The reason against an event time of a day before `kept_from`, which retention has dropped."""
        return f"retention: {self.event_time} is of a day before {kept_from}, the first one that the log keeps"


def broken_rule(name: str, condition: str) -> str:
    """The reason against a row for which a rule does not hold."""
    return f"{name}: not ({condition})"


@dataclass(frozen=True)
class Stamps:
    """The values that all rows of one batch have in common, and are judged by.

    `number` is that of the batch, `watermark` the stamp, by which a row is late; rows of days before `kept_from` are
    rejected, none for that reason where it is None.
    """

    number: int
    ingested_at: datetime
    watermark: datetime | None
    kept_from: date | None


@dataclass(frozen=True)
class JudgedRule:
    """A rule of the stream, and the `reason` against a row for which it does not hold.

    `made_of`: the columns of the payload that the rule is computed from; where one could not be read, it is not asked.
    """

    reason: str
    holds: ArrowExpression
    made_of: tuple[str, ...]


@dataclass(frozen=True)
class WatchedRule:
    """A rule that rejects no row, by its `name`: a valid row for which it does not hold warns, or stops the stream."""

    name: str
    holds: ArrowExpression


@dataclass(frozen=True)
class JudgedTime:
    """The event time, in the column `name`, with the limits that the `clock` sets.

    `made_of`: the columns of the payload that it is computed from, itself if it is one; where one could not be read,
    the time is not judged. `sent`: these columns where the time is derived, else none. A row that has values in all of
    them and yet no time has values of which no time can be made. `deletes`: true for the rows that need no time, None
    where all do.
    """

    name: str
    clock: Clock
    made_of: tuple[str, ...]
    sent: tuple[str, ...]
    deletes: ArrowExpression | None = None

    def reasons(
        self, time: pa.Array, stamps: Stamps, has_all: Callable[[Sequence[str]], np.ndarray], needed: np.ndarray
    ) -> tuple[list[tuple[np.ndarray, str]], np.ndarray]:
        """The reasons against event times, each with a mask of its rows; and a mask of rows whose reason Spark words.

        `time` has the event time of each row; `needed` is true for those that must have one. `has_all` tells for each
        row whether it has a value in all such columns.
        """
        reasons = TimeReasons(self.name, self.clock)
        micros, there = _micros(time), _mask(time.is_valid())
        at = to_micros(stamps.ingested_at)
        known = there & (micros >= to_micros(FIRST_EVENT_TIME)) & (micros < to_micros(END_OF_EVENT_TIMES))
        ahead = known & (micros > at + _interval_micros(self.clock.max_ahead))
        # The reason quotes the values of which no time could be made, as Spark writes them.
        doubtful = ~there & needed & has_all(self.sent) if self.sent else np.zeros(len(time), bool)
        found = [(~there, reasons.missing), (there & ~known, reasons.beyond), (ahead, reasons.ahead)]
        if self.clock.max_behind is not None:
            behind = known & ~ahead & (micros < at - _interval_micros(self.clock.max_behind))
            found.append((behind, reasons.behind))
        if stamps.kept_from is not None:
            first = (stamps.kept_from - EPOCH.date()).days
            # As in Spark, this is a reason beside the others, also against a time that lies beyond.
            found.append((there & (micros // DAY_MICROS < first), reasons.not_kept(stamps.kept_from)))
        return [(mask & needed, text) for mask, text in found], doubtful

    def is_within(self, micros: np.ndarray, stamps: Stamps) -> np.ndarray:
        """True for the times, in microseconds, that are within the limits of the clock."""
        at = to_micros(stamps.ingested_at)
        within = micros <= at + _interval_micros(self.clock.max_ahead)
        if self.clock.max_behind is not None:
            within &= micros >= at - _interval_micros(self.clock.max_behind)
        return within


@dataclass(frozen=True)
class Counted:
    """The counts of one operator in the commit, as expressions over rows of the log.

    `late`: the number of late pairs of a row; `unassigned`: true for a row that is in no window.
    """

    late: ArrowExpression
    unassigned: ArrowExpression


@dataclass(frozen=True)
class Verdict:
    """The verdict on the rows of one Arrow batch.

    `rows` are the certain rows, with all columns of the log. For each of these, `unknown` has the fields that nobody
    declared, `moves` is true if it moves the clock, and `partition` names its source partition (None where the source
    has but one). `late` and `unassigned` are sums over them, by operator; `warned` has the number of valid rows that
    break each watched rule, by its name.

    For every row of the batch, `doubtful` is true if it is in doubt, and `source_time` is the instant by which the
    source had it, in microseconds since the epoch.
    """

    rows: pa.RecordBatch
    doubtful: np.ndarray
    unknown: pa.Array
    moves: np.ndarray
    partition: pa.Array | None
    source_time: pa.Array
    late: Mapping[str, int]
    unassigned: Mapping[str, int]
    warned: Mapping[str, int]


@dataclass(frozen=True)
class Judgement:
    """All that one stream's rows are judged by.

    `payload` names the columns of the format. The expressions are over parsed rows: `derived` of the other columns,
    `moved_by` of the clock's condition (None where every valid row moves it), `source_time` of the instant by which
    the source had a row, and `partition` of its source partition (None where there is but one). Only those of
    `counts`, by operator, are over rows of the log.

    `is_partial`: `rules` are not all, and the others are judged by Spark afterwards, over valid rows alone; a row that
    is rejected is then in doubt, as one of these may be a further reason against it. `rules` reject rows, and `watched`
    do not: the log names those that a valid row breaks, where its `types` have a column for them. `keep_raw`: valid
    rows keep their payload, too. `types` are those of the log. `masking`: what is masked of rows once they are judged.
    """

    payload: tuple[str, ...]
    derived: Mapping[str, ArrowExpression]
    time: JudgedTime
    rules: tuple[JudgedRule, ...]
    watched: tuple[WatchedRule, ...]
    is_partial: bool
    moved_by: ArrowExpression | None
    source_time: ArrowExpression
    partition: ArrowExpression | None
    counts: Mapping[str, Counted]
    keep_raw: bool
    types: pa.Schema
    masking: Masking | None = None

    def of(self, parsed: pa.RecordBatch, stamps: Stamps) -> Verdict:
        """The verdict on `parsed` rows, which have `_raw`, `_origin` and the columns that the decoder has added."""
        judging = _Judging(self, parsed, stamps)
        return judging.verdict()


class _Judging:
    """One batch of rows while it is judged."""

    def __init__(self, judgement: Judgement, parsed: pa.RecordBatch, stamps: Stamps) -> None:
        self._judgement = judgement
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
        judgement = self._judgement
        rejected = self._rejected(self._reasons())
        time = self._values[judgement.time.name]
        micros = _micros(time)
        is_valid = ~_mask(rejected.is_valid())
        known = (micros >= to_micros(FIRST_EVENT_TIME)) & (micros < to_micros(END_OF_EVENT_TIMES))
        if judgement.time.deletes is not None:
            # A row that needs no time keeps none that others must not have, as it would move the clock.
            known &= self._needed | judgement.time.is_within(micros, self._stamps)
        self._values[judgement.time.name] = _null_unless(known, time)
        # A row that needs no event time is of the day on which it came.
        dated = np.where(self._needed | known, micros, to_micros(self._stamps.ingested_at))
        days = days_of(dated, is_valid)
        moves = is_valid.copy()
        if judgement.moved_by is not None:
            moves &= _mask(self._rows.array_of(judgement.moved_by))
        unknown = self._parsed[UNKNOWN]
        broken = {rule.name: is_valid & ~_mask(self._rows.array_of(rule.holds)) for rule in judgement.watched}
        log_rows = self._log_rows(rejected, unknown, days, broken)
        if judgement.masking is not None:
            log_rows = judgement.masking.rows(log_rows)
        partition = None if judgement.partition is None else self._rows.array_of(judgement.partition)
        source_time = self._rows.array_of(judgement.source_time)
        counted = Rows(dict(zip(log_rows.schema.names, log_rows.columns, strict=True)), self._number)
        counts = judgement.counts.items()
        late = {name: counted.array_of(each.late) for name, each in counts}
        unassigned = {name: counted.array_of(each.unassigned) for name, each in counts}
        doubtful = self._doubtful | self._rows.doubtful | counted.doubtful
        if judgement.is_partial:
            # A row whose payload could not be read at all has no further reason, because no rule is asked about it.
            doubtful |= ~is_valid & ~_mask(self._parsed[UNREADABLE].is_valid())
        certain = pa.array(~doubtful)
        all_certain = not doubtful.any()

        def of_certain(values: pa.Array) -> pa.Array:
            return values if all_certain else values.filter(certain)

        return Verdict(
            rows=log_rows if all_certain else log_rows.filter(certain),
            doubtful=doubtful,
            unknown=of_certain(unknown),
            moves=moves[~doubtful],
            partition=None if partition is None else of_certain(partition),
            source_time=source_time,
            late={name: pc.sum(of_certain(values)).as_py() or 0 for name, values in late.items()},
            unassigned={name: pc.sum(of_certain(values)).as_py() or 0 for name, values in unassigned.items()},
            warned={name: int((mask & ~doubtful).sum()) for name, mask in broken.items()},
        )

    def _reasons(self) -> Iterator[tuple[np.ndarray, str | pa.Array]]:
        """Masks of rows, each with the reason against these rows, in the order in which a row lists its reasons.

        A reason is one text for all rows of the mask, or an array with a text for each row of the batch.
        """
        judgement = self._judgement
        masked = frozenset[str]() if judgement.masking is None else judgement.masking.columns
        unreadable, wrong = self._parsed[UNREADABLE], self._wrong
        yield _present(unreadable if judgement.masking is None else unquoted(unreadable))
        for name in judgement.payload:
            if name in wrong:
                yield _present(wrong_values(name, wrong[name]) if name in masked else wrong[name])
        time = self._values[judgement.time.name]
        against_time, doubtful = judgement.time.reasons(time, self._stamps, self._has_all, self._needed)
        is_read = self._is_read(judgement.time.made_of)
        self._doubtful |= doubtful & is_read
        for mask, text in against_time:
            yield mask & is_read, text
        for rule in judgement.rules:
            holds = _mask(self._rows.array_of(rule.holds))
            yield ~holds & self._is_read(rule.made_of), rule.reason

    def _rejected(self, reasons: Iterator[tuple[np.ndarray, str | pa.Array]]) -> pa.Array:
        """All reasons against each row, each once; null where there is none."""
        return _texts_of_rows(reasons, self._number)

    @cached_property
    def _needed(self) -> np.ndarray:
        """True for the rows that must have an event time."""
        deletes = self._judgement.time.deletes
        return np.ones(self._number, bool) if deletes is None else ~_mask(self._rows.array_of(deletes))

    @cached_property
    def _wrong(self) -> dict[str, pa.Array]:
        """The reasons against values that could not be read, by column; columns without one are left out."""
        wrong = self._parsed[WRONG]
        if wrong.null_count == len(wrong):
            return {}
        fields = dict(zip((field.name for field in wrong.type), wrong.flatten(), strict=True))
        return {name: reasons for name, reasons in fields.items() if reasons.null_count < len(reasons)}

    def _is_read(self, columns: Sequence[str]) -> np.ndarray:
        """True for the rows of which all of the payload's `columns` could be read, if only as null."""
        read = ~_mask(self._parsed[UNREADABLE].is_valid())
        wrong = self._wrong
        for name in columns:
            if name in wrong:
                read &= ~_mask(wrong[name].is_valid())
        return read

    def _has_all(self, columns: Sequence[str]) -> np.ndarray:
        """True for the rows that have a value in all of the payload's `columns`."""
        has = np.ones(self._number, bool)
        for name in columns:
            has &= _mask(self._parsed[name].is_valid())
        return has

    def _log_rows(
        self, rejected: pa.Array, unknown: pa.Array, days: pa.Array, broken: Mapping[str, np.ndarray]
    ) -> pa.RecordBatch:
        """All rows, certain or not, with the columns of the log; `broken` has a mask of rows for each watched rule."""
        stamps, raw = self._stamps, self._parsed["_raw"].cast(pa.binary())
        needs_raw = _mask(rejected.is_valid()) | _mask(unknown.is_valid())
        given = {
            **self._values,
            "_rejected": rejected,
            "_raw": raw if self._judgement.keep_raw else _null_unless(needs_raw, raw),
            "_batch": self._constant(stamps.number, pa.int64()),
            INGESTED_AT: self._parsed[INGESTED_AT],
            STAMP: self._constant(stamps.watermark, INSTANT),
            DAY: days,
            WARNED: _texts_of_rows(((mask, name) for name, mask in broken.items()), self._number),
        }
        columns = [
            _origin(self._parsed[ORIGIN], field.type)
            if field.name == ORIGIN
            else as_type(given[field.name], field.type)
            for field in self._judgement.types
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._judgement.types)

    def _constant(self, value: object, type_: pa.DataType) -> pa.Array:
        """A column with this value in every row."""
        return pa.repeat(pa.scalar(value, type_), self._number)


def _texts_of_rows(told: Iterable[tuple[np.ndarray, str | pa.Array]], number: int) -> pa.Array:
    """All texts of each of `number` rows, each once, in the order in which they are told; null where there is none.

    A text is told with a mask of its rows: one for all of these, or an array with one for each row.
    """
    texts: dict[int, dict[str, None]] = {}
    for mask, text in told:
        places = np.flatnonzero(mask)
        if not len(places):
            continue
        of_rows = [text] * len(places) if isinstance(text, str) else text.take(pa.array(places)).to_pylist()
        for place, each in zip(places.tolist(), of_rows, strict=True):
            # A dictionary without values is a set that keeps the order.
            texts.setdefault(place, {})[each] = None
    if not texts:
        return pa.nulls(number, _TEXTS)
    return pa.array([[*texts[row]] if row in texts else None for row in range(number)], _TEXTS)


def _present(texts: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """A mask of the rows that have a text, and the texts."""
    return _mask(texts.is_valid()), texts


def _mask(values: pa.Array) -> np.ndarray:
    """The boolean values as a mask; null counts as false."""
    known = values if values.null_count == 0 else pc.fill_null(values, False)
    mask: np.ndarray = known.to_numpy(zero_copy_only=False)
    return mask


def _micros(instants: pa.Array) -> np.ndarray:
    """Microseconds since the epoch; for null a number so small that it is no valid event time."""
    numbers = instants.cast(INSTANT).view(pa.int64())
    micros: np.ndarray = (numbers if numbers.null_count == 0 else pc.fill_null(numbers, -(2**62))).to_numpy()
    return micros


def _is_beyond(values: pa.Array) -> np.ndarray:
    """True for dates and instants outside the years 1 to 9999, which Python cannot read; false for other types."""
    if pa.types.is_date(values.type):
        numbers, first, last = values.view(pa.int32()), FIRST_DAY, LAST_DAY
    elif pa.types.is_timestamp(values.type):
        numbers, first, last = values.view(pa.int64()), FIRST_MICRO, LAST_MICRO
    else:
        return np.zeros(len(values), bool)
    return _mask(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))


def _null_unless(mask: np.ndarray, values: pa.Array) -> pa.Array:
    """The values, with null wherever the mask is false."""
    if mask.all():
        return values
    return pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))


def _origin(origin: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    """The origins with the fields of the log: those that the source does not tell are null."""
    told = dict(zip((field.name for field in origin.type), origin.flatten(), strict=True))
    fields = [
        as_type(told[field.name], field.type) if field.name in told else pa.nulls(len(origin), field.type)
        for field in type_
    ]
    mask = None if origin.null_count == 0 else origin.is_null()
    return pa.StructArray.from_arrays(fields, fields=list(type_), mask=mask)


def _interval_micros(text: str) -> int:
    """The length of an interval, such as `1 day`, in microseconds."""
    return interval(text) // MICROSECOND
