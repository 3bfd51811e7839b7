"""Reads of first results: what the steps of a view have appended, and what other streams follow of it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from streaming.base import DeclarationError, ViewError
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.sources import PlacedRows, placed_rows
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


@placed_rows.register
def _(of: Windowed, lake: Lake, side: str) -> PlacedRows:
    if side:
        raise DeclarationError(
            f"Table({of.name!r}, side={side!r}): of a view its first results can be followed; leave side out. Late "
            "rows are in the log of its stream; corrections replace results: `Delivery(what='current')` sends those on."
        )
    return PlacedRows(
        uri=lake.first(of),
        # A step publishes all windows that end before its watermark, so a later one never has an earlier end.
        unit="window_end",
        unit_name="window end",
        written="_written_at",
        at="window_end",
        made_by=f"run `tidemark run {of.folder}` first, until a window is closed",
        order=of.identity,
        generation=generation_of,
    )
