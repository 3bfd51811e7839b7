"""Reads of first results: what the steps of a view have appended, and what other streams follow of it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DeclarationError, ViewError, literal
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.log import head
from streaming.operators import check_followed, generation_of
from streaming.sources import PlacedRows, placed_rows
from streaming.tables import delta
from streaming.views.position import Position


def read_first(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame:
    """The first results as a batch frame, at one Delta `version` or the newest.

    As of a batch of the log those of the windows that its watermark has closed.

    Raises:
        ViewError: the view has not been built yet, or not up to that batch.
    """
    uri = lake.first(view)
    table = delta.open_table(uri, version)
    if table is None:
        raise ViewError(
            f"view {view.name!r} is not built yet at {uri!r}; run `tidemark run {view.of.name}` first, or point "
            "TIDEMARK_HOME to the lake that has it."
        )
    rows = delta.read(spark, uri, version)
    return rows if lake.cut is None else rows.where(_is_closed(lake, view, Position.of(table)))


def _is_closed(lake: Lake, view: Windowed, at: Position) -> Column:
    """Whether a result was there as of the batch: a later row is late for all windows that are closed by then."""
    newest = head(lake, view.of)
    check_followed(view, at.batch, newest)
    if newest is None or newest.after.watermark is None:
        return F.lit(False)
    return F.col("window_end") <= literal(view.window.closed_by(newest.after.watermark))


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
