"""Rules that warn or stop: which of them a batch breaks, and the error of a stream that stops before it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import WARNED, RuleViolation, counted, names_in
from streaming.declare import Rule, Stream

_NAMED, _LONGEST_VALUE = 5, 200
"""The most rows that an error names of a rule, and the most characters of a value in it."""


def warning(stream: Stream) -> list[Rule]:
    """The rules of a stream that only warn."""
    return [rule for rule in stream.watched if rule.on_violation == "warn"]


def stopping(stream: Stream, broken: Mapping[str, int]) -> list[Rule]:
    """The rules that stop the stream before a batch."""
    return [rule for rule in stream.watched if rule.on_violation == "stop" and broken.get(rule.name)]


def rule_violation(stream: Stream, validated: DataFrame, number: int, broken: Mapping[str, int]) -> RuleViolation:
    """The error of a stream that stops before batch `number`, whose rows are `validated`; it names the first rows."""
    said, found = [], []
    for rule in stopping(stream, broken):
        read = [name for name in stream.columns if name in names_in(rule.condition)]
        rows = (
            validated.where(F.array_contains(WARNED, F.lit(rule.name)))
            .select("_origin", *(f"`{name}`" for name in read))
            .orderBy("_origin")
            .limit(_NAMED)
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
        rules={rule.name: broken[rule.name] for rule in stopping(stream, broken)},
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
