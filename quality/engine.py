"""The one place where Great Expectations is imported, and only when a suite runs."""

from __future__ import annotations

import os
from threading import Thread
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame

from quality.expectations import Suite

NAME = "name"


def load_ahead() -> None:
    """Import Great Expectations beside the caller, who has other work first: it takes ten seconds of a core."""
    # Two threads that import the same packages may be given one that is half done; the caller needs no other of these.
    import pyspark.sql  # noqa: F401

    _be_silent()
    Thread(target=_great_expectations, name="great-expectations", daemon=True).start()


def validate(frame: DataFrame, suite: Suite) -> list[Any]:
    """The validation results of Great Expectations, in its own order, each with the expectation's name in its meta.

    The caller persists `frame`: every metric is a job of its own.
    """
    gx, gxe = _great_expectations()
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # If GX persisted the frame itself, it would never release it.
    source = context.data_sources.add_spark("spark", persist=False)
    batch = source.add_dataframe_asset("table").add_batch_definition_whole_dataframe("all")
    # Built for each run, because GX refuses an expectation object that belongs to an earlier suite.
    built = [
        getattr(gxe, expectation.kind)(**expectation.arguments, meta={NAME: expectation.name})
        for expectation in suite.expectations
    ]
    gx_suite = context.suites.add(gx.ExpectationSuite("suite", expectations=built))
    run = context.validation_definitions.add(gx.ValidationDefinition(name="run", data=batch, suite=gx_suite))
    try:
        # Only COMPLETE keeps the rows that break a query, the first 200 of them.
        return list(run.run(batch_parameters={"dataframe": frame}, result_format="COMPLETE").results)
    finally:
        frame.sparkSession.catalog.dropTempView("tmp_view")


def _great_expectations() -> tuple[ModuleType, ModuleType]:
    """The package, and its expectations."""
    _be_silent()
    import great_expectations
    import great_expectations.expectations as expectations

    return great_expectations, expectations


def _be_silent() -> None:
    # Without this GX would report usage; it reads the variable once, when it is imported.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
