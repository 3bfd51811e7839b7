"""Current results: first results overlaid with updates and corrections."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.declare import Windowed
from streaming.views.kinds import kind_of


def current_results(
    first: DataFrame, corrections: DataFrame | None, view: Windowed, updates: DataFrame | None = None
) -> DataFrame:
    """First results overlaid with updates and corrections: the view's `columns`, `_day`, and `_corrected` (boolean).

    Of a window the newest result counts, which is the one that has seen most batches. A correction that only retracts
    shows nothing and hides what it stands for.
    """
    columns = [*view.columns, "_day"]

    def layer(frame: DataFrame, through: Column, *, corrected: bool, shown: Column) -> DataFrame:
        return frame.select(
            *columns, F.lit(corrected).alias("_corrected"), through.alias("_through"), shown.alias("_shown")
        )

    layers = [layer(first, F.lit(-1), corrected=False, shown=F.lit(True))]
    if updates is not None:
        layers.append(layer(updates, F.col("_batch"), corrected=True, shown=F.lit(True)))
    if corrections is not None:
        layers.append(layer(corrections, F.col("_through_batch"), corrected=True, shown=~F.col("_retracted")))
    if len(layers) == 1:
        return layers[0].select(*columns, "_corrected")
    corrected = _newest(layers[1:], view)
    return (
        _not_corrected(layers[0], corrected, view).unionByName(corrected).where("_shown").select(*columns, "_corrected")
    )


def _newest(layers: list[DataFrame], view: Windowed) -> DataFrame:
    """Of each window the results of the layer that has seen most batches."""
    order = SortedBy.partitionBy(*view.identity).orderBy(F.desc("_through"))
    ranked = reduce(DataFrame.unionByName, layers).withColumn("_rank", F.rank().over(order))
    return ranked.where("_rank = 1").drop("_rank")


def _not_corrected(first: DataFrame, corrected: DataFrame, view: Windowed) -> DataFrame:
    """The first results for whose window nothing else stands."""
    same_key = [first[key].eqNullSafe(corrected[key]) for key in view.by]
    return first.join(corrected, [*same_key, kind_of(view).same_window(first, corrected)], "left_anti")
