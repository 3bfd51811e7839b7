"""The gate: it opens only when every expectation on exactly the pinned versions is known to have passed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, timedelta

from pyspark.sql import SparkSession

from quality.errors import GateClosed, QualityError, Reason, Why
from quality.expectations import Expectation, Level, Suite
from quality.find import (
    operators_read,
    optional_roles,
    role_of_corrections,
    role_of_log,
    roles_read,
    suites_for,
)
from quality.pins import Pin, Pins
from quality.verdicts import Subject, Verdict, all_verdicts, table_id, table_name, verdicts_for
from streaming.declare import Operator, Pipeline, Stream
from streaming.lake import Lake
from streaming.operators import followed_upstream, plan_corrections, runtime_of
from streaming.tables import delta

_A_DAY = timedelta(days=1)
_WAYS_OUT: dict[Why, str] = {
    "failed": "Correct the data at its source, or the expectation in its suite.",
    "could_not_run": "Remove the cause, then judge these versions again.",
    "missing": "Judge these versions first.",
    "stale": "Judge these versions first.",
    "uncorrected": "Run the corrections, then pin and judge again.",
    "moved": "Pin and judge again.",
}


def open_gate(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    pins: Pins,
    days: Iterable[date] | None = None,
    reads: Collection[Operator | Stream] = (),
) -> None:
    """Return if the pinned versions may be reported for `days` (all days without it), by who `reads` only that much.

    Raises:
        GateClosed: with every reason; nothing may be published.
        QualityError: the pins are not this pipeline's.
    """
    reasons = reasons_to_close(spark, lake, pipeline, pins, days, reads)
    if reasons:
        ways_out = dict.fromkeys(_WAYS_OUT[reason.why] for reason in reasons)
        raise GateClosed(reasons, f"Nothing was published. {' '.join(ways_out)}")


def reasons_to_close(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    pins: Pins,
    days: Iterable[date] | None = None,
    reads: Collection[Operator | Stream] = (),
) -> list[Reason]:
    """Everything that keeps the gate closed, tables in the order of their suites, then late pairs; empty if none.

    `reads`: the operators and streams that are asked about, all where nothing is named.

    Raises:
        QualityError: the pins are not this pipeline's, or lack one of its tables.
    """
    may_be_absent = optional_roles(pipeline)
    if pins.pipeline != pipeline.name or not may_be_absent.issuperset(pins.absent):
        raise QualityError(
            f"the pins are of pipeline {pins.pipeline!r} without {', '.join(pins.absent) or 'nothing'}, and pipeline "
            f"{pipeline.name!r} needs all but {', '.join(sorted(may_be_absent))}",
            "pin again.",
            pipeline=pins.pipeline,
        )
    reasons, suites, roles = [], suites_for(pipeline), roles_read(pipeline, reads)
    for role, suite in suites.items():
        pin = pins.pin(role) if role in roles else None
        if pin is not None:
            reasons += _rebuilt(pin)
            reasons += reasons_of(
                suite, pin.subject, verdicts_for(lake, pin.table, pin.version), all_verdicts(lake, pin.table)
            )
    reasons += [reason for pin in pins.tables if pin.role in roles - suites.keys() for reason in _rebuilt(pin)]
    wanted = None if days is None else set(days)
    for operator in (each for each in pipeline.backfilled if each in operators_read(pipeline, reads)):
        reasons += _uncorrected(spark, lake, pipeline, operator, pins, wanted)
    if lake.cut is None:
        for operator, reach in followed_upstream(operators_read(pipeline, reads)).items():
            reasons += _uncorrected_upstream(spark, lake, operator, reach, wanted)
    return reasons


def reasons_of(
    suite: Suite, subject: Subject, stored: Mapping[str, Verdict], others: Iterable[Verdict] = ()
) -> list[Reason]:
    """The reasons against `subject` by the `stored` verdicts on it; `others` (any version) tell stale from missing.

    An expectation that only warns is none where the data do not meet it: see `warnings_of`.
    """
    return [reason for level, reason in _reasons(suite, subject, stored, others) if not _warns(level, reason)]


def warnings_of(suite: Suite, subject: Subject, stored: Mapping[str, Verdict]) -> list[Reason]:
    """The expectations that only warn and that `subject` does not meet, by the `stored` verdicts on it."""
    return [reason for level, reason in _reasons(suite, subject, stored) if _warns(level, reason)]


def warnings_on(
    lake: Lake, pipeline: Pipeline, pins: Pins, reads: Collection[Operator | Stream] = ()
) -> Iterator[Reason]:
    """The warnings on the pinned versions, tables in the order of their suites; `reads`: as `reasons_to_close` says."""
    roles = roles_read(pipeline, reads)
    for role, suite in suites_for(pipeline).items():
        pin = pins.pin(role) if role in roles else None
        if pin is not None:
            yield from warnings_of(suite, pin.subject, verdicts_for(lake, pin.table, pin.version))


def _reasons(
    suite: Suite, subject: Subject, stored: Mapping[str, Verdict], others: Iterable[Verdict] = ()
) -> Iterator[tuple[Level, Reason]]:
    elsewhere = {verdict.expectation: verdict for verdict in others}
    for expectation in suite.expectations:
        verdict = stored.get(expectation.name) or elsewhere.get(expectation.name)
        reason = _reason(expectation, subject, verdict)
        if reason is not None:
            yield expectation.level, reason


def _warns(level: Level, reason: Reason) -> bool:
    return level == "warn" and reason.why == "failed"


def _reason(expectation: Expectation, subject: Subject, verdict: Verdict | None) -> Reason | None:
    def because(why: Why, text: str) -> Reason:
        what = f"expectation {expectation.name!r} on {subject.table} version {subject.version}"
        observed = None if verdict is None else verdict.observed
        return Reason(why, subject.table, subject.version, expectation.name, observed, f"{what} {text}")

    if verdict is None:
        return because("missing", "has no verdict")
    whose = _of_another(expectation, subject, verdict)
    if whose is not None:
        outcome = f"{verdict.outcome}, observed {verdict.observed}, run {verdict.run_id}"
        return because("stale", f"has a stale verdict only, that of {whose} ({outcome})")
    if verdict.outcome == "could_not_run":
        return because("could_not_run", f"could not run: {verdict.observed}")
    if verdict.outcome != "passed":
        return because("failed", f"failed: observed {verdict.observed}; expected: {expectation.meaning}")
    return None


def _of_another(expectation: Expectation, subject: Subject, verdict: Verdict) -> str | None:
    if verdict.version != subject.version:
        return f"version {verdict.version}"
    if verdict.table_id != subject.table_id:
        return "an earlier table in the same place"
    if verdict.definition != expectation.definition:
        return "an earlier definition of the expectation"
    return None


def _rebuilt(pin: Pin) -> list[Reason]:
    table = delta.open_table(pin.uri)
    if table is not None and table_id(table) == pin.table_id:
        return []
    text = f"{pin.table} is another table than the one that was pinned as version {pin.version}; pin and judge again"
    return [Reason("moved", pin.table, pin.version, None, None, text)]


def _uncorrected_upstream(
    spark: SparkSession, lake: Lake, operator: Operator, reach: timedelta, days: set[date] | None
) -> Iterator[Reason]:
    """The days that are due of an operator which is followed, and that a number of the `days` may be made of."""
    for entry in plan_corrections(spark, lake, operator):
        if days is None or any(abs(day - entry.day) <= reach + _A_DAY for day in days):
            table = table_name(lake, lake.corrections(operator))
            text = (
                f"{entry.day} has {entry.late_pairs} late rows in {operator.name}, which is followed, and whose "
                f"correction would change what is reported; run `tidemark correct {operator.folder} --day {entry.day}`,"
                " then the pipelines that follow it"
            )
            version = delta.version_of(lake.corrections(operator))
            yield Reason("uncorrected", table, version, None, str(entry.late_pairs), text)


def _uncorrected(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, operator: Operator, pins: Pins, days: set[date] | None
) -> list[Reason]:
    logs = {stream.name: pins.pin(role_of_log(pipeline, stream)) for stream in operator.reads}
    versions = {name: log.version for name, log in logs.items() if log is not None}
    corrections = pins.pin(role_of_corrections(operator.name))
    table = table_name(lake, lake.corrections(operator))
    version = None if corrections is None else corrections.version
    reasons = []
    # Late pairs and corrections that came after the pins do not count: the next report has them.
    pinned = delta.BEFORE if version is None else version
    for entry in runtime_of(operator, lake).plan(spark, versions, pinned):
        through = entry.through_batch
        done = "no correction" if through is None else f"a correction through batch {through} only"
        text = (
            f"{entry.day} has {entry.late_pairs} late rows in {operator.name}, the newest of batch "
            f"{entry.newest_batch}, and {done}; run `tidemark correct {pipeline.name} --day {entry.day}`"
        )
        if days is None or entry.day in days:
            reasons.append(Reason("uncorrected", table, version, None, str(entry.late_pairs), text))
    return reasons
