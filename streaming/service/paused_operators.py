"""Which operators of a run are paused, and why: one that cannot go on holds up neither a log nor another operator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pyspark.sql import SparkSession

from streaming.base import StreamingError, ViewError
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operators import OperatorRuntime, next_of, ready_generation, runtime_of, switch
from streaming.service.query_errors import pausing
from streaming.service.watch import Paused

_FIRST_RETRY, _LONGEST_RETRY = timedelta(seconds=30), timedelta(minutes=30)

Part = Literal["declaration", "steps", "besides"]
"""Of what a pause is: the check of the declaration, the steps, or what is kept up with the logs besides them."""

_log = logging.getLogger("tidemark")


@dataclass(frozen=True)
class _Pause:
    """`again_at`: when a part that failed `tries` times is tried again; null where only a new start can help."""

    why: StreamingError
    part: Part
    tries: int = 0
    again_at: datetime | None = None


class PausedOperators:
    """Checks the operators of a pipeline, and keeps which of them are paused; `now` gives the processing time."""

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime]) -> None:
        self._spark = spark
        self._lake = lake
        self._pipeline = pipeline
        self._now = now
        self._pauses: dict[str, _Pause] = {}

    @property
    def reasons(self) -> dict[str, StreamingError]:
        """Why an operator does not step, by its name. The others go on."""
        return {name: pause.why for name, pause in list(self._pauses.items())}

    def may_step(self, name: str) -> bool:
        """Whether the operator of this name is not paused, or is to be tried again."""
        pause = self._pauses.get(name)
        return pause is None or (pause.again_at is not None and self._now() >= pause.again_at)

    def check(self, runtime: OperatorRuntime) -> None:
        """Pause an operator that is not the one that made its tables, or let it go on."""
        self._pauses.pop(runtime.operator.name, None)
        try:
            runtime.check()
        except ViewError as refused:
            self._pauses[runtime.operator.name] = _Pause(refused, "declaration")

    @contextmanager
    def alone(self, runtime: OperatorRuntime, part: Part) -> Iterator[None]:
        """Pause an operator where a part of what it does fails for it alone; it is tried again, each time later."""
        name = runtime.operator.name
        try:
            with pausing(runtime.operator):
                yield
        except Paused as paused:
            before = self._pauses.get(name)
            tries = 0 if before is None else before.tries
            wait = min(_LONGEST_RETRY, _FIRST_RETRY * 2 ** min(tries, 10))
            self._pauses[name] = _Pause(paused.reason, part, tries + 1, self._now() + wait)
            if before is None or str(before.why) != str(paused.reason):
                _log.warning("%s %r is paused: %s", runtime.operator.kind_name, name, paused.reason)
        else:
            pause = self._pauses.get(name)
            if pause is not None and pause.part == part:
                self._pauses.pop(name)
                _log.info("%s %r goes on", runtime.operator.kind_name, name)

    def take_over(self, runtime: OperatorRuntime) -> bool:
        """Let what `rebuild` has made ready take the place of an operator's tables, if there is such; tells if it did.

        The operator must not be stepping. It pauses where this process has another declaration than what was built.
        """
        if ready_generation(self._lake, runtime.operator) is None:
            return False
        built = runtime_of(next_of(runtime.operator), self._lake)
        # Its declaration may be another one than this process has; what its steps fail for, the operator's own do, too.
        with closing(built), suppress(ViewError, Paused), pausing(runtime.operator):
            built.check()
            for step in built.steps(self._spark, self._now):
                step.run()
        switch(self._spark, self._lake, runtime.operator)
        runtime.refresh()
        name = runtime.operator.name
        self.check(runtime)
        if name in self._pauses:
            refused = ViewError(
                f"view {name!r} was built anew from another declaration than this process has, and waits for one that "
                f"has it; `tidemark restart {self._pipeline.name}` starts it."
            )
            self._pauses[name] = _Pause(refused, "declaration")
        return True
