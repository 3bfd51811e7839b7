"""Calls in flight: questions and answers, a bounded number at a time, in a thread of their own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import pickle
import random
import struct
import sys
import threading
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from decimal import localcontext
from typing import IO, Any, Literal, TypeVar

import pyarrow as pa

from streaming.base import DECIMALS, encoder, interval, row_class, said, to_micros, written
from streaming.declare import Enriched, LookupRequest

LENGTH = struct.Struct("!Q")
_FIRST_RETRY, _LONGEST_RETRY, _JITTER = 0.25, 60.0, 0.25
_ASYNC_CAPACITY = 100
_ENDS_WITHIN = 10.0

_log = logging.getLogger("tidemark")
_STARTS_WITHIN = 60.0
"""Seconds that what calls are made with has to be opened."""

T = TypeVar("T")


def framed(value: Any) -> bytes:
    """A value as it is sent."""
    content = pickle.dumps(value)
    return LENGTH.pack(len(content)) + content


def read_frame(stream: IO[bytes]) -> Any:
    """The next value.

    Raises:
        EOFError: there is none any more.
    """
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    content = stream.read(LENGTH.unpack(head)[0])
    return pickle.loads(content)


@dataclass(frozen=True)
class Answer:
    """The outcome of a question: `values` of the result's columns, None where nothing was found, or why there is none.

    `kind` and `error` tell of a failure, which is `final` where no further attempt follows. Instants are in
    microseconds; of an answer from the cache they are those of the call that gave it.
    """

    values: Mapping[str, Any] | None
    attempt: int
    asked_at: int
    answered_at: int
    kind: Literal["timeout", "error"] | None = None
    error: str | None = None
    final: bool = True
    cached: bool = False


@dataclass
class Question:
    """`columns` and their values in `row` are what the call is handed; `key` is the idempotency key.

    `identity` is what rows that share the question have in common. `attempts`, `asked_at` and `error` tell how it
    stands while it waits. One that has an error before its first attempt cannot be asked.
    """

    identity: Hashable
    columns: tuple[str, ...]
    row: tuple[Any, ...]
    key: str
    attempts: int = 0
    asked_at: int | None = None
    error: str | None = None
    future: Future[Answer] | None = None

    @property
    def answer(self) -> Answer | None:
        """The final answer; None while it waits."""
        ended = self._ended
        return ended if ended is not None and ended.final else None

    @property
    def is_to_repeat(self) -> bool:
        """True if the last attempt failed, and the next one has not begun."""
        ended = self._ended
        return ended is not None and not ended.final

    @property
    def cannot_be_asked(self) -> bool:
        """True if there is nothing to hand to a call."""
        return self.error is not None and self.attempts == 0

    @property
    def _ended(self) -> Answer | None:
        return self.future.result() if self.future is not None and self.future.done() else None

    def fail(self, now: int) -> None:
        """Let the error be its answer, without asking."""
        self.asked_at = now
        self.settle(Answer(None, self.attempts, now, now, "error", self.error))

    def settle(self, answer: Answer) -> None:
        """Give it an answer without asking."""
        self.future = Future()
        self.future.set_result(answer)


def request_key(enriched: Enriched, batch: int, origin: str) -> str:
    """The idempotency key of the row of a batch with an origin: the same in every process, and nobody else's."""
    place = json.dumps([enriched.of.name, enriched.name, batch, origin])
    return hashlib.sha256(place.encode()).hexdigest()[:32]


class _Caller(ABC):
    """Calls of one enrichment, within one event loop."""

    @abstractmethod
    async def call(self, question: Question) -> Any:
        """The value that the call returns.

        Raises:
            TimeoutError: it took too long, and was given up.
            Exception: whatever it raised.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of what calls were made with."""


class Calls:
    """Asks the questions of one enrichment. `most` is the greatest number of calls that were in flight at once."""

    def __init__(self, enriched: Enriched, now: Callable[[], datetime]) -> None:
        self.most = 0
        self._enriched = enriched
        self._now = now
        self._encode = encoder(pa.struct(list(enriched.answer_schema)))
        self._in_flight = 0
        self._loop = asyncio.new_event_loop()
        self._caller: _Caller = _Coroutines(enriched) if enriched.is_async else _Processes(enriched)
        self._slots = asyncio.Semaphore(capacity_of(enriched))
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"{enriched.name} calls", daemon=True)
        self._thread.start()

    def ask(self, questions: Iterable[Question]) -> None:
        """Begin an attempt at each question, which ends in its own time; one that is repeated begins later."""
        for question in questions:
            question.future = asyncio.run_coroutine_threadsafe(self._answer(question), self._loop)

    def close(self) -> None:
        """Give up all calls, and let go of what they were made with."""
        if self._thread.is_alive():
            ended = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            wait([ended], _ENDS_WITHIN)
            if ended.done() and not ended.cancelled() and (error := ended.exception()) is not None:
                _log.warning("%s: what its calls were made with could not be closed (%r)", self._enriched.name, error)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_ENDS_WITHIN)
            if not self._thread.is_alive():
                self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_ENDS_WITHIN / 2)
        await self._caller.close()

    async def _answer(self, question: Question) -> Answer:
        if question.attempts:
            await asyncio.sleep(_wait_before(question.attempts))
        # A row that waits for its next attempt takes nobody's turn.
        async with self._slots:
            self._in_flight += 1
            self.most = max(self.most, self._in_flight)
            question.attempts += 1
            question.asked_at = asked = to_micros(self._now())
            try:
                # The context is that of this task alone, whichever others run in its thread.
                with localcontext(DECIMALS):
                    values = self._encode(await self._caller.call(question))
                return Answer(values, question.attempts, asked, to_micros(self._now()))
            # A call may raise anything: that is the answer to its own row, and to no other.
            except Exception as error:
                kind, question.error = _told(error)
                final = question.attempts > self._enriched.retries
                return Answer(None, question.attempts, asked, to_micros(self._now()), kind, question.error, final)
            finally:
                self._in_flight -= 1


def capacity_of(enriched: Enriched) -> int:
    """The greatest number of calls in flight at once."""
    return enriched.capacity or (_ASYNC_CAPACITY if enriched.is_async else os.cpu_count() or 1)


def await_all(questions: Iterable[Question], seconds: float) -> None:
    """Back once all are answered, or after so many seconds."""
    wait([question.future for question in questions if question.future is not None], seconds)


def await_any(questions: Iterable[Question], seconds: float) -> bool:
    """True if one of the questions was answered within so many seconds."""
    waiting = [question.future for question in questions if question.future is not None]
    return bool(wait(waiting, seconds, FIRST_COMPLETED).done)


def _wait_before(attempts: int) -> float:
    """Seconds before the next attempt after so many: longer each time, and never all at the same moment."""
    return float(min(_LONGEST_RETRY, _FIRST_RETRY * 2 ** min(attempts - 1, 10)) + random.uniform(0, _JITTER))


def _told(error: Exception) -> tuple[Any, str]:
    if isinstance(error, _CallError):
        return error.kind, written(str(error))
    return "timeout" if isinstance(error, TimeoutError) else "error", written(f"{type(error).__name__}: {said(error)}")


class _Coroutines(_Caller):
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


async def _alone(call: Awaitable[T]) -> T:
    """The result of a call; one that asks for the end of the process would take the other calls with it."""
    try:
        return await call
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the call asked for the end of the process: {error!r}") from error


class _CallError(Exception):
    """A call in a process failed: `kind` is `timeout` or `error`, the text that of the function's own error."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Processes(_Caller):
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
        except _CallError:
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
        raise _CallError(*rest)
    return rest[0]


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def _within(seconds: float, call: Awaitable[T]) -> T:
    """The result of a call within so many seconds; one that does not heed that it is cancelled is left to itself.

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
