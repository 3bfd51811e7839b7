"""Calls of a plain function in processes of their own, which are given up by killing these."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

from streaming.base import interval
from streaming.declare import Enriched
from streaming.lookups.caller import STARTS_WITHIN, Caller, within
from streaming.lookups.frames import LENGTH, framed
from streaming.lookups.question import Question


class CallError(Exception):
    """A call in a process failed: `kind` is `timeout` or `error`, the text that of the function's own error."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


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
            answer = await within(self._timeout, _ask(process, asked))
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
            await within(STARTS_WITHIN, _ask(process, self._function, is_framed=True))
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
