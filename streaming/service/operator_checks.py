"""Whether the tables of operators are of their declarations, and what was built anew taking the place of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime

from pyspark.sql import SparkSession

from streaming.base import ViewError
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operators import OperatorRuntime, next_of, ready_generation, runtime_of, switch
from streaming.service.query_errors import explained


class OperatorChecks:
    """The checks of a pipeline's operators in one process; `now` gives the processing time."""

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime]) -> None:
        self._spark = spark
        self._lake = lake
        self._pipeline = pipeline
        self._now = now
        self.paused: dict[str, ViewError] = {}
        """Why an operator does not step, by its name: its tables are not of its declaration. The others go on."""

    def check(self, runtime: OperatorRuntime) -> None:
        """Pause an operator that is not the one that made its tables, or let it go on."""
        self.paused.pop(runtime.operator.name, None)
        try:
            runtime.check()
        except ViewError as refused:
            self.paused[runtime.operator.name] = refused

    def take_over(self, runtime: OperatorRuntime) -> bool:
        """Let what `rebuild` has made ready take the place of an operator's tables, if there is such; tells if it did.

        The operator must not be stepping. It pauses where this process has another declaration than what was built.
        """
        if ready_generation(self._lake, runtime.operator) is None:
            return False
        built = runtime_of(next_of(runtime.operator), self._lake)
        # Its declaration may be another one than this process has.
        with closing(built), suppress(ViewError), explained(runtime.operator):
            built.check()
            for step in built.steps(self._spark, self._now):
                step.run()
        switch(self._spark, self._lake, runtime.operator)
        runtime.refresh()
        name = runtime.operator.name
        self.check(runtime)
        if name in self.paused:
            self.paused[name] = ViewError(
                f"view {name!r} was built anew from another declaration than this process has, and waits for one that "
                f"has it; `tidemark restart {self._pipeline.name}` starts it."
            )
        return True
