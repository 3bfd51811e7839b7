"""The steps of a pipeline's operators in threads of their own, as its logs grow, and how long a log waits for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import datetime
from threading import Event
from time import monotonic

from streaming.base import interval
from streaming.operators import OperatorRuntime, ready_generation
from streaming.service.run import Run
from streaming.service.watch import Watch

GIVES_WAY = 2.0
"""Seconds: a log waits no longer after a batch, and for no step that has taken as long already.

On a machine that ingest alone can keep busy, a step takes several times as long beside the next batch as before it,
which has more rows in exchange, and a row of a larger batch is cheaper.
"""
_LOOK_EVERY = 0.02


class Stepping:
    """Lets each operator that is behind its logs step, none of which waits for another.

    `on_step` is called when an operator has stepped.
    """

    def __init__(
        self, run: Run, watch: Watch, threads: Executor, now: Callable[[], datetime], on_step: Callable[[], None]
    ) -> None:
        self._run = run
        self._watch = watch
        self._threads = threads
        self._now = now
        self._on_step = on_step
        self._stepping: dict[str, Future[None]] = {}
        self._stepped: dict[str, dict[str, int]] = {}
        self._stepped_at: dict[str, datetime] = {}
        self._began: dict[str, float] = {}

    def follow(self) -> None:
        """Let each operator that is behind its logs, and is not stepping, step."""
        for runtime in self._run.operators:
            if self._is_behind(runtime) and not self._is_stepping(runtime) and self._is_due(runtime):
                name = runtime.operator.name
                self._stepped[name], self._stepped_at[name] = self._heads_of(runtime), self._now()
                self._began[name] = monotonic()
                self._stepping[name] = self._threads.submit(self._step, runtime)

    def take_over(self) -> None:
        """Let what `rebuild` has made ready take the place of an operator's tables; asks the storage if there is such.

        An operator that steps is asked the next time.
        """
        for runtime in self._run.operators:
            if not self._is_stepping(runtime) and ready_generation(self._run.lake, runtime.operator) is not None:
                self._stepping[runtime.operator.name] = self._threads.submit(self._take_over, runtime)

    def raise_failures(self) -> None:
        """Raise what a step has failed with."""
        for stepping in self._stepping.values():
            if stepping.done():
                stepping.result()

    def wait(self) -> None:
        """Wait for the steps that run, and raise what one of them fails with."""
        for stepping in self._stepping.values():
            stepping.result()

    def give_way(self, until: Callable[[], bool]) -> None:
        """Return once the operators have followed the newest batches, or `until` is true; see `GIVES_WAY`."""
        began, pause = monotonic(), Event()
        while not until() and monotonic() - began < GIVES_WAY and any(map(self._has_right_of_way, self._run.operators)):
            pause.wait(_LOOK_EVERY)

    def _has_right_of_way(self, runtime: OperatorRuntime) -> bool:
        if self._is_stepping(runtime):
            return monotonic() - self._began.get(runtime.operator.name, -GIVES_WAY) < GIVES_WAY
        return self._is_behind(runtime) and self._is_due(runtime)

    def _step(self, runtime: OperatorRuntime) -> None:
        name = runtime.operator.name
        self._run.step(runtime, until=lambda: name in self._watch.stopping)
        if name not in self._watch.stopping:
            self._run.keep_up(runtime)
            self._on_step()
        if name in self._run.paused:
            # It is tried again later, whether its logs have grown by then or not.
            self._stepped.pop(name, None)

    def _take_over(self, runtime: OperatorRuntime) -> None:
        if self._run.take_over(runtime):
            # It may have been paused, or be behind its logs.
            self._stepped.pop(runtime.operator.name, None)

    def _is_stepping(self, runtime: OperatorRuntime) -> bool:
        stepping = self._stepping.get(runtime.operator.name)
        return stepping is not None and not stepping.done()

    def _is_behind(self, runtime: OperatorRuntime) -> bool:
        heads = self._heads_of(runtime)
        return bool(heads) and heads != self._stepped.get(runtime.operator.name)

    def _is_due(self, runtime: OperatorRuntime) -> bool:
        every, last = runtime.operator.every, self._stepped_at.get(runtime.operator.name)
        if not self._run.goes_on(runtime):
            return False
        return every is None or last is None or self._now() - last >= interval(every)

    def _heads_of(self, runtime: OperatorRuntime) -> dict[str, int]:
        heads = self._run.heads
        return {stream.name: heads[stream.name].number for stream in runtime.operator.reads if stream.name in heads}
