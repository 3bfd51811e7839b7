"""The verdict on every row: valid, or rejected with all its reasons. Built once per stream, applied to each batch."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import date, datetime
from functools import lru_cache, partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import (
    END_OF_EVENT_TIMES,
    EPOCH,
    FIRST_EVENT_TIME,
    INGESTED_AT,
    ORIGIN,
    constant,
    date_literal,
    interval,
    literal,
    names_in,
)
from streaming.declare import ConditionRule, Stream
from streaming.formats import UNKNOWN, UNREADABLE, WRONG
from streaming.log.conditions import condition_reasons
from streaming.log.origin import origin_type


class RowValidator:
    """Turns parsed payloads into the log's rows, but for batch number and stamp.

    Building the columns costs more than Spark takes for a small batch, so it is done once.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._inputs = _inputs(stream)
        rejected = F.col("_rejected").isNotNull()
        # There is another `kept_from` once a day at most.
        self._usual_reasons = lru_cache(2)(self._together)
        time, raw = F.col(stream.event_time), F.col("_raw").cast("binary")
        self._columns: tuple[Column, ...] = (
            # Python cannot read an instant outside the years 1 to 9999; the payload keeps what was sent.
            *(
                F.when(_known(time), time).alias(name) if name == stream.event_time else F.col(name)
                for name in stream.columns
            ),
            F.col("_rejected"),
            # The payload of a row with a field that nobody declared is the only place that has its value.
            (raw if stream.keep_raw else F.when(rejected | F.col(UNKNOWN).isNotNull(), raw)).alias("_raw"),
            F.col("_origin"),
            F.col(INGESTED_AT),
            F.when(~rejected, F.to_date(stream.event_time)).alias("_day"),
            F.col(UNKNOWN),
        )

    def __call__(
        self, parsed: DataFrame, ingested_at: datetime | None = None, kept_from: date | None = None
    ) -> DataFrame:
        """Typed columns, verdict (`_rejected`), payload, origin, day and `_unknown` of each row of `parsed`.

        Rows are judged as of `ingested_at`; without it each as of its own `_ingested_at`, a column of `parsed`. Those
        of days before `kept_from` are rejected.
        """
        frame = parsed if ingested_at is None else parsed.withColumn(INGESTED_AT, constant(ingested_at))
        for name, expression in self._stream.derived.items():
            frame = frame.withColumn(name, F.expr(expression))
        return frame.withColumn("_rejected", self._reasons_for(frame, kept_from)).select(*self._columns)

    def _reasons_for(self, frame: DataFrame, kept_from: date | None) -> Column:
        """Where rows have conditions, these are looked at one by one, before the rows are judged."""
        rules = [rule for rule in self._stream.rules if isinstance(rule, ConditionRule)]
        refused = condition_reasons(rules, frame, partial(_no_rows, frame.sparkSession))
        return self._together(kept_from, refused) if refused else self._usual_reasons(kept_from)

    def _together(self, kept_from: date | None, refused: Sequence[Column] = ()) -> Column:
        return all_reasons([*self._all_reasons(kept_from), *refused])

    def _all_reasons(self, kept_from: date | None) -> list[Column]:
        stream = self._stream
        return [
            F.col(UNREADABLE),
            *(_wrong(column.name) for column in stream.format.columns),
            self._unless_unread(_event_time_reason(stream), frozenset({stream.event_time})),
            *([] if kept_from is None else [self._retention_reason(kept_from)]),
            *(self._unless_unread(rule.reason(), names_in(rule.condition)) for rule in stream.rules),
        ]

    def _retention_reason(self, kept_from: date) -> Column:
        time = self._stream.event_time
        text = f"retention: {time} is of a day before {kept_from}, the first one that the log keeps"
        too_old = F.to_date(F.col(time)) < date_literal(kept_from)
        return self._unless_unread(F.when(too_old, F.lit(text)), frozenset({time}))

    def _unless_unread(self, reason: Column, columns: frozenset[str]) -> Column:
        """A rule is not asked about a column that could not be read, so that each defect is named once."""
        clean = F.col(UNREADABLE).isNull()
        for name in sorted(frozenset[str]().union(*(self._inputs.get(column, frozenset()) for column in columns))):
            clean = clean & _wrong(name).isNull()
        return F.when(clean, reason)


def _no_rows(spark: SparkSession, rule: ConditionRule) -> DataFrame:
    """No row of the stream that the conditions of a rule are about."""
    stream = rule.of
    nothing = spark.createDataFrame([], f"_raw binary, _origin {origin_type(stream.source)}")
    return RowValidator(stream)(stream.format.parse(nothing), EPOCH).select(*(f"`{name}`" for name in stream.columns))


def _wrong(column: str) -> Column:
    return F.col(f"{WRONG}.`{column}`")


def _inputs(stream: Stream) -> dict[str, frozenset[str]]:
    """For each column of the stream the payload columns it is made from."""
    inputs = {column.name: frozenset({column.name}) for column in stream.format.columns}
    inputs |= {INGESTED_AT: frozenset(), ORIGIN: frozenset()}
    for name, expression in stream.derived.items():
        inputs[name] = frozenset[str]().union(*(inputs[column] for column in names_in(expression)))
    return inputs


def _event_time_reason(stream: Stream) -> Column:
    time = F.col(stream.event_time)
    clock, ingested_at = stream.clock, F.col(INGESTED_AT)
    sources = sorted(_inputs(stream)[stream.event_time]) if stream.event_time in stream.derived else []
    # A derived time is null where one of its columns is missing, or where their values are no time.
    sent = reduce(operator.and_, (F.col(f"`{name}`").isNotNull() for name in sources), F.lit(bool(sources)))
    values = F.concat_ws(", ", *(F.concat(F.lit(f"{name}="), F.col(f"`{name}`").cast("string")) for name in sources))
    reason = (
        F.when(
            time.isNull() & sent,
            F.concat(F.lit(f"event_time: {stream.event_time} cannot be made of "), values),
        )
        .when(time.isNull(), F.lit(f"event_time: {stream.event_time} is missing"))
        .when(~_known(time), F.lit(f"event_time: {stream.event_time} lies outside the years 100 to 9899"))
        .when(
            time > ingested_at + _length(clock.max_ahead),
            F.lit(f"max_ahead: {stream.event_time} is more than {clock.max_ahead} after its ingestion"),
        )
    )
    if clock.max_behind is None:
        return reason
    return reason.when(
        time < ingested_at - _length(clock.max_behind),
        F.lit(f"max_behind: {stream.event_time} is more than {clock.max_behind} before its ingestion"),
    )


def _known(time: Column) -> Column:
    """Whether the instant may be an event time: it lies in the years 100 to 9899, UTC."""
    return (time >= literal(FIRST_EVENT_TIME)) & (time < literal(END_OF_EVENT_TIMES))


def _length(text: str) -> Column:
    return F.expr(f"interval {interval(text).total_seconds():.6f} seconds")


def all_reasons(reasons: Sequence[Column]) -> Column:
    """Every reason that is not null, in order; null when there is none, so that null means valid."""
    # `array_compact` is a lambda to Spark, which then writes every row once more; few rows have a reason.
    given = F.array_except(F.array(*reasons), F.array(F.lit(None).cast("string")))
    return F.when(F.coalesce(*reasons).isNotNull(), given)
