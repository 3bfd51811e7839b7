"""Restart strategies, in minutes after the first start."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from streaming.base.errors import DeclarationError
from streaming.declare.restarts import ExponentialBackoff, Failure, FailureRate, FixedDelay, NoRestart, RestartStrategy
from tests.support.instants import at


def failures(*minutes: float, ran: float = 0.0, error: str = "", batch: str = "") -> list[Failure]:
    """Failures at these minutes, each after `ran` minutes; without an error of its own, each is another."""
    return [
        Failure(at(60 * minute), timedelta(minutes=ran), error or f"error {number}", batch)
        for number, minute in enumerate(minutes)
    ]


def seconds(wait: timedelta | None) -> float | None:
    return None if wait is None else wait.total_seconds()


def test_o5_restart_strategies() -> None:
    rate = FailureRate(failures=3, per="10 minutes", delay="10 seconds")
    assert [seconds(rate.wait(failures(*range(0, 3 * count, 3)))) for count in (1, 2, 3)] == [10, 10, 10]
    assert rate.wait(failures(0, 3, 6, 9)) is None  # four in ten minutes
    assert seconds(rate.wait(failures(0, 3, 6, 11))) == 10  # the first has left the ten minutes

    fixed = FixedDelay(attempts=5, delay="30 seconds")
    waits = [seconds(fixed.wait(failures(*range(count)))) for count in range(1, 7)]
    assert waits == [30, 30, 30, 30, 30, None]

    assert NoRestart().wait(failures(0)) is None


def test_a_failure_exactly_as_old_as_the_interval_counts_no_more() -> None:
    rate = FailureRate(failures=1, per="10 minutes", delay="1 second")
    assert seconds(rate.wait(failures(0, 10))) == 1
    assert rate.wait(failures(0, 9.99)) is None


def test_backoff_doubles_up_to_its_maximum_and_begins_anew_after_a_healthy_run() -> None:
    backoff = ExponentialBackoff(initial="1 second", maximum="6 seconds", reset_after="10 minutes")
    waits = [seconds(backoff.wait(failures(*range(count)))) for count in range(1, 6)]
    assert waits == [1, 2, 4, 6, 6]
    healthy = [*failures(0, 1, 2), *failures(12, ran=10)]
    assert seconds(backoff.wait(healthy)) == 1
    assert seconds(backoff.wait([*healthy, *failures(13)])) == 2


def test_a_fixed_number_of_attempts_is_for_failures_without_a_healthy_run_between_them() -> None:
    fixed = FixedDelay(attempts=1, delay="1 second", reset_after="1 hour")
    assert fixed.wait(failures(0, 1)) is None
    assert seconds(fixed.wait([*failures(0), *failures(60, ran=60)])) == 1
    assert fixed.wait([*failures(0), *failures(60, ran=59.99)]) is None


@pytest.mark.parametrize("strategy", [FixedDelay(), ExponentialBackoff(), FailureRate(failures=9)], ids=repr)
def test_the_same_batch_failing_the_same_way_a_third_time_ends_every_strategy(strategy: RestartStrategy) -> None:
    poisoned = failures(0, 1, 2, error="division by zero", batch="beats.log 17")
    assert strategy.wait(poisoned[:2], identical=3) is not None
    assert strategy.wait(poisoned, identical=3) is None
    interrupted = [poisoned[0], *failures(1, error="killed"), *poisoned[1:]]
    assert strategy.wait(interrupted, identical=3) is not None
    elsewhere = [*poisoned[:2], *failures(2, error="division by zero", batch="beats.log 18")]
    assert strategy.wait(elsewhere, identical=3) is not None
    wordless = failures(0, 1, 2, error="killed by signal 9")
    assert strategy.wait(wordless, identical=3) is not None


def test_failures_that_differ_only_by_where_spark_ran_what_failed_are_the_same() -> None:
    template = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task {} in stage {} failed 1 times, most "
        "recent failure: Lost task {} in stage {} (TID {}) (host executor driver): {}"
    )
    overflow, division = "java.lang.ArithmeticException: 7 overflows", "java.lang.ArithmeticException: 8 overflows"
    first, again, other = (
        Failure(at(0), timedelta(), template.format(*place, why), "beats.by_id 17")
        for *place, why in (
            (0, "1203.0", "0.0", "1203.0", 8821, overflow),
            (1, "12.0", "1.0", "12.0", 33, overflow),
            (1, "12.0", "1.0", "12.0", 33, division),
        )
    )
    assert first.same_as(again) and not again.same_as(other)


def test_a_full_disk_is_not_the_batchs_fault_however_often_it_fails() -> None:
    full = [replace(failure, outside=True) for failure in failures(0, 1, 2, 3, error="disk full", batch="beats.log 17")]
    assert ExponentialBackoff().wait(full, identical=3) is not None
    assert ExponentialBackoff().wait([replace(failure, outside=False) for failure in full], identical=3) is None


@pytest.mark.parametrize("strategy", [FixedDelay(), ExponentialBackoff(), FailureRate()], ids=repr)
def test_a_final_failure_is_never_followed_by_a_start(strategy: RestartStrategy) -> None:
    assert strategy.wait([Failure(at(0), timedelta(hours=9), "the schema changed", final=True)]) is None


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: FixedDelay(attempts=0), "attempts=0 would never restart; use 1 or more, or NoRestart()"),
        (lambda: FailureRate(failures=0), "failures=0 would never restart"),
        (lambda: FailureRate(per="often"), "'often' is not an interval"),
        (lambda: ExponentialBackoff(multiplier=0.5), "multiplier=0.5 would shrink the wait; use 1 or more"),
        (lambda: ExponentialBackoff(maximum="long"), "'long' is not an interval"),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(declare: object, text: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        declare()  # type: ignore[operator]
    assert text in str(refused.value)
