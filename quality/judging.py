"""Judging: suites run on exact versions, and every verdict is stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from quality.expectations import Suite
from quality.find import roles_read, suites_for
from quality.gate import reasons_of
from quality.pins import Pin, Pins
from quality.runner import run_suite
from quality.verdicts import Subject, Verdict, store_verdicts, verdicts_for, verdicts_on
from streaming.base import utc_now
from streaming.declare import Operator, Pipeline, Stream
from streaming.lake import Lake


def judge(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    pins: Pins,
    run_id: str,
    now: Callable[[], datetime],
    reads: Collection[Operator | Stream] = (),
) -> list[Verdict]:
    """Run the suite of every pinned table that has one on exactly its version; store and return the verdicts.

    Of those behind the operators and streams that somebody `reads`, of all where nothing is named.

    A bad table is a verdict, not an error: it is the gate that refuses.
    """
    suites, roles = suites_for(pipeline), roles_read(pipeline, reads)
    judged = [pin for pin in pins.tables if pin.role in suites.keys() & roles]
    return [verdict for pin in judged for verdict in judge_table(spark, lake, pin, suites[pin.role], run_id, now)]


def judge_missing(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    pins: Pins,
    run_id: str,
    reads: Collection[Operator | Stream] = (),
) -> None:
    """Run the suites of those pinned tables that have no verdicts on exactly their versions; see `judge` of `reads`."""
    suites, roles = suites_for(pipeline), roles_read(pipeline, reads)
    for pinned in (each for each in pins.tables if each.role in suites.keys() & roles):
        judge_once(lambda: spark, lake, pinned, suites[pinned.role], run_id)


def judge_once(
    spark: Callable[[], SparkSession], lake: Lake, pinned: Pin, suite: Suite, run_id: str
) -> Mapping[str, Verdict]:
    """The verdicts on a pinned table by expectation; its suite is run where one of them is to be asked for again."""
    stored = verdicts_for(lake, pinned.table, pinned.version)
    # A verdict that the data are bad stands; one that is missing, stale or could not be computed is asked for again.
    if all(reason.why == "failed" for reason in reasons_of(suite, pinned.subject, stored)):
        return stored
    return {v.expectation: v for v in judge_table(spark(), lake, pinned, suite, run_id, utc_now)}


def judge_table(
    spark: SparkSession, lake: Lake, pin: Pin, suite: Suite, run_id: str, now: Callable[[], datetime]
) -> list[Verdict]:
    """Run one suite on one pinned table; store and return a verdict for each of its expectations."""
    return judge_frame(lambda: pin.read(spark), lake, pin.subject, suite, run_id, now)


def judge_frame(
    read: Callable[[], DataFrame],
    lake: Lake,
    subject: Subject,
    suite: Suite,
    run_id: str,
    now: Callable[[], datetime],
) -> list[Verdict]:
    """Run one suite on the frame that `read` returns, which is or will be `subject`; store and return the verdicts."""
    verdicts = verdicts_on(subject, run_suite(read, suite), run_id, now())
    store_verdicts(lake, verdicts)
    return verdicts
