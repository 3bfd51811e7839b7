"""Calls in flight: a bounded number at a time, in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from datetime import datetime
from decimal import localcontext
from typing import Any

import pyarrow as pa

from streaming.base import DECIMALS, encoder, said, to_micros, written
from streaming.declare import Enriched
from streaming.lookups.caller import Caller
from streaming.lookups.coroutines import Coroutines
from streaming.lookups.processes import CallError, Processes
from streaming.lookups.question import Answer, Question

_FIRST_RETRY, _LONGEST_RETRY, _JITTER = 0.25, 60.0, 0.25
_ASYNC_CAPACITY = 100
_ENDS_WITHIN = 10.0

_log = logging.getLogger("tidemark")


class Calls:
    """Asks the questions of one enrichment. `most` is the greatest number of calls that were in flight at once."""

    def __init__(self, enriched: Enriched, now: Callable[[], datetime]) -> None:
        self.most = 0
        self._enriched = enriched
        self._now = now
        self._encode = encoder(pa.struct(list(enriched.answer_schema)))
        self._in_flight = 0
        self._loop = asyncio.new_event_loop()
        self._caller: Caller = Coroutines(enriched) if enriched.is_async else Processes(enriched)
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
    """How many calls are in flight at most."""
    return enriched.capacity or (_ASYNC_CAPACITY if enriched.is_async else os.cpu_count() or 1)


def await_all(questions: Iterable[Question], seconds: float) -> None:
    """Back once all are answered, or after so many seconds."""
    wait([question.future for question in questions if question.future is not None], seconds)


def await_any(questions: Iterable[Question], seconds: float) -> bool:
    """Whether one was answered within so many seconds."""
    waiting = [question.future for question in questions if question.future is not None]
    return bool(wait(waiting, seconds, FIRST_COMPLETED).done)


def _wait_before(attempts: int) -> float:
    """Seconds before the next attempt after so many: longer each time, and never all at the same moment."""
    return float(min(_LONGEST_RETRY, _FIRST_RETRY * 2 ** min(attempts - 1, 10)) + random.uniform(0, _JITTER))


def _told(error: Exception) -> tuple[Any, str]:
    if isinstance(error, CallError):
        return error.kind, written(str(error))
    return "timeout" if isinstance(error, TimeoutError) else "error", written(f"{type(error).__name__}: {said(error)}")
