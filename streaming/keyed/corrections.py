"""Corrections: what a function gives for activity sessions with late rows, each in its place, one day at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial, reduce

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, DAY, MICROSECOND, RETRACTED, STAMP, OperatorError, date_literal, literal, to_micros
from streaming.declare import (
    CORRECTIONS,
    REPLACES_FROM,
    REPLACES_UNTIL,
    SESSION_START,
    Keyed,
    corrections_of,
    through_column,
)
from streaming.keyed.frame import in_order
from streaming.keyed.late import END, FIRST_LATE, LATE_ROWS, START, logs_of, passed, sessions_with_late_rows
from streaming.keyed.rules import PinnedRules, rules_of_logs
from streaming.keyed.schemas import key_schema, spark_schema
from streaming.keyed.tasks import RowsOf
from streaming.lake import Lake
from streaming.log import Batch, batches_after, head, read_log
from streaming.operators import (
    Corrected,
    PendingDay,
    Progress,
    check_declaration,
    corrected_numbers,
    create_table,
    each_day,
    generation_of,
    open_side,
    same_generation,
)
from streaming.tables import delta

_DAY_MICROS = 86_400_000_000
_OUTPUT = "_output"


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
    stream, control = keyed.streams[0], keyed.rules.of
    followed = batches_after(lake, stream, -1) if batches is None else batches
    if rows is None and delta.exists(lake.log(control)):
        rows = read_log(spark, lake, control)
    return rules_of_logs(keyed.rules, followed, at.through[stream.name], rows)


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
    return all(batch is not None and (rules is None or rules.of.name in batch.pins) for batch in newest)


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
    last = F.to_date(F.timestamp_micros(F.least(end - 1, F.lit(clock))))
    rows = sessions.select(end.alias("end"), last.alias("last"), F.explode(LATE_ROWS).alias("late"))
    days = F.explode(F.sequence(F.date_from_unix_date("late.day"), "last")).alias("day")
    day_ends = (F.unix_date("day").cast("bigint") + 1) * F.lit(_DAY_MICROS)
    newest = [
        F.max(F.when(F.col("late.stream") == place, F.col("late.batch"))).alias(f"newest_{place}")
        for place in range(len(keyed.streams))
    ]
    return (
        rows.select(days, "end", "late")
        .groupBy("day")
        .agg(F.sum("late.rows").alias("late_rows"), F.max(F.least("end", day_ends)).alias("until"), *newest)
        .orderBy("day")
    )


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
    keys = key_schema(keyed, rows[keyed.streams[0].name])
    emitted = keyed.output_schemas[output]
    schema = pa.schema([*keys, pa.field(AT, pa.timestamp("us", "UTC")), *emitted])
    # Without a stamp no row is late.
    unstamped = {name: each.withColumn(STAMP, F.lit(None).cast("timestamp")) for name, each in rows.items()}
    task = RowsOf(keyed, clock, output, schema, rules)
    return in_order(keyed, unstamped, rules).mapInArrow(task, spark_schema(schema, partitioned=False))


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
