"""Rejected rows whose payload has masked values, when they are judged anew: with the masked columns of then."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import names_in
from streaming.declare import Stream
from streaming.formats import WRONG
from streaming.log.masking import BEFORE, MASKED, WAS_MASKED, WITHHELD, wrong_value

RETURNING = (WAS_MASKED, BEFORE)
"""The columns that `returning` adds."""


def returning(rejected: DataFrame, stream: Stream) -> DataFrame:
    """The rejected rows of a log that can be judged anew, with `RETURNING`.

    Those stay behind whose payload was withheld, and those that were masked after they were rejected for a value which
    is masked: nobody knows what it was.
    """
    was_masked = _has_reason(f"{MASKED}: ")
    of_masked = [f"{rule.name}: " for rule in stream.rules if names_in(rule.condition) & stream.masked_columns]
    of_masked += [wrong_value(name, required=each) for name in sorted(stream.masked_columns) for each in (True, False)]
    of_masked += [f"derived: {name} " for name in stream.derived if name in stream.masked_columns]
    lost = _has_reason(f"{WITHHELD}: ") | (was_masked & _has_reason(*of_masked))
    there = {*rejected.columns}
    names = sorted(stream.masked_columns & there)
    before = F.struct(*(F.col(f"`{name}`") for name in names), F.lit(True).alias("_"))
    return rejected.where(~lost).withColumns({WAS_MASKED: was_masked, BEFORE: before})


def with_values_of_then(parsed: DataFrame, stream: Stream) -> DataFrame:
    """Parsed payloads in which the masked columns of masked rows are those of then, and nothing is wrong with them."""
    payload = {column.name for column in stream.format.columns}
    was, frame, wrong = F.col(WAS_MASKED), parsed, F.col(WRONG)
    known = [name for name in parsed.select(f"{BEFORE}.*").columns if name in payload]
    for name in known:
        value = F.when(was, F.col(f"{BEFORE}.`{name}`")).otherwise(F.col(f"`{name}`"))
        frame = frame.withColumn(name, value)
        wrong = wrong.withField(f"`{name}`", F.when(~was, F.col(f"{WRONG}.`{name}`")))
    return frame.withColumn(WRONG, F.when(F.col(WRONG).isNotNull(), wrong))


def _has_reason(*begins: str) -> Column:
    """True for a row with a reason that begins in one of these ways."""

    def so(reason: Column) -> Column:
        asked = [reason.startswith(each) for each in begins]
        told = F.lit(False)
        for each in asked:
            told = told | each
        return told

    return F.exists("_rejected", so)
