"""Rejected rows whose payload has masked values, when they are judged anew: with the masked columns of then."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.declare import MASKED, WITHHELD, Stream
from streaming.formats import WRONG
from streaming.log.masking import BEFORE, WAS_MASKED, masked_reason, wrong_value

RETURNING = (WAS_MASKED, BEFORE)
"""The columns that `returning` adds."""


def returning(rejected: DataFrame, stream: Stream) -> DataFrame:
    """The rejected rows of a log that can be judged anew, with `RETURNING`.

    Those stay behind whose payload was withheld; those that other masks were put on than the stream has today, as a
    value would be in clear or a mask would pass for a value; and those that were rejected for a value which is masked,
    since nobody knows what it was.
    """
    was_masked = F.exists("_rejected", lambda each: each.startswith(f"{MASKED}: "))
    there = {*rejected.columns}
    before = F.struct(
        *(F.col(f"`{name}`") if name in there else F.lit(None).alias(name) for name in sorted(stream.masked_columns)),
        F.lit(True).alias("_"),
    )
    return rejected.where(~_is_kept_back(stream)).withColumns({WAS_MASKED: was_masked, BEFORE: before})


def kept_back(rejected: DataFrame, stream: Stream) -> DataFrame:
    """The rejected rows of a log that `returning` leaves out."""
    return rejected.where(_is_kept_back(stream))


def _is_kept_back(stream: Stream) -> Column:
    of_masked = [wrong_value(name, required=each) for name in sorted(stream.masked_columns) for each in (True, False)]
    of_masked += [f"derived: {name} " for name in stream.derived if name in stream.masked_columns]
    # The condition of then is asked, which the reason has: the rule may have another one today, or none.
    names = "|".join(map(re.escape, sorted(stream.masked_columns)))
    rule_of_masked = rf"(?isU)\A[^:]+: (not \(|cannot be judged: ).*(?<!\w)({names})(?!\w)"

    def is_lost(reason: Column) -> Column:
        is_of_others = reason.startswith(f"{MASKED}: ") & (reason != masked_reason(stream.masked))
        told = reason.startswith(f"{WITHHELD}: ") | is_of_others
        for begin in of_masked:
            told = told | reason.startswith(begin)
        return told | reason.rlike(rule_of_masked) if names else told

    was_masked = F.exists("_rejected", lambda each: each.startswith(f"{MASKED}: ") | each.startswith(f"{WITHHELD}: "))
    return was_masked & F.exists("_rejected", is_lost)


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
