"""The contract of a call that is made and given up."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, TypeVar

from streaming.lookups.question import Question

STARTS_WITHIN = 60.0
"""Seconds that what calls are made with has to be opened."""

T = TypeVar("T")


class Caller(ABC):
    """Calls of one enrichment, within one event loop."""

    @abstractmethod
    async def call(self, question: Question) -> Any:
        """What the call returns.

        Raises:
            TimeoutError: it took too long, and was given up.
            Exception: whatever it raised.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of what calls were made with."""


async def within(seconds: float, call: Awaitable[T]) -> T:
    """What a call gives within so many seconds; one that does not heed that it is cancelled is left to itself.

    Raises:
        TimeoutError: it was not done by then.
    """
    task = asyncio.ensure_future(call)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise TimeoutError(f"no answer within {seconds:g} s")
    if task.cancelled():
        raise RuntimeError("the call was cancelled by itself")
    return task.result()
