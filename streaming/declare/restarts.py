"""Restart strategies: when a stream process that died is started again, as pure values."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streaming.base import DeclarationError, interval

_PLACE = re.compile(r"\b(task|stage|TID|executor) \d+(\.\d+)*", re.IGNORECASE)
"""Where Spark ran what failed, which is another place each time."""


@dataclass(frozen=True)
class Failure:
    """The end of a stream process that was not asked for.

    `at` when it ended, `ran` how long it had been running, `batch` the query and batch in which it failed (such as
    `flights.log 17`; empty where it died without a word), `error` what it said or what killed it, `origins` the files
    or offsets of that batch. `final`: starting again cannot help, for the declaration and the tables do not agree.
    `outside`: the batch is not to blame, such as for a full disk, and will pass once that is over.
    """

    at: datetime
    ran: timedelta
    error: str
    batch: str = ""
    origins: str = ""
    final: bool = False
    outside: bool = False

    def same_as(self, other: Failure) -> bool:
        """True if both died of one cause: the same error in the same batch, which is to blame for it."""
        if not self.batch or self.outside or self.batch != other.batch:
            return False
        return _PLACE.sub("", self.error) == _PLACE.sub("", other.error)


@dataclass(frozen=True)
class RestartStrategy(ABC):
    """Decides after each failure how long to wait before the next start, or to give up.

    Whatever the strategy, a failure that is final ends it, and so do `identical` failures in a row that are one and
    the same: a batch is fixed in the checkpoint, so what crashed in it three times crashes in it for ever.
    """

    def wait(self, failures: Sequence[Failure], identical: int = 3) -> timedelta | None:
        """The wait after the last of `failures` (all so far, oldest first); None where the pipeline has failed."""
        if failures[-1].final or repeated(failures) >= identical:
            return None
        return self._wait(failures)

    @abstractmethod
    def _wait(self, failures: Sequence[Failure]) -> timedelta | None: ...


def repeated(failures: Sequence[Failure]) -> int:
    """The number of the newest failures that are one and the same; 1 where the newest has no equal before it."""
    count = 1
    while count < len(failures) and failures[-1 - count].same_as(failures[-1]):
        count += 1
    return count


@dataclass(frozen=True)
class NoRestart(RestartStrategy):
    """The first failure is the last."""

    def _wait(self, failures: Sequence[Failure]) -> timedelta | None:
        return None


@dataclass(frozen=True)
class FixedDelay(RestartStrategy):
    """`attempts` restarts, each after `delay`; a run of `reset_after` without failure wipes the slate.

    Semantics of Flink's fixed-delay strategy, but for the reset: a stream that runs for months would use up any number.

    Raises:
        DeclarationError: an interval cannot be read, or there is no attempt.
    """

    attempts: int = 5
    delay: str = "30 seconds"
    reset_after: str = "1 hour"

    def __post_init__(self) -> None:
        _check(self.attempts, "attempts", self.delay, self.reset_after)

    def _wait(self, failures: Sequence[Failure]) -> timedelta | None:
        return interval(self.delay) if _in_a_row(failures, self.reset_after) <= self.attempts else None


@dataclass(frozen=True)
class ExponentialBackoff(RestartStrategy):
    """Restarts for ever, after `initial`, then `multiplier` times longer each time, up to `maximum`.

    A run of `reset_after` without failure begins anew with `initial`.

    Raises:
        DeclarationError: an interval cannot be read, or the wait would shrink.
    """

    initial: str = "1 second"
    maximum: str = "2 minutes"
    multiplier: float = 2.0
    reset_after: str = "10 minutes"

    def __post_init__(self) -> None:
        _check(1, "attempts", self.initial, self.maximum, self.reset_after)
        if self.multiplier < 1:
            raise DeclarationError(
                f"multiplier={self.multiplier!r} would shrink the wait",
                "use 1 or more.",
                field="multiplier",
                value=self.multiplier,
            )

    def _wait(self, failures: Sequence[Failure]) -> timedelta | None:
        wait, longest = interval(self.initial), interval(self.maximum)
        for _ in range(_in_a_row(failures, self.reset_after) - 1):
            if wait >= longest:
                break
            wait *= self.multiplier
        return min(wait, longest)


@dataclass(frozen=True)
class FailureRate(RestartStrategy):
    """Restarts after `delay` as long as there were at most `failures` in the last `per`, this one included.

    Semantics of Flink's failure-rate strategy.

    Raises:
        DeclarationError: an interval cannot be read, or no failure is allowed.
    """

    failures: int = 3
    per: str = "10 minutes"
    delay: str = "10 seconds"

    def __post_init__(self) -> None:
        _check(self.failures, "failures", self.per, self.delay)

    def _wait(self, failures: Sequence[Failure]) -> timedelta | None:
        since = failures[-1].at - interval(self.per)
        recent = sum(failure.at > since for failure in failures)
        return interval(self.delay) if recent <= self.failures else None


def _in_a_row(failures: Sequence[Failure], reset_after: str) -> int:
    """The newest failures without a run of `reset_after` between them."""
    count = 0
    for failure in reversed(failures):
        count += 1
        if failure.ran >= interval(reset_after):
            break
    return count


def _check(count: int, name: str, *lengths: str) -> None:
    if count < 1:
        raise DeclarationError(
            f"{name}={count!r} would never restart", "use 1 or more, or NoRestart().", field=name, value=count
        )
    for length in lengths:
        interval(length)
