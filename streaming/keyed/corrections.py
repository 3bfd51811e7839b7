"""Late rows of a keyed function in order `event`, and corrections of the activity sessions that have some.

Late rows are a read. A correction is what the function gives for such a session, each result in its place, a day at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial, reduce
from itertools import islice, repeat
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import (
    AT,
    BATCH,
    DAY,
    MICROSECOND,
    RETRACTED,
    SIGN,
    STAMP,
    OperatorError,
    counted,
    date_literal,
    literal,
    python_values,
    to_micros,
)
from streaming.declare import (
    CORRECTIONS,
    REPLACES_FROM,
    REPLACES_UNTIL,
    SESSION_START,
    Keyed,
    corrections_of,
    through_column,
)
from streaming.keyed.rules import PinnedRules, history_through, rows_of_control, rules_of_logs
from streaming.keyed.state_table import spark_schema
from streaming.keyed.steps import in_order, is_on_time, key_schema
from streaming.keyed.tasks import STREAM, TIME, RowsOf, key_column
from streaming.lake import Lake
from streaming.log import Batch, batches_after, head, read_log, valid
from streaming.operators import (
    FROM,
    MOST_PARTS,
    UNTIL,
    Coming,
    Corrected,
    Effect,
    PendingDay,
    Progress,
    check_declaration,
    corrected_numbers,
    create_table,
    each_day,
    generation_of,
    open_side,
    same_generation,
    sign_in,
)
from streaming.spark import lenient_session
from streaming.tables import delta

_IS_LATE = "_is_late"
START, FIRST_LATE, END, LATE_ROWS = "_start", "_first_late", "_end", "_late_rows"
"""Columns of a session: when it begins, its first late row, when it has ended; per day and stream, what came late."""

_LATE_ENTRY = pa.struct([("day", pa.int32()), ("stream", pa.int32()), ("batch", pa.int64()), ("rows", pa.int64())])
"""Late rows of a session: their day since the epoch, their stream, their newest batch, and how many they are."""

_TIME = pa.timestamp("us", "UTC")
_DAY = timedelta(days=1) // MICROSECOND
_SESSIONS_AT_ONCE = 10_000
_DAY_MICROS = 86_400_000_000
_OUTPUT = "_output"


def logs_of(spark: SparkSession, lake: Lake, keyed: Keyed) -> dict[str, DataFrame]:
    """The valid rows of the logs whose rows the function is called for, by stream."""
    session = spark if keyed.condition is None else lenient_session(spark)
    return {stream.name: valid(read_log(session, lake, stream)) for stream in keyed.streams}


def late_rows(keyed: Keyed, logs: Mapping[str, DataFrame]) -> DataFrame:
    """The late rows of the `logs`, by stream: `_stream`, `_at`, `_watermark`, `_batch`, and all streams' columns.

    Before these comes `_change`, -1 for one that is taken back, where some of a stream may be.
    """
    signed = any(stream.takes_back for stream in keyed.streams)
    parts = [
        logs[stream.name]
        .where(~is_on_time(stream))
        .select(
            F.lit(stream.name).alias("_stream"),
            F.col(f"`{stream.event_time}`").alias(AT),
            *(STAMP, BATCH),
            *([sign_in(stream).alias(SIGN)] * signed),
            *(f"`{name}`" for name in stream.columns),
        )
        for stream in keyed.streams
    ]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)


def passed(
    keyed: Keyed, logs: Mapping[str, DataFrame], through: Mapping[str, int], before: datetime | None
) -> dict[str, DataFrame]:
    """The rows of the `logs` earlier than `before`, late or not, of the batches up to `through`, all by stream.

    None are where no clock has begun, so that there is no `before`.
    """
    return {
        stream.name: logs[stream.name].where(
            (F.col(BATCH) <= through[stream.name]) & (F.col(f"`{stream.event_time}`") < literal(before))
        )
        for stream in keyed.streams
    }


def sessions_with_late_rows(keyed: Keyed, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The activity sessions of these `rows`, by stream, that have late ones: the columns of `_LateSessionsOf`.

    Where rows are taken back these are hulls: a row and the one that takes it back have one time, so each is what would
    be a session of all rows that were ever added. It only grows, and what is emitted for the rows that stand is in it.
    """
    assert keyed.idle_micros is not None
    names = [key_column(place) for place in range(len(keyed.by))]
    timed = reduce(DataFrame.unionByName, [_timed(keyed, place, rows) for place in range(len(keyed.streams))])
    if names:
        late = [f"_late{name}" for name in names]
        with_late = timed.where(_IS_LATE).select(*(F.col(n).alias(a) for n, a in zip(names, late, strict=True)))
        same = [F.col(name).eqNullSafe(F.col(other)) for name, other in zip(names, late, strict=True)]
        timed = timed.join(with_late.distinct(), reduce(Column.__and__, same), "left_semi").repartition(*names)
    else:
        timed = timed.repartition(1)
    keys = key_schema(keyed, rows[keyed.streams[0].name])
    task = _LateSessionsOf(keyed.idle_micros, keys)
    ordered = timed.sortWithinPartitions(*names, TIME).select(*names, TIME, _IS_LATE, STREAM, BATCH)
    return ordered.mapInArrow(task, spark_schema(task.schema, partitioned=False))


def _timed(keyed: Keyed, place: int, rows: Mapping[str, DataFrame]) -> DataFrame:
    stream = keyed.streams[place]
    return rows[stream.name].select(
        *(F.col(f"`{name}`").alias(key_column(each)) for each, name in enumerate(keyed.by)),
        F.col(f"`{stream.event_time}`").alias(TIME),
        (~is_on_time(stream)).alias(_IS_LATE),
        F.lit(place).alias(STREAM),
        BATCH,
    )


class TimedRow(NamedTuple):
    """A row reduced to its key, its event time, whether it is late, its stream's place, and its batch."""

    key: tuple[Any, ...]
    at: int
    is_late: bool
    of: int = 0
    batch: int = 0


@dataclass
class _LateSession:
    """A session of a key with late rows, in microseconds: those of its rows are in [start, end), `idle` before `end`.

    `late`: by day since the epoch and place of the stream, how many rows came late, and the newest batch of them.
    """

    key: tuple[Any, ...]
    start: int
    first_late: int
    end: int
    late: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def replaces(self, at: int) -> bool:
        """True if the results of this time are different with the late rows than without them."""
        return self.first_late <= at < self.end


def late_sessions(idle: int, rows: Iterable[TimedRow]) -> Iterator[_LateSession]:
    """The sessions with late rows, of rows sorted by key and time."""
    key: tuple[Any, ...] | None = None
    start = last = 0
    session: _LateSession | None = None
    for row in rows:
        if row.key != key or row.at - last >= idle:
            if session is not None:
                yield session
            key, start, session = row.key, row.at, None
        last = row.at
        if row.is_late:
            session = session or _LateSession(row.key, start, row.at, row.at)
            place = (row.at // _DAY, row.of)
            count, newest = session.late.get(place, (0, row.batch))
            session.late[place] = (count + 1, max(newest, row.batch))
        if session is not None:
            session.end = row.at + idle
    if session is not None:
        yield session


@dataclass(frozen=True)
class _LateSessionsOf:
    """The sessions with late rows in a Spark partition, whose columns are the keys and then those of a `TimedRow`.

    `keys` is the schema of the key columns.
    """

    idle: int
    keys: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of what it gives: keys, the bounds, and what came late."""
        bounds = ((name, _TIME) for name in (START, FIRST_LATE, END))
        return pa.schema([*self.keys, *(pa.field(*each) for each in bounds), (LATE_ROWS, pa.list_(_LATE_ENTRY))])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sessions = late_sessions(self.idle, self._rows(batches))
        while rows := [_values(session) for session in islice(sessions, _SESSIONS_AT_ONCE)]:
            columns = zip(zip(*rows, strict=True), self.schema, strict=True)
            arrays = [pa.array(values, each.type) for values, each in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[TimedRow]:
        keys = len(self.keys)
        for batch in batches:
            lists = [python_values(column) for column in batch.columns]
            of_keys = zip(*lists[:keys], strict=True) if keys else repeat(())
            # The values of no keys are endless.
            for key, *row in zip(of_keys, *lists[keys:], strict=False):
                yield TimedRow(key, *row)


def _values(session: _LateSession) -> tuple[Any, ...]:
    entries = [
        {"day": day, "stream": of, "batch": newest, "rows": count}
        for (day, of), (count, newest) in session.late.items()
    ]
    return (*session.key, session.start, session.first_late, session.end, entries)


def correct(
    spark: SparkSession,
    lake: Lake,
    keyed: Keyed,
    days: Iterable[date],
    now: Callable[[], datetime],
    on_day: Callable[[date, int], None] = lambda day, rows: None,
) -> dict[date, int]:
    """Replace the corrections of each of `days`, one commit for each output and day; returns the rows of the results.

    Idempotent and restartable: a day is a function of the logs up to the batches that its commits name, and that of the
    results comes last.

    Raises:
        OperatorError: late rows are not corrected by the declaration.
        ChangedDeclaration: it is not the one that made the tables.
        FencedError: the tables were built anew meanwhile.
        CorrectionsFailed: days for which the function raised, once all others are corrected.
    """
    check_corrected(keyed)
    generation = generation_of(delta.open_table(lake.table(keyed)))
    check_declaration(lake, keyed)
    asked = sorted(set(days)) if _can_be_followed(lake, keyed) else []
    if not asked:
        return {}
    at = Progress.at_heads(lake, keyed)
    logs, rules = logs_of(spark, lake, keyed), pinned_rules(spark, lake, keyed, at)

    def correct_day(day: date) -> int:
        of_day, written = DayReplay.of(keyed, logs, day, at), 0
        of_day.stretches.persist()
        try:
            # A plan goes by the results' corrections, so that a day is whole once these are there.
            for output in reversed(keyed.output_schemas):
                rows = of_day.replacements(output, rules).withColumn("_corrected_at", literal(now()))
                written = delta.replace_days(
                    rows,
                    create_table(lake, keyed, corrections_of(output), rows.schema),
                    [day],
                    says={"through": {day.isoformat(): dict(at.through)}, "view": keyed.name},
                    numbers=corrected_numbers(day, at),
                    statistics=("_at",),
                    fence=partial(same_generation, keyed, generation),
                )
        finally:
            of_day.stretches.unpersist()
        return written

    return each_day(keyed, asked, correct_day, on_day)


def check_corrected(keyed: Keyed) -> None:
    """Refuse a function whose late rows are not corrected.

    Raises:
        OperatorError: with what to declare.
    """
    if keyed.order == "arrival":
        raise OperatorError(
            f"keyed function {keyed.name!r} is of order 'arrival', in which late rows come like all others, so that "
            "there is nothing to correct."
        )
    if not keyed.corrected:
        raise OperatorError(
            f"keyed function {keyed.name!r} has no idle, so that a late row may change all that its key has ever "
            "emitted since, and nothing is corrected. Declare after how long without a row a key starts anew, such as "
            f"idle='1 day', and run `tidemark rebuild {keyed.name}`; its late rows are all in the log."
        )


def pinned_rules(
    spark: SparkSession,
    lake: Lake,
    keyed: Keyed,
    at: Progress,
    batches: Sequence[Batch] | None = None,
    rows: DataFrame | None = None,
) -> PinnedRules | None:
    """The rules for all rows up to `at`; None where the function has none.

    `batches` are those of its log, and `rows` those of the control stream's, if they are known already.
    """
    if keyed.rules is None:
        return None
    stream = keyed.streams[0]
    followed = batches_after(lake, stream, -1) if batches is None else batches
    known = rows_of_control(spark, lake, keyed.rules) if rows is None else rows
    rules = rules_of_logs(keyed.rules, followed, at.through[stream.name], known)
    history = keyed.rules.history
    if rows is None and history is not None and history_through(lake, history) < rules.pins.last:
        raise OperatorError(
            f"history {history.name!r}, whose rows keyed function {keyed.name!r} looks up, has not followed batch "
            f"{rules.pins.last} of {history.of.name!r} yet, which rows of {stream.name!r} have seen; run the pipeline "
            "first."
        )
    return rules


def read_corrections(
    spark: SparkSession, lake: Lake, keyed: Keyed, output: str = "", version: int | None = None
) -> DataFrame | None:
    """The corrections of an output as a batch frame, at one Delta `version` or the newest; None without such a table.

    As of batches of the logs they are computed: those that all late rows up to them call for.
    """
    suffix = corrections_of(output)
    if lake.cut is not None:
        return _called_for(spark, lake, keyed, output)
    table = open_side(lake, keyed, suffix, version)
    return None if table is None else delta.read(spark, lake.table(keyed, suffix), table.version())


def _called_for(spark: SparkSession, lake: Lake, keyed: Keyed, output: str) -> DataFrame | None:
    if not keyed.corrected or not _can_be_followed(lake, keyed):
        return None
    at, logs = Progress.at_heads(lake, keyed), logs_of(spark, lake, keyed)
    days = [row["day"] for row in _late_days(keyed, logs, at).collect()]
    rules = pinned_rules(spark, lake, keyed, at)
    frames = [DayReplay.of(keyed, logs, day, at).replacements(output, rules) for day in days]
    return reduce(DataFrame.unionByName, frames) if frames else None


def plan(
    spark: SparkSession,
    lake: Lake,
    keyed: Keyed,
    log_versions: Mapping[str, int] | None = None,
    corrections_version: int | None = None,
) -> list[PendingDay]:
    """The days that need a correction, oldest first; none while one of the streams has no log yet.

    The versions, of logs by stream, pin what is known of late rows, and as corrected.
    """
    if not keyed.corrected or not _can_be_followed(lake, keyed):
        return []
    at = Progress.at_heads(lake, keyed, log_versions)
    corrections = open_side(lake, keyed, CORRECTIONS, corrections_version)
    return pending(keyed, logs_of(spark, lake, keyed), at, corrections)


def _can_be_followed(lake: Lake, keyed: Keyed) -> bool:
    """True if all logs are there, and say how far the control stream was, if there is one."""
    newest = [head(lake, stream) if delta.exists(lake.log(stream)) else None for stream in keyed.streams]
    rules = keyed.rules
    return all(batch is not None and (rules is None or rules.control.name in batch.pins) for batch in newest)


def pending(
    keyed: Keyed, logs: Mapping[str, DataFrame], at: Progress, corrections: DeltaTable | None
) -> list[PendingDay]:
    """The days that need a correction by the `logs` up to `at`, given the open table of corrections.

    A day waits if late rows are newer than its correction, or if a session with some was open then and the clock has
    moved on: what the stream has emitted of it since follows from state without the late rows.
    """
    entries = []
    for row in _late_days(keyed, logs, at).collect():
        corrected = Corrected.of(keyed, row["day"], corrections)
        named = {stream.name: row[f"newest_{place}"] for place, stream in enumerate(keyed.streams)}
        newest = {name: number for name, number in named.items() if number is not None}
        if corrected.has_begun and _goes_on(row["until"], corrected, at):
            newest = dict(at.through)
        entry = corrected.pending(row["day"], row["late_rows"], newest)
        if entry is not None:
            entries.append(entry)
    return entries


def _late_days(keyed: Keyed, logs: Mapping[str, DataFrame], at: Progress) -> DataFrame:
    """Days of results that late rows may change.

    `late_rows`: how many may; `newest_<place>`: the newest batch of each stream that brought some; `until`: the end, in
    microseconds, of what is to be replaced on the day. A late row may change what its key emits from its own time on
    until the end of its session.
    """
    sessions = sessions_with_late_rows(keyed, passed(keyed, logs, at.through, at.watermark))
    clock = 0 if at.watermark is None else to_micros(at.watermark)
    end = F.unix_micros(END)
    rows = sessions.select(end.alias("end"), _last_day(clock).alias("last"), F.explode(LATE_ROWS).alias("late"))
    day_ends = (F.unix_date("day").cast("bigint") + 1) * F.lit(_DAY_MICROS)
    newest = [
        F.max(F.when(F.col("late.stream") == place, F.col("late.batch"))).alias(f"newest_{place}")
        for place in range(len(keyed.streams))
    ]
    return (
        rows.select(_days_until_last(), "end", "late")
        .groupBy("day")
        .agg(F.sum("late.rows").alias("late_rows"), F.max(F.least("end", day_ends)).alias("until"), *newest)
        .orderBy("day")
    )


def effect_on_hulls(spark: SparkSession, lake: Lake, keyed: Keyed, coming: Coming) -> Effect | None:
    """The effect of rows to come on a function whose late rows are corrected: on the hulls of activity that have some.

    None while nothing is followed. A row that comes before the clock has passed it takes part as if it had come with
    all others, so that nothing is corrected.
    """
    logs = coming.logs(spark, lake, keyed.streams)
    if logs is None or not _can_be_followed(lake, keyed):
        return None
    place, watermark = keyed.streams.index(coming.stream), Progress.at_heads(lake, keyed).watermark
    sessions = sessions_with_late_rows(keyed, {**logs, coming.stream.name: valid(coming.after)})
    come = F.filter(LATE_ROWS, lambda late: (late["stream"] == place) & (late["batch"] == coming.batch))
    hulls = sessions.withColumn(LATE_ROWS, come).where(F.size(LATE_ROWS) > 0).persist()
    try:
        keys = [f"`{name}`" for name in keyed.by]
        key = F.struct(*keys) if keys else F.lit(1)
        row = hulls.agg(F.count(F.lit(1)).alias("hulls"), F.count_distinct(key).alias("keys")).first()
        first = hulls.orderBy(START, *keys).select(*keys, START, END).limit(MOST_PARTS).collect()
        due = [] if watermark is None else _days_due(hulls, to_micros(watermark))
    finally:
        hulls.unpersist()
    assert row is not None
    of_keys = f" of {counted(row['keys'], 'key')}" if keys else ""
    return Effect(
        keyed.name,
        f"{counted(row['hulls'], 'stretch', 'stretches')} of activity{of_keys} would be computed anew",
        {"keys": row["keys"], "sessions": row["hulls"]},
        tuple(
            {
                **{name: one[name] for name in keyed.by},
                FROM: one[START].astimezone(UTC),
                UNTIL: one[END].astimezone(UTC),
            }
            for one in first
        ),
        row["hulls"] - len(first),
        due=tuple(due),
    )


def _days_due(sessions: DataFrame, clock: int) -> list[date]:
    """The days of results that late rows of the sessions may change by now."""
    rows = sessions.select(_last_day(clock).alias("last"), F.explode(LATE_ROWS).alias("late"))
    passed_by = F.date_from_unix_date("late.day") <= F.col("last")
    days = rows.where(passed_by).select(_days_until_last()).distinct().orderBy("day")
    return [row["day"] for row in days.collect()]


def _last_day(clock: int) -> Column:
    """The last day of what a session may give, as far as the clock has gone."""
    return F.to_date(F.timestamp_micros(F.least(F.unix_micros(END) - 1, F.lit(clock))))


def _days_until_last() -> Column:
    """Each day from that of the late rows `late` on until `last`."""
    return F.explode(F.sequence(F.date_from_unix_date("late.day"), "last")).alias("day")


def _goes_on(until: int, corrected: Corrected, at: Progress) -> bool:
    """True if the clock had not reached the end of what is replaced when the day was corrected, and is further now."""
    then, now = corrected.watermark, at.watermark
    return then is None or (until > to_micros(then) and now is not None and now > then)


@dataclass(frozen=True)
class DayReplay:
    """The part of one day that late rows may have changed.

    `stretches`: of each activity session with late rows that reaches into the day, the part that is replaced; `rows`:
    all rows of these sessions, by stream; `last`: the last instant of which results are replaced, in microseconds.
    """

    keyed: Keyed
    day: date
    at: Progress
    stretches: DataFrame
    rows: Mapping[str, DataFrame]
    last: int

    @classmethod
    def of(cls, keyed: Keyed, logs: Mapping[str, DataFrame], day: date, at: Progress) -> DayReplay:
        """As a pure function of the `logs`, by stream, up to `at`."""
        begins = datetime.combine(day, time(), UTC)
        ends = begins + timedelta(days=1)
        # Neither rows nor timers of later days tell anything of this one.
        last = ends - MICROSECOND if at.watermark is None else min(at.watermark, ends - MICROSECOND)
        rows = passed(keyed, logs, at.through, at.watermark and min(at.watermark, ends))
        stretches = _stretches(sessions_with_late_rows(keyed, rows), keyed, begins, last)
        return cls(keyed, day, at, stretches, _within(keyed, rows, stretches), to_micros(last))

    def replacements(self, output: str, rules: PinnedRules | None) -> DataFrame:
        """The corrections of an output: what the function gives for these sessions, from each first late row on.

        Keys, `_at` and what is emitted, then the session's start, from when until when its rows stand for the key's
        results, `_late_rows` (those of the session, up to the end of the day), `_retracted`, how far the logs are, and
        `_day`. A retracted row has no values: the function emits nothing there any more.
        """
        keyed = self.keyed
        outputs = replayed(keyed, self.rows, self.last, output, rules)
        through = {through_column(keyed.streams, each): self.at.through[each.name] for each in keyed.streams}
        is_of = [F.col(_key(place)).eqNullSafe(F.col(f"{_OUTPUT}.`{name}`")) for place, name in enumerate(keyed.by)]
        time_of = F.col(f"{_OUTPUT}.{AT}")
        in_stretch = (time_of >= F.col(REPLACES_FROM)) & (time_of < F.col(REPLACES_UNTIL))
        return (
            self.stretches.drop(END)
            .join(outputs.select(F.struct("*").alias(_OUTPUT)), reduce(Column.__and__, is_of, in_stretch), "left")
            .select(
                *(F.col(_key(place)).alias(name) for place, name in enumerate(keyed.by)),
                F.coalesce(time_of, REPLACES_FROM).alias(AT),
                *(F.col(f"{_OUTPUT}.`{name}`").alias(name) for name in keyed.output_schemas[output].names),
                *(SESSION_START, REPLACES_FROM, REPLACES_UNTIL, LATE_ROWS),
                time_of.isNull().alias(RETRACTED),
                *(F.lit(number).cast("bigint").alias(name) for name, number in through.items()),
                date_literal(self.day).alias(DAY),
            )
        )


def replayed(
    keyed: Keyed, rows: Mapping[str, DataFrame], clock: int, output: str, rules: PinnedRules | None
) -> DataFrame:
    """The results that the function emits to an output over the `rows`, by stream, each in its place, late or not.

    Keys, `_at` and what is emitted, up to `clock` in microseconds.
    """
    return emitted_over(keyed, unstamped(rows), clock, output, rules)


def unstamped(rows: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The `rows`, by stream, without a stamp: then none of them is late."""
    return {name: each.withColumn(STAMP, F.lit(None).cast("timestamp")) for name, each in rows.items()}


def emitted_over(
    keyed: Keyed, rows: Mapping[str, DataFrame], clock: int, output: str, rules: PinnedRules | None
) -> DataFrame:
    """The results that the function emits to an output over the `rows`, by stream, and no others.

    Keys, `_at` and what is emitted, up to `clock` in microseconds.
    """
    keys = key_schema(keyed, rows[keyed.streams[0].name])
    emitted = keyed.output_schemas[output]
    schema = pa.schema([*keys, pa.field(AT, pa.timestamp("us", "UTC")), *emitted])
    task = RowsOf(keyed, clock, output, schema, rules)
    return in_order(keyed, rows, rules).mapInArrow(task, spark_schema(schema, partitioned=False))


def _stretches(sessions: DataFrame, keyed: Keyed, begins: datetime, last: datetime) -> DataFrame:
    """The part of each session that is replaced from `begins` to `last`: a session has one part on each day."""
    return sessions.select(
        *(F.col(f"`{name}`").alias(_key(place)) for place, name in enumerate(keyed.by)),
        F.col(START).alias(SESSION_START),
        END,
        F.greatest(FIRST_LATE, literal(begins)).alias(REPLACES_FROM),
        F.least(END, literal(last + MICROSECOND)).alias(REPLACES_UNTIL),
        F.aggregate(LATE_ROWS, F.lit(0).cast("bigint"), lambda total, late: total + late["rows"]).alias(LATE_ROWS),
    ).where(F.col(REPLACES_FROM) < F.col(REPLACES_UNTIL))


def _within(keyed: Keyed, rows: Mapping[str, DataFrame], stretches: DataFrame) -> dict[str, DataFrame]:
    """The rows of these sessions, by stream."""
    frames = {}
    for stream in keyed.streams:
        time_of = F.col(f"`{stream.event_time}`")
        is_of = [F.col(f"`{name}`").eqNullSafe(F.col(_key(place))) for place, name in enumerate(keyed.by)]
        in_session = (time_of >= F.col(SESSION_START)) & (time_of < F.col(END))
        frames[stream.name] = rows[stream.name].join(stretches, reduce(Column.__and__, is_of, in_session), "left_semi")
    return frames


def _key(place: int) -> str:
    """The name of a key column of a stretch, which no column of a stream has."""
    return f"_of_key{place}"


def current_results(first: DataFrame, corrections: DataFrame | None, keyed: Keyed, output: str = "") -> DataFrame:
    """First results of an output overlaid with its corrections: keys, `_at`, what is emitted, `_corrected`, `_day`.

    A correction stands for all that its key has emitted on its day from `_replaces_from` until `_replaces_until`; where
    it is retracted, nothing does.
    """
    columns = [f"`{name}`" for name in (*keyed.by, AT, *keyed.output_schemas[output].names)]
    shown = first.select(*columns, F.lit(False).alias("_corrected"), DAY)
    if corrections is None:
        return shown
    others = corrections.where(~F.col(RETRACTED)).select(*columns, F.lit(True).alias("_corrected"), DAY)
    return _not_replaced(shown, corrections, keyed).unionByName(others)


def _not_replaced(first: DataFrame, corrections: DataFrame, keyed: Keyed) -> DataFrame:
    names = {name: f"_replaced{place}" for place, name in enumerate((*keyed.by, DAY))}
    replaced = corrections.select(
        *(F.col(f"`{name}`").alias(alias) for name, alias in names.items()), REPLACES_FROM, REPLACES_UNTIL
    ).distinct()
    same = [F.col(f"`{name}`").eqNullSafe(F.col(alias)) for name, alias in names.items()]
    within = (F.col(AT) >= F.col(REPLACES_FROM)) & (F.col(AT) < F.col(REPLACES_UNTIL))
    return first.join(replaced, reduce(Column.__and__, same, within), "left_anti")
