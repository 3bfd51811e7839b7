"""The comparison of what is stored of a view with what it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from streaming.base import WINDOW
from streaming.declare import Windowed
from streaming.operators import Finding, comparable, differing_rows
from streaming.views.kinds import kind_of
from streaming.views.results import group

_UNKNOWN_ROUNDING = 1e-9
"""Of its value: what is allowed of an aggregate that does not tell how its doubles are rounded."""


def compare(
    law: str,
    view: Windowed,
    stored: DataFrame,
    truth: DataFrame,
    columns: tuple[str, ...],
    compared: str,
    pairs: DataFrame,
    *per: str,
) -> Finding:
    """Compare `stored` with the `truth` in `columns`, result by result; those that differ break the `law`.

    A result is identified by the view's keys and window, and by the columns `per`. As the order in which doubles are
    added is not fixed, those of aggregates may differ by what this may make of their summands, which are among `pairs`.
    """
    if view.function is not None:
        # A window may have many results: what is there once too often or too rarely is told by bag difference.
        expected = truth.select(*columns)
        return Finding(law, view.name, expected.count(), differing_rows(stored.select(*columns), expected), compared)
    left, right = (
        frame.select(*(comparable(frame, name) for name in columns), F.lit(1).alias("_there")).alias(side)
        for side, frame in (("stored", stored), ("truth", truth))
    )
    joined = left.join(
        right,
        [F.col(f"stored.{name}").eqNullSafe(F.col(f"truth.{name}")) for name in (*view.identity, *per)],
        "full_outer",
    )
    equal = {name: F.col(f"stored.{name}").eqNullSafe(F.col(f"truth.{name}")) for name in (*columns, "_there")}
    same = reduce(Column.__and__, equal.values())
    counts = joined.agg(F.count(F.lit(1)).alias("checked"), F.count_if(~same).alias("broken")).first()
    assert counts is not None
    broken = counts["broken"]
    types = {field.name: field.dataType for field in truth.schema.fields}
    doubles = [name for name in view.aggregates if isinstance(types[name], DoubleType | FloatType)]
    if broken and doubles:
        # Of the few results that are not the same to the last digit their rows are looked at once more.
        broken = _beyond_rounding(joined.where(~same), view, pairs, doubles, equal)
    return Finding(law, view.name, counts["checked"], broken, compared)


def _beyond_rounding(
    differing: DataFrame, view: Windowed, pairs: DataFrame, doubles: Sequence[str], equal: Mapping[str, Column]
) -> int:
    """How many of the `differing` results differ by more than the order in which their doubles were added."""
    told = {name: view.aggregates[name].rounding for name in doubles}
    extra = {f"_rounding_{name}": F.expr(sql) for name, sql in told.items() if sql is not None}
    groups = group(pairs, replace(view, distinct=()), extra=extra)
    keys = [F.col(key).alias(f"_key_{key}") for key in view.by]
    summed = groups.select(
        *keys, F.col(f"{WINDOW}.start").alias("_start"), F.col(f"{WINDOW}.end").alias("_end"), *extra
    )
    of_result = [F.col(f"truth.{key}").eqNullSafe(F.col(f"_key_{key}")) for key in view.by]
    start, end = F.col("truth.window_start"), F.col("truth.window_end")
    if kind_of(view).merges:
        # A session of some of the rows lies within one of all of them.
        of_result += [F.col("_start") <= start, end <= F.col("_end")]
    else:
        of_result += [F.col("_start") == start, F.col("_end") == end]
    near = []
    for name, sql in told.items():
        stored, truth = F.col(f"stored.{name}"), F.col(f"truth.{name}")
        relative = F.lit(_UNKNOWN_ROUNDING) * F.abs(truth)
        allowed = relative if sql is None else F.col(f"_rounding_{name}")
        # Of infinite summands everything would be near.
        finite = allowed < F.lit(float("inf"))
        near.append(equal[name] | F.coalesce(finite & (F.abs(stored - truth) <= allowed), F.lit(False)))
    others = [column for name, column in equal.items() if name not in told]
    rounded = reduce(Column.__and__, [*others, *near])
    return differing.join(summed, of_result, "left").where(~rounded).count()
