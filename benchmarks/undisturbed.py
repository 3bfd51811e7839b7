"""The tables that keyed functions would leave undisturbed: the same logs, followed from nothing in one go."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.demands import Demand
from streaming import Keyed, Lake, Pipeline
from streaming.base import WRITTEN_AT, utc_now
from streaming.declare import CURRENT, STATE
from streaming.operators import differing_rows, runtime_of
from streaming.spark import start_session
from streaming.tables import delta


def as_undisturbed(lake: Lake, pipeline: Pipeline, folder: Path) -> list[Demand]:
    """Compare every table of each keyed function with that of a lake made in `folder`, which has but the logs.

    What was corrected is compared as it is current: when it was written again depends on when somebody asked for it.
    """
    keyed = [each for each in pipeline.operators if isinstance(each, Keyed)]
    if not keyed:
        return []
    spark, quiet = start_session(), Lake(str(folder))
    for stream in pipeline.streams:
        if delta.exists(lake.log(stream)):
            shutil.copytree(lake.log(stream), quiet.log(stream))
    rows, differing = 0, []
    for each in keyed:
        runtime = runtime_of(each, quiet)
        for step in runtime.steps(spark, utc_now):
            step.run()
        if days := [entry.day for entry in runtime.plan(spark)]:
            runtime.correct(spark, days, utc_now)
        expected = _tables(spark, quiet, each)
        for name, left in _tables(spark, lake, each).items():
            rows += left.count()
            if broken := differing_rows(left, expected[name]):
                differing.append(f"{broken:,} rows of {each.name} {name}")
    summary = f"{rows:,} rows of {len(keyed)} functions: {', '.join(differing) or 'the same'}"
    return [("results and state = those of an undisturbed run over the same logs", summary, not differing)]


def _tables(spark: SparkSession, lake: Lake, keyed: Keyed) -> Mapping[str, DataFrame]:
    readable = runtime_of(keyed, lake).readable
    names = [CURRENT, *filter(None, keyed.output_schemas), STATE]
    return {name: readable[name](spark).drop(WRITTEN_AT) for name in names}
