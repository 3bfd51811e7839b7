"""How a call is made and given up: a coroutine is cancelled, a process is killed."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from streaming.base import interval
from streaming.declare import Enriched, LookupRequest
from streaming.keyed import row_class
from streaming.lookups.frames import LENGTH, framed
from streaming.lookups.question import Question

_STARTS_WITHIN = 60.0
T = TypeVar("T")


class CallError(Exception):
    """A call in a process failed: `kind` is `timeout` or `error`, the text that of the function's own error."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


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


def caller_of(enriched: Enriched) -> Caller:
    """For a coroutine function, or for a plain one."""
    return Coroutines(enriched) if enriched.is_async else Processes(enriched)


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
        opened = await _within(_STARTS_WITHIN, self._open())
        row = tuple.__new__(row_class(question.columns), question.row)
        request = LookupRequest(question.key, question.attempts, opened)
        return await _within(self._timeout, _alone(self._call(row, request)))

    async def close(self) -> None:
        await self._stack.aclose()

    async def _open(self) -> Any:
        async with self._opening:
            if not self._is_open:
                assert self._opens is not None
                self._opened = await self._stack.enter_async_context(self._opens())
                self._is_open = True
        return self._opened


class Processes(Caller):
    """Calls of a plain function, each in a process that is kept for the next one, or killed where it hangs."""

    def __init__(self, enriched: Enriched) -> None:
        columns = enriched.key or tuple(enriched.types)
        self._function = framed((enriched.call, enriched.opener, columns))
        self._timeout = interval(enriched.timeout).total_seconds()
        self._idle: list[Process] = []

    async def call(self, question: Question) -> Any:
        process = self._idle.pop() if self._idle else await self._started()
        try:
            asked = (question.row, question.key, question.attempts)
            answer = await _within(self._timeout, _ask(process, asked))
        except CallError:
            self._idle.append(process)
            raise
        except BaseException:
            await _kill(process)
            raise
        self._idle.append(process)
        return answer

    async def close(self) -> None:
        for process in self._idle:
            await _kill(process)

    async def _started(self) -> Process:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = (sys.executable, "-m", "streaming.lookups.worker")
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment)
        try:
            await _within(_STARTS_WITHIN, _ask(process, self._function, is_framed=True))
        except BaseException:
            await _kill(process)
            raise
        return process


async def _ask(process: Process, value: Any, *, is_framed: bool = False) -> Any:
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(value if is_framed else framed(value))
        await process.stdin.drain()
        head = await process.stdout.readexactly(LENGTH.size)
        status, *rest = pickle.loads(await process.stdout.readexactly(LENGTH.unpack(head)[0]))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise ProcessLookupError(f"the process that called it ended with code {await process.wait()}") from error
    if status == "error":
        raise CallError(*rest)
    return rest[0]


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def _within(seconds: float, call: Awaitable[T]) -> T:
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


async def _alone(call: Awaitable[T]) -> T:
    """What a call gives; one that asks for the end of the process would take the other calls with it."""
    try:
        return await call
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the call asked for the end of the process: {error!r}") from error
