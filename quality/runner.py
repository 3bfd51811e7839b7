"""Runs a suite on a frame: one result per expectation, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal

from pyspark.sql import DataFrame

from quality.engine import NAME, validate
from quality.expectations import QUERY, USUAL, Expectation, Suite
from streaming.base import F, counted
from streaming.declare import Usual
from streaming.service import JudgedHours, judge_hours

Outcome = Literal["passed", "failed", "could_not_run"]
_EXAMPLES = 3
_LONGEST = 500


@dataclass(frozen=True)
class ExpectationResult:
    """The outcome of one expectation; `observed` is a value or defect for people, or why it could not run.

    `value` is the number in it: the rows that break the expectation, or the value that was observed; null without one.
    """

    expectation: Expectation
    outcome: Outcome
    observed: str
    value: float | None = None


def run_suite(read: Callable[[], DataFrame], suite: Suite) -> list[ExpectationResult]:
    """One result for every expectation of the suite, in its order, on the frame that `read` returns.

    What cannot be read or computed is `could_not_run`, never `failed`: it tells nothing of the data.
    """
    try:
        results, usual = _results(read(), suite)
    # Any error has to close the gate, so it is recorded as the outcome of every expectation.
    except Exception as error:
        why = _short(str(error) or type(error).__name__)
        return [ExpectationResult(expectation, "could_not_run", why) for expectation in suite.expectations]
    return [
        usual.get(expectation.name) or _result_of(expectation, results.get(expectation.name))
        for expectation in suite.expectations
    ]


def _results(frame: DataFrame, suite: Suite) -> tuple[dict[str, Any], dict[str, ExpectationResult]]:
    """The results of Great Expectations, and of the expectations that are computed here, by name."""
    own = [expectation for expectation in suite.expectations if expectation.kind == USUAL]
    asked = [expectation for expectation in suite.expectations if expectation.kind != USUAL]
    reduced = frame.where(suite.only).persist()
    try:
        validated = validate(reduced, Suite(tuple(asked), suite.only)) if asked else []
        usual = {expectation.name: _judged_usual(reduced, expectation) for expectation in own}
        return {result.expectation_config.meta[NAME]: result for result in validated}, usual
    finally:
        reduced.unpersist()


def _judged_usual(frame: DataFrame, expectation: Expectation) -> ExpectationResult:
    try:
        judged = _hours(frame, **expectation.arguments)
    # As of those that Great Expectations computes, whatever Spark refuses is the outcome of this one.
    except Exception as error:
        return ExpectationResult(expectation, "could_not_run", _short(str(error) or type(error).__name__))
    if not judged.judged:
        return ExpectationResult(expectation, "passed", "no hour has enough history yet", 0.0)
    observed = f"{len(judged.unusual)} of {counted(judged.judged, 'hour')}"
    if not judged.unusual:
        return ExpectationResult(expectation, "passed", observed, 0.0)
    shown = "; ".join(map(str, judged.unusual[:_EXAMPLES]))
    return ExpectationResult(expectation, "failed", _short(f"{observed}, such as {shown}"), float(len(judged.unusual)))


def _hours(
    frame: DataFrame, value: str, time: str, clock: str, last: str, holidays: Sequence[str], **rule: Any
) -> JudgedHours:
    """The hours of a frame by the rule; Spark aggregates them, so that a row for each comes here."""
    counts = value == "count(*)"
    at = F.expr(f"unix_seconds({time}) div 3600 * 3600")
    until = frame.agg(F.expr(f"unix_micros({clock})").alias("until")).first()
    if until is None or until["until"] is None:
        return JudgedHours(0, ())
    rows = frame.groupBy(at.alias("at")).agg(F.expr(f"cast({value} as double)").alias("value")).collect()
    hours = {datetime.fromtimestamp(row["at"], UTC): row["value"] for row in rows if row["at"] is not None}
    return judge_hours(
        {hour: each for hour, each in hours.items() if each is not None},
        Usual(last=last, holidays=tuple(map(date.fromisoformat, holidays)), **rule),
        datetime.fromtimestamp(until["until"] // 1_000_000, UTC),
        empty=0.0 if counts else None,
        counts=counts,
    )


def _result_of(expectation: Expectation, result: Any) -> ExpectationResult:
    if result is None:
        return ExpectationResult(expectation, "could_not_run", "Great Expectations gave no result")
    crash = _crash(result.exception_info)
    if crash is not None:
        return ExpectationResult(expectation, "could_not_run", _short(crash))
    observed, value = _observed(expectation, result.result or {}), _value(result.result or {})
    if observed is None:
        return ExpectationResult(expectation, "could_not_run", "Great Expectations observed nothing")
    if result.success is True:
        return ExpectationResult(expectation, "passed", observed, value)
    return ExpectationResult(expectation, "failed", _short(observed + _examples(result.result)), value)


def _crash(info: Mapping[str, Any] | None) -> str | None:
    """The messages of what raised; the information is flat, or one entry per metric when a metric raised."""
    if not info:
        return None
    entries = [info] if "raised_exception" in info else [entry for entry in info.values() if isinstance(entry, Mapping)]
    messages = {str(entry.get("exception_message")) for entry in entries if entry.get("raised_exception")}
    return "; ".join(sorted(messages)) or None


def _observed(expectation: Expectation, result: Mapping[str, Any]) -> str | None:
    if expectation.kind == QUERY and "observed_value" in result:
        return f"{result['observed_value']} rows"
    if result.get("observed_value") is not None:
        return str(result["observed_value"])
    if result.get("element_count") is None:
        return None
    count, total = result.get("unexpected_count") or 0, result["element_count"]
    return f"{count} of {total} rows" + (f" ({count / total:.2%})" if count else "")


def _value(result: Mapping[str, Any]) -> float | None:
    value = result.get("observed_value")
    if value is None and result.get("element_count") is not None:
        value = result.get("unexpected_count") or 0
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _examples(result: Mapping[str, Any]) -> str:
    defects = (result.get("details") or {}).get("unexpected_rows") or result.get("partial_unexpected_list") or []
    return f", such as {'; '.join(_readable(defect) for defect in defects[:_EXAMPLES])}" if defects else ""


def _readable(example: Any) -> str:
    if isinstance(example, Mapping):
        return ", ".join(f"{name}={value}" for name, value in example.items())
    return str(example)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
