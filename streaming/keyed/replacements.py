"""What stands for the results of a day that late rows have changed: a pure function of the logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import AT, DAY, MICROSECOND, RETRACTED, STAMP, date_literal, literal, to_micros
from streaming.declare import REPLACES_FROM, REPLACES_UNTIL, SESSION_START, Keyed, through_column
from streaming.keyed.frame import in_order
from streaming.keyed.late import passed, sessions_with_late_rows
from streaming.keyed.late_sessions import END, FIRST_LATE, LATE_ROWS, START
from streaming.keyed.reached import Reached
from streaming.keyed.rules import PinnedRules
from streaming.keyed.schemas import key_schema, spark_schema
from streaming.keyed.tasks import RowsOf

_OUTPUT = "_output"


@dataclass(frozen=True)
class DayReplay:
    """What of one day late rows may have changed.

    `stretches`: of each activity session with late rows that reaches into the day, the part that is replaced; `rows`:
    all rows of these sessions, by stream; `last`: the last instant of which results are replaced, in microseconds.
    """

    keyed: Keyed
    day: date
    at: Reached
    stretches: DataFrame
    rows: Mapping[str, DataFrame]
    last: int

    @classmethod
    def of(cls, keyed: Keyed, logs: Mapping[str, DataFrame], day: date, at: Reached) -> DayReplay:
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
    """What the function emits to an output over the `rows`, by stream, each in its place whether it is late or not.

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
