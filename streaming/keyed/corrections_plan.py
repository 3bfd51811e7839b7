"""Which days need a correction: those on which late rows, or what follows from them, are not corrected."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import to_micros
from streaming.declare import CORRECTIONS, Keyed
from streaming.keyed.late import logs_of, passed, sessions_with_late_rows
from streaming.keyed.late_sessions import END, LATE_ROWS
from streaming.keyed.reached import Reached
from streaming.lake import Lake
from streaming.log import head
from streaming.operators import Corrected, PendingDay, open_side
from streaming.tables import delta

_DAY_MICROS = 86_400_000_000


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
    if not keyed.corrected or not can_be_followed(lake, keyed):
        return []
    at = Reached.at_heads(lake, keyed, log_versions)
    corrections = open_side(lake, keyed, CORRECTIONS, corrections_version)
    return pending(keyed, logs_of(spark, lake, keyed), at, corrections)


def can_be_followed(lake: Lake, keyed: Keyed) -> bool:
    """Whether all logs are there, and say how far the control stream was, if there is one."""
    newest = [head(lake, stream) if delta.exists(lake.log(stream)) else None for stream in keyed.streams]
    rules = keyed.rules
    return all(batch is not None and (rules is None or rules.of.name in batch.pins) for batch in newest)


def pending(
    keyed: Keyed, logs: Mapping[str, DataFrame], at: Reached, corrections: DeltaTable | None
) -> list[PendingDay]:
    """The same of the `logs` up to `at`, given the open table of corrections.

    A day waits if late rows are newer than its correction, or if a session with some was open then and the clock has
    moved on: what the stream has emitted of it since follows from state without the late rows.
    """
    entries = []
    for row in late_days(keyed, logs, at).collect():
        corrected = Corrected.of(keyed, row["day"], corrections)
        named = {stream.name: row[f"newest_{place}"] for place, stream in enumerate(keyed.streams)}
        newest = {name: number for name, number in named.items() if number is not None}
        if corrected.has_begun and _goes_on(row["until"], corrected, at):
            newest = dict(at.through)
        entry = corrected.pending(row["day"], row["late_rows"], newest)
        if entry is not None:
            entries.append(entry)
    return entries


def late_days(keyed: Keyed, logs: Mapping[str, DataFrame], at: Reached) -> DataFrame:
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


def _goes_on(until: int, corrected: Corrected, at: Reached) -> bool:
    """Whether the clock had not reached the end of what is replaced when the day was corrected, and is further now."""
    then, now = corrected.watermark, at.watermark
    return then is None or (until > to_micros(then) and now is not None and now > then)
