"""Current results: first results overlaid with updates and corrections."""

from __future__ import annotations

from functools import reduce
from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import DAY, RETRACTED
from streaming.declare import CORRECTIONS, UPDATES, OverWindows
from streaming.lake import Lake
from streaming.operators import PinnedTables, versions_now
from streaming.views.results import kind_of

_WINDOW_ID = "_window_id"
Of = TypeVar("Of", bound=OverWindows)


def current_results(
    first: DataFrame, corrections: DataFrame | None, view: OverWindows, updates: DataFrame | None = None
) -> DataFrame:
    """First results overlaid with updates and corrections: the view's `columns`, `_day`, and `_corrected` (boolean).

    Of a window the newest result counts, which is the one that has seen most batches. Sessions only grow, so it stands
    for all that have become one with it; where rows may be taken back they do not, and the correction of a day stands
    for what begins on it between the bounds of one of its rows. An update or a correction that only retracts shows
    nothing and hides what it stands for.
    """
    current = current_with_reasons(first, corrections, view, updates)
    return current.withColumn("_corrected", F.col("_reason") != "first").drop("_reason")


def current_with_reasons(
    first: DataFrame, corrections: DataFrame | None, view: OverWindows, updates: DataFrame | None = None
) -> DataFrame:
    """The current results with `_reason` instead of `_corrected`.

    It says whether the newest result is the `first`, an `update` or a `correction`.
    """
    columns = [*view.columns, "_day", "_reason"]

    def layer(frame: DataFrame, through: Column, reason: str, shown: Column) -> DataFrame:
        of_layer = [F.lit(reason).alias("_reason"), through.alias("_through"), shown.alias("_shown")]
        return frame.select(*view.columns, "_day", *of_layer)

    layers = [layer(first, F.lit(-1), "first", F.lit(True))]
    if updates is not None:
        layers.append(layer(updates, F.col("_batch"), "update", ~F.col(RETRACTED)))
    if corrections is not None:
        # Of several logs the batches together: none ever becomes shorter.
        through = reduce(Column.__add__, map(F.col, view.counted_through))
        layers.append(layer(corrections, through, "correction", ~F.col(RETRACTED)))
    if len(layers) == 1:
        return layers[0].select(*columns)
    # Of a day there is one correction, and what begins on it is only replaced by that.
    corrected = layers[1] if view.parts_sessions else _newest(layers[1:], view)
    return _not_corrected(layers[0], corrected, view).unionByName(corrected).where("_shown").select(*columns)


def _newest(layers: list[DataFrame], view: OverWindows) -> DataFrame:
    """The results of each window in the layer that has seen most batches; of two that have, in the later one."""
    results = reduce(
        DataFrame.unionByName, [layer.withColumn("_layer", F.lit(number)) for number, layer in enumerate(layers)]
    )
    same = SortedBy.partitionBy(*view.by, _WINDOW_ID).orderBy(F.desc("_through"), F.desc("_layer"))
    identified = kind_of(view).with_window_id(results, view.by, _WINDOW_ID)
    return identified.withColumn("_rank", F.rank().over(same)).where("_rank = 1").drop("_rank", "_layer", _WINDOW_ID)


def _not_corrected(first: DataFrame, corrected: DataFrame, view: OverWindows) -> DataFrame:
    """The first results for whose window nothing else stands."""
    same_key = [first[key].eqNullSafe(corrected[key]) for key in view.by]
    if view.parts_sessions:
        start = first["window_start"]
        within = start.between(corrected["window_start"], corrected["window_end"])
        return first.join(corrected, [*same_key, first[DAY] == corrected[DAY], within], "left_anti")
    return first.join(corrected, [*same_key, kind_of(view).same_window(first, corrected)], "left_anti")


def pinned_windows(lake: Lake, operator: Of) -> PinnedTables[Of]:
    """The tables of results of the operator at their versions now."""
    # What has corrected first results counts also where the declaration makes none any more.
    others = {CORRECTIONS, UPDATES}.intersection(operator.reserved_suffixes)
    return PinnedTables(operator, versions_now(lake, operator, *others))
