"""The verdict on every row: valid, or rejected with all its reasons. Built once per stream, applied to each batch.

A rule may stop the stream before a batch: `rule_violation` is then its error, which names the first rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache, partial, reduce
from itertools import chain
from typing import Any

import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot import exp

from streaming.base import (
    END_OF_EVENT_TIMES,
    EPOCH,
    FIRST_EVENT_TIME,
    INGESTED_AT,
    ORIGIN,
    PARSER_ERRORS,
    WARNED,
    DeclarationError,
    RuleViolation,
    check_condition,
    clock_word,
    constant,
    counted,
    date_literal,
    interval,
    literal,
    names_in,
)
from streaming.declare import ConditionRule, Rule, Stream
from streaming.formats import UNKNOWN, UNREADABLE, WRONG
from streaming.log.judgement import TimeReasons, broken_rule
from streaming.log.masking import BEFORE, WAS_MASKED, silent_reason, spoken_reasons, wrong_value
from streaming.log.read import origin_type
from streaming.spark import cause_in_words, guarded, lenient_session, named_values, refusal

_WHY_NOT = "_why_not_"
"""Begins the column that says why a derived column, whose name follows, has no value; null where it may have one."""
_BESIDE = "_raw"
"""A column that all parsed rows have, as `guarded` asks for."""
_DEEPEST = 400
"""The most levels of nesting in a condition. Spark goes over it level by level, and no process survives it when its
stack does not suffice."""
_ROWS_NAMED, _LONGEST_VALUE = 5, 200
"""The most rows that an error names of a rule, and the most characters of a value in it."""

_NAMES = """
    assert_true current_catalog current_date current_database current_schema current_timestamp current_timezone
    current_user input_file_block_length input_file_block_start input_file_name java_method localtimestamp
    monotonically_increasing_id now rand randn random randstr raise_error reflect session_user shuffle
    spark_partition_id try_reflect user uuid version
"""
_NOT_OF_THE_ROW = frozenset(_NAMES.split())
"""Functions that fail by intention, or give another answer when they are asked again."""


class RowValidator:
    """Turns parsed payloads into the log's rows, but for batch number and stamp.

    Building the columns costs more than Spark takes for a small batch, so it is done once.

    `again`: the rows were rejected, and come back. Where `_was_masked` is true, values of masked columns are those that
    the row has had since, in a struct `_before`, and no rule is asked about them, as nobody knows what came.
    """

    def __init__(self, stream: Stream, *, again: bool = False) -> None:
        self._stream = stream
        self._again = again
        rejected = F.col("_rejected").isNotNull()
        # There is another `kept_from` once a day at most.
        self._usual_reasons = lru_cache(2)(self._together)
        self._derived: dict[str, dict[str, Column]] = {}
        time, raw = F.col(stream.event_time), F.col("_raw").cast("binary")
        kept = F.when(self._is_kept(time), time)
        self._columns: tuple[Column, ...] = (
            # Python cannot read an instant outside the years 1 to 9999; the payload keeps what was sent.
            *(kept.alias(name) if name == stream.event_time else F.col(f"`{name}`") for name in stream.columns),
            F.col("_rejected"),
            # The payload of a row with a field that nobody declared is the only place that has its value.
            (raw if stream.keep_raw else F.when(rejected | F.col(UNKNOWN).isNotNull(), raw)).alias("_raw"),
            F.col("_origin"),
            F.col(INGESTED_AT),
            F.when(~rejected, _day_of(stream, kept)).alias("_day"),
            F.col(UNKNOWN),
            *([F.when(~rejected, self._watched()).alias(WARNED)] if stream.watched else []),
            *([F.col(WAS_MASKED)] if again else []),
        )

    def __call__(
        self, parsed: DataFrame, ingested_at: datetime | None = None, kept_from: date | None = None
    ) -> DataFrame:
        """Typed columns, verdict (`_rejected`), payload, origin, day and `_unknown` of each row of `parsed`.

        Where rules warn or stop, `_warned` has the names of those that a valid row breaks, null where there is none.
        Rows are judged as of `ingested_at`; without it each as of its own `_ingested_at`, a column of `parsed`. Those
        of days before `kept_from` are rejected. No row can fail the others: one for which an expression of the stream
        cannot be computed is rejected.
        """
        frame = parsed if ingested_at is None else parsed.withColumn(INGESTED_AT, constant(ingested_at))
        for name in self._stream.derived:
            if name not in self._derived:
                computed = self._computed(name, frame)
                self._derived[name] = self._as_before(name, computed) if self._is_hidden({name}) else computed
            frame = frame.withColumns(self._derived[name])
        return frame.withColumn("_rejected", self._reasons_for(frame, kept_from)).select(*self._columns)

    def _is_hidden(self, names: Collection[str]) -> bool:
        """True if rows that come back do not have what is needed of these columns any more, where they were masked."""
        return self._again and bool({*names} & self._stream.masked_columns)

    @staticmethod
    def _as_before(name: str, computed: dict[str, Column]) -> dict[str, Column]:
        """A derived column as the row has had it, where it was masked; nothing more is said against it."""
        was, why_not = F.col(WAS_MASKED), f"{_WHY_NOT}{name}"
        value = F.when(was, F.col(f"{BEFORE}.`{name}`")).otherwise(computed[name])
        return {name: value, why_not: F.when(~was, computed[why_not])}

    def _watched(self) -> Column:
        """The names of the rules that a row breaks and that do not reject it; null where it breaks none."""
        broken_rules = [
            (rule, broken(rule) & ~F.col(WAS_MASKED) if self._is_hidden(names_in(rule.condition)) else broken(rule))
            for rule in self._stream.watched
        ]
        return all_reasons([F.when(is_broken, F.lit(rule.name)) for rule, is_broken in broken_rules])

    def _computed(self, name: str, frame: DataFrame) -> dict[str, Column]:
        """A derived column, null where it cannot be computed, and the one that says why it is."""
        expression = self._stream.derived[name]
        computed = guarded(F.expr(expression), _BESIDE)
        value, read = computed["value"], sorted(names_in(expression))
        # One that other columns could not be read or computed for is rejected for that. It is asked last, so that a
        # value that is needed for both columns is always needed, and computed once.
        clean = self._is_read(names_in(expression))
        failed = computed.isNull() & clean
        why = F.when(failed, self._said("derived", f"{name} cannot be computed: {expression}", read))
        type_, kept = frame.select(value).schema[0].dataType, value
        for is_unreadable, what in _UNREADABLE:
            # What the log says of an event time that is no time of a calendar is said of all of them.
            found = None if name == self._stream.event_time else _somewhere(value, type_, is_unreadable)
            if found is not None:
                why = why.when(found & clean, self._said("derived", f"{name} has {what}: {expression}", read))
                kept = F.when(~F.coalesce(found, F.lit(False)), kept)
        return {name: kept, f"{_WHY_NOT}{name}": why}

    def _reasons_for(self, frame: DataFrame, kept_from: date | None) -> Column:
        """Where rows have conditions, these are looked at one by one, before the rows are judged."""
        rules = [rule for rule in self._stream.rules if isinstance(rule, ConditionRule)]
        refused = _condition_reasons(rules, frame, partial(_no_rows, frame.sparkSession))
        return self._together(kept_from, refused) if refused else self._usual_reasons(kept_from)

    def _together(self, kept_from: date | None, refused: Sequence[Column] = ()) -> Column:
        return all_reasons([*self._all_reasons(kept_from), *refused])

    def _all_reasons(self, kept_from: date | None) -> list[Column]:
        stream = self._stream
        return [
            _unquoted(F.col(UNREADABLE)) if stream.masked else F.col(UNREADABLE),
            *(self._said_of_value(column.name) for column in stream.format.columns),
            *(_why_not(name) for name in stream.derived),
            self._unless_unread(self._event_time_reason(), frozenset({stream.event_time})),
            *([] if kept_from is None else [self._retention_reason(kept_from)]),
            *(
                self._unless_unread(self._rule_reason(rule), names_in(rule.condition))
                for rule in stream.rules
                if rule.rejects
            ),
            *([] if stream.clock.moved_by is None else [self._clock_reason(stream.clock.moved_by)]),
        ]

    def _said_of_value(self, name: str) -> Column:
        """The reason against the value of a column; of a masked one without the value."""
        reason = _wrong(name)
        if name not in self._stream.masked_columns:
            return reason
        required = F.when(reason.startswith("required: "), F.lit(wrong_value(name, required=True)))
        return F.when(reason.isNotNull(), F.coalesce(required, F.lit(wrong_value(name, required=False))))

    def _rule_reason(self, rule: Rule) -> Column:
        judged = _judged(rule)
        failed = self._said(rule.name, f"cannot be judged: {rule.condition}", sorted(names_in(rule.condition)))
        reason = F.when(judged.isNull(), failed).otherwise(F.lit(broken_rule(rule.name, rule.condition)))
        is_broken = ~F.coalesce(judged["value"], F.lit(False))
        return F.when(
            is_broken & ~F.col(WAS_MASKED) if self._is_hidden(names_in(rule.condition)) else is_broken, reason
        )

    def _clock_reason(self, moved_by: str) -> Column:
        failed = self._said("clock", f"cannot tell whether the row moves it: {moved_by}", sorted(names_in(moved_by)))
        return self._unless_unread(F.when(guarded(F.expr(moved_by), _BESIDE).isNull(), failed), names_in(moved_by))

    def _said(self, by: str, what: str, of: Sequence[str]) -> Column:
        """A reason, with the values of the columns `of`."""
        return F.concat(F.lit(f"{by}: {what}{', of ' if of else ''}"), self._values(of))

    def _values(self, of: Sequence[str]) -> Column:
        masked = self._stream.masked_columns | ({ORIGIN} if self._stream.masks_origin else set())
        told = [name for name in of if name not in masked]
        values = named_values(told, {name for name in told if self._stream.types.get(name) == "string"})
        hidden = [f"{name}, which is masked" for name in of if name not in told]
        return F.concat_ws(", ", *([values] if told else []), *map(F.lit, hidden)) if hidden else values

    def _retention_reason(self, kept_from: date) -> Column:
        time = self._stream.event_time
        text = TimeReasons(time, self._stream.clock).not_kept(kept_from)
        too_old = F.to_date(F.col(time)) < date_literal(kept_from)
        return self._unless_unread(F.when(too_old, F.lit(text)), frozenset({time}))

    def _unless_unread(self, reason: Column, columns: frozenset[str]) -> Column:
        """A rule is not asked about a column that could not be read, so that each defect is named once."""
        return F.when(self._is_read(columns), reason)

    def _is_read(self, columns: frozenset[str]) -> Column:
        """True where the `columns`, and all that they are made from, could be read and computed."""
        clean = F.col(UNREADABLE).isNull()
        made_of = self._stream.made_of
        for name in sorted(frozenset[str]().union(*(made_of.get(column, frozenset()) for column in columns))):
            why_not = _why_not(name) if name in self._stream.derived else _wrong(name)
            clean = clean & why_not.isNull()
        return clean

    def _event_time_reason(self) -> Column:
        stream = self._stream
        time = F.col(stream.event_time)
        clock, ingested_at = stream.clock, F.col(INGESTED_AT)
        said = TimeReasons(stream.event_time, clock)
        sources = sorted(stream.payload_of((stream.event_time,))) if stream.event_time in stream.derived else []
        # A derived time is null where one of its columns is missing, or where their values are no time.
        sent = reduce(operator.and_, (F.col(f"`{name}`").isNotNull() for name in sources), F.lit(bool(sources)))
        reason = (
            F.when(
                time.isNull() & sent,
                F.concat(F.lit(f"event_time: {stream.event_time} cannot be made of "), self._values(sources)),
            )
            .when(time.isNull(), F.lit(said.missing))
            .when(~_known(time), F.lit(said.beyond))
            .when(time > ingested_at + _length(clock.max_ahead), F.lit(said.ahead))
        )
        if clock.max_behind is not None:
            reason = reason.when(time < ingested_at - _length(clock.max_behind), F.lit(said.behind))
        return reason if stream.exempt is None else F.when(_needs_time(stream), reason)

    def _is_kept(self, time: Column) -> Column:
        """True for the event times that a row keeps: one that needs none keeps no time that others must not have."""
        if self._stream.exempt is None:
            return _known(time)
        clock, ingested_at = self._stream.clock, F.col(INGESTED_AT)
        within = time <= ingested_at + _length(clock.max_ahead)
        if clock.max_behind is not None:
            within &= time >= ingested_at - _length(clock.max_behind)
        return _known(time) & (_needs_time(self._stream) | within)


def _needs_time(stream: Stream) -> Column:
    """True for the rows that must have an event time."""
    if stream.exempt is None:
        return F.lit(True)
    return ~F.coalesce(guarded(F.expr(stream.exempt), _BESIDE)["value"], F.lit(False))


def _day_of(stream: Stream, time: Column) -> Column:
    """The day of a valid row by its `time`: of one that needs none the day on which it came."""
    day = F.to_date(time)
    return day if stream.exempt is None else F.coalesce(day, F.to_date(INGESTED_AT))


def broken(rule: Rule) -> Column:
    """True for the rows for which a rule does not hold, or cannot be judged; never null."""
    return ~F.coalesce(_judged(rule)["value"], F.lit(False))


def _judged(rule: Rule) -> Column:
    """A struct with whether the rule holds, or null where that cannot be computed."""
    return guarded(F.coalesce(F.expr(rule.condition), F.lit(False)), _BESIDE)


def rule_violation(stream: Stream, validated: DataFrame, number: int, broken: Mapping[str, int]) -> RuleViolation:
    """The error of a stream that stops before batch `number`, whose rows are `validated`; it names the first rows."""
    said, found = [], []
    for rule in stream.stopped_by(broken):
        read = [name for name in stream.columns if name in names_in(rule.condition)]
        rows = (
            validated.where(F.array_contains(WARNED, F.lit(rule.name)))
            .select("_origin", *(f"`{name}`" for name in read))
            .orderBy("_origin")
            .limit(_ROWS_NAMED)
            .collect()
        )
        told = [row.asDict(recursive=True) for row in rows]
        found += [{"rule": rule.name, **row} for row in told]
        number_of_rows = broken[rule.name]
        more = f" and {number_of_rows - len(rows):,} more" if number_of_rows > len(rows) else ""
        said.append(
            f"rule {rule.name!r}, which says {rule.condition}, is broken by {counted(number_of_rows, 'row')}: "
            f"{'; '.join(map(_row_in_words, told))}{more}"
        )
    return RuleViolation(
        f"stream {stream.name!r} has stopped before batch {number} of its log: {'. And '.join(said)}",
        "Nothing of the batch was appended, and nothing is lost. Correct the rows where they come from, or declare "
        "on_violation='reject' or 'warn' for the rule, and run again: it goes on with this batch.",
        stream=stream.name,
        batch=number,
        rules={rule.name: broken[rule.name] for rule in stream.stopped_by(broken)},
        rows=tuple(found),
    )


def _row_in_words(row: Mapping[str, Any]) -> str:
    """The values of a row and its origin, for people."""
    values = ", ".join(f"{name}={_short(value)}" for name, value in row.items() if name != "_origin")
    origin = row["_origin"]
    told = origin if isinstance(origin, dict) else {"origin": origin}
    place = ", ".join(f"{name}={_short(value)}" for name, value in told.items() if value is not None)
    return f"{values} ({place})" if values else f"a row ({place})"


def _short(value: object) -> str:
    text = str(value) if isinstance(value, datetime) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def check_expressions(stream: Stream, parsed: DataFrame) -> None:
    """Refuse an expression of the stream that Spark cannot compute of the types that its columns have; runs nothing.

    `parsed`: the columns of the format, and `_ingested_at`.

    Raises:
        DeclarationError: naming the expression, the types and what Spark has against it.
    """
    frame, of = parsed, f"of stream {stream.name!r}"
    for name, expression in stream.derived.items():
        _check_expression(f"derived column {name!r} {of}", expression, frame)
        frame = frame.withColumn(name, F.expr(expression))
    for rule in stream.rules:
        _check_expression(f"rule {rule.name!r} {of}", rule.condition, frame, is_condition=True)
    if stream.clock.moved_by is not None:
        _check_expression(f"the clock {of}", stream.clock.moved_by, frame, is_condition=True)
    if stream.exempt is not None:
        _check_expression(f"deletes {of}", stream.exempt, frame, is_condition=True)


def _check_expression(what: str, expression: str, frame: DataFrame, *, is_condition: bool = False) -> None:
    try:
        _ = (frame.where(F.expr(expression)) if is_condition else frame.select(F.expr(expression))).schema
    except AnalysisException as error:
        types = {field.name.lower(): field.dataType.simpleString() for field in frame.schema}
        read = ", ".join(f"{name} {types.get(name.lower(), '')}".strip() for name in sorted(names_in(expression)))
        raise DeclarationError(
            f"{what} is {expression!r}{f' of {read}' if read else ''}, which Spark cannot compute: {refusal(error)}. "
            "Correct it, for example with a cast."
        ) from error


def check_revisions(stream: Stream, parsed: DataFrame) -> None:
    """Refuse a sequence that has no order, and one or a condition of deletes that follows from no row; runs nothing.

    `parsed`: as `check_expressions` has it.

    Raises:
        DeclarationError: naming the expression, and what to write.
    """
    of = f"of stream {stream.name!r}"
    for what, told in ((f"the sequence {of}", stream.sequence), (f"deletes {of}", stream.deletes)):
        if told is not None:
            _check_of_row(what, told, stream)
    if stream.sequence is not None:
        frame = parsed
        for name, expression in stream.derived.items():
            frame = frame.withColumn(name, F.expr(expression))
        _check_ordered(f"the sequence {of}", stream.sequence, frame)


def _check_of_row(what: str, expression: str, stream: Stream) -> None:
    """Refuse an expression that gives another value when it is asked again.

    Raises:
        DeclarationError: with its functions that do so, or the part that has a word for the clock.
    """
    if (beyond := _beyond_row(sqlglot.parse_one(expression, dialect="spark"), stream)) is not None:
        raise DeclarationError(
            f"{what} is {expression!r}, which {beyond} and so follows from no row",
            "write it over the columns and _origin alone.",
        )


def _beyond_row(tree: exp.Expr, stream: Stream) -> str | None:
    """The reason, in words, why an expression over columns of a stream may give another value when it is asked again.

    None where there is none.
    """
    if functions := sorted({_name(node) for node in tree.find_all(exp.Func)} & _NOT_OF_THE_ROW):
        return f"calls {', '.join(functions)}"
    times = {name.lower() for name in stream.times}
    word = clock_word(tree, lambda column: not column.table and column.name.lower() in times)
    return None if word is None else f"reads the clock by {word.this!r}"


def _check_ordered(what: str, expression: str, frame: DataFrame) -> None:
    try:
        _ = frame.orderBy(F.expr(expression)).schema
    except AnalysisException as error:
        raise DeclarationError(
            f"{what} is {expression!r}, and nothing says which of two values is the greater: {refusal(error)}",
            "write a number, a text, an instant, or a struct of such.",
        ) from error


def _no_rows(spark: SparkSession, rule: ConditionRule) -> DataFrame:
    """No row of the stream that the conditions of a rule are about."""
    stream = rule.of
    nothing = spark.createDataFrame([], f"_raw binary, _origin {origin_type(stream)}")
    return RowValidator(stream)(stream.format.parse(nothing), EPOCH).select(*(f"`{name}`" for name in stream.columns))


def _unquoted(reason: Column) -> Column:
    """A reason against a payload as a whole, without any that may quote what is in it."""
    form = F.substring_index(reason, ": ", 1)
    is_spoken = reason.isin(*spoken_reasons()) | form.isin("csv", "text")
    return F.when(is_spoken, reason).otherwise(F.concat(form, F.lit(silent_reason(""))))


def _wrong(column: str) -> Column:
    return F.col(f"{WRONG}.`{column}`")


def _why_not(derived: str) -> Column:
    return F.col(f"`{_WHY_NOT}{derived}`")


_Asked = Callable[[Column, DataType], Column | None]
"""A question about a value that has no parts; None where there is none to ask of its type."""


def _is_beyond(value: Column, type_: DataType) -> Column | None:
    """True where a value is a time outside the years 1 to 9999; None where its type has no time.

    Python cannot read such a time, so the row could neither be shown nor delivered.
    """
    if isinstance(type_, DateType):
        return ~value.between(date_literal(date.min), date_literal(date.max))
    if isinstance(type_, TimestampType | TimestampNTZType):
        first, last = (literal(each.replace(tzinfo=UTC)) for each in (datetime.min, datetime.max))
        return ~value.cast("timestamp").between(first, last)
    return None


def _is_broken(value: Column, type_: DataType) -> Column | None:
    """True for a text that is no UTF-8, which SQL makes of bytes, and which no reader of the log could read."""
    return ~F.is_valid_utf8(value) if isinstance(type_, StringType) else None


_UNREADABLE = ((_is_beyond, "a time outside the years 1 to 9999"), (_is_broken, "a text that is no UTF-8"))
"""The checks for values that the log's readers cannot read, each with its words."""


def _somewhere(value: Column, type_: DataType, asked: _Asked) -> Column | None:
    """The answer for a value and all parts of it, at any depth; None where there is nothing to ask of its type.

    Null where the value is null.
    """
    if isinstance(type_, ArrayType):
        elements = type_.elementType
        return _any(value, elements, asked) if _asks(elements, asked) else None
    if isinstance(type_, MapType):
        sides = ((F.map_keys(value), type_.keyType), (F.map_values(value), type_.valueType))
        parts = [_any(array, elements, asked) for array, elements in sides if _asks(elements, asked)]
    elif isinstance(type_, StructType):
        fields = (_somewhere(value.getField(field.name), field.dataType, asked) for field in type_.fields)
        parts = [F.coalesce(field, F.lit(False)) for field in fields if field is not None]
    else:
        return asked(value, type_)
    return reduce(operator.or_, parts) if parts else None


def _any(array: Column, elements: DataType, asked: _Asked) -> Column:
    def so(each: Column) -> Column:
        found = _somewhere(each, elements, asked)
        assert found is not None
        return F.coalesce(found, F.lit(False))

    return F.exists(array, so)


def _asks(type_: DataType, asked: _Asked) -> bool:
    return _somewhere(F.lit(None), type_, asked) is not None


def _known(time: Column) -> Column:
    """True where the instant may be an event time: it lies in the years 100 to 9899, UTC."""
    return (time >= literal(FIRST_EVENT_TIME)) & (time < literal(END_OF_EVENT_TIMES))


def _length(text: str) -> Column:
    return F.expr(f"interval {interval(text).total_seconds():.6f} seconds")


def all_reasons(reasons: Sequence[Column]) -> Column:
    """Every reason that is not null, in order; null when there is none, so that null means valid."""
    # `array_compact` is a lambda to Spark, which then writes every row once more; few rows have a reason.
    given = F.array_except(F.array(*reasons), F.array(F.lit(None).cast("string")))
    return F.when(F.coalesce(*reasons).isNotNull(), given)


def _condition_reasons(
    rules: Iterable[ConditionRule], frame: DataFrame, nothing: Callable[[ConditionRule], DataFrame]
) -> list[Column]:
    """For each rule what is wrong with the condition of a row of `frame`, null where nothing is.

    `nothing` gives no row, with the columns of the stream that the conditions of a rule are about.
    """
    reasons = []
    for rule in rules:
        column = F.col(f"`{rule.column}`")
        texts = [row[0] for row in frame.select(column).where(column.isNotNull()).distinct().collect()]
        refused = _refused(rule, texts, nothing) if texts else {}
        if refused:
            named = ((F.lit(text), F.lit(f"{rule.name}: {why}")) for text, why in refused.items())
            reasons.append(F.try_element_at(F.create_map(*chain.from_iterable(named)), column))
    return reasons


def _refused(
    rule: ConditionRule, texts: Iterable[str], nothing: Callable[[ConditionRule], DataFrame]
) -> dict[str, str]:
    columns = nothing(rule)
    rows = lenient_session(columns.sparkSession).createDataFrame([], columns.schema)
    reasons = {text: _why_not_asked(rule, text) for text in texts}
    refused = {text: why for text, why in reasons.items() if why is not None}
    return refused | _unreadable([text for text in reasons if text not in refused], rows)


def _why_not_asked(rule: ConditionRule, text: str) -> str | None:
    """The reason against a condition, as far as it can be told without Spark."""
    try:
        check_condition("the condition", text, rule.of.types)
        tree = sqlglot.parse_one(text, dialect="spark")
    except DeclarationError as error:
        return str(error)
    except PARSER_ERRORS as error:
        # A parser's error in telling what it has read.
        return f"the condition {text!r} cannot be read: {type(error).__name__}: {error}"
    if _depth(tree) > _DEEPEST:
        return f"the condition {text!r} is nested more than {_DEEPEST} levels deep; write it shorter"
    if (beyond := _beyond_row(tree, rule.of)) is not None:
        return f"the condition {text!r} {beyond}, which follows from no row"
    if tree.find(exp.Query) is not None:
        return f"the condition {text!r} has a query, and follows from more than one row"
    return None


def _depth(tree: exp.Expr) -> int:
    """The number of levels that the tree has."""
    depths: dict[int, int] = {}
    # Breadth first, so that a parent comes before what is in it.
    for node in tree.walk():
        depths[id(node)] = depths.get(id(node.parent), 0) + 1
    return max(depths.values())


def _unreadable(texts: list[str], rows: DataFrame) -> dict[str, str]:
    """The conditions that Spark refuses; asked all together, as there may be thousands, and by halves where it does."""
    if not texts:
        return {}
    asked = ", ".join(f"if(({text}\n), 1, 0)" for text in texts)
    try:
        # A filter is also refused for what takes many rows together.
        _ = rows.where(f"array_contains(array({asked}), 1)").schema
    # The JVM runs out of stack where it is nested too deeply.
    except (PySparkException, Py4JJavaError) as error:
        if len(texts) == 1:
            return {texts[0]: f"the condition {texts[0]!r} cannot be read: {cause_in_words(error)}"}
        half = len(texts) // 2
        return _unreadable(texts[:half], rows) | _unreadable(texts[half:], rows)
    return {}


def _name(function: exp.Func) -> str:
    return (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
