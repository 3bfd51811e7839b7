"""Reads of first results: what the steps of a view have appended."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from streaming.base import ViewError
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.tables import delta


def read_first(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame:
    """The first results as a batch frame, at one Delta `version` or the newest.

    Raises:
        ViewError: the view has not been built yet.
    """
    uri = lake.first(view)
    if delta.open_table(uri, version) is None:
        raise ViewError(
            f"view {view.name!r} is not built yet at {uri!r}; run `tidemark run {view.of.name}` first, or point "
            "TIDEMARK_HOME to the lake that has it."
        )
    return delta.read(spark, uri, version)
