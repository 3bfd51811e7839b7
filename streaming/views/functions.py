"""Full-window functions, applied to the rows of each window in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streaming.declare import WindowFunction


def apply_function(function: WindowFunction, members: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The results per group of `members` that agree in `keys`: `keys`, then the function's columns."""
    apply, names = function.apply, list(function.columns)
    inputs = [name for name in members.columns if name not in ("_order", "_copy", *keys)]
    # Keys travel beside the function, because pandas has no type for a window, which is a struct.
    key_fields = [members.schema[name] for name in keys]
    results = cast(StructType, StructType.fromDDL(function.returns))
    given = [name for name in inputs if name != "_position"] + [name for name in keys if not name.startswith("_")]

    def compute(rows: pd.DataFrame) -> pd.DataFrame:
        ordered = rows.sort_values("_position")[given].reset_index(drop=True)
        computed = apply(ordered)[names].reset_index(drop=True)
        first = rows.iloc[0]
        for place, name in enumerate(keys):
            # Of type object: pandas takes an empty list for numbers, which Spark refuses in place of a window.
            computed.insert(place, name, pd.Series([first[name]] * len(computed), dtype=object))
        return computed

    return (
        members.drop("_order", "_copy")
        .groupBy(*keys)
        .applyInPandas(compute, StructType([*key_fields, *results.fields]))
    )
