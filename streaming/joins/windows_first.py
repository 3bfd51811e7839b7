"""Reads of first results: what the steps have appended, and what other streams follow of it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from streaming.base import DeclarationError, ViewError
from streaming.declare import TwoSided
from streaming.lake import Lake
from streaming.operators import generation_of, version_read
from streaming.sources import PlacedRows, placed_rows
from streaming.tables import delta


def read_first(spark: SparkSession, lake: Lake, operator: TwoSided, version: int | None = None) -> DataFrame:
    """The first results as a batch frame, at one Delta `version`, or as readers of the lake see them.

    Raises:
        ViewError: nothing is published yet.
    """
    uri = lake.table(operator)
    table = delta.open_table(uri, version)
    if table is None:
        raise ViewError(
            f"{operator.kind_name} {operator.name!r} is not built yet at {uri!r}; run `tidemark run {operator.folder}` "
            "first, until each of its streams has rows, or point TIDEMARK_HOME to the lake that has it."
        )
    return delta.read(spark, uri, version_read(lake, operator, table))


@placed_rows.register
def _(of: TwoSided, lake: Lake, side: str) -> PlacedRows:
    if side:
        raise DeclarationError(
            f"Table({of.name!r}, side={side!r}): of a {of.kind_name} its first results can be followed; leave side "
            "out. Late rows are in the logs of its streams."
        )
    return PlacedRows(
        uri=lake.table(of),
        # A step publishes all windows that end before the joint clock, so a later one never has an earlier end.
        unit="window_end",
        unit_name="window end",
        written="_written_at",
        at="window_end",
        made_by=f"run `tidemark run {of.folder}` first, until a window is closed",
        order=of.identity,
        generation=generation_of,
    )
