"""Which operators of a run are paused, and why: one that cannot go on holds up neither a log nor another operator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pyspark.sql import SparkSession

from streaming.base import ChangedDeclaration, OperatorError, StreamingError
from streaming.declare import CHANGES, PROGRESS, Delivery, Operator, Pipeline
from streaming.deliveries import ledger_of
from streaming.lake import Lake
from streaming.operators import (
    OperatorRuntime,
    has_published,
    next_of,
    ready_generation,
    runtime_of,
    switch,
    whole_since,
)
from streaming.service.query_errors import pausing, with_more
from streaming.service.watch import Paused
from streaming.tables import storage

_FIRST_RETRY, _LONGEST_RETRY = timedelta(seconds=30), timedelta(minutes=30)

Part = Literal["declaration", "steps", "besides"]
"""The part that is paused: the check of the declaration, the steps, or what is kept up with the logs besides them."""

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
        """True where the operator of this name is not paused, or is to be tried again."""
        pause = self._pauses.get(name)
        return pause is None or (pause.again_at is not None and self._now() >= pause.again_at)

    def check(self, runtime: OperatorRuntime) -> None:
        """Pause an operator that is not the one that made its tables, or let it go on.

        Where these have nothing that anybody could have seen, it begins anew by its declaration.
        """
        operator = runtime.operator
        self._pauses.pop(operator.name, None)
        try:
            runtime.check()
        except OperatorError as refused:
            if isinstance(refused, ChangedDeclaration) and self._begins_anew(runtime):
                _log.info("%s %r had published nothing, and begins by its new declaration", *_named(operator))
            else:
                self._pauses[operator.name] = _Pause(refused, "declaration")

    def _begins_anew(self, runtime: OperatorRuntime) -> bool:
        """Remove the tables of an operator that has published nothing, if all can be computed; tells if it did."""
        lake, operator = self._lake, runtime.operator
        if not begins_anew(lake, self._pipeline, operator):
            return False
        # They may be past batches without a row, which are to be looked at again.
        for delivery in _deliveries_of(self._pipeline, operator):
            for suffix in (CHANGES, PROGRESS):
                storage.remove_folder(lake.table(delivery, suffix))
        # Its own table last: as long as that is there, whoever was killed in between is asked again.
        for suffix in (*operator.reserved_suffixes, ""):
            storage.remove_folder(lake.table(operator, suffix))
        runtime.refresh()
        return True

    @contextmanager
    def alone(self, runtime: OperatorRuntime, part: Part) -> Iterator[None]:
        """Pause an operator where a part of what it does fails for it alone; it is tried again, each time later."""
        name = runtime.operator.name
        try:
            with pausing(runtime.operator):
                yield
        except Paused as paused:
            before, reason = self._pauses.get(name), self._with_way_out(runtime.operator, paused.reason)
            tries = 0 if before is None else before.tries
            wait = min(_LONGEST_RETRY, _FIRST_RETRY * 2 ** min(tries, 10))
            self._pauses[name] = _Pause(reason, part, tries + 1, self._now() + wait)
            if before is None or str(before.why) != str(reason):
                _log.warning("%s %r is paused: %s", *_named(runtime.operator), reason)
        else:
            pause = self._pauses.get(name)
            if pause is not None and pause.part == part:
                self._pauses.pop(name)
                _log.info("%s %r goes on", *_named(runtime.operator))

    def _with_way_out(self, operator: Operator, reason: StreamingError) -> StreamingError:
        """The reason with what a corrected declaration takes, which depends on whether anything is published."""
        if not has_published(self._lake, operator):
            return reason
        if operator.never_rebuilt:
            told = f"It has published rows and cannot be built anew: {operator.never_rebuilt}."
        else:
            told = f"It has published rows; a declaration that changes them takes `tidemark rebuild {operator.name}`."
        return with_more(reason, told)

    def take_over(self, runtime: OperatorRuntime) -> bool:
        """Let what `rebuild` has made ready take the place of an operator's tables, if there is such; tells if it did.

        The operator must not be stepping. It pauses where this process has another declaration than what was built.
        """
        if ready_generation(self._lake, runtime.operator) is None:
            return False
        built = runtime_of(next_of(runtime.operator), self._lake)
        # Its declaration may be another one than this process has; what its steps fail for, the operator's own do, too.
        with closing(built), suppress(Paused), pausing(runtime.operator):
            built.check()
            for step in built.steps(self._spark, self._now):
                step.run()
        switch(self._spark, self._lake, runtime.operator)
        runtime.refresh()
        name = runtime.operator.name
        self.check(runtime)
        if name in self._pauses:
            refused = OperatorError(
                f"{runtime.operator.kind_name} {name!r} was built anew from another declaration than this process "
                f"has, and waits for one that has it; `tidemark restart {self._pipeline.name}` starts it."
            )
            self._pauses[name] = _Pause(refused, "declaration")
        return True


def begins_anew(lake: Lake, pipeline: Pipeline, operator: Operator) -> bool:
    """True if an operator of another declaration begins anew, as nothing of it is published and all can be computed."""
    ledgers = [ledger_of(lake, delivery) for delivery in _deliveries_of(pipeline, operator)]
    sent = any(ledger is not None and (ledger.planned >= 0 or ledger.generation > 0) for ledger in ledgers)
    return not sent and not has_published(lake, operator) and whole_since(lake, operator) is None


def _deliveries_of(pipeline: Pipeline, operator: Operator) -> list[Delivery]:
    return [each for each in pipeline.deliveries if each.of == operator]


def _named(operator: Operator) -> tuple[str, str]:
    return operator.kind_name, operator.name
