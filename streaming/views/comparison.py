"""The comparison of what is stored of a view with what it must be."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from streaming.declare import Windowed
from streaming.operators import Finding

_TOLERANCE = 1e-9


def compare(
    law: str,
    view: Windowed,
    stored: DataFrame,
    truth: DataFrame,
    columns: tuple[str, ...],
    compared: str,
    *per: str,
) -> Finding:
    """Compare `stored` with the `truth` in `columns`, result by result; those that differ break the `law`.

    A result is identified by the view's keys and window, and by the columns `per`. Doubles may differ in the last
    digits, because the order in which they are added is not fixed.
    """
    if view.function is not None:
        # A window may have many results: what is there once too often or too rarely is told by bag difference.
        left, right = stored.select(*columns), truth.select(*columns)
        differing = left.exceptAll(right).count() + right.exceptAll(left).count()
        return Finding(law, view.name, right.count(), differing, compared)
    left = stored.select(*columns, F.lit(1).alias("_there")).alias("stored")
    right = truth.select(*columns, F.lit(1).alias("_there")).alias("truth")
    joined = left.join(
        right,
        [F.col(f"stored.{name}").eqNullSafe(F.col(f"truth.{name}")) for name in (*view.identity, *per)],
        "full_outer",
    )
    types = {field.name: field.dataType for field in truth.schema.fields}
    same = reduce(
        Column.__and__,
        [_equal(name, isinstance(types.get(name), DoubleType | FloatType)) for name in (*columns, "_there")],
    )
    counts = joined.agg(F.count(F.lit(1)).alias("checked"), F.count_if(~same).alias("broken")).first()
    assert counts is not None
    return Finding(law, view.name, counts["checked"], counts["broken"], compared)


def _equal(name: str, floating: bool) -> Column:
    stored, truth = F.col(f"stored.{name}"), F.col(f"truth.{name}")
    if not floating:
        return stored.eqNullSafe(truth)
    near = F.abs(stored - truth) <= F.lit(_TOLERANCE) * F.greatest(F.lit(1.0), F.abs(truth))
    return stored.eqNullSafe(truth) | F.coalesce(near, F.lit(False))
