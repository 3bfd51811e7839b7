"""Current results: first results overlaid with updates and corrections."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import DAY, RETRACTED, FrozenMapping
from streaming.declare import CORRECTIONS, UPDATES, OverWindows
from streaming.lake import Lake
from streaming.operators import PinnedTables, versions_now
from streaming.views.results import kind_of

_WINDOW_ID = "_window_id"
_NEVER: Mapping[str, int] = FrozenMapping({})
Of = TypeVar("Of", bound=OverWindows)


def current_results(
    first: DataFrame,
    corrections: DataFrame | None,
    view: OverWindows,
    updates: DataFrame | None = None,
    parted: Mapping[str, int] = _NEVER,
) -> DataFrame:
    """First results overlaid with updates and corrections: the view's `columns`, `_day`, and `_corrected` (boolean).

    Of a window the newest result counts, which is the one that has seen most batches. Sessions only grow, so it stands
    for all that have become one with it. From the batches `parted` on, by stream, rows may be taken back, so that they
    do not: the correction of a day stands for what begins on it between the bounds of one of its rows. An update or a
    correction that only retracts shows nothing and hides what it stands for.
    """
    current = current_with_reasons(first, corrections, view, updates, parted)
    return current.withColumn("_corrected", F.col("_reason") != "first").drop("_reason")


def current_with_reasons(
    first: DataFrame,
    corrections: DataFrame | None,
    view: OverWindows,
    updates: DataFrame | None = None,
    parted: Mapping[str, int] = _NEVER,
) -> DataFrame:
    """The current results with `_reason` instead of `_corrected`.

    It says whether the newest result is the `first`, an `update` or a `correction`.
    """
    columns = [*view.columns, "_day", "_reason"]

    def layer(frame: DataFrame, through: Column, reason: str, shown: Column) -> DataFrame:
        of_layer = [F.lit(reason).alias("_reason"), through.alias("_through"), shown.alias("_shown")]
        return frame.select(*view.columns, "_day", *of_layer)

    def corrected(frame: DataFrame) -> DataFrame:
        # Of several logs the batches together: none ever becomes shorter.
        through = reduce(Column.__add__, map(F.col, view.counted_through))
        return layer(frame, through, "correction", ~F.col(RETRACTED))

    current = layer(first, F.lit(-1), "first", F.lit(True))
    newer = [] if updates is None else [layer(updates, F.col("_batch"), "update", ~F.col(RETRACTED))]
    of_hulls = _is_of_hulls(view, parted)
    if corrections is not None and not view.sessions_may_part:
        newer.append(corrected(corrections if of_hulls is None else corrections.where(~of_hulls)))
    if newer:
        newest = _newest(newer, view)
        current = _not_corrected(current, newest, view).unionByName(newest)
    if corrections is not None and of_hulls is not None:
        hulls = corrected(corrections.where(of_hulls))
        current = _outside(current, hulls, view).unionByName(hulls)
    return current.where("_shown").select(*columns)


def _is_of_hulls(view: OverWindows, parted: Mapping[str, int]) -> Column | None:
    """True for the corrections that are of hulls; None where none is."""
    if view.sessions_may_part:
        return F.lit(True)
    batches = [
        F.col(through) >= parted[stream.name]
        for through, stream in view.counted_through.items()
        if stream.name in parted
    ]
    return reduce(Column.__or__, batches) if batches else None


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
    return first.join(corrected, [*same_key, kind_of(view).same_window(first, corrected)], "left_anti")


def _outside(results: DataFrame, hulls: DataFrame, view: OverWindows) -> DataFrame:
    """The results that begin on another day than a row of the corrections `hulls`, or outside of its bounds."""
    same_key = [results[key].eqNullSafe(hulls[key]) for key in view.by]
    within = results["window_start"].between(hulls["window_start"], hulls["window_end"])
    outside = results.join(hulls, [*same_key, results[DAY] == hulls[DAY], within], "left_anti")
    if view.sessions_may_part:
        return outside
    # The day after may have been corrected while sessions only grew, when that of the session's begin stood for both.
    return _not_corrected(outside, hulls.where("_shown"), view)


def pinned_windows(lake: Lake, operator: Of) -> PinnedTables[Of]:
    """The tables of results of the operator at their versions now."""
    # What has corrected first results counts also where the declaration makes none any more.
    others = {CORRECTIONS, UPDATES}.intersection(operator.reserved_suffixes)
    return PinnedTables(operator, versions_now(lake, operator, *others))
