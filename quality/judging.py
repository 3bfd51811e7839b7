"""Judging: suites run on exact versions, and every verdict is stored."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from quality.expectations import Suite
from quality.find import roles_read, suites_for
from quality.pins import Pin, Pins
from quality.runner import run_suite
from quality.verdicts import Subject, Verdict, store_verdicts, verdicts_on
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
