"""Corrections: what a function gives for activity sessions with late rows, each in its place, one day at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession

from streaming.base import ViewError, literal
from streaming.declare import Keyed, corrections_of
from streaming.keyed.control import rules_of_logs
from streaming.keyed.corrections_plan import can_be_followed, late_days
from streaming.keyed.late import logs_of
from streaming.keyed.reached import Reached
from streaming.keyed.replacements import DayReplay
from streaming.keyed.rules import PinnedRules
from streaming.lake import Lake
from streaming.log import Batch, batches_after, read_log
from streaming.operators import (
    check_declaration,
    corrected_numbers,
    create_table,
    each_day,
    generation_of,
    open_side,
    same_generation,
)
from streaming.tables import delta


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
        ViewError: late rows are not corrected by the declaration.
        ChangedDeclaration: it is not the one that made the tables.
        FencedError: the tables were built anew meanwhile.
        CorrectionsFailed: days for which the function raised, once all others are corrected.
    """
    check_corrected(keyed)
    generation = generation_of(delta.open_table(lake.table(keyed)))
    check_declaration(lake, keyed)
    asked = sorted(set(days)) if can_be_followed(lake, keyed) else []
    if not asked:
        return {}
    at = Reached.at_heads(lake, keyed)
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
                    metadata={"through": {day.isoformat(): dict(at.through)}, "view": keyed.name},
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
        ViewError: with what to declare.
    """
    if keyed.order == "arrival":
        raise ViewError(
            f"keyed function {keyed.name!r} is of order 'arrival', in which late rows come like all others, so that "
            "there is nothing to correct."
        )
    if not keyed.corrected:
        raise ViewError(
            f"keyed function {keyed.name!r} has no idle, so that a late row may change all that its key has ever "
            "emitted since, and nothing is corrected. Declare after how long without a row a key starts anew, such as "
            f"idle='1 day', and run `tidemark rebuild {keyed.name}`; its late rows are all in the log."
        )


def pinned_rules(
    spark: SparkSession,
    lake: Lake,
    keyed: Keyed,
    at: Reached,
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
    if not keyed.corrected or not can_be_followed(lake, keyed):
        return None
    at, logs = Reached.at_heads(lake, keyed), logs_of(spark, lake, keyed)
    days = [row["day"] for row in late_days(keyed, logs, at).collect()]
    rules = pinned_rules(spark, lake, keyed, at)
    frames = [DayReplay.of(keyed, logs, day, at).replacements(output, rules) for day in days]
    return reduce(DataFrame.unionByName, frames) if frames else None
