"""Calls of a coroutine function, which are given up by cancelling them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any

from streaming.base import interval
from streaming.declare import Enriched, LookupRequest
from streaming.keyed import row_class
from streaming.lookups.caller import STARTS_WITHIN, Caller, T, within
from streaming.lookups.question import Question


class Coroutines(Caller):
    """Calls of a coroutine function."""

    def __init__(self, enriched: Enriched) -> None:
        self._call = enriched.call
        self._opens = enriched.opener
        self._timeout = interval(enriched.timeout).total_seconds()
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._opened: Any = None
        self._is_open = self._opens is None

    async def call(self, question: Question) -> Any:
        opened = await within(STARTS_WITHIN, self._open())
        row = tuple.__new__(row_class(question.columns), question.row)
        request = LookupRequest(question.key, question.attempts, opened)
        return await within(self._timeout, _alone(self._call(row, request)))

    async def close(self) -> None:
        await self._stack.aclose()

    async def _open(self) -> Any:
        async with self._opening:
            if not self._is_open:
                assert self._opens is not None
                self._opened = await self._stack.enter_async_context(self._opens())
                self._is_open = True
        return self._opened


async def _alone(call: Awaitable[T]) -> T:
    """What a call gives; one that asks for the end of the process would take the other calls with it."""
    try:
        return await call
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the call asked for the end of the process: {error!r}") from error
