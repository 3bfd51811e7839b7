"""Drops days of the logs of a pipeline in a project, where other pipelines that are declared may follow them."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from streaming.declare import Pipeline, broken_modules, declared_pipelines
from streaming.lake import Lake
from streaming.log import dropped_before
from streaming.operations.retention.dropping import Dropped, drop_days
from streaming.tables import delta


def drop_old_days(
    spark: Callable[[], SparkSession],
    lake: Lake,
    pipeline: Pipeline,
    listener: Callable[[str], None] = lambda what: None,
) -> list[Dropped]:
    """As `drop_days`, with all pipelines of the project; nothing while a module is broken, as nobody knows its streams.

    Raises:
        LeaseError: another process drops days of the same log.
    """
    broken = broken_modules()
    if not broken:
        others = [each for each in declared_pipelines().values() if each.name != pipeline.name]
        return drop_days(spark, lake, pipeline, others, listener)
    why = f"a stream of a module that cannot be used may follow it: {broken[0]}"
    kept = [stream for stream in pipeline.streams if stream.retention is not None]
    logs = {stream.name: delta.open_table(lake.log(stream)) for stream in kept}
    return [Dropped(name, dropped_before(log), 0, 0, 0, why) for name, log in logs.items()]
