"""Waits before something is tried again: longer each time, and as long as whoever is away asks for."""

from __future__ import annotations

from tenacity import RetryCallState, wait_exponential_jitter

from streaming.base import ReceiverError, SinkError

_FIRST_RETRY, _LONGEST_RETRY, _JITTER = 0.5, 60.0, 1.0


def growing_wait() -> wait_exponential_jitter:
    """A wait that is longer each time, and never ends at the same moment for all who wait."""
    return wait_exponential_jitter(multiplier=_FIRST_RETRY, max=_LONGEST_RETRY, jitter=_JITTER)


_grows = growing_wait()


def next_wait(attempt: RetryCallState) -> float:
    """Seconds before the next attempt: longer each time, and at least as long as the other side asks for."""
    return max(_grows(attempt), _asked_for(None if attempt.outcome is None else attempt.outcome.exception()))


def first_wait(error: BaseException) -> float:
    """Seconds before the first attempt after what has ended with an error, at least as long as that asks for."""
    return max(_FIRST_RETRY, _asked_for(error))


def _asked_for(error: BaseException | None) -> float:
    return (error.retry_after or 0.0) if isinstance(error, ReceiverError | SinkError) else 0.0
